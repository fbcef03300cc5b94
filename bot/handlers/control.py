"""Commands for the whole box: pausing, resuming and draining the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.access.button_rights import role_to_resume
from bot.inbound.turn import STALE_S
from bot.text import keyboards
from bot.text.buttons import ButtonKind, Press
from runner.api.chat import format_duration

if TYPE_CHECKING:
    from bot.inbound.turn import Turn

DRAINING = "⏏️ Draining: running jobs finish, no more start."


async def pause(turn: Turn, _: str) -> None:
    """Pause the queue: start nothing more."""
    with turn.effect():
        turn.queue.pause()
        turn.reply("⏸ Paused: running jobs go on, no more start.", keyboards.resume())


async def resume(turn: Turn, _: str) -> None:
    """Resume the queue, and say so."""
    with turn.effect():
        turn.reply(resume_now(turn), keyboards.of_queue_link())


def resume_now(turn: Turn) -> str:
    """Resume the queue and return a sentence about it. Inside `effect`."""
    turn.require(role_to_resume(turn.chat.queue))
    outcome = "▶️ Resumed." if turn.queue.reasons.why_paused() else "Nothing was paused."
    turn.queue.resume()
    return outcome


async def drain(turn: Turn, _: str) -> None:
    """Let running jobs finish and start no more. Ask first if the message is old."""
    if turn.age_s > STALE_S:
        rows = [[Press(ButtonKind.DRAIN), Press(ButtonKind.DISMISS)]]
        turn.reply(f"You sent this {format_duration(turn.age_s)} ago, while I was away. Drain now?", rows)
        return
    with turn.effect():
        turn.queue.drain()
        turn.reply(DRAINING, keyboards.resume())
