"""Entities: which part of a text is bold, a link, code … Offsets and lengths are in UTF-16 units."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from bot.local_chat.bot_api.formatted_text import CODE, QUOTES, Entity

if TYPE_CHECKING:
    from collections.abc import Iterable

SPLITTABLE = ("bold", "italic", "underline", "strikethrough", "spoiler")
ORDER = ("blockquote", "expandable_blockquote", "pre", "code", "other", *SPLITTABLE)


def in_order(entities: Iterable[Entity]) -> list[Entity]:
    """Sort by offset. Among those with the same offset, the longest comes first."""
    rank = {kind: at for at, kind in enumerate(ORDER)}
    return sorted(entities, key=lambda entity: (entity.offset, -entity.length, rank.get(entity.type, rank["other"])))


def tidy(entities: Iterable[Entity]) -> list[Entity]:
    """Return the entities as Telegram keeps them: properly nested, nothing inside code, no quote inside a quote."""
    whole = in_order(entity for entity in entities if entity.length > 0)
    solid = _apart(entity for entity in whole if entity.type not in {*SPLITTABLE, *QUOTES})
    quotes = _apart(entity for entity in whole if entity.type in QUOTES)
    solid = [entity for entity in solid if not _crosses(entity, quotes)]
    borders = in_order([*solid, *quotes])
    return in_order([*borders, *_split(whole, borders)])


def _apart(entities: Iterable[Entity]) -> list[Entity]:
    """Drop entities that overlap an earlier one."""
    apart: list[Entity] = []
    for entity in entities:
        if not apart or entity.offset >= apart[-1].end:
            apart.append(entity)
    return apart


def _crosses(entity: Entity, quotes: list[Entity]) -> bool:
    """Return whether it overlaps a quote without being wholly inside it."""
    around = _around(entity, quotes)
    if around is not None:
        return entity.end > around.end
    following = bisect_right(quotes, entity.offset, key=_offset)
    return following < len(quotes) and quotes[following].offset < entity.end


def _around(entity: Entity, others: list[Entity]) -> Entity | None:
    """Return the entity in which this one begins, or None. The others must be sorted and must not overlap."""
    before = bisect_right(others, entity.offset, key=_offset)
    return others[before - 1] if before and entity.offset < others[before - 1].end else None


def _offset(entity: Entity) -> int:
    return entity.offset


def _split(entities: Iterable[Entity], solid: list[Entity]) -> list[Entity]:
    """Join bold and similar entities that touch, cut them at the borders of solid ones, and drop those inside code."""
    cuts = sorted({place for entity in solid for place in (entity.offset, entity.end)})
    code = [entity for entity in solid if entity.type in CODE]
    stretches: dict[str, list[Entity]] = defaultdict(list)
    for entity in entities:
        if entity.type in SPLITTABLE:
            _join(stretches[entity.type], entity)
    pieces = [piece for joined in stretches.values() for entity in joined for piece in _cut(entity, cuts)]
    return [piece for piece in pieces if _around(piece, code) is None]


def _join(joined: list[Entity], entity: Entity) -> None:
    if joined and entity.offset <= joined[-1].end:
        end = max(joined[-1].end, entity.end)
        joined[-1] = replace(joined[-1], length=end - joined[-1].offset)
    else:
        joined.append(entity)


def _cut(entity: Entity, cuts: list[int]) -> list[Entity]:
    between = cuts[bisect_right(cuts, entity.offset) : bisect_left(cuts, entity.end)]
    places = [entity.offset, *between, entity.end]
    return [replace(entity, offset=start, length=end - start) for start, end in pairwise(places)]
