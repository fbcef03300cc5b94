"""People join, leave and block the bot, and groups become supergroups. The bot gets the updates Telegram would send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.local_chat.page.actions import PersonError
from tests.telegram.objects import (
    ADMINISTRATOR,
    GROUP,
    INSIDE,
    KICKED,
    LEFT,
    MEMBER,
    SUPERGROUP,
    Chat,
    Message,
    User,
    member_json,
)
from tests.telegram.visibility import deliver

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.world import World

Person = User | int
Place = Chat | int | None


class Membership:
    """People and chats are given as objects or by id. Without a chat, the person's chat with the bot is meant."""

    def __init__(self, world: World) -> None:
        self.world = world

    def block(self, user: Person) -> None:
        """Block the bot: it can no longer write to this person."""
        chat = self.place(user, None)
        chat.blocked = True
        self._bot_becomes(chat, self.user(user), MEMBER, KICKED)

    def unblock(self, user: Person) -> None:
        """Let the bot write again."""
        chat = self.place(user, None)
        chat.blocked = False
        self._bot_becomes(chat, self.user(user), KICKED, MEMBER)

    def join(self, user: Person, chat: Place) -> None:
        """Enter a group."""
        person, place = self.user(user), self.place(None, chat)
        self._member_becomes(place, person, MEMBER)
        self._announce(place, person, {"new_chat_members": [person.to_json()]})

    def leave(self, user: Person, chat: Place) -> None:
        """Leave a group."""
        person, place = self.user(user), self.place(None, chat)
        self._member_becomes(place, person, LEFT)
        self._announce(place, person, {"left_chat_member": person.to_json()})

    def add_bot(self, user: Person, chat: Place, *, admin: bool = False) -> None:
        """Add the bot to a group or channel, or change its rights there."""
        person, place = self.user(user), self.place(None, chat)
        was_inside = place.bot_status in INSIDE
        self._bot_becomes(place, person, place.bot_status, ADMINISTRATOR if admin else MEMBER)
        if place.is_group and not was_inside:
            self._announce(place, person, {"new_chat_members": [self.world.bot.to_json()]})

    def kick_bot(self, user: Person, chat: Place) -> None:
        """Remove the bot from a chat."""
        place = self.place(None, chat)
        self._bot_becomes(place, self.user(user), place.bot_status, KICKED)

    def add_topic(self, chat: Place, thread_id: int) -> None:
        """Open a topic of a forum, or of a chat with the bot."""
        self.place(None, chat).topics.add(thread_id)

    def migrate(self, chat: Place) -> Chat:
        """Turn a group into a supergroup, with a new id and the same people. Return the new chat."""
        old = self.place(None, chat)
        if old.type != GROUP or old.migrated_to is not None:
            raise PersonError("only a group becomes a supergroup, and once")
        new = self.world.add_chat(
            Chat(
                id=self.world.supergroup_id(),
                type=SUPERGROUP,
                title=old.title,
                members=dict(old.members),
                bot_status=old.bot_status,
            )
        )
        self._announce(old, None, {"migrate_to_chat_id": new.id})
        old.migrated_to = new.id
        self._announce(new, None, {"migrate_from_chat_id": old.id})
        self.world.events.tell("chat", old.id, {"migrated_to": new.id}, by_bot=False)
        return new

    def user(self, user: Person) -> User:
        """Return a person given as an object or by id."""
        if isinstance(user, User):
            return user
        person = self.world.users.get(user)
        if person is None:
            raise PersonError(f"nobody has the id {user}")
        return person

    def place(self, user: Person | None, chat: Place) -> Chat:
        """Return a chat given as an object or by id, by default the person's own."""
        if isinstance(chat, Chat):
            return chat
        if chat is None and user is None:
            raise PersonError("neither a person nor a chat")
        chat_id = self.user(user).id if chat is None and user is not None else chat
        place = self.world.chats.get(chat_id or 0)
        if place is None:
            raise PersonError(f"no chat has the id {chat_id}")
        return place

    def _bot_becomes(self, chat: Chat, by: User, old: str, new: str) -> None:
        chat.bot_status = new
        self._tell_member("my_chat_member", chat, by, self.world.bot, old, new)

    def _member_becomes(self, chat: Chat, person: User, status: str) -> None:
        old = chat.members.get(person.id, LEFT)
        chat.members[person.id] = status
        # only an administrator gets updates about others
        if chat.bot_status == ADMINISTRATOR:
            self._tell_member("chat_member", chat, person, person, old, status)

    def _tell_member(self, kind: str, chat: Chat, by: User, who: User, old: str, new: str) -> None:
        payload: JsonObject = {"chat": chat.to_json(), "from": by.to_json(), "date": self.world.now()}
        change = {"old_chat_member": member_json(who, old), "new_chat_member": member_json(who, new)}
        self.world.updates.add(kind, payload | change)
        self.world.events.tell("chat", chat.id, {"user_id": who.id, "status": new}, by_bot=False)

    def _announce(self, chat: Chat, sender: User | None, service: JsonObject) -> None:
        message = Message(message_id=0, chat=chat, date=self.world.now(), sender=sender, service=service)
        deliver(self.world, self.world.post(message, by_bot=False))
