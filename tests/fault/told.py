"""What arrived in a chat, against what should have: all of it, in order, and nothing twice without saying so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from bot.outbound.sender import REPEAT

LATE = re.compile(r"\n(?:from \w{3} \d\d:\d\d; )?" + re.escape(REPEAT) + r"$|\nfrom \w{3} \d\d:\d\d$")
ORDER = {"started": 1, **dict.fromkeys(("finished", "failed", "stopped", "cancelled", "lost"), 2)}
FACT = re.compile(rf"^\S+ #(\d+)(?: \S+)? ({'|'.join(ORDER)})\b(?=[^\n]* on )")  # cards do not say where


def plain(text: str) -> str:
    """Without what is said about its coming late or twice."""
    return LATE.sub("", text)


def facts(texts: Iterable[str]) -> list[tuple[int, str]]:
    """Which job, and what became of it, message by message."""
    return [(int(found[1]), found[2]) for text in texts if (found := FACT.match(text))]


def problems(texts: Sequence[str], expected: Iterable[tuple[int, str]]) -> list[str]:
    """What is missing, out of order, or there twice without a word."""
    found, wanted = facts(texts), list(expected)
    wrong = [f"never told: {fact}" for fact in wanted if fact not in found]
    wrong += [f"told, though it never was: {fact}" for fact in set(found) - set(wanted)]
    last: Counter[int] = Counter()
    for job, kind in found:
        if ORDER[kind] < last[job]:
            wrong.append(f"#{job} {kind} came too late")
        last[job] = ORDER[kind]
    for text, count in Counter(text for text in texts if FACT.match(text) and REPEAT not in text).items():
        if count > 1:
            wrong.append(f"{count} times, without saying so: {text!r}")
    return wrong


def copies(texts: Iterable[str]) -> int:
    """How many messages are there more than once."""
    return sum(count - 1 for count in Counter(map(plain, texts)).values())


def repeats(texts: Iterable[str]) -> int:
    """How many say that they may be there twice."""
    return sum(REPEAT in text for text in texts)
