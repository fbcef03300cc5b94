"""What people do in Telegram, for the page and the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.bot_api.formatted_text import FormattedText, utf16_length
from bot.local_chat.bot_api.world import EDITED
from bot.local_chat.page.actions import PersonError
from tests.telegram.detect_entities import detect
from tests.telegram.membership import Membership, Person, Place
from tests.telegram.objects import CHANNEL, INSIDE, PRIVATE, Message
from tests.telegram.photo import dimensions
from tests.telegram.text import finish, read_entities
from tests.telegram.updates import KINDS
from tests.telegram.visibility import deliver
from tests.telegram.world import ANONYMOUS_ADMIN, CHANNEL_BOT

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject
    from bot.local_chat.bot_api.world import Tap


class People(Membership):
    """What people can do. People and chats are given as objects or by id; the default is the chat with the bot."""

    def start(self, user: Person, payload: str = "") -> Message:
        """Press Start in the chat with the bot, perhaps from a deep link."""
        return self.send_text(user, None, f"/start {payload}".rstrip())

    def send_text(
        self,
        user: Person | None,
        chat: Place,
        text: str,
        *,
        entities: list[JsonObject] | None = None,
        reply_to: int | None = None,
        forward_from: Person | None = None,
        via_bot: Person | None = None,
        sender_chat: Place = None,
        thread_id: int | None = None,
        exact: bool = False,
    ) -> Message:
        """Write a message. `sender_chat` writes in a chat's name; `exact` skips a client's tidying and checks."""
        body = self._text(text, entities, exact=exact)
        message = self._message(user, chat, reply_to, sender_chat, thread_id)
        message.text = body
        message.via_bot = None if via_bot is None else self.user(via_bot)
        if forward_from is not None:
            message.forward_origin = self._origin(forward_from)
        return self._send(message)

    def send_document(
        self,
        user: Person,
        chat: Place,
        name: str,
        data: bytes,
        *,
        caption: str = "",
        mime_type: str = "application/octet-stream",
        reply_to: int | None = None,
    ) -> Message:
        """Send a file."""
        message = self._message(user, chat, reply_to, None, None)
        message.document = self.world.files.add("document", Upload(name, data, mime_type))
        message.caption = self._text(caption, None, exact=True)
        return self._send(message)

    def send_photo(self, user: Person, chat: Place, data: bytes, *, caption: str = "") -> Message:
        """Send a picture."""
        size = dimensions(data)
        if size is None:
            raise PersonError("not a picture")
        message = self._message(user, chat, None, None, None)
        message.photo = self.world.files.add("photo", Upload("photo.jpg", data, "image/jpeg"), size)
        message.caption = self._text(caption, None, exact=True)
        return self._send(message)

    def edit(
        self, user: Person | None, chat: Place, message_id: int, text: str, entities: list[JsonObject] | None = None
    ) -> Message:
        """Change one's own message."""
        place = self.place(user, chat)
        message = place.messages.get(message_id)
        if message is None:
            raise PersonError("no such message")
        if user is not None and message.sender != self.user(user):
            raise PersonError("not one's own message")
        message.text = self._text(text, entities, exact=False)
        message.edit_date = self.world.now()
        self.world.tell_message(EDITED, message, by_bot=False)
        deliver(self.world, message, edited=True)
        return message

    def tap(self, user: Person, chat: Place, message_id: int, data: str) -> Tap:
        """Press a button. Any data and any message id are accepted: a forged client can send anything."""
        person, place = self.user(user), self.place(user, chat)
        tap = self.world.new_tap(person, place, data)
        message = place.messages.get(message_id)
        gone = {"message_id": message_id, "chat": place.to_json(), "date": 0}
        payload: JsonObject = {"id": tap.id, "from": person.to_json(), "chat_instance": str(place.id), "data": data}
        self.world.updates.add("callback_query", payload | {"message": message.to_json() if message else gone})
        return tap

    def react(self, user: Person, chat: Place, message_id: int, emoji: str) -> None:
        """Send the bot the update for a reaction to a message. The message itself does not change."""
        place = self.place(user, chat)
        new = [{"type": "emoji", "emoji": emoji}] if emoji else []
        payload = {"chat": place.to_json(), "message_id": message_id, "date": self.world.now(), "old_reaction": []}
        self.world.updates.add("message_reaction", payload | {"user": self.user(user).to_json(), "new_reaction": new})

    def inline_query(self, user: Person, query: str) -> None:
        """Type the bot's name and a query, in any chat."""
        payload = {"id": str(self.user(user).id), "from": self.user(user).to_json(), "query": query, "offset": ""}
        self.world.updates.add("inline_query", payload)

    def raw_update(self, kind: str, payload: JsonObject) -> int | None:
        """Queue any update for the bot."""
        if kind not in KINDS:
            raise PersonError(f"no such kind of update: {kind}")
        return self.world.updates.add(kind, payload)

    def _message(
        self, user: Person | None, chat: Place, reply_to: int | None, sender_chat: Place, thread_id: int | None
    ) -> Message:
        place = self.place(user, chat)
        message = Message(
            message_id=0,
            chat=place,
            date=self.world.now(),
            sender=None if user is None else self.user(user),
            reply_to=place.messages.get(reply_to or 0),
            thread_id=thread_id,
        )
        if place.type == CHANNEL:
            message.sender, message.sender_chat = None, place
        elif sender_chat is not None:
            message.sender_chat = self.place(None, sender_chat)
            message.sender = ANONYMOUS_ADMIN if message.sender_chat is place else CHANNEL_BOT
        return message

    def _send(self, message: Message) -> Message:
        self._check_may_write(message)
        self.world.post(message, by_bot=False)
        deliver(self.world, message)
        return message

    def _check_may_write(self, message: Message) -> None:
        chat, sender = message.chat, message.sender
        if chat.migrated_to is not None:
            raise PersonError("the group has become a supergroup")
        if chat.type == PRIVATE:
            if chat.blocked:
                raise PersonError("who has blocked the bot cannot write to it")
            chat.started = True
        elif message.sender_chat is None and sender is not None and chat.members.get(sender.id) not in INSIDE:
            raise PersonError("not a member of the chat")

    def _text(self, text: str, entities: list[JsonObject] | None, *, exact: bool) -> FormattedText:
        if exact:
            return FormattedText(text, tuple(detect(text, read_entities(entities))))
        body = finish(text, read_entities(entities), self.world.limits)
        if not body.text:
            raise PersonError("nothing to send")
        if utf16_length(body.text) > self.world.limits.text:
            raise PersonError("the message is too long")
        return body

    def _origin(self, author: Person) -> JsonObject:
        return {"type": "user", "sender_user": self.user(author).to_json(), "date": self.world.now()}
