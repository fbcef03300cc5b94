"""Sending new messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.local_chat.bot_api.formatted_text import FormattedText, utf16_length
from tests.telegram.api_errors import FieldError, bad_request
from tests.telegram.chat_access import known_chat, message_in, writable_chat
from tests.telegram.fields import Fields
from tests.telegram.markup import read_markup
from tests.telegram.objects import CHANNEL, PRIVATE, Chat, Message
from tests.telegram.text import format_text

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.params import Params
    from tests.telegram.world import World

GENERAL_TOPIC = 1


def send_message(world: World, params: Params) -> JsonObject:
    """Send a text."""
    preview = link_preview(params)
    text = message_text(world, params)
    message = draft(world, params)
    message.text = measured(text, world.limits.text, "message is too long")
    message.link_preview = preview
    return deliver(world, message)


def draft(world: World, params: Params) -> Message:
    """Return a message with everything but its content: its chat, what it replies to, its keyboard."""
    reply = _reply_parameters(params)
    markup = read_markup(params, world.limits)
    chat = writable_chat(world, params.text("chat_id"))
    thread_id = _thread(chat, params.integer("message_thread_id"))
    return Message(
        message_id=0,
        chat=chat,
        date=world.now(),
        outgoing=True,
        sender=None if chat.type == CHANNEL else world.bot,
        sender_chat=chat if chat.type == CHANNEL else None,
        thread_id=thread_id,
        reply_to=_replied(world, chat, reply),
        reply_markup=markup,
        silent=params.boolean("disable_notification"),
    )


def deliver(world: World, message: Message) -> JsonObject:
    """Count the message against the flood limits and put it into the chat."""
    world.flood.spend(message.chat.id, group=message.chat.is_group, now=world.clock())
    return world.post(message, by_bot=True).to_json()


def message_text(world: World, params: Params) -> FormattedText:
    """Return the text of a call, parsed."""
    source = params.text("text")
    if not source:
        raise bad_request("message text is empty")
    text = formatted(world, params, source, "entities")
    if not text.text:
        raise bad_request("text must be non-empty")
    return text


def formatted(world: World, params: Params, source: str, entities: str) -> FormattedText:
    """Format a text by its parse mode or its entities."""
    entities_json = params.json(entities, "entities")

    def user(user_id: int) -> JsonObject | None:
        person = world.users.get(user_id)
        return None if person is None else person.to_json()

    return format_text(source, params.text("parse_mode"), entities_json, world.limits, user)


def measured(text: FormattedText, limit: int, complaint: str) -> FormattedText:
    """Return the text, or refuse it if it is too long."""
    if utf16_length(text.text) > limit:
        raise bad_request(complaint)
    return text


def link_preview(params: Params) -> JsonObject | None:
    """Return how links in the text are to be shown, or None if the call does not say."""
    preview = params.json("link_preview_options", "link preview options")
    if preview is None:
        return {"is_disabled": True} if params.boolean("disable_web_page_preview") else None
    try:
        fields = Fields(preview, "object expected as link preview options")
        flags = ("is_disabled", "prefer_small_media", "prefer_large_media", "show_above_text")
        options: JsonObject = {name: True for name in flags if fields.optional_boolean(name)}
        return options | ({"url": fields.optional_string("url")} if "url" in fields else {})
    except FieldError as error:
        raise bad_request(str(error)) from None


def _reply_parameters(params: Params) -> Fields | None:
    if legacy := params.integer("reply_to_message_id"):
        allow = params.boolean("allow_sending_without_reply")
        return Fields({"message_id": legacy, "allow_sending_without_reply": allow}, "")
    reply = params.json("reply_parameters", "reply parameters")
    if not reply and isinstance(reply, dict | None):
        return None
    try:
        fields = Fields(reply, "object expected as reply parameters")
        fields.integer("message_id")
        fields.optional_boolean("allow_sending_without_reply")
    except FieldError as error:
        raise bad_request(str(error)) from None
    return fields


def _replied(world: World, chat: Chat, reply: Fields | None) -> Message | None:
    if reply is None:
        return None
    elsewhere = reply.optional_string("chat_id")
    place = known_chat(world, elsewhere) if elsewhere else chat
    message_id = reply.integer("message_id")
    if message_id not in place.messages and reply.optional_boolean("allow_sending_without_reply"):
        return None
    message = message_in(place, message_id, "message to be replied")
    return message if place is chat else None


def _thread(chat: Chat, thread_id: int) -> int | None:
    """Return the topic to write into. In a chat without topics the number is ignored."""
    if thread_id <= 0 or (chat.type != PRIVATE and not chat.is_forum):
        return None
    if thread_id == GENERAL_TOPIC or thread_id not in chat.topics:
        raise bad_request("message thread not found")
    return thread_id
