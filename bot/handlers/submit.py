"""Queueing jobs: one command, many lines, an attached file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from telegram.error import BadRequest, InvalidToken

from bot.chat import SOON_OVER_S, CardOf
from bot.commands import Role
from bot.handlers.usual_commands import ask_command
from bot.inbound import parse
from bot.store.cards import UNFINISHED
from bot.text import group_words, keyboards, views
from bot.text.buttons import ButtonKind, Press
from bot.text.html import Shrink, bold, fit, pre
from runner.api import groups, job_spec, presets
from runner.api.chat import PRESET, STARTS_NEXT, Workspace, environment_of, read_text, stamp, validate
from runner.errors import TransientError, UserError
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bot.chat import Chat
    from bot.inbound.turn import Turn
    from runner.model import Job, JobSpec

LARGEST_FILE = 1 << 20
TOO_LARGE = "That file is larger than 1 MiB. Put it on the box and send `/submit bash FILE`"
MOST_JOBS = 1000
UMASK = 0o022
NO_COMMAND = "What should it run? Send it like this:\n`/submit python train.py --lr 3e-4`"


@dataclass(frozen=True, slots=True)
class Place:
    """The workspace and environment that a job from the chat runs in."""

    workspace: Workspace
    key: str
    variables: dict[str, str]


async def submit(turn: Turn, rest: str) -> None:
    """Queue the message's command. If it has several lines, ask how they are meant."""
    values, text = _general(rest)
    if not text.strip() and "preset" not in values:
        ask_command(turn, rest.strip())
        return
    if "preset" in values:
        await queue_preset(turn, values.pop("preset"), text, values)
        return
    lines = parse.lines(text)
    if len(lines) > 1:
        await _ask(turn, values, text, lines)
        return
    own, command = ({}, text) if "\n" not in rest.strip() else read_text(text)
    if not command.strip():
        raise UserError(NO_COMMAND)
    await _queue(turn, [({**values, **own}, command.strip())])


def _general(rest: str) -> tuple[dict[str, Any], str]:
    """Return the options in the first line, which apply to every line, and the text to run."""
    head, _, body = rest.partition("\n")
    values, command = read_text(head, (PRESET,))
    return values, f"{command}\n{body}".strip("\n")


async def batch(turn: Turn, rest: str) -> None:
    """Queue one job per line, without asking."""
    values, text = _general(rest)
    if "preset" in values:
        raise UserError("A preset is one job: send `/submit --preset NAME`, or `/preset NAME`.")
    if not parse.lines(text):
        raise UserError("One command per line, please:\n`/batch\npython train.py --lr 1e-3\npython train.py --lr 3e-4`")
    await queue_lines(turn, values, text)


async def attached(turn: Turn, caption: str) -> None:
    """Take an attached file: queue a job per line if its caption is /batch, otherwise ask what to do with it."""
    command = parse.command_of(caption, turn.chat.username)
    if command is None and not turn.caller.private:
        return  # members of a group also send files to each other
    turn.require(Role.USER)
    name, rest = command or ("submit", caption)
    values, words = read_text(rest)
    if words.strip() or name not in {"submit", "batch"}:
        raise UserError("The caption of a file takes only options, like `/submit -g 2 --name night`")
    text, file_name = await _downloaded(turn)
    if name == "batch":
        await queue_lines(turn, values, text)
    else:
        await _ask(turn, values, text, parse.lines(text), file_name)


async def _downloaded(turn: Turn) -> tuple[str, str]:
    """Return an attached file's text and name. Raise UserError if it is too large, gone or not text."""
    document = turn.document
    assert document is not None
    if (document.file_size or 0) > LARGEST_FILE:
        raise UserError(TOO_LARGE)
    try:
        content = bytes(await (await document.get_file()).download_as_bytearray())
    except (BadRequest, InvalidToken) as error:  # for a missing file Telegram answers as for a wrong token
        raise UserError("Telegram no longer has that file. Send it again.") from error
    if len(content) > LARGEST_FILE:
        raise UserError(TOO_LARGE)
    text, name = _readable(content), document.file_name or "file"
    if name.endswith(".py") and not text.startswith("#!"):
        text = f"#!/usr/bin/env python3\n{text}"
    return text, name


def _readable(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UserError("That file is not text. Send a script, or a list of commands, one per line.")
    if not text.strip():
        raise UserError("That file is empty.")
    return text.replace("\r\n", "\n")


async def _ask(turn: Turn, values: dict[str, Any], text: str, lines: list[str], name: str = "") -> None:
    """Ask whether the lines are several jobs or one script."""
    if text.startswith("#!") or len(lines) < 2:
        lines = []
    data = {"values": values, "text": text}
    called = data if not name else {**data, "values": {"name": _job_name(name), **values}}
    most = min(MOST_JOBS, turn.chat.settings.queued_per_person)
    jobs = Press(ButtonKind.LINES, data=data, text=f"{len(lines)} jobs")
    script = Press(ButtonKind.SCRIPT, data=called)
    whole = parse.belong_together(text)
    choices = [script, jobs] if whole else [jobs, script]
    if not 1 < len(lines) <= most:
        choices = [script]
    title = f"{bold(name)}: " if name else ""
    shown = text.splitlines() if whole or not lines else lines
    preview = "\n".join(shown[:8]) + (f"\n… {len(shown) - 8} more lines" if len(shown) > 8 else "")
    either = f"one script, or {len(lines)} jobs?" if whole else f"{len(lines)} jobs, or one script?"
    asks = either if lines else "run it as one script?"
    if len(lines) > most:
        asks = f"{len(lines):,} lines are too many for jobs: {most} may wait at once. Run the file as one script?"
    rows = [[*choices, Press(ButtonKind.DISMISS, text="Neither")]]
    turn.reply(fit([f"{title}{asks}\n", Shrink(preview, pre, keep="start")]), rows)


def _job_name(file_name: str) -> str | None:
    """Return a job name made from a file's name; None if no character of it can be used."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", file_name).strip("-")[:64] or None


async def queue_lines(turn: Turn, values: dict[str, Any], text: str) -> None:
    """Queue one job per line. A line's own options override the general ones."""
    lines = parse.lines(text)
    if len(lines) > MOST_JOBS:
        raise UserError(f"{len(lines):,} jobs are too many. Send at most {MOST_JOBS} at once.")
    jobs = []
    for number, line in enumerate(lines, start=1):
        try:
            own, command = read_text(line)
        except UserError as error:
            raise UserError(f"Line {number}: {error}") from None
        if not command:
            raise UserError(f"Line {number} has options, but no command.")
        jobs.append(({**values, **own}, command))
    together = len(jobs) > 1 and not any(values.get("group") for values, _ in jobs)
    await _queue(turn, jobs, sweep=groups.Template(prefix="batch") if together else None)


async def queue_script(turn: Turn, values: dict[str, Any], text: str) -> None:
    """Queue all lines as one script."""
    await _queue(turn, [(values, text)], script=True)


async def queue_sweep(turn: Turn, jobs: Sequence[tuple[dict[str, Any], str]], sweep: groups.Template) -> None:
    """Queue the jobs of a sweep as one group."""
    if len(jobs) > MOST_JOBS:
        raise UserError(
            f"{len(jobs):,} jobs are too many. Queue at most {MOST_JOBS} at once, or take a sample: `/sweep -n 100 …`"
        )
    await _queue(turn, jobs, sweep=sweep)


def refuse_burst(turn: Turn) -> None:
    """Raise UserError if the caller submits too often. Comes before anything slow."""
    turn.chat.rate.refuse_burst(turn.caller.id, turn.sent_at, turn.update_id)


@contextlib.contextmanager
def submission(turn: Turn, count: int) -> Iterator[None]:
    """Queue jobs and say so inside this, in one transaction. Raise UserError if `count` more jobs are too many."""
    most = turn.chat.settings.queued_per_person
    with turn.effect():
        queued = turn.chat.queue.listing.unfinished(owner=turn.caller.actor, states=[State.QUEUED])
        if len(queued) + count > most:
            raise UserError(
                f"At most {most} of your jobs may wait at once (NIGHTSHIFT_QUEUED_PER_PERSON), so nothing was queued."
                " /queue shows what waits."
            )
        yield
        turn.chat.rate.count(turn.caller.id, turn.sent_at, turn.update_id)


async def _queue(
    turn: Turn, jobs: Sequence[tuple[dict[str, Any], str]], *, script: bool = False,
    sweep: groups.Template | None = None,
) -> None:  # fmt: skip
    """Queue all of these jobs or none, and say so."""
    refuse_burst(turn)
    places = {
        name: await place_of(turn.chat, name) for name in dict.fromkeys(values.get("workspace") for values, _ in jobs)
    }
    specs = [_spec(turn, values, command, places[values.get("workspace")], script=script) for values, command in jobs]
    variables = {place.key: place.variables for place in places.values()}
    await _queue_specs(turn, specs, variables, sweep)


async def queue_preset(turn: Turn, name: str, changes: str, values: Mapping[str, Any] | None = None) -> None:
    """Queue a job that was saved as a preset, with these arguments and options changed."""
    refuse_burst(turn)
    try:
        words = shlex.split(changes)
    except ValueError:
        raise UserError("A quote is not closed. Send it like `/preset nano lr=3e-4`") from None
    preset, values = presets.find(turn.queue, name), values or {}
    workspace = presets.workspace_of(turn.queue, preset, values)
    place = await place_of(turn.chat, workspace) if workspace else None
    where = (place.workspace, place.key, place.variables) if place else None
    spec = presets.spec_of(preset, turn.caller.actor, words, values, where)
    await _queue_specs(turn, [spec], {place.key: place.variables} if place else {})


async def _queue_specs(
    turn: Turn, specs: Sequence[JobSpec], variables: Mapping[str, Mapping[str, str]],
    sweep: groups.Template | None = None,
) -> None:  # fmt: skip
    """Queue all of these or none, with these captured environments, and say so."""
    await asyncio.to_thread(reach, [spec.dir for spec in specs])
    if any(spec.snapshot is not None for spec in specs):
        specs = await asyncio.to_thread(turn.queue.with_snapshots, specs)
    with submission(turn, len(specs)):
        keys = [f"update {turn.update_id}.{number}" for number in range(len(specs))]
        ids = turn.queue.submit(specs, variables, keys, sweep)
        turn.start_threads(ids)
        of_group = sweep is not None or (len(ids) > 1 and len({spec.group for spec in specs}) == 1)
        _acknowledge(turn, ids, of_group=of_group)


def why_it_waits(turn: Turn, job: Job) -> str | None:
    """Return why a new job does not start next. None if it does, because the message stays and would soon be wrong."""
    reason = turn.chat.queue.reasons.of([job]).get(job.id)
    return turn.chat.named(reason) if reason and not reason.startswith(STARTS_NEXT) else None


def _acknowledge(turn: Turn, ids: list[int], *, of_group: bool) -> None:
    job = turn.job(ids[0])
    reason = why_it_waits(turn, job)
    if of_group:
        acknowledge_group(turn, str(job.spec.group), ids, reason)
    elif len(ids) == 1:
        acknowledge_job(turn, job, reason)
    else:
        turn.answer("queued")
        turn.reply(views.submitted_many(ids, reason), keyboards.of_queue_link(), job_id=ids[0])


def acknowledge_job(turn: Turn, job: Job, reason: str | None, *, again: int | None = None) -> None:
    """Answer with the job's card. It comes later if the job starts now: it may be over before."""
    html, rows = views.submitted(job, reason, job.spec.command, again=again), keyboards.of_job(job)
    if turn.query_id is not None and again is None:
        turn.answer("queued")
        turn.become_card(html, rows, CardOf(job_id=job.id))
    else:
        turn.card(html, rows, CardOf(job_id=job.id, after_s=SOON_OVER_S if reason is None else None))


def acknowledge_group(turn: Turn, name: str, ids: list[int], reason: str | None, *, again: bool = False) -> None:
    """Answer with the card of a group."""
    standing = groups.standing(turn.chat.queue, name)
    html = group_words.queued(name, ids, standing.group.at_most, reason, again=again)
    show = turn.card if turn.query_id is None or again else turn.become_card
    turn.answer("queued again" if again else "queued")
    show(html, keyboards.of_group(standing), CardOf(group=name, state=UNFINISHED))


def _spec(turn: Turn, values: dict[str, Any], command: str, place: Place, *, script: bool) -> JobSpec:
    return job_spec(
        values, command=command, script=script, owner=turn.caller.actor, folder=place.workspace.dir,
        environment_key=place.key, umask=UMASK, workspace=place.workspace,
    )  # fmt: skip


def reach(folders: Iterable[str]) -> None:
    """Return once these folders answer. Run it in a thread: a hanging network folder must not block the bot's loop."""
    for folder in set(folders):
        os.path.isdir(folder)


async def place_of(chat: Chat, name: str | None) -> Place:
    """Return the named or the default workspace and its environment. A login takes time, so it runs in a thread."""
    workspaces = chat.queue.workspaces
    workspace = workspaces.get(name) if name else workspaces.default() or _first_workspace(chat)
    now = await asyncio.to_thread(stamp, workspace)
    environment = workspaces.known_environment(workspace, now)
    if environment is None:
        try:
            variables = await asyncio.to_thread(environment_of, workspace)
        except TransientError as error:
            raise UserError(str(error)) from error
        environment = workspaces.keep_environment(workspace, now, variables)
    return Place(workspace, *environment)


def _first_workspace(chat: Chat) -> Workspace:
    """Create the first workspace: jobs run in the account's home folder, as if typed after logging in."""
    workspace = validate(Workspace(name="home", dir="~", default=True))
    chat.queue.workspaces.put(workspace)
    return workspace
