"""Who the bot is, its menu of commands, and logging out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.local_chat.bot_api.world import COMMANDS
from tests.telegram.api_errors import bad_request
from tests.telegram.chat_access import readable_chat
from tests.telegram.command_menu import Scope, read_commands, read_scope

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.params import Params
    from tests.telegram.world import World


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


def set_my_commands(world: World, params: Params) -> bool:
    """Replace the commands of a scope."""
    commands = read_commands(params.json("commands", "commands"), world.limits)
    return _set(world, params, commands)


def delete_my_commands(world: World, params: Params) -> bool:
    """Remove the commands of a scope."""
    return _set(world, params, [])


def get_my_commands(world: World, params: Params) -> list[JsonObject]:
    """Return the commands of exactly this scope and language."""
    return world.menu.get(_scope(world, params), _language(params))


def _set(world: World, params: Params, commands: list[JsonObject]) -> bool:
    scope = _scope(world, params)
    language = _language(params)
    world.menu.set(scope, language, commands)
    world.events.tell(COMMANDS, scope.chat_id, {"scope": scope.to_json(), "commands": commands})
    return True


def _scope(world: World, params: Params) -> Scope:
    kind, chat, user_id = read_scope(params.json("scope", "BotCommandScope"))
    return Scope(kind, readable_chat(world, chat).id if chat else None, user_id)


def _language(params: Params) -> str:
    code = params.text("language_code")
    if code and not (len(code) == 2 and code.isascii() and code.isalpha() and code.islower()):
        raise bad_request("invalid language code specified")
    return code
