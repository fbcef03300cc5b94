"""Where the bot may read and write, checked in the same order as Telegram does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.telegram.api_errors import bad_request, forbidden, migrated
from tests.telegram.objects import ADMINISTRATOR, CHANNEL, INSIDE, KICKED, PRIVATE

if TYPE_CHECKING:
    from tests.telegram.objects import Chat, Message
    from tests.telegram.world import World


def known_chat(world: World, chat_id: str) -> Chat:
    """Return the chat with this id or @name."""
    if not chat_id:
        raise bad_request("chat_id is empty")
    chat = _named(world, chat_id[1:]) if chat_id.startswith("@") else _numbered(world, chat_id)
    if chat is None:
        raise bad_request("chat not found")
    return chat


def readable_chat(world: World, chat_id: str) -> Chat:
    """Return a chat that the bot is in, or a group that has moved. A private one only once the person has written."""
    chat = known_chat(world, chat_id)
    if chat.type == PRIVATE and not chat.started:
        raise bad_request("chat not found")
    if chat.type != PRIVATE and chat.migrated_to is None:
        _check_inside(chat)
    return chat


def writable_chat(world: World, chat_id: str) -> Chat:
    """Return a chat that the bot may write to."""
    chat = known_chat(world, chat_id)
    if chat.type == PRIVATE:
        _check_person(chat)
        return chat
    if chat.migrated_to is not None:
        raise migrated(chat.migrated_to)
    _check_inside(chat)
    if chat.type == CHANNEL and chat.bot_status != ADMINISTRATOR:
        raise bad_request("need administrator rights in the channel chat")
    return chat


def message_in(chat: Chat, message_id: int, what: str) -> Message:
    """Return a message of a chat. `what` names it in the refusal."""
    message = chat.messages.get(message_id)
    if message is None:
        raise bad_request(f"{what} not found")
    return message


def _named(world: World, name: str) -> Chat | None:
    matches = (chat for chat in world.chats.values() if chat.type != PRIVATE and chat.username)
    return next((chat for chat in matches if chat.username.lower() == name.lower()), None)


def _numbered(world: World, chat_id: str) -> Chat | None:
    try:
        return world.chats.get(int(chat_id))
    except ValueError:
        return None


def _check_person(chat: Chat) -> None:
    if chat.user is not None and chat.user.is_bot:
        raise forbidden("the bot can't send messages to the bot")
    if chat.blocked:
        raise forbidden("bot was blocked by the user")
    if not chat.started:
        raise forbidden("bot can't initiate conversation with a user")


def _check_inside(chat: Chat) -> None:
    if chat.bot_status == KICKED:
        raise forbidden(f"bot was kicked from the {chat.type} chat")
    if chat.bot_status not in INSIDE:
        raise forbidden(f"bot is not a member of the {chat.type} chat")
