"""The menu of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.local_chat.bot_api import events
from bot.local_chat.bot_api.api_errors import bad_request
from bot.local_chat.bot_api.chat_access import readable_chat
from bot.local_chat.bot_api.command_menu import Scope, read_commands, read_scope

if TYPE_CHECKING:
    from bot.local_chat.bot_api.fields import JsonObject
    from bot.local_chat.bot_api.params import Params
    from bot.local_chat.bot_api.world import World


def set_my_commands(world: World, params: Params) -> bool:
    """Replace the commands of a scope."""
    commands = read_commands(params.json("commands", "commands"), world.limits)
    return _set(world, params, commands)


def delete_my_commands(world: World, params: Params) -> bool:
    """Remove the commands of a scope."""
    return _set(world, params, [])


def get_my_commands(world: World, params: Params) -> list[JsonObject]:
    """Return the commands of exactly this scope and language."""
    return world.commands.get(_scope(world, params), _language(params))


def _set(world: World, params: Params, commands: list[JsonObject]) -> bool:
    scope = _scope(world, params)
    language = _language(params)
    world.commands.set(scope, language, commands)
    world.events.tell(events.COMMANDS, scope.chat_id, {"scope": scope.to_json(), "commands": commands})
    return True


def _scope(world: World, params: Params) -> Scope:
    kind, chat, user_id = read_scope(params.json("scope", "BotCommandScope"))
    return Scope(kind, readable_chat(world, chat).id if chat else None, user_id)


def _language(params: Params) -> str:
    code = params.text("language_code")
    if code and not (len(code) == 2 and code.isascii() and code.isalpha() and code.islower()):
        raise bad_request("invalid language code specified")
    return code
