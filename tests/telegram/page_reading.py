"""Compares how the page reads a text with how the strict Bot API reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.formatted_text import html_text

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTITIES = {"text": "entities", "caption": "caption_entities"}
AS_TEXT = frozenset({"email", "custom_emoji"})  # the page does not show these


def check_page_shows_the_same(sources: Mapping[str, str], message: dict[str, Any]) -> None:
    """Assert that the page shows the text and caption of a message with the same styles, links and commands."""
    for name, source in sources.items():
        page = html_text(source)
        assert page.text == message.get(name, ""), source
        entities = message.get(ENTITIES[name], [])
        if len(entities) < 100:  # Telegram drops the rest
            assert shown(page.text, page.entities_json()) == shown(page.text, entities), source


def shown(text: str, entities: list[dict[str, Any]]) -> list[set[str]]:
    """Return for each UTF-16 unit of a text what it is shown as."""
    units = text.encode("utf-16-le")
    marks: list[set[str]] = [set() for _ in range(len(units) // 2)]
    for entity in entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        word = units[2 * start : 2 * end].decode("utf-16-le", "replace")
        is_bare = entity["type"] == "url" and not word.lower().startswith(("http://", "https://"))
        if is_bare or entity["type"] in AS_TEXT:
            continue
        for unit in marks[start:end]:
            unit.add(f"{entity['type']} {entity.get('language', '')}")
    return marks
