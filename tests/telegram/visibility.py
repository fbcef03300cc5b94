"""Which messages of people the bot gets, and as what kind of update."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.telegram.objects import ADMINISTRATOR, CHANNEL, INSIDE, PRIVATE

if TYPE_CHECKING:
    from tests.telegram.objects import Message
    from tests.telegram.world import World

COMMAND_TARGET = re.compile(r"/\w+@(\w+)")


def deliver(world: World, message: Message, *, edited: bool = False) -> int | None:
    """Queue a message for the bot. Return the update's id, or None if the bot does not get it."""
    if not _sees(world, message):
        return None
    kind = "channel_post" if message.chat.type == CHANNEL else "message"
    return world.updates.add(f"edited_{kind}" if edited else kind, message.to_json())


def _sees(world: World, message: Message) -> bool:
    chat = message.chat
    if chat.type == PRIVATE:
        return not chat.blocked
    if chat.bot_status not in INSIDE:
        return False
    sees_all = world.reads_all_group_messages or chat.bot_status == ADMINISTRATOR or chat.type == CHANNEL
    return sees_all or bool(message.service) or _meant_for_bot(world, message)


def _meant_for_bot(world: World, message: Message) -> bool:
    """Return whether group privacy lets it pass: a command, a reply to the bot, a mention, or sent through the bot."""
    name = f"@{world.bot.username}".lower()
    text = message.text.text or message.caption.text
    if text.startswith("/"):
        target = COMMAND_TARGET.match(text)
        return target is None or f"@{target[1]}".lower() == name
    replied = message.reply_to is not None and message.reply_to.outgoing
    return replied or name in text.lower() or message.via_bot == world.bot
