"""Texts that nobody sends by mistake: repeatable, endless, and each of a kind that has broken something somewhere."""

from __future__ import annotations

import random
from collections.abc import Callable

TAGS = (
    "<b>",
    "</b>",
    "<b",
    "<a href='tg://user?id=1'>",
    "<script>alert(1)</script>",
    "</pre></code>",
    "<!--",
    "<tg-emoji>",
)
HALVES = (
    "&",
    "&lt",
    "&lt;",
    "&amp;lt;",
    "&#x41;",
    "&#0;",
    "&#xffffffff;",
    "&nbsp;",
    "&amp",
    "%3C",
    "\\u003c",
    "<<>>&&",
)
UNSEEN = (
    "\u200b",
    "\u200d",
    "\u202e",
    "\u2066",
    "\u2069",
    "\ufeff",
    "\u00ad",
    "\u2028",
    "\x85",
    "\u034f",
    "\U000e0041",
)
ODD = (
    "\0",
    "\x07",
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\r",
    "\x08",
    "\x7f",
    "\x9b",
    "\ud800",
    "\udfff",
    "\ufffe",
    "\uffff",
)
EMOJI = ("👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "👍🏿", "e\u0301\u0301\u0301", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉", "ﷺ", "𒐫", "شما", "中文", "🙈")
FORMATS = ("%s%n%x", "{}", "{0.__class__}", "{job_id}", "{run_id}", "{batch_size}", "${HOME}", "$(id)", "`id`", "%(x)s")
PATHS = ("../../etc/passwd", "/dev/null", "~root", "C:\\con", "file:///etc/passwd", "....//", "a/\0b", "-rf /")
SQL = ("'; DROP TABLE jobs; --", "' OR '1'='1", '" OR ""="', "1; ATTACH 'x'", "%' ESCAPE '", "\\'; --")
NUMBERS = (
    "0",
    "-1",
    "99999999999999999999",
    "1e309",
    "NaN",
    "0x10",
    "²",
    "٣",
    "1_000",
    "12-15",
    "1-99999",
    "#1",
    "1,,2",
)
OPTIONS = (
    *("-g", "--gpus", "--gpus=", "-g-1", "--gpus 9999999999999", "-t 99999999999d", "-t 1e9h", "--name", "--name ''"),
    *(
        "--env",
        "--env =",
        "--env A",
        "--env A=\0",
        "--env PATH=",
        "-w",
        "-w ../..",
        "--dir /",
        "--dir \0",
        "--after-ok",
    ),
    *("--after-ok 1,1,1", "--retries -1", "--retries 99999999999999999999", "-p urgent", "--", "-", "---", "--help"),
    *("—gpus 2", "--on 0,0,0", "--on -1", "--idle 20%:3s:7:1", "--idle off", "-gpt", "--=", "=", "--name=%s"),
)
QUOTES = ("'", '"', "\"'", "'\"'\"'", "“”", "$'\\x00'", "\\", '\\\\"', "<<EOF", "#", "&", "|", ";", "\n", "\t", "\\\n")
WORDS = (
    "all",
    "mine",
    "quiet",
    "quiet 23-7",
    "default",
    "default lab",
    "user",
    "admin",
    "python",
    "train.py",
    "lab",
    "1",
    "",
)
KINDS = (TAGS, HALVES, UNSEEN, ODD, EMOJI, FORMATS, PATHS, SQL, NUMBERS, OPTIONS, QUOTES, WORDS)


class Hostile:
    """One source of such texts."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.made = 0

    def text(self, limit: int = 4000) -> str:
        """One more, at most so long in UTF-16 units."""
        self.made += 1
        make = self.dice.choices(MAKES, WEIGHTS)[0]
        found = make(self.dice)
        while len(found.encode("utf-16-le", "surrogatepass")) // 2 > limit:
            found = found[: len(found) // 2]
        return found

    def line(self, limit: int = 1000) -> str:
        """One without a line's end."""
        return self.text(limit).replace("\n", " ").replace("\r", " ")

    def name(self) -> str:
        """As somebody may call themselves: at most 64 characters, never nothing."""
        return self.line(400)[:64].strip() or "x"


def _soup(dice: random.Random) -> str:
    parts = [dice.choice(dice.choice(KINDS)) for _ in range(dice.randrange(1, 12))]
    return dice.choice(("", " ", " ", "\n")).join(parts)


def _of_one_kind(dice: random.Random) -> str:
    kind = dice.choice(KINDS)
    return dice.choice(("", " ")).join(dice.choice(kind) for _ in range(dice.randrange(1, 40)))


def _long(dice: random.Random) -> str:
    return dice.choice(dice.choice(KINDS)) * dice.choice((100, 500, 4096))


def _random(dice: random.Random) -> str:
    return "".join(
        chr(dice.choice((dice.randrange(1, 0x80), dice.randrange(0x110000)))) for _ in range(dice.randrange(60))
    )


def _options(dice: random.Random) -> str:
    words = [dice.choice(OPTIONS) for _ in range(dice.randrange(1, 5))]
    return " ".join([*words, dice.choice(dice.choice(KINDS)), dice.choice(("python a.py", "ls", ""))])


MAKES: tuple[Callable[[random.Random], str], ...] = (_soup, _of_one_kind, _long, _random, _options)
WEIGHTS = (40, 15, 5, 15, 25)
