"""Telegram's limits. A test may make them smaller."""

from __future__ import annotations

from dataclasses import dataclass

from bot.local_chat.bot_api.world import MIB, ChatLimits

DAY_S = 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(ChatLimits):
    """How much Telegram accepts, beyond what matters to the page."""

    raw_text_bytes: int = 32768
    """Bytes of a text as sent, with its markup."""
    callback_answer: int = 200
    callback_data_bytes: int = 64
    copied_text: int = 256
    entities: int = 100
    buttons: int = 100
    markup_bytes: int = 10_000
    commands: int = 100
    upload_bytes: int = 50 * MIB
    photo_bytes: int = 10 * MIB
    delete_age_s: float = 48 * 60 * 60
    repeated_poll: bool = False
    """Whether to slow down polls that repeat an offset, as Telegram does. Within 3 s such a poll waits up to 3 s, and
    within half a second it returns only one update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodLimits:
    """How fast a bot may write. Telegram does not publish its exact numbers."""

    chat_per_s: float = 1.0
    chat_burst: int = 3
    group_per_min: int = 20
    overall_per_s: int = 30


UPDATE_LIFE_S = {
    # a person waits for these at the screen: late delivery is useless
    "inline_query": 30.0,
    "callback_query": 150.0,
    "shipping_query": 150.0,
    "pre_checkout_query": 150.0,
    "chosen_inline_result": 600.0,
}


def update_life_s(kind: str) -> float:
    """Return how many seconds an update waits for a bot that does not fetch it."""
    return UPDATE_LIFE_S.get(kind, DAY_S)
