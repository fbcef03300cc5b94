"""Handles pressed buttons. A button carries only a key: what it does, and for whom, is in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.access.button_rights import NEEDED_ROLE
from bot.access.gate import actor_of
from bot.chat import QUESTION
from bot.commands import Role
from bot.handlers import choice_taps, control, edit, kill, log, people, rerun, submit, view
from bot.handlers import groups as grouped
from bot.handlers.button_registry import HANDLERS, job_id, on
from bot.text import job_notices, keyboards, views
from bot.text.buttons import BY_ACTION, ButtonKind, Right
from runner.api import groups
from runner.api.chat import clock, short_time, state_words
from runner.errors import UserError
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.inbound.turn import Turn
    from bot.store.buttons import Button
    from runner.api.queue_order import QueueOrder
    from runner.model import Job


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
        turn.require_owner(turn.job(job_id(button)))


def _was_just_pressed(button: Button) -> bool:
    return button.pressed_at is not None and abs((clock.now() - button.pressed_at).total_seconds()) < TWO_TAPS_S


def _ended_job(turn: Turn, button: Button) -> Job | None:
    """Return the button's job if it has ended, else None."""
    job = turn.chat.queue.jobs.get(job_id(button))
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


def _signed(turn: Turn, outcome: str) -> str:
    """Return what was done and by whom, because others may read it too."""
    return f"{outcome} – {turn.caller.name}"


# -- showing ---------------------------------------------------------------------------------------


@on(ButtonKind.STATUS)
def _status(turn: Turn, _: Button) -> None:
    turn.edit(*view.status_page(turn))


@on(ButtonKind.GPUS)
def _gpus(turn: Turn, _: Button) -> None:
    turn.edit(views.gpus(views.BoxView(turn.chat)), keyboards.of_gpus())


@on(ButtonKind.QUEUE)
def _queue(turn: Turn, button: Button) -> None:
    _show_queue(turn, button.data)


def _show_queue(turn: Turn, data: dict[str, Any]) -> None:
    turn.edit(*view.queue_page(turn, int(data.get("first", 0))))


@on(ButtonKind.DETAILS)
def _details(turn: Turn, button: Button) -> None:
    view.show_job(turn, job_id(button))


@on(ButtonKind.WHOLE_LOG)
def _whole_log(turn: Turn, button: Button) -> str:
    if not turn.chat.settings.log_text:
        raise UserError("Output is not sent to the chat here (NIGHTSHIFT_LOG_TEXT).")
    turn.send_log(turn.job(job_id(button)).id)
    return "Sending the whole log."


@on(ButtonKind.FIT)
def _fit(turn: Turn, button: Button) -> None:
    view.show_fit(turn, turn.job(job_id(button)))


@on(ButtonKind.EDIT)
def _edit(turn: Turn, button: Button) -> None:
    """Explain the /edit command and show the job's options: a phone has no room for a form."""
    job = turn.job(job_id(button))
    turn.reply(edit.how_to(job), job_id=job.id)


@on(ButtonKind.GROUP_CSV)
def _group_csv(turn: Turn, button: Button) -> str:
    turn.send_results(button.data["group"])
    return "Sending the results."


# -- jobs ------------------------------------------------------------------------------------------


async def _move(turn: Turn, button: Button) -> None:
    """Change a job's place in the queue, then show what has come of it."""
    move = MOVES[BY_ACTION[button.action]]
    try:
        with turn.effect():
            outcome = turn.chat.named(move(turn.queue.order, job_id(button)))
            turn.answer(outcome)
            _show_moved(turn, button, _signed(turn, outcome))
    except UserError as error:  # the message was out of date
        with turn.effect():
            turn.answer(outcome := turn.chat.named(str(error)), alert=True)
            _show_moved(turn, button, outcome)


def _show_moved(turn: Turn, button: Button, outcome: str) -> None:
    """Show the chosen job or the page of the queue as it is now, or the outcome below a message about one job."""
    if button.data.get("chosen") and turn.job(job_id(button)).state is State.QUEUED:
        choice_taps.show_chosen(turn, button)
    elif "first" in button.data:
        _show_queue(turn, button.data)
    else:
        turn.settle(outcome, keyboards.of_job(turn.job(job_id(button))), job_id=button.job_id)


@on(ButtonKind.KEEP)
def _keep(turn: Turn, button: Button) -> str:
    job, for_s = turn.job(job_id(button)), button.data.get("for_s")
    return _settle_warning(turn, job, turn.queue.keep(job.id, for_s), keyboards.of_kept(job, for_s))


async def _extend(turn: Turn, button: Button) -> None:
    job, by_s = turn.job(job_id(button)), button.data["by_s"]
    with turn.effect():
        outcome = turn.queue.extend(job.id, by_s, button.data["limit_s"])
        turn.answer(_settle_warning(turn, job, outcome, keyboards.of_extended(job, by_s)))
    turn.queue.pass_on_limit(job.id)


def _settle_warning(turn: Turn, job: Job, outcome: str, rows: keyboards.Rows) -> str:
    turn.shown = job_notices.answered(turn.shown)
    turn.settle(_signed(turn, outcome), rows, job_id=job.id)
    return outcome


@on(ButtonKind.KILL_NOW)
def _kill_now(turn: Turn, button: Button) -> str:
    """Stop the job without asking: the warning was the question."""
    outcome = kill.stop_jobs(turn, [job_id(button)])
    turn.settle(_signed(turn, outcome), keyboards.of_job(turn.job(job_id(button))), job_id=button.job_id)
    return outcome


@on(ButtonKind.KILL)
def _kill(turn: Turn, button: Button) -> str:
    return _ask(turn, keyboards.sure([job_id(button)], back={"back": "job", **button.data}))


@on(ButtonKind.KILL_GROUP)
def _kill_group(turn: Turn, button: Button) -> str:
    group = button.data["group"]
    return _ask(turn, keyboards.sure(grouped.to_stop(turn, group), back={"back": "group", "group": group}))


def _ask(turn: Turn, rows: keyboards.Rows) -> str:
    """Replace the buttons with a question."""
    turn.edit(None, rows)
    return "Sure?"


@on(ButtonKind.YES_KILL)
def _yes_kill(turn: Turn, button: Button) -> str:
    outcome = kill.stop_jobs(turn, button.data["jobs"])
    _restore(turn, button, _signed(turn, outcome))
    return outcome


@on(ButtonKind.NO_KILL)
def _no_kill(turn: Turn, button: Button) -> str:
    _restore(turn, button, "Nothing was stopped.")
    return "Nothing was stopped."


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
def _dismiss(turn: Turn, _: Button) -> str:
    turn.settle("Nothing was done.")
    return "Nothing was done."


@on(ButtonKind.RELEASE_ALL)
def _release_all(turn: Turn, button: Button) -> str:
    """Release those of the held jobs that the caller may release, and name the owners of the others."""
    turn.require(Role.USER)
    held = [job for number in button.data["jobs"] if (job := turn.chat.queue.jobs.get(number)) and job.held_by]
    own = [job for job in held if turn.may_change(job)]
    others = sorted({turn.chat.name_of(job.spec.owner) for job in held if job not in own})
    owners = " and ".join(others) if len(others) < MANY_OWNERS else f"{len(others)} others"
    if held and not own:
        raise UserError(f"These jobs belong to {owners}: only they or an admin may release them.")
    for job in own:
        turn.queue.order.release(job.id)
    outcome = f"Released: {len(own)}." if own else "None of them is held any more."
    if others:
        outcome += f" Still held: {len(held) - len(own)} of {owners}."
    turn.settle(_signed(turn, outcome))
    return outcome


# -- the box ---------------------------------------------------------------------------------------


@on(ButtonKind.RESUME)
def _resume(turn: Turn, button: Button) -> str:
    """Resume the queue, and show the button's page again as it is then."""
    outcome = control.resume_now(turn)
    if "first" in button.data:
        _show_queue(turn, button.data)
    elif button.data:
        turn.edit(*view.status_page(turn))
    else:
        turn.settle(_signed(turn, outcome), keyboards.of_queue_link())
    return outcome


@on(ButtonKind.DRAIN)
def _drain(turn: Turn, _: Button) -> str:
    turn.queue.drain()
    turn.edit(control.DRAINING, keyboards.resume())
    return control.DRAINING


async def _cancel_when_empty(turn: Turn, _: Button) -> None:
    with turn.effect():
        done = turn.queue.cancel_when_empty()
        outcome = "It will not be run." if done else "Too late: it has started, or was cancelled already."
        turn.answer(outcome, alert=not done)
        turn.settle(_signed(turn, outcome), keyboards.of_queue_link())


@on(ButtonKind.NOISE)
def _noise(turn: Turn, button: Button) -> None:
    people.set_noise(turn, button.data["noise"])
    turn.edit(*people.notify_view(turn))


@on(ButtonKind.REVOKE)
def _revoke(turn: Turn, button: Button) -> str:
    name = turn.chat.name_of(actor_of(int(button.data["person"])))
    return _ask(turn, keyboards.sure_to_revoke(name, button.data))


@on(ButtonKind.PEOPLE)
def _people(turn: Turn, _: Button) -> None:
    turn.edit(*people.everybody(turn))


@on(ButtonKind.YES_REVOKE)
def _yes_revoke(turn: Turn, button: Button) -> str:
    outcome = people.revoke(turn, int(button.data["person"]))
    turn.edit(*people.everybody(turn))
    return outcome


@on(ButtonKind.CANCEL_LINKS)
def _cancel_links(turn: Turn, _: Button) -> str:
    outcome = people.cancel_links(turn)
    turn.edit(*people.everybody(turn))
    return outcome


# These read something slow first, do something after the transaction, or need two.
HANDLERS |= {
    **dict.fromkeys(MOVES, _move),
    **dict.fromkeys((ButtonKind.LOG_AGAIN, ButtonKind.LOG_PAGE), log.turn_page),
    ButtonKind.LOG: lambda turn, button: log.show(turn, job_id(button), {}),
    ButtonKind.LIVE: log.go_live,
    ButtonKind.STOP_LIVE: log.stop_live,
    ButtonKind.EXTEND: _extend,
    ButtonKind.CANCEL_WHEN_EMPTY: _cancel_when_empty,
    ButtonKind.RERUN: lambda turn, button: rerun.rerun_job(turn, job_id(button)),
    ButtonKind.GROUP: lambda turn, button: grouped.show(turn, button.data["group"]),
    ButtonKind.RERUN_FAILED: lambda turn, button: grouped.rerun_failed(turn, button.data["group"]),
    ButtonKind.LINES: lambda turn, button: submit.queue_lines(turn, button.data["values"], button.data["text"]),
    ButtonKind.SCRIPT: lambda turn, button: submit.queue_script(turn, button.data["values"], button.data["text"]),
}
