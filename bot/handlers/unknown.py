"""Answers messages that are not a known command with a suggestion. In a group, most of them are ignored."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from bot.commands import BY_NAME, Role, menu
from bot.handlers.by_command import HANDLERS
from bot.handlers.submit import queue_preset
from bot.inbound import parse
from bot.text.html import code, escape, shorten
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn


async def _is_answer(turn: Turn, text: str) -> bool:
    """If a question waits for this text, run the command that asked it. Return whether one does."""
    asked = turn.chat.buttons.asked(turn.caller.id, turn.caller.chat)
    if asked is None or not (turn.caller.private or turn.reply_to):
        return False
    value = text.strip()
    turn.require(BY_NAME[asked["command"]].role)
    await HANDLERS[asked["command"]](turn, asked["before"] + (value if asked["verbatim"] else shlex.quote(value)))
    return True


async def command(turn: Turn, text: str) -> None:
    """Queue the preset of this name. If there is none, suggest the nearest command."""
    parsed = parse.command_of(text, turn.chat.username)
    if parsed is None:  # for another bot, or a value like /data:a
        await _is_answer(turn, text)
        return
    if not turn.caller.private and f"@{turn.chat.username}".lower() not in text.split(maxsplit=1)[0].lower():
        return  # in a group it may be meant for somebody else
    if turn.queue.presets.get(turn.caller.actor, parsed[0]) is not None:
        turn.require(Role.USER)
        await queue_preset(turn, *parsed)
        return
    if await _is_answer(turn, text):
        return
    near = parse.suggestion(parsed[0], [command.name for command in menu(turn.caller.role)])
    raise UserError(f"There is no /{parsed[0]}. " + (f"Did you mean /{near}?" if near else "/help lists all commands."))


async def words(turn: Turn, text: str) -> None:
    """Take text without a command as the answer to a question. Else say what to send; in private only."""
    if await _is_answer(turn, text):
        return
    if not turn.caller.private:
        return
    first, _, rest = text.strip().partition(" ")
    if first.lower() in {command.name for command in menu(turn.caller.role)}:
        turn.reply(f"Put a slash before it: {code(f'/{first.lower()} {shorten(rest, 200)}'.strip())}")
        return
    if turn.caller.role < Role.USER:
        turn.reply("/status shows the box, /help lists what you can do.")
        return
    shown = escape(shorten(text.strip(), 200))
    run_it = f"To run that: <code>/submit {shown}</code>\n" if shown else ""
    turn.reply(f"{run_it}/help lists all commands.")


async def anything(turn: Turn, _: str) -> None:
    """Answer a photo, a voice message, a place and the like; in private only."""
    if turn.caller.private:
        turn.reply("I read text, and files with commands in them. /help lists what I can do.")
