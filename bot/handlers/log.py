"""/log and its buttons: the end of a job's output, older and newer pages, lines about an error or with a word, live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.handlers.button_registry import job_id
from bot.outbound.log_views import log_view, readable
from bot.store.live_logs import LIVE_S, LiveLog
from bot.text import keyboards
from bot.text.html import quoted
from runner.api.chat import format_duration
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn
    from bot.store.buttons import Button
    from bot.text.keyboards import Place

MOST_LINES, LONGEST_WORD = 200, 100
ERROR = {"error", "errors"}
LIKE = "`/log 12`, `/log 12 50` for 50 lines, `/log 12 error` or another word for the lines with it"


async def log(turn: Turn, rest: str) -> None:
    """Show the end of a job's output, or the lines about an error, or those with a word."""
    which, _, wanted = rest.strip().partition(" ")
    if which.lower() in ERROR or (turn.reply_to is not None and not which.lstrip("#").isdigit()):
        which, wanted = "", rest
    numbers = turn.numbers(which, LIKE)
    if len(numbers) > 1:
        raise UserError(f"One job at a time: send {LIKE}.")
    await show(turn, numbers[0], _place(wanted.split()))


def _place(words: list[str]) -> dict[str, Any]:
    if not words:
        return {}
    if all(word.isascii() and word.isdigit() for word in words):
        if len(words) > 1:
            raise UserError(f"One job at a time: send {LIKE}.")
        return {"lines": min(max(int(words[0][:9]), 1), MOST_LINES)}
    word = " ".join(words)
    if len(word) > LONGEST_WORD:
        raise UserError(f"“{quoted(word)}” is too long to search for. Send at most {LONGEST_WORD} characters.")
    return {"error": True} if word.lower() in ERROR else {"find": word}


async def show(turn: Turn, number: int, place: Place) -> None:
    """Send a part of a job's output, and note who read it."""
    job = turn.job(number)
    html, rows = await log_view(turn.chat, job, place)
    with turn.effect():
        turn.answer()
        turn.queue.audit.add(turn.caller.actor, "log", {"job": job.id})
        turn.reply(html, rows, job_id=job.id)


async def turn_page(turn: Turn, button: Button) -> None:
    """Show another part of the output in the same message."""
    job = turn.job(job_id(button))
    html, rows = await log_view(turn.chat, job, button.data)
    with turn.effect():
        turn.answer()
        turn.edit(html, rows, job_id=job.id)


# -- live ------------------------------------------------------------------------------------------


async def go_live(turn: Turn, button: Button) -> None:
    """Keep changing the message as output comes, for some minutes."""
    job = turn.job(job_id(button))
    if job.state.final:  # the button is older than its end
        await turn_page(turn, button)
        return
    readable(turn.chat, job)
    with turn.effect():
        turn.answer(f"Live for {format_duration(LIVE_S)}, or until you tap Stop.")
        turn.queue.audit.add(turn.caller.actor, "log", {"job": job.id, "live": True})
        keyboard = turn.chat.keyboard(turn.caller.id, keyboards.of_live_log(job))
        assert turn.message_id is not None
        caller = turn.caller
        turn.chat.live_logs.start(LiveLog(caller.chat, caller.id, turn.message_id, job.id, job.attempt, keyboard))
    turn.chat.wake_live_logs()


async def stop_live(turn: Turn, button: Button) -> None:
    """End a live log, and show the end of the output with its usual buttons."""
    job = turn.job(job_id(button))
    html, rows = await log_view(turn.chat, job, {})
    with turn.effect():
        turn.answer()
        assert turn.message_id is not None
        turn.chat.live_logs.stop(turn.caller.chat, turn.message_id)
        turn.edit(html, rows, job_id=job.id)
