"""Chats and their members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.telegram.api_errors import bad_request
from tests.telegram.chat_access import readable_chat, writable_chat
from tests.telegram.objects import LEFT, MEMBER, PRIVATE, member_json

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.objects import Chat
    from tests.telegram.params import Params
    from tests.telegram.world import World

ACTIONS = frozenset(
    {
        *("cancel", "typing", "record_video", "upload_video", "record_audio", "record_voice", "upload_audio"),
        *("upload_voice", "upload_photo", "upload_document", "choose_sticker", "pick_up_location"),
        *("find_location", "record_video_note", "upload_video_note"),
    }
)
GIFTS = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels")


def send_chat_action(world: World, params: Params) -> bool:
    """Show that the bot is doing something, like typing."""
    action = params.text("action").lower()
    if action not in ACTIONS:
        raise bad_request("wrong parameter action in request")
    chat = writable_chat(world, params.text("chat_id"))
    world.events.tell("chat_action", chat.id, {"action": action})
    return True


def get_chat(world: World, params: Params) -> JsonObject:
    """Return everything about a chat."""
    chat = readable_chat(world, params.text("chat_id"))
    gifts = dict.fromkeys(GIFTS, False)
    return chat.to_json() | {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": gifts}


def get_chat_member(world: World, params: Params) -> JsonObject:
    """Return somebody's membership of a chat."""
    user_id = params.integer("user_id")
    if user_id <= 0:
        raise bad_request("invalid user_id specified")
    chat = readable_chat(world, params.text("chat_id"))
    user = world.users.get(user_id)
    if user is None:
        raise bad_request("PARTICIPANT_ID_INVALID")
    return member_json(user, _status(world, chat, user_id))


def leave_chat(world: World, params: Params) -> bool:
    """Make the bot leave a chat."""
    chat = readable_chat(world, params.text("chat_id"))
    if chat.type == PRIVATE:
        raise bad_request("chat member status can't be changed in private chats")
    chat.bot_status = LEFT
    world.events.tell("left_chat", chat.id, {})
    return True


def _status(world: World, chat: Chat, user_id: int) -> str:
    if user_id == world.bot.id:
        return chat.bot_status
    if chat.type != PRIVATE:
        return chat.members.get(user_id, LEFT)
    if user_id != chat.id:
        raise bad_request("member not found")
    return MEMBER
