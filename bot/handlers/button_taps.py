"""Handles pressed buttons. A button carries only a key: what it does, and for whom, is in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.access.gate import actor_of
from bot.chat import QUESTION
from bot.handlers import batch_fit, control, edit, kill, notify, people, rerun, submit, view
from bot.handlers import groups as grouped
from bot.outbound.stale_buttons import WHILE_IT_LASTS
from bot.roles import Role
from bot.text import keyboards, views, warning_words
from runner.api import groups
from runner.api.chat import clock, short_time, state_words
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.inbound.turn import Turn
    from runner.api.chat import Button
    from runner.model import Job

GONE = "That button is no longer good. Send the command again."
JUST_NOW = "That was done a moment ago. Tap again in a few seconds if you want it once more."
AGAIN, TWO_TAPS_S = frozenset({"rerun", "rerun failed"}), 5.0  # a double tap must not queue a second job
MANY_OWNERS = 4
NOT_YOURS = "That button is for somebody else. Send the command yourself."


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
    action = ACTIONS.get(button.action)
    if button.expired or button.used or answered or action is None:
        turn.answer(GONE)
        return
    if button.action in AGAIN and _was_just_pressed(button):
        turn.answer(JUST_NOW)
        return
    if button.action in WHILE_IT_LASTS and (over := _over(turn, button)) is not None:
        _tell_over(turn, button, over)
        return
    turn.uses += [nonce, asked] if asked else [nonce]
    await action(turn, button)


def _was_just_pressed(button: Button) -> bool:
    return button.pressed_at is not None and abs((clock.now() - button.pressed_at).total_seconds()) < TWO_TAPS_S


def _over(turn: Turn, button: Button) -> Job | None:
    """Return the button's job if it has ended, else None."""
    job = turn.chat.queue.jobs.get(_job(button))
    return job if job is not None and job.state.final else None


def _tell_over(turn: Turn, button: Button, job: Job) -> None:
    """Say how the job ended, and replace the buttons."""
    when = f" ({short_time(job.finished_at, clock.now())})" if job.finished_at else ""
    with turn.effect():
        turn.answer(f"#{job.id} has ended: {state_words(job)}{when}.", alert=True)
        if "first" in button.data:
            _show_queue(turn, button.data)
        else:
            turn.edit(None, keyboards.of_job(job), job_id=job.id)


def _job(button: Button) -> int:
    assert button.job_id is not None
    return button.job_id


async def _keep(turn: Turn, button: Button) -> None:
    job = turn.job(_job(button))
    kill.require_owner(turn, job)
    with turn.effect():
        for_s = button.data.get("for_s")
        said = turn.queue.keep(job.id, for_s)
        turn.answer(said)
        turn.shown = warning_words.answered(turn.shown)
        turn.settle(_signed(turn, said), keyboards.of_kept(job, for_s), job_id=job.id)


async def _extend(turn: Turn, button: Button) -> None:
    job = turn.job(_job(button))
    kill.require_owner(turn, job)
    with turn.effect():
        said = turn.queue.extend(job.id, button.data["by_s"], button.data["limit_s"])
        turn.answer(said)
        turn.shown = warning_words.answered(turn.shown)
        turn.settle(_signed(turn, said), keyboards.of_extended(job, button.data["by_s"]), job_id=job.id)
    turn.queue.pass_on_limit(job.id)


async def _kill_now(turn: Turn, button: Button) -> None:
    """Stop the job without asking: the warning was the question."""
    with turn.effect():
        said = kill.stop_jobs(turn, [_job(button)])
        turn.answer(said)
        turn.settle(_signed(turn, said), keyboards.of_job(turn.job(_job(button))), job_id=button.job_id)


async def _status(turn: Turn, button: Button) -> None:  # noqa: ARG001
    with turn.effect():
        turn.answer()
        turn.edit(*view.status_page(turn))


async def _gpus(turn: Turn, button: Button) -> None:  # noqa: ARG001
    html = views.gpus(views.BoxView(turn.chat))
    with turn.effect():
        turn.answer()
        turn.edit(html, keyboards.of_gpus())


async def _queue(turn: Turn, button: Button) -> None:
    with turn.effect():
        turn.answer()
        _show_queue(turn, button.data)


def _show_queue(turn: Turn, data: dict[str, Any]) -> None:
    turn.edit(*view.queue_page(turn, int(data.get("first", 0))))


async def _details(turn: Turn, button: Button) -> None:
    job = turn.job(_job(button))
    html = view.job_view(turn.chat, job)
    with turn.effect():
        turn.answer()
        turn.reply(html, keyboards.of_job(job, details=False), job_id=job.id)


async def _log(turn: Turn, button: Button) -> None:
    job = turn.job(_job(button))
    html = await view.log_view(turn.chat, job)
    with turn.effect():
        turn.queue.audit.add(turn.caller.actor, "log", {"job": job.id})
        turn.answer()
        turn.reply(html, keyboards.of_log(job), job_id=job.id)


async def _fit(turn: Turn, button: Button) -> None:
    with turn.effect():
        turn.answer()
        batch_fit.show(turn, turn.job(_job(button)))


async def _log_again(turn: Turn, button: Button) -> None:
    job = turn.job(_job(button))
    html = await view.log_view(turn.chat, job)
    with turn.effect():
        turn.answer()
        turn.edit(html, keyboards.of_log(job), job_id=job.id)


async def _document(turn: Turn, button: Button) -> None:
    job = turn.job(_job(button))
    if not turn.chat.settings.log_text:
        raise UserError("Output is not sent to the chat here (NIGHTSHIFT_LOG_TEXT).")
    with turn.effect():
        turn.answer("sending the whole log")
        turn.send_log(job.id)


async def _rerun(turn: Turn, button: Button) -> None:
    turn.require(Role.USER)
    await rerun.rerun_job(turn, _job(button))


async def _kill(turn: Turn, button: Button) -> None:
    """Replace the buttons with a question."""
    job = turn.job(_job(button))
    kill.require_owner(turn, job)
    with turn.effect():
        turn.answer("Sure?")
        turn.edit(None, keyboards.sure([job.id], back={"back": "job", **button.data}))


async def _group(turn: Turn, button: Button) -> None:
    await grouped.show(turn, button.data["group"])


async def _group_csv(turn: Turn, button: Button) -> None:
    with turn.effect():
        turn.answer("sending the results")
        turn.send_results(button.data["group"])


async def _kill_group(turn: Turn, button: Button) -> None:
    """Replace the buttons with a question."""
    name = button.data["group"]
    numbers = grouped.to_stop(turn, name)
    with turn.effect():
        turn.answer("Sure?")
        turn.edit(None, keyboards.sure(numbers, back={"back": "group", "group": name}))


async def _rerun_failed(turn: Turn, button: Button) -> None:
    await grouped.rerun_failed(turn, button.data["group"])


async def _killed(turn: Turn, button: Button) -> None:
    with turn.effect():
        said = kill.stop_jobs(turn, button.data["jobs"])
        turn.answer(said)
        _back(turn, button, _signed(turn, said))


async def _back_again(turn: Turn, button: Button) -> None:
    with turn.effect():
        turn.answer("Nothing was stopped.")
        _back(turn, button, "Nothing was stopped.")


def _signed(turn: Turn, said: str) -> str:
    """Return what was done and by whom, because others may read it too."""
    return f"{said} – {turn.caller.name}"


def _back(turn: Turn, button: Button, outcome: str) -> None:
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


async def _dismiss(turn: Turn, button: Button) -> None:  # noqa: ARG001
    with turn.effect():
        turn.answer("Nothing was done.")
        turn.settle("Nothing was done.")


def _in_queue(verb: Callable[[Turn, int], str]) -> Callable[[Turn, Button], Awaitable[None]]:
    """Return the action of a button in a row of the queue: call `verb`, then show the queue as it is now."""

    async def press(turn: Turn, button: Button) -> None:
        kill.require_owner(turn, turn.job(_job(button)))
        try:
            with turn.effect():
                turn.answer(turn.chat.named(verb(turn, _job(button))))
                _show_queue(turn, button.data)
        except UserError as error:  # the page was out of date
            with turn.effect():
                turn.answer(turn.chat.named(str(error)), alert=True)
                _show_queue(turn, button.data)

    return press


async def _edit(turn: Turn, button: Button) -> None:
    """Explain the /edit command and show the job's options: a phone has no room for a form."""
    job = turn.job(_job(button))
    kill.require_owner(turn, job)
    html = edit.how_to(job)
    with turn.effect():
        turn.answer()
        turn.reply(html, job_id=job.id)


async def _lines(turn: Turn, button: Button) -> None:
    await submit.lines_chosen(turn, button.data)


async def _script(turn: Turn, button: Button) -> None:
    await submit.script_chosen(turn, button.data)


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


async def _release_all(turn: Turn, button: Button) -> None:
    """Release those of the held jobs that the caller may release, and name the owners of the others."""
    turn.require(Role.USER)
    held = [job for number in button.data["jobs"] if (job := turn.chat.queue.jobs.get(number)) and job.held_by]
    admin, me = turn.is_admin, turn.caller.actor
    theirs = [job for job in held if admin or job.spec.owner == me]
    others = sorted({turn.chat.name_of(job.spec.owner) for job in held if not admin and job.spec.owner != me})
    whose = " and ".join(others) if len(others) < MANY_OWNERS else f"{len(others)} others"
    if held and not theirs:
        raise UserError(f"They belong to {whose}: only they or an admin may release them.")
    with turn.effect():
        for job in theirs:
            turn.queue.release(job.id)
        said = f"Released: {len(theirs)}." if theirs else "None of them is held any more."
        if others:
            said += f" Still held: {len(held) - len(theirs)} of {whose}."
        turn.answer(said)
        turn.settle(_signed(turn, said))


async def _drain(turn: Turn, button: Button) -> None:  # noqa: ARG001
    control.drain_now(turn)


async def _noise(turn: Turn, button: Button) -> None:
    with turn.effect():
        notify.set_noise(turn, button.data["noise"])
        turn.answer()
        turn.edit(*notify.notify_view(turn))


async def _revoke(turn: Turn, button: Button) -> None:
    """Replace the list's buttons with a question."""
    turn.require(Role.ADMIN)
    name = turn.chat.name_of(actor_of(int(button.data["person"])))
    with turn.effect():
        turn.answer("Sure?")
        turn.edit(None, keyboards.sure_to_revoke(name, button.data))


async def _people(turn: Turn, button: Button) -> None:  # noqa: ARG001
    turn.require(Role.ADMIN)
    with turn.effect():
        turn.answer()
        turn.edit(*people.everybody(turn))


async def _revoked(turn: Turn, button: Button) -> None:
    with turn.effect():
        turn.answer(people.revoke(turn, int(button.data["person"])))
        turn.edit(*people.everybody(turn))


async def _cancel_links(turn: Turn, button: Button) -> None:  # noqa: ARG001
    with turn.effect():
        turn.answer(people.cancel_links(turn))
        turn.edit(*people.everybody(turn))


async def _cancel_when_empty(turn: Turn, button: Button) -> None:  # noqa: ARG001
    turn.require(Role.ADMIN)
    with turn.effect():
        done = turn.queue.cancel_when_empty()
        said = "It will not be run." if done else "Too late, or cancelled already."
        turn.answer(said, alert=not done)
        turn.settle(_signed(turn, said), keyboards.of_queue_link())


ACTIONS: dict[str, Callable[[Turn, Button], Awaitable[None]]] = {
    "status": _status,
    "gpus": _gpus,
    "queue": _queue,
    "details": _details,
    "log": _log,
    "log again": _log_again,
    "fit": _fit,
    "group": _group,
    "group csv": _group_csv,
    "kill group": _kill_group,
    "rerun failed": _rerun_failed,
    "document": _document,
    "rerun": _rerun,
    "kill": _kill,
    "killed": _killed,
    "keep": _keep,
    "extend": _extend,
    "kill now": _kill_now,
    "back": _back_again,
    "dismiss": _dismiss,
    "edit": _edit,
    "front": _in_queue(lambda turn, job: turn.queue.to_front(job)),
    "down": _in_queue(lambda turn, job: turn.queue.move_down(job)),
    "up": _in_queue(lambda turn, job: turn.queue.move_up(job)),
    "hold": _in_queue(lambda turn, job: turn.queue.hold(job)),
    "release": _in_queue(lambda turn, job: turn.queue.release(job)),
    "lines": _lines,
    "script": _script,
    "resume": _resume,
    "release all": _release_all,
    "drain": _drain,
    "noise": _noise,
    "revoke": _revoke,
    "revoked": _revoked,
    "people": _people,
    "cancel links": _cancel_links,
    "cancel when empty": _cancel_when_empty,
}
