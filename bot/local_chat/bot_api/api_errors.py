"""The errors of the Bot API.

ApiError        the bot asked for something that Telegram refuses
FieldError      a nested JSON object is not what it should be; becomes an ApiError with its context in front
PersonError     a person tried something that no Telegram client allows; a mistake of the test or the page
"""

from __future__ import annotations

import math


class ApiError(Exception):
    """A refusal with Telegram's code, description and parameters."""

    def __init__(self, code: int, description: str, parameters: dict[str, int] | None = None) -> None:
        super().__init__(f"{code} {description}")
        self.code = code
        self.description = description
        self.parameters = parameters or {}


class FieldError(ValueError):
    """A field of a nested object is missing or of the wrong type."""


class PersonError(ValueError):
    """A person tried something that no Telegram client allows."""


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
