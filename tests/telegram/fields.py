"""Reading nested JSON objects field by field, with Telegram's error messages."""

from __future__ import annotations

import json
from typing import Any

from bot.local_chat.bot_api.objects import JsonObject
from tests.telegram.api_errors import FieldError, bad_request


def decode(source: str, what: str) -> Any:
    """Parse the JSON in a parameter. `what` names it in the refusal."""
    try:
        value = json.loads(source)
    except (ValueError, RecursionError):
        raise bad_request(f"can't parse {what} JSON object") from None
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise bad_request("strings must be encoded in UTF-8") from None
    return value


class Fields:
    """The fields of one JSON object."""

    def __init__(self, value: Any, complaint: str) -> None:
        if not isinstance(value, dict):
            raise FieldError(complaint)
        self._values: JsonObject = value

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """Return the value as it is, or None."""
        return self._values.get(name)

    def string(self, name: str) -> str:
        """Return a required string. A number is accepted."""
        self._need(name)
        return self.optional_string(name)

    def optional_string(self, name: str) -> str:
        """Return a string, empty if it is missing."""
        value = self._values.get(name)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise FieldError(f'Field "{name}" must be of type String')
        return str(value)

    def integer(self, name: str) -> int:
        """Return a required integer. A string of digits is accepted."""
        self._need(name)
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise FieldError(f'Field "{name}" must be of type Number')
        try:
            return int(value)
        except ValueError:
            raise FieldError(f'Field "{name}" must be a valid Number') from None

    def optional_boolean(self, name: str) -> bool:
        """Return a boolean, false if it is missing."""
        value = self._values.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise FieldError(f'Field "{name}" must be of type Boolean')
        return value

    def _need(self, name: str) -> None:
        if name not in self:
            raise FieldError(f'Can\'t find field "{name}"')
