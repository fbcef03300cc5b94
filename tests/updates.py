"""Every kind of update that Telegram can send, as it sends it: from anybody, in any place."""

from __future__ import annotations

from typing import Any

NOW = 1_800_000_000
GROUP_ANONYMOUS, CHANNEL_BOT, TELEGRAM = 1087968824, 136817688, 777000
NEEDS_A_PERSON = {"callback_query", "inline_query", "chosen_inline_result", "shipping_query", "pre_checkout_query"}


def a_user(number: int, name: str = "Somebody", *, is_bot: bool = False) -> dict[str, Any]:
    return {"id": number, "is_bot": is_bot, "first_name": name}


def a_place(number: int, kind: str) -> dict[str, Any]:
    return {"id": number, "type": kind} | ({"first_name": "x"} if kind == "private" else {"title": "x"})


def a_message(user: dict[str, Any] | None, place: dict[str, Any], text: str = "/status", **more: Any) -> dict[str, Any]:
    command = text.split(maxsplit=1)[0] if text.startswith("/") else ""
    entities = {"entities": [{"type": "bot_command", "offset": 0, "length": len(command)}]} if command else {}
    sender = {} if user is None else {"from": user}
    return {"message_id": 7, "date": NOW, "chat": place, "text": text, **entities, **sender, **more}


def a_tap(user: dict[str, Any], place: dict[str, Any] | None, data: str = "x") -> dict[str, Any]:
    shown = {} if place is None else {"message": {"message_id": 7, "date": 0, "chat": place}}
    return {"id": "1", "from": user, "chat_instance": "1", "data": data, **shown}


RIGHTS = {
    "administrator": (
        *("can_be_edited", "is_anonymous", "can_manage_chat", "can_delete_messages", "can_manage_video_chats"),
        *("can_restrict_members", "can_promote_members", "can_change_info", "can_invite_users"),
        *("can_post_stories", "can_edit_stories", "can_delete_stories"),
    ),
    "restricted": (
        *("can_send_messages", "can_send_audios", "can_send_documents", "can_send_photos", "can_send_videos"),
        *("can_send_video_notes", "can_send_voice_notes", "can_send_polls", "can_send_other_messages"),
        *("can_add_web_page_previews", "can_change_info", "can_invite_users", "can_pin_messages"),
        *("can_manage_topics", "can_edit_tag", "can_react_to_messages"),
    ),
}


def a_member(user: dict[str, Any], status: str) -> dict[str, Any]:
    until = {"until_date": 0} if status in {"kicked", "restricted"} else {}
    inside = {"is_member": True} if status == "restricted" else {}
    return {"user": user, "status": status, **until, **inside, **dict.fromkeys(RIGHTS.get(status, ()), False)}


def a_change(by: dict[str, Any], place: dict[str, Any], who: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    change = {"old_chat_member": a_member(who, old), "new_chat_member": a_member(who, new)}
    return {"chat": place, "from": by, "date": NOW, **change}


def payload(kind: str, user: dict[str, Any] | None, place: dict[str, Any], text: str = "/status") -> dict[str, Any]:
    """One update of this kind; a message says `text`."""
    somebody = user or a_user(TELEGRAM)
    amount = {"currency": "EUR", "total_amount": 100, "invoice_payload": text}
    option = {"text": text, "voter_count": 1, "persistent_id": "1"}
    boost = {"boost_id": "1", "source": {"source": "premium", "user": somebody}}
    address = {"country_code": "DE", "state": "", "city": "B", "street_line1": "", "street_line2": "", "post_code": "1"}
    emoji = [{"type": "emoji", "emoji": "👍"}]
    written = a_message(user, place, text)
    made = {
        "edited_message": {**written, "edit_date": NOW},
        "edited_channel_post": {**written, "edit_date": NOW},
        "business_message": {**written, "business_connection_id": "1"},
        "edited_business_message": {**written, "business_connection_id": "1", "edit_date": NOW},
        "callback_query": a_tap(somebody, place, text),
        "inline_query": {"id": "1", "from": somebody, "query": text, "offset": ""},
        "chosen_inline_result": {"result_id": "1", "from": somebody, "query": text},
        "shipping_query": {"id": "1", "from": somebody, "invoice_payload": text, "shipping_address": address},
        "pre_checkout_query": {"id": "1", "from": somebody, **amount},
        "poll": {
            "id": "1", "question": text, "options": [option], "total_voter_count": 1, "is_closed": False,
            "is_anonymous": False, "type": "regular", "allows_multiple_answers": False,
            "allows_revoting": False, "members_only": False,
        },
        "poll_answer": {"poll_id": "1", "user": somebody, "option_ids": [0], "option_persistent_ids": ["1"]},
        "my_chat_member": a_change(somebody, place, a_user(4242, is_bot=True), "left", "member"),
        "chat_member": a_change(somebody, place, a_user(2002), "left", "member"),
        "chat_join_request": {"chat": place, "from": somebody, "user_chat_id": somebody["id"], "date": NOW},
        "chat_boost": {"chat": place, "boost": boost | {"add_date": NOW, "expiration_date": NOW}},
        "removed_chat_boost": {"chat": place, **boost, "remove_date": NOW},
        "message_reaction": {
            "chat": place, "message_id": 7, "user": somebody, "date": NOW, "old_reaction": [], "new_reaction": emoji,
        },
        "message_reaction_count": {
            "chat": place, "message_id": 7, "date": NOW, "reactions": [{"type": emoji[0], "total_count": 1}],
        },
        "business_connection": {
            "id": "1", "user": somebody, "user_chat_id": somebody["id"], "date": NOW, "is_enabled": True,
        },
        "deleted_business_messages": {"business_connection_id": "1", "chat": place, "message_ids": [7]},
        "purchased_paid_media": {"from": somebody, "paid_media_payload": text},
        "managed_bot": {"user": somebody, "bot": a_user(4343, is_bot=True)},
    }  # fmt: skip
    return made.get(kind, written)
