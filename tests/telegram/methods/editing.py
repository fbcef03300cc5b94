"""Editing, deleting and reacting to existing messages, and answering taps on their buttons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.formatted_text import utf16_length
from bot.local_chat.bot_api.world import ANSWERED, EDITED
from tests.telegram.api_errors import FieldError, bad_request
from tests.telegram.chat_access import message_in, readable_chat, writable_chat
from tests.telegram.fields import Fields
from tests.telegram.markup import read_markup
from tests.telegram.methods.media import read_caption
from tests.telegram.methods.sending import link_preview, measured, message_text
from tests.telegram.objects import ADMINISTRATOR, PRIVATE

if TYPE_CHECKING:
    from bot.local_chat.bot_api.formatted_text import FormattedText
    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.objects import Message
    from tests.telegram.params import Params
    from tests.telegram.world import World

NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same "
    "as a current content and reply markup of the message"
)


def edit_message_text(world: World, params: Params) -> JsonObject:
    """Replace a text. The keyboard is removed unless it is given again."""
    preview = link_preview(params)
    text = message_text(world, params)
    markup = read_markup(params, world.limits, inline_only=True)
    message = _own_message(world, params)
    if not message.text.text:
        raise bad_request("there is no text in the message to edit")
    measured(text, world.limits.text, "message is too long")
    changed = _change(world, message, "text", text, markup)
    message.link_preview = preview
    return changed


def edit_message_caption(world: World, params: Params) -> JsonObject:
    """Replace the caption of a file. The keyboard is removed unless it is given again."""
    caption = read_caption(world, params)
    markup = read_markup(params, world.limits, inline_only=True)
    message = _own_message(world, params)
    if message.document is None and message.photo is None:
        raise bad_request("there is no caption in the message to edit")
    return _change(world, message, "caption", caption, markup)


def edit_message_reply_markup(world: World, params: Params) -> JsonObject:
    """Replace the keyboard."""
    markup = read_markup(params, world.limits, inline_only=True)
    message = _own_message(world, params)
    return _change(world, message, "text", message.text, markup)


def delete_message(world: World, params: Params) -> bool:
    """Delete a message for everybody."""
    if not params.text("chat_id"):
        raise bad_request("chat identifier is not specified")
    if params.integer("message_id") <= 0:
        raise bad_request("message identifier is not specified")
    chat = writable_chat(world, params.text("chat_id"))
    message = message_in(chat, params.integer("message_id"), "message to delete")
    if chat.type != PRIVATE and not message.outgoing and chat.bot_status != ADMINISTRATOR:
        raise bad_request("message can't be deleted")
    if world.clock() - message.date > world.limits.delete_age_s and chat.bot_status != ADMINISTRATOR:
        raise bad_request("message can't be deleted for everyone")
    del chat.messages[message.message_id]
    world.events.tell("deleted", chat.id, {"message_id": message.message_id})
    return True


def answer_callback_query(world: World, params: Params) -> bool:
    """Answer a tap, which ends the waiting at the button. A second answer is accepted but shown to nobody."""
    text = params.text("text")
    if utf16_length(text) > world.limits.callback_answer:
        raise bad_request("MESSAGE_TOO_LONG")
    tap = world.taps.get(params.text("callback_query_id"))
    if tap is None or world.clock() - tap.at > world.limits.callback_age_s:
        raise bad_request("query is too old and response timeout expired or query ID is invalid")
    if not tap.answered:
        tap.answered = True
        shown = {"id": tap.id, "user_id": tap.user.id, "data": tap.data, "text": text}
        shown |= {"show_alert": params.boolean("show_alert"), "url": params.text("url")}
        world.events.tell(ANSWERED, tap.chat.id, shown)
    return True


def set_message_reaction(world: World, params: Params) -> bool:
    """Set a reaction on a message, or remove it."""
    emoji = _reactions(params.json("reaction", "reaction types"))
    chat = readable_chat(world, params.text("chat_id"))
    message = message_in(chat, params.integer("message_id"), "message to react")
    if len(emoji) > 1:
        raise bad_request("REACTIONS_TOO_MANY")
    if not set(emoji) <= REACTIONS:
        raise bad_request("REACTION_INVALID")
    message.reactions = emoji
    world.tell_message(EDITED, message, by_bot=True)
    return True


def _own_message(world: World, params: Params) -> Message:
    """Return a message that the bot may edit: its own, with an inline keyboard or none."""
    if not params.text("chat_id") and not params.text("message_id"):
        raise bad_request("message identifier is not specified")
    chat = writable_chat(world, params.text("chat_id"))
    message = message_in(chat, params.integer("message_id"), "message to edit")
    other_keyboard = message.reply_markup is not None and "inline_keyboard" not in message.reply_markup
    if not message.outgoing or other_keyboard:
        raise bad_request("message can't be edited")
    return message


def _change(world: World, message: Message, name: str, content: FormattedText, markup: JsonObject | None) -> JsonObject:
    if content == getattr(message, name) and markup == message.reply_markup:
        raise bad_request(NOT_MODIFIED)
    world.flood.spend(message.chat.id, group=message.chat.is_group, now=world.clock())
    if content != getattr(message, name):  # a change of only the buttons is not marked as an edit
        message.edit_date = world.now()
    setattr(message, name, content)
    message.reply_markup = markup
    world.tell_message(EDITED, message, by_bot=True)
    return message.to_json()


def _reactions(values: Any) -> list[str]:
    if values is None:
        return []
    if not isinstance(values, list):
        raise bad_request("expected an Array of ReactionType")
    try:
        return [_reaction(Fields(value, "expected an Object")) for value in values]
    except FieldError as error:
        raise bad_request(f"can't parse ReactionType: {error}") from None


def _reaction(fields: Fields) -> str:
    if fields.string("type") != "emoji":
        raise FieldError("invalid reaction type specified")
    return plain(fields.string("emoji"))


REACTIONS = frozenset(
    "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈"
    "😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡"
) | {"❤\u200d🔥", "👨\u200d💻", "🤷\u200d♂", "🤷\u200d♀"}


def plain(emoji: str) -> str:
    """Remove the mark for the coloured form. Telegram does not distinguish the two."""
    return emoji.replace("\ufe0f", "")
