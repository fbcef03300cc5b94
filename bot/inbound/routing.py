"""From an update that was let in to a handler, and from what goes wrong there to a sentence."""

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

LIMIT_S = 180.0  # more than any work has that knows a limit of its own
TOO_LONG = (
    "This took too long, so I gave it up and nothing was done. A folder of the box may not answer. Try again; if that"
    " does not help, tell whoever runs the box."
)
OUR_FAULT = "Something went wrong on my side and nothing was done. The box's log has more; please try again."


def command(chat: Chat, handler: Handler) -> Answer:
    """Answers a command of ours."""

    async def answer(update: Update, _: Any) -> None:
        if (taken := _taken(chat, update)) is None:
            return
        found = parse.command_of(taken.text, chat.username)
        await attempt(taken, lambda: handler(taken, found[1]) if found else _run_together())

    return answer


async def _run_together() -> None:
    """It is a command of ours, but something stands right behind it, like `/status?`."""
    raise UserError("Leave a blank after the command, and send nothing else right behind it: `/status 12`")


def text(chat: Chat, handler: Handler) -> Answer:
    """Answers anything else that was written or attached."""

    async def answer(update: Update, _: Any) -> None:
        if (taken := _taken(chat, update)) is not None:
            await attempt(taken, lambda: handler(taken, taken.text))

    return answer


def tap(chat: Chat, handler: Handler) -> Answer:
    """Answers a pressed button."""

    async def answer(update: Update, _: Any) -> None:
        caller = chat.gate.judge(update)
        query = update.callback_query
        if isinstance(caller, Caller) and query is not None:
            taken = turn.of_tap(chat, caller, update)
            await attempt(taken, lambda: handler(taken, query.data or ""))

    return answer


def _taken(chat: Chat, update: Update) -> Turn | None:
    """A turn, if they may still come in: between gate and handler somebody may have been shown the door."""
    caller = chat.gate.judge(update)
    return turn.of_message(chat, caller, update) if isinstance(caller, Caller) else None


async def attempt(taken: Turn, act: Callable[[], Awaitable[None]]) -> None:
    """Do it; whatever goes wrong, and if it takes too long, the person hears of it and the update counts as handled."""
    while True:
        try:
            await within(LIMIT_S, act())
        except (AlreadyDone, QueueLostError):  # what is lost makes the bot leave
            return
        except asyncio.TimeoutError:
            log.error("update %s took too long and was given up", taken.update_id)
            await patiently(partial(_excuse, taken, TOO_LONG))
        except StoreError as error:  # nothing of it is there: it is done when it can be
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
    taken.uses.clear()  # what failed may be tried again with the same button
    try:
        with taken.effect():
            if taken.query_id is not None and units(sentence) <= LONGEST_ANSWER:
                taken.answer(sentence, alert=True)
                return
            taken.answer()
            taken.reply(fit([f"⚠️ {escape(sentence)}"]))
    except AlreadyDone:
        return
