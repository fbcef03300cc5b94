"""The handler of each kind of button, and how to register one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.inbound.turn import Turn
    from bot.store.buttons import Button
    from bot.text.buttons import ButtonKind

    Handler = Callable[[Turn, Button], Awaitable[None]]
    Action = Callable[[Turn, Button], str | None]

HANDLERS: dict[ButtonKind, Handler] = {}


def on(*kinds: ButtonKind) -> Callable[[Action], Action]:
    """Let these buttons run a function in one transaction. It returns the text that pops up, or None."""

    def register(action: Action) -> Action:
        async def handle(turn: Turn, button: Button) -> None:
            with turn.effect():
                turn.answer(action(turn, button) or "")

        HANDLERS.update(dict.fromkeys(kinds, handle))
        return action

    return register


def job_id(button: Button) -> int:
    """Return the job that the button is about."""
    assert button.job_id is not None
    return button.job_id
