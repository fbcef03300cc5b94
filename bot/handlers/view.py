"""Commands that show the box, the queue, a job or the workspaces."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bot.access.gate import STRANGER
from bot.chat import Picture
from bot.commands import Role
from bot.pictures import plots
from bot.text import help_text, keyboards, views
from bot.text.html import CAPTION_UNITS, Shrink, bold, code, escape, fit, pre
from bot.text.job_words import heading, sign, waiting_line
from runner.api.chat import clock, progress_words
from runner.errors import UserError
from runner.model import State

if TYPE_CHECKING:
    from bot.inbound.turn import Turn
    from runner.api.chat import Workspace
    from runner.model import Job

RUNNING_OFFERED, JOBS_OFFERED = 4, 6  # buttons of jobs under the status
SHOWN_FOR = timedelta(hours=24)
WORKSPACES_HINT = (
    "To run a job in one: `/submit -w NAME …`. ★ is the default; `/ws default NAME` changes it. To add one on the box:"
    " `nightshift ws add`"
)


async def start(turn: Turn, _: str) -> None:
    """Greet the caller and name the first commands."""
    chat, caller = turn.chat, turn.caller
    first = "/submit queues a job, /status shows the box" if caller.role >= Role.USER else "/status shows the box"
    with turn.effect():
        turn.reply(
            f"🌙 This is nightshift on {bold(chat.settings.box)}. You are {caller.role.title} here.\n"
            f"{first}, /help lists all commands.",
            keyboards.of_status(),
        )
        if caller.private:
            chat.set_menu(caller.id)  # Telegram takes no menu for people who never wrote to the bot


async def help_(turn: Turn, rest: str) -> None:
    """List the commands that the caller may use, or say more about one of them."""
    if rest.strip():
        turn.reply(help_text.about(turn.caller.role, rest.strip()))
    else:
        turn.reply(*help_text.overview(turn.caller.role))


async def whoami(turn: Turn, _: str) -> None:
    """Show the caller's id, role and number of unfinished jobs."""
    caller, chat = turn.caller, turn.chat
    person = chat.people.get(caller.id)
    how = "by the box's settings"
    if not chat.gate.is_from_settings(caller.id):
        how = f"paired by {chat.named(person.paired_by or '?')}"
    mine = len(chat.queue.listing.unfinished(owner=caller.actor))
    where = "" if caller.private else f"\nThis group is {code(str(caller.chat))}."
    turn.reply(
        f"You are {bold(caller.name)}, id {code(str(caller.id))}: {caller.role.word} of {bold(chat.settings.box)}, "
        f"{escape(how)}. {mine} of your jobs wait or run.{where}"
    )


async def status(turn: Turn, rest: str) -> None:
    """Show the box, or the jobs named."""
    if rest.strip() or turn.reply_to:
        numbers = turn.numbers(rest, "`/status 12`")
        if len(numbers) > 10:
            raise UserError("That is more than 10 jobs. Name at most 10 at once.")
        with turn.effect():
            for number in numbers:
                show_job(turn, number)
        return
    turn.reply(*status_page(turn))


def status_page(turn: Turn) -> tuple[str, Any]:
    """Return the status of the box and its buttons. Admins also see undelivered messages and strangers."""
    view = views.BoxView(turn.chat)
    if turn.is_admin:
        view.undeliverable = turn.chat.outbox.undeliverable(clock.text(clock.now() - SHOWN_FOR))
        view.strangers = turn.chat.gate.turned_away[STRANGER]
    listing = turn.chat.listing
    running, ended = listing.live()[:RUNNING_OFFERED], listing.finished(limit=JOBS_OFFERED)[::-1]
    jobs = [*running, *ended][:JOBS_OFFERED]
    return views.status(view), keyboards.of_status(jobs, paused=bool(view.held))


def show_job(turn: Turn, job_id: int) -> None:
    """Describe one job in full."""
    job = turn.job(job_id)
    turn.reply(job_html(turn, job), keyboards.of_details(job), job_id=job.id)


def job_html(turn: Turn, job: Job) -> str:
    """Return the full description of one job."""
    chat = turn.chat
    reason = chat.queue.reasons.of([job]).get(job.id)
    starts = chat.queue.view.outlook().start_words(job.id) if job.state is State.QUEUED else ""
    known = chat.queue.view.progress(job)
    progress = progress_words(known, clock.now(), ended=job.state.final, metrics=chat.settings.log_text)
    return views.job_page(
        job, indices=views.indices_of(chat.queue.view.gpus()), usage=chat.queue.view.usage(job.id),
        reason=chat.named(reason) if reason else None, name_of=chat.name_of, probe=chat.probe_of(job), starts=starts,
        progress=progress,
    )  # fmt: skip


async def gpus(turn: Turn, _: str) -> None:
    """Show each GPU."""
    turn.reply(views.gpus(views.BoxView(turn.chat)), keyboards.of_gpus())


async def queue(turn: Turn, _: str) -> None:
    """Show the queue, with buttons."""
    turn.reply(*queue_page(turn, 0))


def queue_page(turn: Turn, first: int) -> tuple[str, Any]:
    """Return one page of the queue and its buttons."""
    chat = turn.chat
    counts = chat.queue.view.overview()
    total = counts.queued + counts.not_yet
    first = max(0, min(first, (total - 1) // keyboards.QUEUE_PAGE * keyboards.QUEUE_PAGE))
    jobs = [chat.shown(job) for job in chat.listing.queued(keyboards.QUEUE_PAGE, skip=first)]
    reasons = {number: chat.named(why) for number, why in chat.queue.reasons.of(jobs).items()}
    paused = chat.queue.reasons.why_paused()
    held = chat.named(paused or ("" if chat.queue.runner_is_up() else "no runner is up: nothing starts"))
    rows = keyboards.of_queue(jobs, first, total, paused=paused is not None)
    starting = [] if first else [chat.shown(job) for job in chat.listing.live() if job.state is State.STARTING]
    said = chat.queue.reasons.of(starting)
    placed = [waiting_line(job, said[job.id]) for job in starting if job.id in said]
    return views.queue(jobs, reasons, total, first, held, chat.queue.view.outlook(), placed), rows


async def batch_fit(turn: Turn, rest: str) -> None:
    """Show how a job's batch was found: what was measured, the line through it, the limit, the choice."""
    show_fit(turn, turn.job(turn.numbers(rest, "`/fit 12`")[0]))


def show_fit(turn: Turn, job: Job) -> None:
    """Show how a job's batch was found as a picture, or as bars of text if none can be drawn."""
    report = turn.chat.queue.view.probe(job.id)
    if report is None and job.spec.probe is None:
        raise UserError(f"#{job.id} was submitted without --probe, so nothing was measured.")
    if report is None:
        raise UserError(f"#{job.id} has not started yet. Its batch is found when it starts.")
    head = f"{sign(job)} {heading(job)}\n{escape(report['said'])}"
    plot = plots.of_fit(report)
    not_drawn = [line for line in report["detail"] if line.startswith(("line:", "chosen:", "not used:"))]
    caption = fit(["\n".join([head, *map(escape, not_drawn)])], CAPTION_UNITS)
    bars = [pre("\n".join(report["bars"]))] if report["bars"] else []
    html = fit(["\n".join([head, *bars, *map(escape, report["detail"])])])
    turn.reply(html, keyboards.of_job(job), job_id=job.id, picture=Picture(plot, caption) if plot else None)


async def workspaces(turn: Turn, rest: str) -> None:
    """List the workspaces or show one. Admins may choose the default."""
    words, all_workspaces = rest.split(), turn.chat.queue.workspaces
    if words[:1] == ["default"] and len(words) == 2:
        turn.require(Role.ADMIN)
        with turn.effect():
            all_workspaces.put(replace(all_workspaces.get(words[1]), default=True))
            turn.queue.audit.add(turn.caller.actor, "ws default", {"workspace": words[1]})
            turn.reply(f"Jobs that name no workspace now run in {bold(words[1])}.")
    elif words:
        turn.reply(_workspace(all_workspaces.get(words[0])))
    else:
        lines = [f"{'★' if ws.default else '•'} {bold(ws.name)} {code(ws.dir)}" for ws in all_workspaces.all()]
        lines = lines or ["There are no workspaces yet, so jobs run in the account's home folder."]
        turn.reply(fit(["\n".join([*lines, "", escape(WORKSPACES_HINT)])]))


def _workspace(workspace: Workspace) -> str:
    """Describe one workspace. Of its variables only the names are shown."""
    title = f"{bold(workspace.name)}{' (default)' if workspace.default else ''}\n{code(workspace.dir)}\nactivate: "
    names = ", ".join(sorted(workspace.variables)) or "none"
    rest = f"\nvariables: {escape(names)}\nenv file: {code(workspace.env_file or '–')}"
    return fit([title, Shrink(workspace.activate or "–", code, keep="both"), rest])
