"""The commands a bot offers, by scope and language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.telegram.api_errors import FieldError, bad_request
from tests.telegram.fields import Fields
from tests.telegram.objects import ADMINISTRATOR, CREATOR

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.limits import Limits
    from tests.telegram.objects import Chat

WIDE_SCOPES = frozenset({"default", "all_private_chats", "all_group_chats", "all_chat_administrators"})
CHAT_SCOPES = frozenset({"chat", "chat_administrators", "chat_member"})
NAME = re.compile(r"[a-z0-9_]{1,32}")


@dataclass(frozen=True, slots=True)
class Scope:
    """Who commands are for."""

    type: str = "default"
    chat_id: int | None = None
    user_id: int | None = None

    def to_json(self) -> JsonObject:
        """Return the scope as it was given."""
        fields = {"type": self.type, "chat_id": self.chat_id, "user_id": self.user_id}
        return {name: value for name, value in fields.items() if value is not None}


class CommandMenu:
    """What setMyCommands set, and what a person sees of it."""

    def __init__(self) -> None:
        self._lists: dict[tuple[Scope, str], list[JsonObject]] = {}

    def set(self, scope: Scope, language: str, commands: list[JsonObject]) -> None:
        """Replace a list. An empty one removes it."""
        self._lists.pop((scope, language), None)
        if commands:
            self._lists[scope, language] = commands

    def get(self, scope: Scope, language: str = "") -> list[JsonObject]:
        """Return the list of exactly this scope and language."""
        return self._lists.get((scope, language), [])

    def shown(self, chat: Chat, user_id: int, language: str = "") -> list[JsonObject]:
        """Return what a person's client offers in a chat: the list of the narrowest scope that has one."""
        for scope in _scopes(chat, user_id):
            for tongue in (language, ""):
                if commands := self.get(scope, tongue):
                    return commands
        return []


def read_commands(values: Any, limits: Limits) -> list[JsonObject]:
    """Read and check the commands of a call."""
    if values is None:
        return []
    if not isinstance(values, list):
        raise bad_request("expected an Array of BotCommand")
    try:
        commands = [_command(Fields(value, "expected an Object")) for value in values]
    except FieldError as error:
        raise bad_request(f"can't parse BotCommand: {error}") from None
    if len(commands) > limits.commands:
        raise bad_request("BOT_COMMANDS_TOO_MUCH")
    return commands


def read_scope(scope: Any) -> tuple[str, str, int | None]:
    """Return a scope's type, its chat as given, and its user."""
    if scope is None:
        return "default", "", None
    try:
        fields = Fields(scope, "BotCommandScope must be an Object")
        kind = fields.string("type")
        if kind in WIDE_SCOPES:
            return kind, "", None
        if kind not in CHAT_SCOPES:
            raise FieldError("Unsupported type specified")
        chat = fields.string("chat_id")
        if not chat:
            raise FieldError("Empty chat_id specified")
        return kind, chat, fields.integer("user_id") if kind == "chat_member" else None
    except FieldError as error:
        raise bad_request(f"can't parse BotCommandScope: {error}") from None


def _command(fields: Fields) -> JsonObject:
    name = fields.string("command").strip().removeprefix("/")
    description = fields.string("description").strip()
    if not name:
        raise bad_request("command must be non-empty")
    if len(name) > 32:
        raise bad_request("command length must not exceed 32")
    if not description:
        raise bad_request("command description must be non-empty")
    if len(description) > 256:
        raise bad_request("command description length must not exceed 256")
    if not NAME.fullmatch(name):
        raise bad_request("BOT_COMMAND_INVALID")
    return {"command": name, "description": description}


def _scopes(chat: Chat, user_id: int) -> list[Scope]:
    """Return the scopes that apply, from the narrowest to the widest."""
    if not chat.is_group:
        return [Scope("chat", chat.id), Scope("all_private_chats"), Scope()]
    admin = chat.members.get(user_id) in {ADMINISTRATOR, CREATOR}
    return [
        Scope("chat_member", chat.id, user_id),
        *([Scope("chat_administrators", chat.id)] if admin else []),
        Scope("chat", chat.id),
        *([Scope("all_chat_administrators")] if admin else []),
        Scope("all_group_chats"),
        Scope(),
    ]
