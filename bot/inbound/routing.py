"""Passes an admitted update to its handler, and turns errors into a message to the caller."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from telegram.constants import MessageEntityType
from telegram.ext.filters import StatusUpdate

from bot.commands import ALIASES, BY_NAME, Role
from bot.inbound import parse
from bot.inbound.turn import LONGEST_ANSWER, Dropped, Turn, WhichJobError, turn_of
from bot.text.html import escape, fit, units
from bot.waiting import TRY_AGAIN_S, patiently, within
from runner.api.chat import QueueLostError, StoreError
from runner.errors import NightshiftError, UserError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from telegram import Message, Update

    from bot.access.gate import Caller
    from bot.chat import Chat

    Handler = Callable[[Turn, str], Awaitable[None]]

log = logging.getLogger(__name__)

LIMIT_S = 180.0  # longer than any time-out inside a handler
TOO_LONG = (
    "This took too long, so I gave it up and nothing was done. A folder of the box may not answer. Try again; if that"
    " does not help, tell an admin of the box."
)
OUR_FAULT = "Something went wrong on my side and nothing was done. The box's log has more; please try again."
NO_SPACE = "Put a space after the command, like `/status 12`."


class Routes(NamedTuple):
    """The handler of each kind of update. It gets the text after the command, or what the button carries."""

    commands: Mapping[str, Handler]
    which_job: Callable[[Turn, str, str, WhichJobError], Awaitable[None]]
    file: Handler
    unknown_command: Handler
    words: Handler
    other: Handler
    tap: Handler


async def answer(chat: Chat, routes: Routes, caller: Caller, update: Update) -> None:
    """Run the handler. If it fails or takes too long, tell the caller and mark the update as handled.

    While the database cannot be written, retry.
    """
    with chat.read_by(caller.id, caller.chat):
        await _answer(chat, routes, turn_of(chat, caller, update), update)


async def _answer(chat: Chat, routes: Routes, turn: Turn, update: Update) -> None:
    while True:
        try:
            await within(LIMIT_S, _handle(turn, routes, update))
        except (Dropped, QueueLostError):  # a lost queue makes the bot exit
            return
        except asyncio.TimeoutError:
            log.error("update %s took too long and was given up", turn.update_id)
            await patiently(_excuse, turn, TOO_LONG)
        except StoreError as error:  # nothing was written: retry until it can be
            log.error("%s", error)
            await asyncio.sleep(TRY_AGAIN_S)
            continue
        except NightshiftError as error:
            await patiently(_excuse, turn, chat.named(str(error)))
        except Exception:
            log.exception("update %s could not be answered", turn.update_id)
            await patiently(_excuse, turn, OUR_FAULT)
        return


async def _handle(turn: Turn, routes: Routes, update: Update) -> None:
    """Pass the update to its handler. Telegram's own messages, like "Uma joined", have none."""
    if update.callback_query is not None:
        await routes.tap(turn, update.callback_query.data or "")
        return
    assert update.message is not None
    name, addressee = _command_in(update.message)
    if name.isascii() and name.isdigit() and addressee in {"", turn.chat.username.lower()}:
        await routes.commands["status"](turn, name)
    elif name in routes.commands and addressee in {"", turn.chat.username.lower()}:
        turn.require(BY_NAME[name].role)
        rest = _after_command(turn)
        try:
            await routes.commands[name](turn, rest)
        except WhichJobError as error:
            await routes.which_job(turn, name, rest, error)
    elif update.message.document:
        await routes.file(turn, turn.text)
    elif name:
        await routes.unknown_command(turn, turn.text)
    elif update.message.text:
        await routes.words(turn, turn.text)
    elif not StatusUpdate.ALL.check_update(update):
        await routes.other(turn, turn.text)


def _command_in(message: Message) -> tuple[str, str]:
    """Return the command that a message begins with, and the bot it names; empty if there is none."""
    first = message.entities[0] if message.entities else None
    if first is None or first.type != MessageEntityType.BOT_COMMAND or first.offset != 0:
        return "", ""
    name, _, addressee = (message.text or "")[1 : first.length].lower().partition("@")
    return ALIASES.get(name, name), addressee


def _after_command(turn: Turn) -> str:
    parsed = parse.command_of(turn.text, turn.chat.username)
    if parsed is None:  # something else stands right behind it, like `/status?`
        raise UserError(NO_SPACE)
    return parsed[1]


def _excuse(turn: Turn, sentence: str) -> None:
    turn.uses.clear()  # the same button may be pressed again
    turn.keeps_question = True  # and the same question answered
    turn.role = Role.VIEWER
    try:
        with turn.effect():
            if turn.query_id is not None and units(sentence) <= LONGEST_ANSWER:
                turn.answer(sentence, alert=True)
                return
            turn.answer()
            turn.reply(fit([f"⚠️ {escape(sentence)}"]))
    except Dropped:
        return
