"""The parameters of one call. Each arrives as a string, or as an uploaded file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.telegram.api_errors import bad_request
from tests.telegram.fields import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.local_chat.bot_api.files import Upload

TRUE = frozenset({"true", "yes", "1"})
FALSE = frozenset({"", "false", "no", "0"})


class Params:
    """Reads parameters by type. Unknown parameters are ignored, as Telegram does."""

    def __init__(self, values: Mapping[str, str], files: Mapping[str, Upload] | None = None) -> None:
        self.values = values
        self.files: Mapping[str, Upload] = files or {}

    def text(self, name: str) -> str:
        """Return a string as sent, empty if it is missing."""
        value = self.values.get(name, "")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise bad_request("strings must be encoded in UTF-8") from None
        return value

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer."""
        value = self.values.get(name, "").strip()
        if not value:
            return default
        try:
            return int(value)
        except ValueError:
            raise bad_request(f"invalid {name} specified") from None

    def boolean(self, name: str) -> bool:
        """Return a boolean, false if it is missing."""
        value = self.values.get(name, "").strip().lower()
        if value not in TRUE | FALSE:
            raise bad_request(f"invalid {name} specified")
        return value in TRUE

    def json(self, name: str, what: str) -> Any:
        """Return the JSON in a parameter, or None if it is missing."""
        value = self.text(name)
        return decode(value, what) if value else None
