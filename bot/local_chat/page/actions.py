"""What the person on the page can do: write, send a file, press a button, load older messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.api_errors import ApiError, PersonError
from bot.local_chat.bot_api.entities import utf16_length
from bot.local_chat.bot_api.world import as_told

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.local_chat.bot_api.api import BotApi
    from bot.local_chat.bot_api.objects import Message, User

SHOWN_AT_ONCE = 200
KEPT_NAMES = 1000
LONGEST_NAME = 64


class Acts:
    """The person's side of their chat. The page names each message it sends; a name is sent only once."""

    def __init__(self, api: BotApi, person: User) -> None:
        self._api = api
        self._person = person
        self._chat = api.world.chats[person.id]
        self._sending: str | None = None
        self._sent: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def name_of(self, message_id: int) -> str | None:
        """Return the page's own name for a message it sent or is sending, or None."""
        return self._names.get(message_id, self._sending)

    def messages(self, before: int | None = None) -> tuple[list[dict[str, Any]], bool]:
        """Return the newest messages (before this one, if given), oldest first, and whether there are older ones."""
        found = [message for message in self._chat.messages.values() if before is None or message.message_id < before]
        return [self._shown(message) for message in found[-SHOWN_AT_ONCE:]], len(found) > SHOWN_AT_ONCE

    def commands(self) -> list[dict[str, Any]]:
        """Return the commands the person is offered."""
        return self._api.world.commands.shown(self._chat, self._person.id, self._person.language_code)

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a frame from the page asks, and return the frame to answer with."""
        name = request.get("id")
        try:
            if request.get("do") == "send":
                return {"type": "done", "id": name, "message_id": self._send_text(request)}
            if request.get("do") == "tap":
                tap = self._api.people.tap(self._person, None, _whole(request, "message_id"), _text(request, "data"))
                return {"type": "done", "id": name, "tap": tap.id}
            if request.get("do") == "older":
                messages, more = self.messages(_whole(request, "before"))
                return {"type": "older", "messages": messages, "more": more}
        except (PersonError, ApiError) as error:
            return {"type": "refused", "id": name, "error": getattr(error, "description", str(error))}
        return {"type": "refused", "id": name, "error": "the page asked for something unknown"}

    def send_document(self, name: str, file: tuple[str, bytes, str], caption: str, reply_to: int | None) -> int:
        """Send a file and return its message id. Raise PersonError if it is refused."""
        filename, data, mime_type = file
        if utf16_length(caption) > self._api.world.limits.caption:
            raise PersonError("the text below the file is too long")

        def send() -> Message:
            return self._api.people.send_document(
                self._person, None, filename, data, caption=caption, mime_type=mime_type, reply_to=reply_to
            )

        return self._once(name, send)

    def _send_text(self, request: dict[str, Any]) -> int:
        text = _text(request, "text")
        reply_to = _whole(request, "reply_to") if request.get("reply_to") is not None else None
        return self._once(
            _text(request, "id"), lambda: self._api.people.send_text(self._person, None, text, reply_to=reply_to)
        )

    def _once(self, name: str, send: Callable[[], Message]) -> int:
        if not 0 < len(name) <= LONGEST_NAME:
            raise PersonError("a message needs a name of its own")
        if name in self._sent:
            return self._sent[name]
        self._sending = name
        try:
            message_id = send().message_id
        finally:
            self._sending = None
        self._sent[name] = message_id
        self._names[message_id] = name
        while len(self._sent) > KEPT_NAMES:
            del self._names[self._sent.pop(next(iter(self._sent)))]
        return message_id

    def _shown(self, message: Message) -> dict[str, Any]:
        name = self.name_of(message.message_id)
        return as_told(message) | ({"client": name} if name else {})


def _text(request: dict[str, Any], field: str) -> str:
    value = request.get(field)
    if not isinstance(value, str):
        raise PersonError(f"{field} is missing")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise PersonError(f"{field} is not text")
    return value


def _whole(request: dict[str, Any], field: str) -> int:
    value = request.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise PersonError(f"{field} is missing")
    return value
