"""Telegram's refusals."""

from __future__ import annotations

import math

from bot.local_chat.bot_api.methods import ApiError


class FieldError(ValueError):
    """A field of a nested object is missing or of the wrong type. Becomes an ApiError with its context in front."""


def bad_request(text: str) -> ApiError:
    """Return a 400: the request is wrong, and a retry does not help."""
    # Telegram begins sentences in lower case and leaves NAMES_OF_ERRORS as they are
    begins = text[0] if text[1:2].isupper() or text[1:2] == "_" else text[0].lower()
    return ApiError(400, f"Bad Request: {begins}{text[1:]}")


def forbidden(text: str) -> ApiError:
    """Return a 403: the bot may not write there."""
    return ApiError(403, f"Forbidden: {text}")


def conflict(text: str) -> ApiError:
    """Return a 409: another program reads the updates."""
    return ApiError(409, f"Conflict: {text}")


def too_many_requests(wait_s: float) -> ApiError:
    """Return a 429: the bot writes too fast. It may retry after this many seconds, rounded up."""
    seconds = max(1, math.ceil(wait_s))
    return ApiError(429, f"Too Many Requests: retry after {seconds}", {"retry_after": seconds})


def migrated(new_chat_id: int) -> ApiError:
    """Return the error for a group that has become a supergroup with a new id."""
    text = "Bad Request: group chat was upgraded to a supergroup chat"
    return ApiError(400, text, {"migrate_to_chat_id": new_chat_id})
