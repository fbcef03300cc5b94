"""Simpler forms of a message that Telegram refused. Pure."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from bot.outbound.retry_policy import Then
from bot.telegram_html import MESSAGE_UNITS, TAG, shorten

if TYPE_CHECKING:
    from bot.outbound.retry_policy import Verdict
    from runner.api.chat import Message

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


FORMS = {Then.PLAIN: _plainer, Then.LOOSE: _looser, Then.BARE: _barest}
