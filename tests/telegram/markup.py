"""Keyboards under a message: which ones Telegram accepts, and how it keeps them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.formatted_text import utf16_length
from tests.telegram import links
from tests.telegram.api_errors import FieldError, bad_request
from tests.telegram.fields import Fields

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.limits import Limits
    from tests.telegram.params import Params

STYLES = frozenset({"", "default", "primary", "danger", "success"})
OTHER_KINDS = (
    *("callback_game", "pay", "switch_inline_query", "switch_inline_query_current_chat"),
    *("switch_inline_query_chosen_chat", "login_url", "web_app"),
)


def read_markup(params: Params, limits: Limits, *, inline_only: bool = False) -> JsonObject | None:
    """Return the keyboard of a call as Telegram keeps it, or None if there is none."""
    markup_json = params.json("reply_markup", "reply keyboard markup")
    if markup_json is None:
        return None
    try:
        markup = _markup(Fields(markup_json, "object expected as reply markup"), limits)
    except FieldError as error:
        raise bad_request(str(error)) from None
    if inline_only and markup is not None and "inline_keyboard" not in markup:
        raise bad_request("inline keyboard expected")
    return markup


def _markup(fields: Fields, limits: Limits) -> JsonObject | None:
    if rows := _rows(fields, "keyboard"):
        buttons = [[_reply_button(button) for button in row] for row in rows]
        return {"keyboard": buttons, "one_time_keyboard": fields.optional_boolean("one_time_keyboard")}
    if rows := _rows(fields, "inline_keyboard"):
        inline = [[_inline_button(button, limits) for button in row] for row in rows if row]
        return _measured(inline, limits)
    for name in ("remove_keyboard", "force_reply"):
        if fields.optional_boolean(name):
            return {name: True}
    return None


def _rows(fields: Fields, name: str) -> list[list[Any]]:
    rows = fields.raw(name)
    if rows is None:
        return []
    whole = "" if name == "keyboard" else " of the InlineKeyboardMarkup"
    if not isinstance(rows, list):
        raise FieldError(f'field "{name}" must be of type Array')
    if not all(isinstance(row, list) for row in rows):
        raise FieldError(f'field "{name}"{whole} must be an Array of Arrays')
    return rows


def _measured(rows: list[list[JsonObject]], limits: Limits) -> JsonObject | None:
    count = sum(len(row) for row in rows)
    if count > limits.buttons or len(json.dumps(rows, ensure_ascii=False).encode()) > limits.markup_bytes:
        raise bad_request("reply markup is too long")
    return {"inline_keyboard": rows} if count else None


def _reply_button(button: Any) -> JsonObject:
    try:
        text = button if isinstance(button, str) else Fields(button, "expected an Object").string("text")
    except FieldError as error:
        raise FieldError(f"can't parse keyboard button: {error}") from None
    if not text:
        raise FieldError("keyboard button text must be non-empty")
    return {"text": text}


def _inline_button(button: Any, limits: Limits) -> JsonObject:
    try:
        fields = Fields(button, "InlineKeyboardButton must be an Object")
        text, style = fields.string("text"), fields.optional_string("style").lower()
        if style not in STYLES:
            raise FieldError("invalid button style specified")
        action = _action(fields)
    except FieldError as error:
        raise FieldError(f"can't parse inline keyboard button: {error}") from None
    if not text:
        raise FieldError("inline keyboard button text must be non-empty")
    _check(action, limits)
    shown = {"style": style} if style not in {"", "default"} else {}
    return {"text": text, **shown, **action}


def _action(fields: Fields) -> JsonObject:
    for name in ("url", "callback_data"):
        if value := fields.optional_string(name):
            return {name: value}
    if "copy_text" in fields:
        return {"copy_text": {"text": Fields(fields.raw("copy_text"), "object expected as copy text").string("text")}}
    for name in OTHER_KINDS:
        if name in fields:
            return {name: fields.raw(name)}
    raise FieldError("Text buttons are unallowed in the inline keyboard")


def _check(action: JsonObject, limits: Limits) -> None:
    data = action.get("callback_data", "")
    if len(data.encode()) > limits.callback_data_bytes:
        raise bad_request("BUTTON_DATA_INVALID")
    copied = action.get("copy_text", {"text": "x"})["text"]
    if not 0 < utf16_length(copied) <= limits.copied_text:
        raise bad_request("BUTTON_COPY_TEXT_INVALID")
    url = action.get("url")
    if url is None or links.linked_user(url) is not None:
        return
    try:
        action["url"] = links.checked(url)
    except links.LinkError as error:
        raise bad_request(f"inline keyboard button URL '{url}' is invalid: {error}") from None
