"""Turns the text a bot sends into what Telegram keeps: parsed, cleaned, trimmed and measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.formatted_text import CODE, DROPPED, Entity, FormattedText, utf16_length
from tests.telegram.api_errors import FieldError, bad_request
from tests.telegram.detect_entities import detect
from tests.telegram.entities import SPLITTABLE, tidy
from tests.telegram.fields import Fields
from tests.telegram.html_text import parse_html
from tests.telegram.links import linked_user, valid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.local_chat.bot_api.objects import JsonObject
    from tests.telegram.limits import Limits

PLAIN_TYPES = frozenset({*SPLITTABLE, *CODE, "blockquote", "expandable_blockquote"})
FOUND_BY_ITSELF = frozenset(
    {"mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bank_card_number"}
)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
UserLookup = Callable[[int], "JsonObject | None"]


def format_text(source: str, parse_mode: str, entities_json: Any, limits: Limits, user: UserLookup) -> FormattedText:
    """Return a text as Telegram keeps it. It is empty if nothing in it is visible."""
    if len(source.encode()) > limits.raw_text_bytes:
        raise bad_request("text is too long")
    if parse_mode.lower() in {"", "none"} or not source:
        text, entities = source, read_entities(entities_json)
    elif parse_mode.lower() == "html":
        text, entities = parse_html(source)
    elif parse_mode.lower() in {"markdown", "markdownv2"}:
        raise bad_request("unsupported parse_mode: this Bot API reads HTML only")
    else:
        raise bad_request("unsupported parse_mode")
    named = [named for entity in entities if (named := _with_user(entity, user))]
    return finish(text, named, limits)


def finish(text: str, entities: list[Entity], limits: Limits) -> FormattedText:
    """Clean and trim a text, and find the entities that Telegram finds in it."""
    text, entities = _clean(text, tidy(_in_range(entities)))
    text, entities = _trim(text, tidy(entities))
    if not text:
        return FormattedText()
    return FormattedText(text, tuple(detect(text, entities)[: limits.entities]))


def read_entities(entities_json: Any) -> list[Entity]:
    """Read entities from a JSON array. Anything else counts as none, as with Telegram."""
    if not isinstance(entities_json, list):
        return []
    try:
        read = [_entity(Fields(value, "expected an Object")) for value in entities_json]
    except FieldError as error:
        raise bad_request(f"can't parse MessageEntity: {error}") from None
    return [entity for entity in read if entity is not None]


def _entity(fields: Fields) -> Entity | None:
    offset, length, kind = fields.integer("offset"), fields.integer("length"), fields.string("type")
    if kind in FOUND_BY_ITSELF:
        return None
    if kind in PLAIN_TYPES:
        language = fields.optional_string("language") if kind == "pre" else ""
        return Entity(kind, offset, length, (("language", language),) if language else ())
    if kind == "text_link":
        url = fields.string("url")
        if (user_id := linked_user(url)) is not None:
            return Entity("text_mention", offset, length, (("user_id", user_id),))
        return Entity(kind, offset, length, (("url", target),)) if (target := valid(url)) else None
    if kind == "text_mention":
        user_id = Fields(fields.raw("user"), 'Field "user" must be of type Object').integer("id")
        return Entity(kind, offset, length, (("user_id", user_id),))
    if kind == "custom_emoji":
        return Entity(kind, offset, length, (("custom_emoji_id", fields.string("custom_emoji_id")),))
    raise FieldError("Unsupported type specified")


def _with_user(entity: Entity, user: UserLookup) -> Entity | None:
    """Put the whole person into a mention. Return None if nobody has that id."""
    if entity.type != "text_mention":
        return entity
    person = user(dict(entity.extra)["user_id"])
    return replace(entity, extra=(("user", person),)) if person else None


def _in_range(entities: list[Entity]) -> list[Entity]:
    for entity in entities:
        for name, value in (("offset", entity.offset), ("length", entity.length)):
            if not 0 <= value <= 1_000_000:
                raise bad_request(f"receive an entity with incorrect {name} {value}")
    return entities


def _clean(text: str, entities: list[Entity]) -> tuple[str, list[Entity]]:
    """Remove or replace control characters, and move the entities accordingly."""
    if text.isascii() and not CONTROL.search(text):
        return text, [_moved(entity, range(len(text) + 1)) for entity in entities]
    cleaned: list[str] = []
    places: list[int | None] = []
    offset = 0
    for char in text:
        wide = char > "\uffff"
        places += [offset, None] if wide else [offset]
        if char not in DROPPED:
            cleaned.append(" " if char < " " and char != "\n" else char)
            offset += 1 + wide
    places.append(offset)
    return "".join(cleaned), [_moved(entity, places) for entity in entities]


def _moved(entity: Entity, places: Sequence[int | None]) -> Entity:
    last = len(places) - 1
    if entity.offset > last:
        raise bad_request(f"entity begins after the end of the text at UTF-16 offset {entity.offset}")
    if entity.end > last:
        where = f"at UTF-16 offset {entity.offset} ends after the end of the text at UTF-16 offset {entity.end}"
        raise bad_request(f"entity beginning {where}")
    start, end = places[entity.offset], places[entity.end]
    if start is None:
        raise bad_request(f"entity begins in a middle of a UTF-16 symbol at UTF-16 offset {entity.offset}")
    if end is None:
        where = f"at UTF-16 offset {entity.offset} ends in a middle of a UTF-16 symbol"
        raise bad_request(f"entity beginning {where}")
    return replace(entity, offset=start, length=end - start)


def _trim(text: str, entities: list[Entity]) -> tuple[str, list[Entity]]:
    """Remove blanks at the end, and at the beginning up to the first entity."""
    text = text.rstrip(" \n")
    end = utf16_length(text)
    cut = [
        replace(entity, length=min(entity.length, end - entity.offset)) for entity in entities if entity.offset < end
    ]
    leading = len(text) - len(text.lstrip(" \n"))
    leading = min([leading, *(entity.offset for entity in cut)])
    return text[leading:], [replace(entity, offset=entity.offset - leading) for entity in cut]
