"""The Bot API as the bot sees it: takes a method and its parameters, returns an HTTP answer.

It refuses only what a correct bot can run into: a message, chat or file that is gone, or a text that is too long.
"""

from __future__ import annotations

import inspect
import json
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.formatted_text import FormattedText, html_text, plain_text, utf16_length
from bot.local_chat.bot_api.world import ACTION, ANSWERED, COMMANDS, EDITED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bot.local_chat.bot_api.files import Upload
    from bot.local_chat.bot_api.objects import ApiChat, ApiMessage, JsonObject
    from bot.local_chat.bot_api.world import LocalWorld

TOO_OLD = "query is too old and response timeout expired or query ID is invalid"
NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same "
    "as a current content and reply markup of the message"
)


class ApiError(Exception):
    """The bot asked for something that Telegram refuses: its code, description and parameters."""

    def __init__(self, code: int, description: str, parameters: dict[str, int] | None = None) -> None:
        super().__init__(f"{code} {description}")
        self.code = code
        self.description = description
        self.parameters = parameters or {}


@dataclass(frozen=True, slots=True)
class Call:
    """The parameters of one call. Each arrives as a string, or as an uploaded file."""

    values: Mapping[str, str]
    files: Mapping[str, Upload]

    def text(self, name: str) -> str:
        """Return a string, empty if it is missing."""
        return self.values.get(name, "")

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer."""
        return int(self.values.get(name, default))

    def json(self, name: str) -> Any:
        """Return the JSON in a parameter, or None if it is missing."""
        return json.loads(self.values.get(name, "null"))


async def get_updates(world: LocalWorld, call: Call) -> list[JsonObject]:
    """Confirm updates before the offset and return those that follow, waiting for them if asked to."""
    timeout_s = min(call.integer("timeout"), world.limits.long_poll_s)
    return await world.updates.get(call.integer("offset"), call.integer("limit", 100), timeout_s)


def send_message(world: LocalWorld, call: Call) -> JsonObject:
    """Send a text."""
    return _send(world, call, text=_text(world, call))


def send_file(kind: str, world: LocalWorld, call: Call) -> JsonObject:
    """Send a document, or a picture as a photo."""
    upload = call.files[call.text(kind).removeprefix("attach://") or kind]
    caption = _caption(world, call)
    size = struct.unpack_from(">II", upload.data, 16) if kind == "photo" else None  # the bot draws PNGs
    return _send(world, call, caption=caption, **{kind: world.files.add(kind, upload, size)})


def get_file(world: LocalWorld, call: Call) -> JsonObject:
    """Return where a file can be downloaded."""
    stored = world.files.get(call.text("file_id"))
    if stored is None:
        raise bad_request("invalid file_id")
    return stored.to_json() | {"file_path": stored.path}


def edit_message_text(world: LocalWorld, call: Call) -> JsonObject:
    """Replace a text. The keyboard is removed unless it is given again."""
    message = _own_message(world, call)
    if not message.text.text:
        raise bad_request("there is no text in the message to edit")
    return _change(world, call, message, text=_text(world, call))


def edit_message_caption(world: LocalWorld, call: Call) -> JsonObject:
    """Replace the caption of a file. The keyboard is removed unless it is given again."""
    message = _own_message(world, call)
    if message.document is None and message.photo is None:
        raise bad_request("there is no caption in the message to edit")
    return _change(world, call, message, caption=_caption(world, call))


def edit_message_reply_markup(world: LocalWorld, call: Call) -> JsonObject:
    """Replace the keyboard."""
    return _change(world, call, _own_message(world, call))


def answer_callback_query(world: LocalWorld, call: Call) -> bool:
    """Answer a tap, which ends the waiting at the button. A second answer is accepted but shown to nobody."""
    tap = world.taps.get(call.text("callback_query_id"))
    if tap is None or world.clock() - tap.at > world.limits.callback_age_s:
        raise bad_request(TOO_OLD)
    if not tap.answered:
        tap.answered = True
        answer = {"text": call.text("text"), "show_alert": bool(call.json("show_alert"))}
        world.events.tell(ANSWERED, tap.chat.id, {"id": tap.id, **answer})
    return True


def send_chat_action(world: LocalWorld, call: Call) -> bool:
    """Show for some seconds what the bot is doing."""
    world.events.tell(ACTION, _chat(world, call).id, {"action": call.text("action")})
    return True


def set_message_reaction(world: LocalWorld, call: Call) -> bool:
    """Set the bot's reactions to a message. They are shown at the message, which is not marked as edited."""
    message = _chat(world, call).messages.get(call.integer("message_id"))
    if message is None:
        raise bad_request("message to react not found")
    message.reactions = [reaction["emoji"] for reaction in call.json("reaction") or []]
    world.tell_message(EDITED, message, by_bot=True)
    return True


def set_my_commands(world: LocalWorld, call: Call) -> bool:
    """Replace the commands offered in one chat or, if none is named, in all chats without their own."""
    chat_id = (call.json("scope") or {}).get("chat_id")
    world.commands[chat_id] = call.json("commands")
    world.events.tell(COMMANDS, chat_id, {})
    return True


def leave_chat(world: LocalWorld, call: Call) -> bool:
    """Refuse: there are no groups here."""
    _chat(world, call)
    raise bad_request("chat member status can't be changed in private chats")


METHODS: dict[str, Callable[[LocalWorld, Call], Any]] = {
    "getMe": lambda world, _call: world.bot.to_json(),
    "getUpdates": get_updates,
    "deleteWebhook": lambda _world, _call: True,  # there is none
    "sendMessage": send_message,
    "sendDocument": partial(send_file, "document"),
    "sendPhoto": partial(send_file, "photo"),
    "getFile": get_file,
    "editMessageText": edit_message_text,
    "editMessageCaption": edit_message_caption,
    "editMessageReplyMarkup": edit_message_reply_markup,
    "sendChatAction": send_chat_action,
    "answerCallbackQuery": answer_callback_query,
    "setMessageReaction": set_message_reaction,
    "setMyCommands": set_my_commands,
    "leaveChat": leave_chat,
}


@dataclass(frozen=True, slots=True)
class ApiReply:
    """An HTTP answer."""

    status: int = 200
    body: bytes = b""


class LocalBotApi:
    """One world, and the methods a bot may call in it."""

    def __init__(self, world: LocalWorld) -> None:
        self.world = world

    async def call(
        self,
        token: str,  # noqa: ARG002 - there is only one bot
        method: str,
        params: Mapping[str, str],
        files: Mapping[str, Upload] | None = None,
    ) -> ApiReply:
        """Do what the bot asks."""
        try:
            if method not in METHODS:
                raise bad_request(f"the local chat has no method {method}")
            result = METHODS[method](self.world, Call(params, files or {}))
            if inspect.isawaitable(result):
                result = await result
        except ApiError as error:
            return _refusal(error)
        return ApiReply(body=json.dumps({"ok": True, "result": result}).encode())

    async def download(self, token: str, path: str) -> ApiReply:  # noqa: ARG002
        """Return a file's content."""
        stored = self.world.files.at(path)
        return _refusal(ApiError(404, "Not Found")) if stored is None else ApiReply(body=stored.data)


def bad_request(text: str) -> ApiError:
    """Return a 400: the request is wrong, and a retry does not help."""
    return ApiError(400, f"Bad Request: {text}")


def _refusal(error: ApiError) -> ApiReply:
    body = {"ok": False, "error_code": error.code, "description": error.description}
    return ApiReply(error.code, json.dumps(body).encode())


def _chat(world: LocalWorld, call: Call) -> ApiChat:
    chat = world.chats.get(call.integer("chat_id"))
    if chat is None:
        raise bad_request("chat not found")
    return chat


def _text(world: LocalWorld, call: Call) -> FormattedText:
    text = _formatted(call, "text", world.limits.text, "message is too long")
    if not text.text:
        raise bad_request("text must be non-empty")
    return text


def _caption(world: LocalWorld, call: Call) -> FormattedText:
    return _formatted(call, "caption", world.limits.caption, "message caption is too long")


def _formatted(call: Call, name: str, limit: int, complaint: str) -> FormattedText:
    read = html_text if call.text("parse_mode") == "HTML" else plain_text
    formatted = read(call.text(name))
    if utf16_length(formatted.text) > limit:
        raise bad_request(complaint)
    return formatted


def _send(world: LocalWorld, call: Call, **content: Any) -> JsonObject:
    chat = _chat(world, call)
    message = world.message_type(
        chat=chat,
        date=world.now(),
        outgoing=True,
        sender=world.bot,
        reply_to=_replied(chat, call.json("reply_parameters")),
        reply_markup=_keyboard(call),
        silent=bool(call.json("disable_notification")),
        **content,
    )
    return world.post(message, by_bot=True).to_json()


def _replied(chat: ApiChat, reply: JsonObject | None) -> ApiMessage | None:
    if not reply:
        return None
    message = chat.messages.get(reply["message_id"])
    if message is None and not reply.get("allow_sending_without_reply"):
        raise bad_request("message to be replied not found")
    return message


def _keyboard(call: Call) -> JsonObject | None:
    """Return the keyboard of a call, or None if it has no buttons."""
    markup: JsonObject | None = call.json("reply_markup")
    return markup if markup and any(markup.get("inline_keyboard", [True])) else None


def _own_message(world: LocalWorld, call: Call) -> ApiMessage:
    message = _chat(world, call).messages.get(call.integer("message_id"))
    if message is None:
        raise bad_request("message to edit not found")
    if not message.outgoing:
        raise bad_request("message can't be edited")
    return message


def _change(world: LocalWorld, call: Call, message: ApiMessage, **content: FormattedText) -> JsonObject:
    changed = {name: text for name, text in content.items() if text != getattr(message, name)}
    markup = _keyboard(call)
    if not changed and markup == message.reply_markup:
        raise bad_request(NOT_MODIFIED)
    if changed:  # a change of only the buttons is not marked as an edit
        message.edit_date = world.now()
    for name, text in changed.items():
        setattr(message, name, text)
    message.reply_markup = markup
    world.tell_message(EDITED, message, by_bot=True)
    return message.to_json()
