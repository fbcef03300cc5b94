"""The gate: who may do what. Every update from outside must pass it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from telegram.constants import ChatID, ChatType

from bot.commands import ROLES, Role

if TYPE_CHECKING:
    from telegram import Chat, Message, Update, User

    from bot.settings import ChatSettings
    from bot.store.people import People

# accounts that stand for people who write as a group or a channel, and Telegram's own
NOBODY = {int(ChatID.ANONYMOUS_ADMIN), int(ChatID.FAKE_CHANNEL), int(ChatID.SERVICE_CHAT)}
WRONG_CODES_AT_MOST = 5
STRANGER = "a stranger"


@dataclass(frozen=True, slots=True)
class Caller:
    """A person with a role, and the chat they write in."""

    id: int
    name: str
    role: Role
    chat: int
    private: bool

    @property
    def actor(self) -> str:
        """The person's actor name, as in jobs and in the audit."""
        return actor_of(self.id)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A person who sent, in a private chat, a valid code for a higher role than they have."""

    id: int
    name: str
    code: str


@dataclass(frozen=True, slots=True)
class Moved:
    """Telegram's message that a group we serve has a new id."""

    chat: int
    became: int


@dataclass(frozen=True, slots=True)
class Added:
    """The bot was added to a chat that it does not serve."""

    chat: int
    title: str
    by: int


@dataclass(frozen=True, slots=True)
class Denied:
    """A refusal: nothing is done and nothing is answered."""

    why: str


Verdict = Caller | Candidate | Moved | Added | Denied


def actor_of(person_id: int) -> str:
    """Return the actor name of a person, as jobs store their owner."""
    return f"tg:{person_id}"


def person_of(actor: str) -> int | None:
    """Return the person's id, the inverse of actor_of. None if the actor is not from the chat."""
    kind, _, number = actor.partition(":")
    return int(number) if kind == "tg" and number.isascii() and number.isdigit() else None


def _is_somebody(user: User) -> bool:
    """Return whether this is a person, not a bot or an account that stands for others."""
    return not (user.is_bot or user.id <= 0 or user.id in NOBODY)


class Gate:
    """Decides who may do what. Roles come from the settings, then from pairings; nobody else has one."""

    def __init__(self, settings: ChatSettings, people: People) -> None:
        self._people = people
        self._groups = frozenset(settings.groups)
        self._by_settings = {
            **dict.fromkeys(settings.viewers, Role.VIEWER),
            **dict.fromkeys(settings.users, Role.USER),
            **dict.fromkeys(settings.admins, Role.ADMIN),
        }
        self._wrong_codes: Counter[int] = Counter()
        self.turned_away: Counter[str] = Counter()

    def role_of(self, person_id: int) -> Role | None:
        """Return the person's current role, or None."""
        if (role := self._by_settings.get(person_id)) is not None:
            return role
        return ROLES.get(self._people.get(person_id).role or "")

    def everybody(self) -> dict[int, Role]:
        """Return everybody who has a role. The settings override pairings."""
        return {person.id: ROLES[person.role] for person in self._people.paired() if person.role} | self._by_settings

    def admins(self) -> list[int]:
        """Return the ids of all admins."""
        return sorted(person for person, role in self.everybody().items() if role is Role.ADMIN)

    def is_from_settings(self, person_id: int) -> bool:
        """Return whether the person's role comes from the settings, which the chat cannot change."""
        return person_id in self._by_settings

    def serves(self, chat: int) -> bool:
        """Return whether this group is allowed, by its present id or an earlier one."""
        roots = {chat} | {old for old, new in self._people.successors().items() if new == chat}
        return bool(self._groups & roots)

    def role_in(self, person_id: int, chat: int) -> Role | None:
        """Return the person's current role, or None if they have none or this chat is neither theirs nor served."""
        return self.role_of(person_id) if chat == person_id or (chat < 0 and self.serves(chat)) else None

    def may_reach(self, person_id: int, chat: int) -> bool:
        """Return whether messages for this person may go to this chat."""
        return self.role_in(person_id, chat) is not None

    def judge(self, update: Update) -> Verdict:
        """Decide what an update is: a caller, a candidate, a moved group, a new chat or a refusal."""
        if update.callback_query is not None:
            query = update.callback_query
            place = query.message.chat if query.message else None
            return self._person(query.from_user, place)
        if update.my_chat_member is not None:
            return self._membership(update)
        if update.message is None:
            return Denied("a kind of update that is not served")
        return self._message(update.message)

    def _message(self, message: Message) -> Verdict:
        if message.migrate_to_chat_id is not None:
            served = self.serves(message.chat.id)
            return Moved(message.chat.id, message.migrate_to_chat_id) if served else Denied("a group")
        if message.edit_date or message.forward_origin or message.via_bot or message.sender_chat:
            return Denied("not written here by a person")
        if message.is_automatic_forward or message.sender_business_bot or message.business_connection_id:
            return Denied("not written here by a person")
        user, place = message.from_user, message.chat
        verdict = self._person(user, place)
        if user is not None and _is_somebody(user) and place.type == ChatType.PRIVATE and place.id == user.id:
            return self._candidate(user, message.text or "") or verdict
        return verdict

    def _person(self, user: User | None, place: Chat | None) -> Caller | Denied:
        if user is None or place is None:
            return Denied("nobody in particular")
        if not _is_somebody(user):
            return Denied("a bot")
        role = self.role_of(user.id)
        if role is None:
            return Denied(STRANGER)
        if place.type == ChatType.PRIVATE and place.id == user.id:
            return Caller(user.id, user.full_name, role, place.id, private=True)
        if place.type in {ChatType.GROUP, ChatType.SUPERGROUP} and self.serves(place.id):
            return Caller(user.id, user.full_name, role, place.id, private=False)
        return Denied("a chat that is not served")

    def _candidate(self, user: User, text: str) -> Candidate | None:
        """Return a candidate if the text is /start with a valid code for a higher role. No code overrides settings."""
        command, _, rest = text.partition(" ")
        code = rest.strip()
        if command != "/start" or not code or self.is_from_settings(user.id):
            return None
        if self._wrong_codes[user.id] >= WRONG_CODES_AT_MOST:
            return None
        role, invitation = self.role_of(user.id), self._people.invitation(code)
        if invitation is None:
            self._wrong_codes[user.id] += role is None  # a used code is judged again after pairing: not wrong
            return None
        return Candidate(user.id, user.full_name, code) if ROLES[invitation[0]] > (role or 0) else None

    def _membership(self, update: Update) -> Added | Denied:
        change = update.my_chat_member
        assert change is not None
        there = change.new_chat_member.status in {"member", "administrator", "restricted"}
        if change.chat.type == ChatType.PRIVATE or not there or self.serves(change.chat.id):
            return Denied("a change of membership")
        return Added(change.chat.id, change.chat.title or "", change.from_user.id)

    def turn_away(self, denied: Denied) -> None:
        """Count a refusal, by reason."""
        self.turned_away[denied.why] += 1
