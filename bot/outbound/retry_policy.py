"""Decides what to do after a call to Telegram failed, and makes simpler forms of a refused message. Pure.

In python-telegram-bot, BadRequest and TimedOut are both NetworkErrors, so the order of the checks matters.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from telegram import error

from bot.text.html import MESSAGE_UNITS, TAG, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.store.outbox import Message

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
LONGEST_UNSURE_S = 120.0  # longer, because each try may put one more copy into the chat
SHORTEST_WAIT_S = 1.0  # even if Telegram asks for less
NOT_JSON = "Invalid server response"
POOL_IS_FULL = "request was *not* sent"
NEVER_CONNECTED = {"ConnectTimeout", "PoolTimeout"}  # time-outs that certainly delivered nothing


class Then(Enum):
    """What to do with the message."""

    AGAIN = "try again later; it has not arrived"
    WAIT = "this chat is to be left alone for a while; it has not arrived"
    PERHAPS = "try again later; it may have arrived"
    PLAIN = "try again at once, without markup"
    LOOSE = "try again at once, without the message it replies to or its topic"
    BARE = "try again at once, as text and nothing else"
    MOVE = "the chat has a new id"
    DONE = "nothing more to do"
    PARK = "it can never be delivered as it is"
    DOUBT = "try again later; the token may be no longer good"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, after how many seconds, why, and the chat's new id if it has one."""

    then: Then
    after_s: float = 0.0
    why: str = ""
    chat: int | None = None


def after_failure(problem: BaseException, tries: int) -> Verdict:
    """Return what to do after try number `tries` failed like this. Raise what is not a TelegramError again."""
    for kind, judge in _JUDGES:
        if isinstance(problem, kind):
            return judge(problem, max(tries, 1))
    raise problem


def pause_s(tries: int, longest_s: float = LONGEST_PAUSE_S) -> float:
    """Return how many seconds to wait after `tries` failures in a row."""
    return float(min(FIRST_PAUSE_S * 2 ** min(tries - 1, 10), longest_s))


def _again(problem: BaseException, tries: int) -> Verdict:
    return Verdict(Then.AGAIN, pause_s(tries), why=str(problem))


def _perhaps(problem: BaseException, tries: int) -> Verdict:
    return Verdict(Then.PERHAPS, pause_s(tries, LONGEST_UNSURE_S), why=str(problem))


def _wait_as_told(problem: error.RetryAfter, _: int) -> Verdict:
    wait = problem.retry_after
    wait_s = wait.total_seconds() if isinstance(wait, timedelta) else float(wait)
    return Verdict(Then.WAIT, wait_s, why=str(problem))


def _timed_out(problem: error.TimedOut, tries: int) -> Verdict:
    not_sent = POOL_IS_FULL in str(problem).lower() or type(problem.__cause__).__name__ in NEVER_CONNECTED
    return _again(problem, tries) if not_sent else _perhaps(problem, tries)


# Telegram did nothing: there was no connection, or the answer says so.
_NEVER_DONE = ("connecterror", "proxyerror", "connection refused", "all connection attempts failed", "name or service")
_SERVER = ("bad gateway", "internal server", "service unavailable", "too many requests")
_TOO_LARGE = ("too large", "too big")


def is_of_a_stranger(problem: BaseException) -> bool:
    """Return whether an answer is not JSON, so not from Telegram: a proxy's 401 or 404 says nothing about the token."""
    cause = problem.__cause__
    return cause is not None and (str(cause) == NOT_JSON or is_of_a_stranger(cause))


def _unknown(problem: error.InvalidToken, tries: int) -> Verdict:
    if is_of_a_stranger(problem):
        return _again(problem, tries)
    return Verdict(Then.DOUBT, pause_s(tries), why="Telegram does not know the bot's token")


def _network(problem: error.TelegramError, tries: int) -> Verdict:
    """Judge a missing or broken connection, a 413, a 5xx, or an answer that makes no sense."""
    text = str(problem).lower()
    if any(words in text for words in _TOO_LARGE):
        return Verdict(Then.PARK, why=f"refused: {_reason(problem)}")
    never_done = any(words in text for words in (*_NEVER_DONE, *_SERVER))
    return _again(problem, tries) if never_done else _perhaps(problem, tries)


_DONE = ("message is not modified", "query is too old", "query id is invalid", "message to delete not found")
_GONE = ("message to edit not found", "message can't be edited", "message_id_invalid")
_LOOSE = (
    *("message to be replied not found", "replied message not found", "message thread not found"),
    *("topic_closed", "topic_deleted"),
)
_UNREACHABLE = (
    *("chat not found", "not enough rights", "have no rights", "chat_write_forbidden", "chat_restricted"),
    *("deactivated", "was deleted", "was kicked", "not a member", "peer_id_invalid", "user_is_blocked"),
    *("administrator rights", "chat_send_plain_forbidden"),
)


def _refused(problem: error.BadRequest, _: int) -> Verdict:
    reason = _reason(problem)
    text = reason.lower()
    if any(words in text for words in (*_DONE, *_GONE)):
        return Verdict(Then.DONE, why=reason)
    if "can't parse entities" in text or "unsupported start tag" in text:
        return Verdict(Then.PLAIN, why=reason)
    if any(words in text for words in _LOOSE):
        return Verdict(Then.LOOSE, why=reason)
    if any(words in text for words in _UNREACHABLE):
        return Verdict(Then.PARK, why=f"unreachable: {reason}")
    return Verdict(Then.BARE, why=reason)


def _reason(problem: error.TelegramError) -> str:
    reason, _, _ = problem.message.partition(". Parsing the server response")  # the answer was a page, not JSON
    return reason.removeprefix("Bad Request: ").removeprefix("Forbidden: ")


# The first match counts: the last class includes all the others.
_JUDGES: tuple[tuple[type[BaseException], Callable[[Any, int], Verdict]], ...] = (
    (error.RetryAfter, _wait_as_told),
    (error.ChatMigrated, lambda problem, _: Verdict(Then.MOVE, chat=problem.new_chat_id)),
    (error.InvalidToken, _unknown),
    (error.Forbidden, lambda problem, _: Verdict(Then.PARK, why=f"unreachable: {_reason(problem)}")),
    (error.BadRequest, _refused),
    (error.Conflict, _again),
    (error.TimedOut, _timed_out),
    (error.TelegramError, _network),
)


# -- simpler forms of a message that Telegram refused ------------------------------------------------

AS_WORDS = {Then.PLAIN, Then.BARE, Then.PARK}  # then text alone may get through: a group may forbid pictures


def _plainer(body: dict[str, Any]) -> dict[str, Any]:
    if body.get("plain") or "text" not in body:
        return body
    return {**body, "text": html.unescape(TAG.sub("", body["text"])), "plain": True}


def _looser(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in {"reply_to", "topic"}}


def _barest(body: dict[str, Any]) -> dict[str, Any]:
    """Return plain text only: whatever Telegram refused, that should get through."""
    bare = {key: value for key, value in _plainer(_looser(body)).items() if key != "keyboard"}
    return {**bare, "text": shorten(bare["text"], MESSAGE_UNITS - 200, keep="both")} if "text" in bare else bare


def in_words(message: Message, verdict: Verdict) -> dict[str, Any] | None:
    """Return the message without its picture, or with the reason why there is no file; None if text would not help."""
    body = message.body
    if "plot" in body:
        return {key: value for key, value in body.items() if key not in {"plot", "caption"}}
    unreachable = verdict.then is Then.PARK and verdict.why.startswith("unreachable") and message.chat > 0
    if message.method != "sendDocument" or "refused" in body or unreachable:
        return None
    return {**body, "refused": verdict.why.removeprefix("refused: ").removeprefix("unreachable: ")}


SIMPLER_FORMS = {Then.PLAIN: _plainer, Then.LOOSE: _looser, Then.BARE: _barest}
