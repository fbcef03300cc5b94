"""Presets: jobs saved under a name. `/nano` queues the preset nano, as `/preset nano` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.commands import ALIASES, BY_NAME
from bot.handlers.submit import queue_preset
from bot.text import keyboards
from bot.text.html import code, escape
from runner.api import presets
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn

NONE_YET = "You have saved no job yet. `/save 12 as nano` saves one: then `/nano lr=3e-4` runs it with another value."
SAVED = "Tap one to queue it. With other values: `/preset nano lr=3e-4`, or only `/nano lr=3e-4`"


async def save(turn: Turn, rest: str) -> None:
    """Save a job as a preset of the caller."""
    first, rest = turn.job_and_rest(rest)
    job = turn.job(turn.numbers(first, "`/save 12 as nano`")[0])
    name = rest.lower().removeprefix("as ").strip()
    if not name:
        turn.ask(f"Under which name? Send one word, like {code('nano')}.", "save", f"{job.id} as ", verbatim=True)
        return
    if name in BY_NAME or name in ALIASES:
        raise UserError(f"/{name} is a command already: choose another name for the preset.")
    with turn.effect():
        outcome = presets.save(turn.queue, job.id, name)
        turn.reply(escape(f"{outcome} Run it with `/{name}`, or with another value: `/{name} lr=3e-4`"), job_id=job.id)


async def preset(turn: Turn, rest: str) -> None:
    """Queue a preset, delete one, or list them."""
    name, _, more = rest.strip().partition(" ")
    if not name:
        turn.reply(*page(turn))
    elif name.lower() == "delete" and more.strip():
        with turn.effect():
            turn.reply(escape(delete(turn, more.strip())))
    else:
        await queue_preset(turn, name, more)


def page(turn: Turn) -> tuple[str, keyboards.Rows]:
    """Return the presets as buttons, the caller's own first."""
    saved = turn.queue.presets.all()
    own = {one.name: one for one in saved if one.owner == turn.caller.actor}
    shown = own | {one.name: one for one in reversed(saved) if one.name not in own}
    commands = {name: turn.chat.redactor_for(one).ends(one.spec.command.strip()) for name, one in shown.items()}
    return (SAVED if shown else NONE_YET), keyboards.of_presets(commands, own)


def delete(turn: Turn, name: str) -> str:
    """Delete a preset of the caller, and return a sentence about it. Inside `effect`."""
    return presets.remove(turn.queue, name)
