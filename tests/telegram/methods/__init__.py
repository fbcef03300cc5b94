"""What a bot may call, by name. Names are compared without regard to case, as Telegram does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.telegram.methods import chats, editing, identity, media, polling, sending
from tests.telegram.params import Params
from tests.telegram.world import World

# returns JSON, or an awaitable of it
Method = Callable[[World, Params], Any]

METHODS: dict[str, Method] = {
    "getMe": identity.get_me,
    "logOut": identity.log_out,
    "close": identity.close,
    "getUpdates": polling.get_updates,
    "setWebhook": polling.set_webhook,
    "deleteWebhook": polling.delete_webhook,
    "getWebhookInfo": polling.get_webhook_info,
    "sendMessage": sending.send_message,
    "sendDocument": media.send_document,
    "sendPhoto": media.send_photo,
    "getFile": media.get_file,
    "sendChatAction": chats.send_chat_action,
    "editMessageText": editing.edit_message_text,
    "editMessageCaption": editing.edit_message_caption,
    "editMessageReplyMarkup": editing.edit_message_reply_markup,
    "deleteMessage": editing.delete_message,
    "setMessageReaction": editing.set_message_reaction,
    "answerCallbackQuery": editing.answer_callback_query,
    "setMyCommands": identity.set_my_commands,
    "getMyCommands": identity.get_my_commands,
    "deleteMyCommands": identity.delete_my_commands,
    "getChat": chats.get_chat,
    "getChatMember": chats.get_chat_member,
    "leaveChat": chats.leave_chat,
}
BY_LOWER_NAME = {name.lower(): (name, method) for name, method in METHODS.items()}
