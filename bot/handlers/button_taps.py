"""Handles pressed buttons. A button carries only a key: what it does, and for whom, is in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.access.gate import actor_of
from bot.access.rights import NEEDED_ROLE
from bot.chat import QUESTION
from bot.commands import Role
from bot.handlers import batch_fit, control, edit, kill, notify, people, rerun, submit, view
from bot.handlers import groups as grouped
from bot.text import job_notices, keyboards, views
from bot.text.buttons import BY_ACTION, ButtonKind, Right
from runner.api import groups
from runner.api.chat import clock, short_time, state_words
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.inbound.turn import Turn
    from bot.store.buttons import Button
    from runner.api.queue_order import QueueOrder
    from runner.model import Job

    Handler = Callable[[Turn, Button], Awaitable[None]]

GONE = "This button no longer works. Send the command again."
JUST_NOW = "That was done a moment ago. To do it once more, tap again in a few seconds."
NOT_YOURS = "This button is for somebody else. Send the command yourself."
TWO_TAPS_S = 5.0
MANY_OWNERS = 4
MOVES: dict[ButtonKind, Callable[[QueueOrder, int], str]] = {
    ButtonKind.FRONT: lambda order, job_id: order.move(job_id, "first"),
    ButtonKind.UP: lambda order, job_id: order.move(job_id, "sooner"),
    ButtonKind.DOWN: lambda order, job_id: order.move(job_id, "later"),
    ButtonKind.HOLD: lambda order, job_id: order.hold(job_id),
    ButtonKind.RELEASE: lambda order, job_id: order.release(job_id),
}
HANDLERS: dict[ButtonKind, Handler] = {
    ButtonKind.GROUP: lambda turn, button: grouped.show(turn, button.data["group"]),
    ButtonKind.RERUN_FAILED: lambda turn, button: grouped.rerun_failed(turn, button.data["group"]),
    ButtonKind.RERUN: lambda turn, button: rerun.rerun_job(turn, _job_id(button)),
    ButtonKind.LINES: lambda turn, button: submit.lines_chosen(turn, button.data),
    ButtonKind.SCRIPT: lambda turn, button: submit.script_chosen(turn, button.data),
}


def on(*kinds: ButtonKind) -> Callable[[Handler], Handler]:
    """Make a function the handler of these buttons."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return register


async def tapped(turn: Turn, nonce: str) -> None:
    """Do what the button stands for, if it belongs to the caller and is still valid."""
    button = turn.chat.buttons.find(nonce)
    if button is None or button.person != turn.caller.id:
        turn.chat.gate.turned_away["somebody else's button"] += 1
        turn.answer(NOT_YOURS if button else GONE)
        return
    asked = button.data.get(QUESTION)
    question = turn.chat.buttons.find(asked) if asked else None
    answered = question is not None and question.used
    kind = BY_ACTION.get(button.action)
    if button.expired or button.used or answered or kind is None:
        turn.answer(GONE)
    elif kind.value.not_twice and _was_just_pressed(button):
        turn.answer(JUST_NOW)
    elif kind.value.while_unfinished and (job := _ended_job(turn, button)) is not None:
        _tell_ended(turn, button, job)
    else:
        turn.uses += [nonce, asked] if asked else [nonce]
        _require(turn, kind.value.right, button)
        await HANDLERS[kind](turn, button)


def _require(turn: Turn, right: Right, button: Button) -> None:
    """Raise UserError if the caller may not press it now. The other rights depend on more and are checked later."""
    if right in NEEDED_ROLE:
        turn.require(NEEDED_ROLE[right])
    elif right is Right.OWNER:
        turn.require_owner(turn.job(_job_id(button)))


def _was_just_pressed(button: Button) -> bool:
    return button.pressed_at is not None and abs((clock.now() - button.pressed_at).total_seconds()) < TWO_TAPS_S


def _ended_job(turn: Turn, button: Button) -> Job | None:
    """Return the button's job if it has ended, else None."""
    job = turn.chat.queue.jobs.get(_job_id(button))
    return job if job is not None and job.state.final else None


def _tell_ended(turn: Turn, button: Button, job: Job) -> None:
    """Say how the job ended, and replace the buttons."""
    when = f" ({short_time(job.finished_at, clock.now())})" if job.finished_at else ""
    with turn.effect():
        turn.answer(f"#{job.id} has ended: {state_words(job)}{when}.", alert=True)
        if "first" in button.data:
            _show_queue(turn, button.data)
        else:
            turn.edit(None, keyboards.of_job(job), job_id=job.id)


def _job_id(button: Button) -> int:
    assert button.job_id is not None
    return button.job_id


def _signed(turn: Turn, outcome: str) -> str:
    """Return what was done and by whom, because others may read it too."""
    return f"{outcome} – {turn.caller.name}"


# -- showing ---------------------------------------------------------------------------------------


@on(ButtonKind.STATUS)
async def _status(turn: Turn, button: Button) -> None:  # noqa: ARG001
    with turn.effect():
        turn.answer()
        turn.edit(*view.status_page(turn))


@on(ButtonKind.GPUS)
async def _gpus(turn: Turn, button: Button) -> None:  # noqa: ARG001
    html = views.gpus(views.BoxView(turn.chat))
    with turn.effect():
        turn.answer()
        turn.edit(html, keyboards.of_gpus())


@on(ButtonKind.QUEUE)
async def _queue(turn: Turn, button: Button) -> None:
    with turn.effect():
        turn.answer()
        _show_queue(turn, button.data)


def _show_queue(turn: Turn, data: dict[str, Any]) -> None:
    turn.edit(*view.queue_page(turn, int(data.get("first", 0))))


@on(ButtonKind.DETAILS)
async def _details(turn: Turn, button: Button) -> None:
    job = turn.job(_job_id(button))
    html = view.job_view(turn.chat, job)
    with turn.effect():
        turn.answer()
        turn.reply(html, keyboards.of_job(job, details=False), job_id=job.id)


@on(ButtonKind.LOG, ButtonKind.LOG_AGAIN)
async def _log(turn: Turn, button: Button) -> None:
    """Send the end of the output; Refresh changes the message instead."""
    job = turn.job(_job_id(button))
    html = await view.log_view(turn.chat, job)
    with turn.effect():
        turn.answer()
        if BY_ACTION[button.action] is ButtonKind.LOG_AGAIN:
            turn.edit(html, keyboards.of_log(job), job_id=job.id)
        else:
            turn.queue.audit.add(turn.caller.actor, "log", {"job": job.id})
            turn.reply(html, keyboards.of_log(job), job_id=job.id)


@on(ButtonKind.WHOLE_LOG)
async def _whole_log(turn: Turn, button: Button) -> None:
    job = turn.job(_job_id(button))
    if not turn.chat.settings.log_text:
        raise UserError("Output is not sent to the chat here (NIGHTSHIFT_LOG_TEXT).")
    with turn.effect():
        turn.answer("sending the whole log")
        turn.send_log(job.id)


@on(ButtonKind.FIT)
async def _fit(turn: Turn, button: Button) -> None:
    with turn.effect():
        turn.answer()
        batch_fit.show(turn, turn.job(_job_id(button)))


@on(ButtonKind.EDIT)
async def _edit(turn: Turn, button: Button) -> None:
    """Explain the /edit command and show the job's options: a phone has no room for a form."""
    job = turn.job(_job_id(button))
    html = edit.how_to(job)
    with turn.effect():
        turn.answer()
        turn.reply(html, job_id=job.id)


@on(ButtonKind.GROUP_CSV)
async def _group_csv(turn: Turn, button: Button) -> None:
    with turn.effect():
        turn.answer("sending the results")
        turn.send_results(button.data["group"])


# -- jobs ------------------------------------------------------------------------------------------


@on(*MOVES)
async def _move(turn: Turn, button: Button) -> None:
    """Change a job's place in the queue, then show the queue as it is now."""
    move = MOVES[BY_ACTION[button.action]]
    try:
        with turn.effect():
            turn.answer(turn.chat.named(move(turn.queue.order, _job_id(button))))
            _show_queue(turn, button.data)
    except UserError as error:  # the page was out of date
        with turn.effect():
            turn.answer(turn.chat.named(str(error)), alert=True)
            _show_queue(turn, button.data)


@on(ButtonKind.KEEP)
async def _keep(turn: Turn, button: Button) -> None:
    job, for_s = turn.job(_job_id(button)), button.data.get("for_s")
    with turn.effect():
        _settle_warning(turn, job, turn.queue.keep(job.id, for_s), keyboards.of_kept(job, for_s))


@on(ButtonKind.EXTEND)
async def _extend(turn: Turn, button: Button) -> None:
    job, by_s = turn.job(_job_id(button)), button.data["by_s"]
    with turn.effect():
        outcome = turn.queue.extend(job.id, by_s, button.data["limit_s"])
        _settle_warning(turn, job, outcome, keyboards.of_extended(job, by_s))
    turn.queue.pass_on_limit(job.id)


def _settle_warning(turn: Turn, job: Job, outcome: str, rows: keyboards.Rows) -> None:
    turn.answer(outcome)
    turn.shown = job_notices.answered(turn.shown)
    turn.settle(_signed(turn, outcome), rows, job_id=job.id)


@on(ButtonKind.KILL_NOW)
async def _kill_now(turn: Turn, button: Button) -> None:
    """Stop the job without asking: the warning was the question."""
    with turn.effect():
        outcome = kill.stop_jobs(turn, [_job_id(button)])
        turn.answer(outcome)
        turn.settle(_signed(turn, outcome), keyboards.of_job(turn.job(_job_id(button))), job_id=button.job_id)


@on(ButtonKind.KILL)
async def _kill(turn: Turn, button: Button) -> None:
    _ask(turn, keyboards.sure([_job_id(button)], back={"back": "job", **button.data}))


@on(ButtonKind.KILL_GROUP)
async def _kill_group(turn: Turn, button: Button) -> None:
    group = button.data["group"]
    _ask(turn, keyboards.sure(grouped.to_stop(turn, group), back={"back": "group", "group": group}))


def _ask(turn: Turn, rows: keyboards.Rows) -> None:
    """Replace the buttons with a question."""
    with turn.effect():
        turn.answer("Sure?")
        turn.edit(None, rows)


@on(ButtonKind.YES_KILL)
async def _yes_kill(turn: Turn, button: Button) -> None:
    with turn.effect():
        outcome = kill.stop_jobs(turn, button.data["jobs"])
        turn.answer(outcome)
        _restore(turn, button, _signed(turn, outcome))


@on(ButtonKind.NO_KILL)
async def _no_kill(turn: Turn, button: Button) -> None:
    with turn.effect():
        turn.answer("Nothing was stopped.")
        _restore(turn, button, "Nothing was stopped.")


def _restore(turn: Turn, button: Button, outcome: str) -> None:
    """Restore the buttons from before the question. If the message was only the question, add the outcome to it."""
    back = button.data.get("back")
    if back == "queue":
        _show_queue(turn, button.data)
    elif back == "group":
        turn.edit(None, keyboards.of_group(groups.standing(turn.chat.queue, button.data["group"])))
    elif back == "job" and button.job_id is not None:
        turn.edit(None, keyboards.of_job(turn.job(button.job_id)), job_id=button.job_id)
    else:
        turn.settle(outcome)


@on(ButtonKind.DISMISS)
async def _dismiss(turn: Turn, button: Button) -> None:  # noqa: ARG001
    with turn.effect():
        turn.answer("Nothing was done.")
        turn.settle("Nothing was done.")


@on(ButtonKind.RELEASE_ALL)
async def _release_all(turn: Turn, button: Button) -> None:
    """Release those of the held jobs that the caller may release, and name the owners of the others."""
    turn.require(Role.USER)
    held = [job for number in button.data["jobs"] if (job := turn.chat.queue.jobs.get(number)) and job.held_by]
    own = [job for job in held if turn.may_change(job)]
    others = sorted({turn.chat.name_of(job.spec.owner) for job in held if job not in own})
    owners = " and ".join(others) if len(others) < MANY_OWNERS else f"{len(others)} others"
    if held and not own:
        raise UserError(f"These jobs belong to {owners}: only they or an admin may release them.")
    with turn.effect():
        for job in own:
            turn.queue.order.release(job.id)
        outcome = f"Released: {len(own)}." if own else "None of them is held any more."
        if others:
            outcome += f" Still held: {len(held) - len(own)} of {owners}."
        turn.answer(outcome)
        turn.settle(_signed(turn, outcome))


# -- the box ---------------------------------------------------------------------------------------


@on(ButtonKind.RESUME)
async def _resume(turn: Turn, button: Button) -> None:
    """Resume the queue, and show the button's page again as it is then."""
    if not button.data:
        await control.resume(turn)
        return
    with turn.effect():
        control.resume_now(turn)
        if "first" in button.data:
            _show_queue(turn, button.data)
        else:
            turn.edit(*view.status_page(turn))


@on(ButtonKind.DRAIN)
async def _drain(turn: Turn, button: Button) -> None:  # noqa: ARG001
    control.drain_now(turn)


@on(ButtonKind.CANCEL_WHEN_EMPTY)
async def _cancel_when_empty(turn: Turn, button: Button) -> None:  # noqa: ARG001
    with turn.effect():
        done = turn.queue.cancel_when_empty()
        outcome = "It will not be run." if done else "Too late, or cancelled already."
        turn.answer(outcome, alert=not done)
        turn.settle(_signed(turn, outcome), keyboards.of_queue_link())


@on(ButtonKind.NOISE)
async def _noise(turn: Turn, button: Button) -> None:
    with turn.effect():
        notify.set_noise(turn, button.data["noise"])
        turn.answer()
        turn.edit(*notify.notify_view(turn))


@on(ButtonKind.REVOKE)
async def _revoke(turn: Turn, button: Button) -> None:
    name = turn.chat.name_of(actor_of(int(button.data["person"])))
    _ask(turn, keyboards.sure_to_revoke(name, button.data))


@on(ButtonKind.PEOPLE)
async def _people(turn: Turn, button: Button) -> None:  # noqa: ARG001
    _show_people(turn)


@on(ButtonKind.YES_REVOKE)
async def _yes_revoke(turn: Turn, button: Button) -> None:
    _show_people(turn, lambda: people.revoke(turn, int(button.data["person"])))


@on(ButtonKind.CANCEL_LINKS)
async def _cancel_links(turn: Turn, button: Button) -> None:  # noqa: ARG001
    _show_people(turn, lambda: people.cancel_links(turn))


def _show_people(turn: Turn, change: Callable[[], str] = str) -> None:
    """Change something about people, answer with what was done, and list everybody."""
    with turn.effect():
        turn.answer(change())
        turn.edit(*people.everybody(turn))
