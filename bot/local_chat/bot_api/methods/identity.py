"""Who the bot is, and logging out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.local_chat.bot_api.fields import JsonObject
    from bot.local_chat.bot_api.params import Params
    from bot.local_chat.bot_api.world import World

ABILITIES = (
    *("supports_inline_queries", "supports_guest_queries", "can_connect_to_business", "has_main_web_app"),
    *("has_topics_enabled", "allows_users_to_create_topics", "can_manage_bots"),
)


def get_me(world: World, _params: Params) -> JsonObject:
    """Return the bot itself."""
    reads_all = {"can_join_groups": True, "can_read_all_group_messages": world.reads_all_group_messages}
    return world.bot.to_json() | reads_all | dict.fromkeys(ABILITIES, False)


def log_out(world: World, _params: Params) -> bool:
    """Log out. After that every call is refused."""
    world.logged_out = True
    return True


def close(_world: World, _params: Params) -> bool:
    """Prepare to move to another server. Changes nothing here."""
    return True
