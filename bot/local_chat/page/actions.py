"""What the person on the page can do: write, send a file, press a button, load older messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.formatted_text import plain_text, utf16_length

if TYPE_CHECKING:
    from bot.local_chat.bot_api.files import Upload
    from bot.local_chat.bot_api.objects import ApiUser, JsonObject
    from bot.local_chat.bot_api.world import LocalWorld

SHOWN_AT_ONCE = 200
KEPT_NAMES = 1000
LONGEST_NAME = 64


class PersonError(ValueError):
    """A person tried something that no Telegram client allows."""


class PersonActions:
    """The person's side of their chat. The page names each message it sends; a name is sent only once."""

    def __init__(self, world: LocalWorld, person: ApiUser) -> None:
        self._world = world
        self._person = person
        self._chat = world.chats[person.id]
        self._sent: dict[str, int] = {}  # message ids by the page's names

    def messages(self, before: int | None = None) -> tuple[list[JsonObject], bool]:
        """Return the newest messages (before this one, if given), oldest first, and whether there are older ones."""
        messages = [message for number, message in self._chat.messages.items() if before is None or number < before]
        return [message.for_page() for message in messages[-SHOWN_AT_ONCE:]], len(messages) > SHOWN_AT_ONCE

    def do(self, request: JsonObject) -> JsonObject:
        """Do what a frame from the page asks, and return the frame to answer with."""
        name = request.get("id")
        try:
            if request.get("do") == "send":
                return {"type": "done", "id": name, "message_id": self._send_text(request)}
            if request.get("do") == "tap":
                tap = self._world.tap(self._person, _integer(request, "message_id"), _text(request, "data"))
                return {"type": "done", "id": name, "tap": tap.id}
            if request.get("do") == "older":
                messages, more = self.messages(_integer(request, "before"))
                return {"type": "older", "messages": messages, "more": more}
        except PersonError as error:
            return {"type": "refused", "id": name, "error": str(error)}
        return {"type": "refused", "id": name, "error": "This page does not fit the bot. Reload it."}

    def send_document(self, name: str, upload: Upload, caption: str, reply_to: int | None) -> int:
        """Send a file and return its message id. Raise PersonError if it is refused."""
        if utf16_length(caption) > self._world.limits.caption:
            raise PersonError(f"The text below a file has at most {self._world.limits.caption} characters.")

        if name not in self._sent:
            document = self._world.files.add("document", upload)
            self._send(name, reply_to, document=document, caption=plain_text(caption))
        return self._sent[name]

    def _send_text(self, request: JsonObject) -> int:
        text = plain_text(_text(request, "text"))
        name = _text(request, "id")
        reply_to = _integer(request, "reply_to") if request.get("reply_to") is not None else None
        if not text.text:
            raise PersonError("There is nothing to send.")
        if utf16_length(text.text) > self._world.limits.text:
            raise PersonError(
                f"A message has at most {self._world.limits.text} characters. Send longer text as a file."
            )
        if name not in self._sent:
            self._send(name, reply_to, text=text)
        return self._sent[name]

    def _send(self, name: str, reply_to: int | None, **content: Any) -> None:
        if not 0 < len(name) <= LONGEST_NAME:
            raise PersonError("A message needs a name of its own.")
        replied = self._chat.messages.get(reply_to or 0)
        self._sent[name] = self._world.write(self._person, client=name, reply_to=replied, **content).message_id
        while len(self._sent) > KEPT_NAMES:
            del self._sent[next(iter(self._sent))]


def _text(request: JsonObject, field: str) -> str:
    value = request.get(field)
    if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value):
        raise PersonError(f"The field {field} must be text.")
    return value


def _integer(request: JsonObject, field: str) -> int:
    value = request.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise PersonError(f"The field {field} must be a whole number.")
    return value
