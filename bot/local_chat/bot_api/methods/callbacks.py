"""Answers to taps on buttons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.local_chat.bot_api import events
from bot.local_chat.bot_api.api_errors import bad_request
from bot.local_chat.bot_api.entities import utf16_length

if TYPE_CHECKING:
    from bot.local_chat.bot_api.params import Params
    from bot.local_chat.bot_api.world import World


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
        world.events.tell(events.ANSWERED, tap.chat.id, shown)
    return True
