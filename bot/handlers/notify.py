"""Which notices each person gets, and their quiet hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.text.buttons import ButtonKind, Press
from bot.text.html import bold
from bot.text.quiet_hours import quiet_hours
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn

NOISE = {
    "all": "everything: starts (without a sound), ends, failures",
    "ends": "ends and failures, no starts",
    "failures": "only what went wrong",
    "none": "nothing; look with /status",
}


async def notify(turn: Turn, rest: str) -> None:
    """Set which notices the caller gets and when they come without a sound; then show both."""
    noise, hours = (part.strip() for part in rest.lower().partition("quiet")[::2])
    if noise and noise not in NOISE:
        raise UserError("Send `/notify all`, ends, failures or none; or `/notify quiet 23-7`, `/notify quiet off`")
    quiet = quiet_hours(hours) if hours else None
    with turn.effect():
        if noise:
            set_noise(turn, noise)
        if hours:
            turn.chat.people.set_quiet(turn.caller.id, quiet or ())
            turn.queue.audit.add(turn.caller.actor, "notify", {"quiet": hours})
        turn.reply(*notify_view(turn))


def set_noise(turn: Turn, noise: str) -> None:
    """Store which notices the caller gets."""
    turn.chat.people.set_noise(turn.caller.id, noise)
    turn.queue.audit.add(turn.caller.actor, "notify", {"noise": noise})


def notify_view(turn: Turn) -> tuple[str, list[list[Press]]]:
    """Return which notices the caller gets now, and buttons to change it."""
    person = turn.chat.people.get(turn.caller.id)
    hours = person.quiet if person.quiet is not None else turn.chat.settings.quiet_hours
    quiet = "never" if not hours else f"{_clock(hours[0])} to {_clock(hours[1])} by the box's clock"
    choices = [
        Press(ButtonKind.NOISE, data={"noise": word}, text=f"{'● ' if word == person.noise else ''}{word}")
        for word in NOISE
    ]
    return f"You are told {bold(NOISE[person.noise])}.\nWithout a sound: {quiet} (`/notify quiet 23-7`).", [choices]


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
