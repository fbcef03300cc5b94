"""What a bot may call, by name. Names are compared without regard to case, as Telegram does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bot.local_chat.bot_api.methods import callbacks, chats, editing, identity, media, my_commands, polling, sending
from bot.local_chat.bot_api.params import Params
from bot.local_chat.bot_api.world import World

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
    "answerCallbackQuery": callbacks.answer_callback_query,
    "setMyCommands": my_commands.set_my_commands,
    "getMyCommands": my_commands.get_my_commands,
    "deleteMyCommands": my_commands.delete_my_commands,
    "getChat": chats.get_chat,
    "getChatMember": chats.get_chat_member,
    "leaveChat": chats.leave_chat,
}
BY_LOWER_NAME = {name.lower(): (name, method) for name, method in METHODS.items()}
