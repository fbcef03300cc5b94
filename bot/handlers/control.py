"""Commands for the whole box: pausing, resuming and draining the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.chat import role_to_resume
from bot.inbound.turn import STALE_S
from bot.roles import Role
from bot.text import keyboards
from bot.text.keyboards import Press
from runner.api.chat import format_duration

if TYPE_CHECKING:
    from bot.inbound.turn import Turn


async def pause(turn: Turn, rest: str) -> None:  # noqa: ARG001
    """Pause the queue: start nothing more."""
    turn.require(Role.ADMIN)
    with turn.effect():
        turn.queue.pause()
        turn.reply("⏸ Paused: nothing more starts; running jobs go on.", keyboards.resume())


async def resume(turn: Turn, rest: str = "") -> None:  # noqa: ARG001
    """Resume the queue, and say so."""
    with turn.effect():
        said = resume_now(turn)
        if turn.query_id is None:
            turn.reply(said, keyboards.of_queue_link())
        else:
            turn.settle(f"{said} – {turn.caller.name}", keyboards.of_queue_link())


def resume_now(turn: Turn) -> str:
    """Resume the queue and return a sentence about it."""
    turn.require(role_to_resume(turn.chat))
    said = "▶️ Resumed." if turn.queue.held() else "Nothing was paused."
    turn.queue.resume()
    turn.answer(said)
    return said


async def drain(turn: Turn, rest: str) -> None:  # noqa: ARG001
    """Let running jobs finish and start no more. Ask first if the message is old."""
    turn.require(Role.ADMIN)
    if turn.age_s > STALE_S:
        rows = [[Press("Drain now", "drain", question=True, style="danger"), Press("No", "dismiss", question=True)]]
        turn.reply(f"You sent this {format_duration(turn.age_s)} ago, while I was away. Drain now?", rows)
        return
    drain_now(turn)


def drain_now(turn: Turn) -> None:
    """Drain the queue without asking, and say so."""
    turn.require(Role.ADMIN)
    with turn.effect():
        turn.queue.drain()
        said = "⏏️ Draining: running jobs finish, no more start."
        turn.answer(said)
        if turn.query_id is None:
            turn.reply(said, keyboards.resume())
        else:
            turn.edit(said, keyboards.resume())
