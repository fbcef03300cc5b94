"""Passes an admitted update to its handler, and turns errors into a message to the caller."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.access.gate import Caller
from bot.inbound import parse, turn
from bot.inbound.turn import LONGEST_ANSWER, AlreadyDone, Turn
from bot.store_retry import TRY_AGAIN_S, patiently
from bot.telegram_html import escape, fit, units
from bot.timeouts import within
from runner.api.chat import QueueLostError, StoreError
from runner.errors import NightshiftError, UserError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from telegram import Update

    from bot.chat import Chat

    Handler = Callable[[Turn, str], Awaitable[None]]
    Answer = Callable[[Update, Any], Coroutine[Any, Any, None]]

log = logging.getLogger(__name__)

LIMIT_S = 180.0  # longer than any time-out inside a handler
TOO_LONG = (
    "This took too long, so I gave it up and nothing was done. A folder of the box may not answer. Try again; if that"
    " does not help, tell whoever runs the box."
)
OUR_FAULT = "Something went wrong on my side and nothing was done. The box's log has more; please try again."


def command(chat: Chat, handler: Handler) -> Answer:
    """Return a callback that passes a command to its handler."""

    async def answer(update: Update, _: Any) -> None:
        if (taken := _taken(chat, update)) is None:
            return
        found = parse.command_of(taken.text, chat.username)
        await attempt(taken, lambda: handler(taken, found[1]) if found else _run_together())

    return answer


async def _run_together() -> None:
    """Refuse a known command with something right behind it, like `/status?`."""
    raise UserError("Leave a blank after the command, and send nothing else right behind it: `/status 12`")


def text(chat: Chat, handler: Handler) -> Answer:
    """Return a callback that passes any other text or attachment to its handler."""

    async def answer(update: Update, _: Any) -> None:
        if (taken := _taken(chat, update)) is not None:
            await attempt(taken, lambda: handler(taken, taken.text))

    return answer


def tap(chat: Chat, handler: Handler) -> Answer:
    """Return a callback that passes a pressed button to its handler."""

    async def answer(update: Update, _: Any) -> None:
        caller = chat.gate.judge(update)
        query = update.callback_query
        if isinstance(caller, Caller) and query is not None:
            taken = turn.of_tap(chat, caller, update)
            await attempt(taken, lambda: handler(taken, query.data or ""))

    return answer


def _taken(chat: Chat, update: Update) -> Turn | None:
    """Return a turn; None if the caller has lost their role since the update was admitted."""
    caller = chat.gate.judge(update)
    return turn.of_message(chat, caller, update) if isinstance(caller, Caller) else None


async def attempt(taken: Turn, act: Callable[[], Awaitable[None]]) -> None:
    """Run a handler. If it fails or takes too long, tell the caller and mark the update as handled.

    While the database cannot be written, retry.
    """
    while True:
        try:
            await within(LIMIT_S, act())
        except (AlreadyDone, QueueLostError):  # a lost queue makes the bot exit
            return
        except asyncio.TimeoutError:
            log.error("update %s took too long and was given up", taken.update_id)
            await patiently(partial(_excuse, taken, TOO_LONG))
        except StoreError as error:  # nothing was written: retry until it can be
            log.error("%s", error)
            await asyncio.sleep(TRY_AGAIN_S)
            continue
        except NightshiftError as error:
            await patiently(partial(_excuse, taken, taken.chat.named(str(error))))
        except Exception:
            log.exception("update %s could not be answered", taken.update_id)
            await patiently(partial(_excuse, taken, OUR_FAULT))
        return


def _excuse(taken: Turn, sentence: str) -> None:
    taken.uses.clear()  # the same button may be pressed again
    try:
        with taken.effect():
            if taken.query_id is not None and units(sentence) <= LONGEST_ANSWER:
                taken.answer(sentence, alert=True)
                return
            taken.answer()
            taken.reply(fit([f"⚠️ {escape(sentence)}"]))
    except AlreadyDone:
        return
