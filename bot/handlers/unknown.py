"""Answers messages that are not a known command with a suggestion. In a group, most of them are ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.commands import Role, menu
from bot.handlers.submit import queue_preset
from bot.inbound import parse
from bot.text.html import code, escape, shorten
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn


async def command(turn: Turn, text: str) -> None:
    """Queue the preset of this name. If there is none, suggest the nearest command."""
    parsed = parse.command_of(text, turn.chat.username)
    if parsed is None:
        return  # for another bot
    if not turn.caller.private and f"@{turn.chat.username}".lower() not in text.split(maxsplit=1)[0].lower():
        return  # in a group it may be meant for somebody else
    if turn.queue.presets.get(turn.caller.actor, parsed[0]) is not None:
        turn.require(Role.USER)
        await queue_preset(turn, *parsed)
        return
    near = parse.suggestion(parsed[0], [command.name for command in menu(turn.caller.role)])
    raise UserError(f"There is no /{parsed[0]}. " + (f"Did you mean /{near}?" if near else "/help lists all commands."))


async def words(turn: Turn, text: str) -> None:
    """Answer text without a command; in private only."""
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
