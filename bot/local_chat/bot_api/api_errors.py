"""What the Bot API answers when it does not do what was asked.

ApiError        the bot asked for something that Telegram refuses
FieldError      a nested JSON object is not what it should be; becomes an ApiError with its context in front
PersonError     a person tried what no Telegram client would let them do; a mistake of the test or the page
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
    """No client would let a person do this."""


def bad_request(text: str) -> ApiError:
    """The request is wrong in itself; trying again does not help."""
    # Telegram writes sentences small and its NAMES_OF_ERRORS as they are
    begins = text[0] if text[1:2].isupper() or text[1:2] == "_" else text[0].lower()
    return ApiError(400, f"Bad Request: {begins}{text[1:]}")


def forbidden(text: str) -> ApiError:
    """The bot may not write there."""
    return ApiError(403, f"Forbidden: {text}")


def conflict(text: str) -> ApiError:
    """Someone else reads the updates."""
    return ApiError(409, f"Conflict: {text}")


def too_many_requests(wait_s: float) -> ApiError:
    """The bot writes too fast; it may try again after so many whole seconds."""
    seconds = max(1, math.ceil(wait_s))
    return ApiError(429, f"Too Many Requests: retry after {seconds}", {"retry_after": seconds})


def migrated(new_chat_id: int) -> ApiError:
    """The group lives on as a supergroup with another id."""
    text = "Bad Request: group chat was upgraded to a supergroup chat"
    return ApiError(400, text, {"migrate_to_chat_id": new_chat_id})
