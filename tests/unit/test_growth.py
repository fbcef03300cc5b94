"""What texts of others cost: twice the text, about twice the CPU time, for every pattern and every reader of texts.

Measured is the time this thread computed, the best of several runs, and only what grew is judged: a busy machine makes
nothing of this fail. Whatever is so quick that its growth cannot be measured passes.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest

from bot.inbound import parse
from bot.local_chat.bot_api.formatted_text import html_text, plain_text
from bot.local_chat.bot_api.methods import ApiError
from bot.secrets.names import is_telling, likeness
from bot.secrets.redact import Redactor
from bot.text import log_excerpt, log_pages, quiet_hours
from bot.text.html import Shrink, escape, fit, shorten, visible_units
from runner.api.chat import read_text
from runner.batch import oom
from runner.commands.argument_changes import changed
from runner.commands.background_check import refuse_leaving
from runner.commands.job_kinds import kind_of, words_of
from runner.commands.shell_parser import pieces
from runner.config.env_file import read_env_file
from runner.errors import UserError
from runner.progress.reader import ProgressReader
from runner.progress.stop_rules import broken_in, parse_rules
from runner.sweep.metrics import last_values, parse_metric
from runner.sweep.sweeps import parse_text
from runner.terminal.session import spans_in
from runner.text.failures import error_line, normalised
from runner.text.tracebacks import chains
from runner.text.words import printable
from runner.units import parse_duration, parse_size_mib
from tests.slow_patterns import ALWAYS, ENDS, attacks, grown, used_patterns
from tests.telegram.detect_entities import detect
from tests.telegram.html_text import decode_references, parse_html

KIB, MIB = 1 << 10, 1 << 20
BARELY_S = 0.003  # what takes less for 4 KiB is not looked at more closely: a square takes far more
TIMES = 9.0  # the most that four times the text may cost; a square costs sixteen times as much

HOSTILE = (
    *(("", again) for again in ALWAYS),
    ("wandb: ", "https://"),
    ("wandb: https://", "a/runs/"),
    ("key=", ","),
    ("--password ", '"\\'),
    ("", "token_"),
    ("", "-----BEGIN PRIVATE KEY-----_"),
    ("", "-----END "),
    ("", "bearer "),
    ("", "authorization: "),
    ("", "://a:b"),
    ("", "password='\\'"),
    ("", f"key={',' * 2040}x! "),
    ("github_pat_", "a"),
    ("", "sk-"),
    ("", "eyJa.eyJ"),
    ("", "Traceback (most recent call last):\n"),
    ("", '  File "a", line 1\n'),
    ("", "╭─"),
    ("", "KeyError  Traceback (most recent call last)\n"),
    ("KeyError  Traceback (most recent call last)\n", "Cell In[1]\n---> 1 f()\n"),
    ("KeyError  Traceback (most recent call last)\n", "KeyErro\n"),
    ("", "C++ Traceback (most recent call last):\n"),
    ("", "ERROR 05-27 11:47:57 [core.py:396] x\n"),
    ("", "(A pid=1) ERROR 05-27 11:47:57 [core.py:396] Traceback (most recent call last):\n"),
    ("Traceback (most recent call last):\n", "x:\n\n"),
    ("", "0x"),
    ("", "~/"),
    ("", "[rank0]: x\n"),
    ("Exception Group Traceback (most recent call last):\n", " | +"),
    ("", "Assertion `"),
    ("", "OutOfMemoryError: "),
    ("", "cudamalloc failed out of memor "),
    ("", "resource exhausted: "),
    ("", "a\x08"),
    ("a" * 2000, "\x08\x00"),
    ("", "\r"),
    ("", "(("),
    ("", "( ("),
    ("", "$("),
    ("", "${"),
    ("", '"$('),
    ("", "`"),
    ("", "'"),
    ("", "<<E\n"),
    ("", "#\n"),
    ("", "\\\n"),
    ("", "a\\\n"),
    ("", "– "),
    ("", " - "),
    ("", "<"),
    ("", "&lt"),
    ("", "<b>"),
    ("", "{a}"),
    ("", "1.."),
    ("lin:", "."),
    ("x ; a=", "1,"),
    ("", "--a b "),
    ("", "a=1 "),
    ("", "é\u200d"),
    ("", "\u200b\xad"),
    ("", "s\x00"),
    ("", "━"),
    ("", "50%|"),
    ("", "1/2 "),
    ("", "epoch 1/2 "),
    ("", "loss=nan "),
    ("loss", " "),
)

REDACTOR = Redactor(["123456:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghi", "a" * 3000 + "b"])


class Written:
    """An output that is this text."""

    def __init__(self, text: str) -> None:
        self._data = text.encode()

    def stretches(self) -> list[tuple[int, int]]:
        return [(0, len(self._data))]

    def between(self, begin: int, end: int) -> bytes:
        return self._data[begin:end]


READERS: dict[str, Callable[[str], object]] = {
    "clean": lambda text: log_excerpt.clean(text.encode()),
    "presentable": lambda text: log_excerpt.presentable(text.encode(), REDACTOR),
    "pages": lambda text: log_pages.page_before(Written(text), REDACTOR),
    "search": lambda text: log_pages.find(Written(text), REDACTOR, "a"),
    "what matters": lambda text: log_excerpt.what_matters(text, limit=2500),
    "wandb link": log_excerpt.wandb_link,
    "tracebacks": lambda text: chains(text.split("\n")),
    "redact text": REDACTOR.text,
    "redact ends": lambda text: Redactor(["abc123456"]).ends(text),
    "redact stream": lambda text: list(REDACTOR.stream([text.encode()])),
    "names": likeness,
    "telling": is_telling,
    "escape": escape,
    "shorten": lambda text: shorten(text, 4000, keep="both"),
    "fit": lambda text: fit(["<b>x</b>", Shrink(text)]),
    "fit html": lambda text: fit([text]),
    "visible": visible_units,
    "straighten": lambda text: parse.straighten(text, [("code", 5, 10)]),
    "command": lambda text: parse.command_of(text, "bot"),
    "job numbers": parse.job_numbers,
    "lines": parse.lines,
    "quiet hours": quiet_hours.quiet_hours,
    "suggestion": lambda text: parse.suggestion(text, ["submit", "status"]),
    "options": read_text,
    "shell text": pieces,
    "leaving": refuse_leaving,
    "rerun": lambda text: changed(text, None, ["--lr", "1"]),
    "signature": lambda text: kind_of(words_of(text)),
    "error line": error_line,
    "normalised": normalised,
    "what matters after a stop": lambda text: log_excerpt.what_matters(text, limit=2500, stopped=True),
    "memory": lambda text: oom.recognise(text, exit_code=1),
    "duration": parse_duration,
    "size": parse_size_mib,
    "numbers": spans_in,
    "sweep": parse_text,
    "metric": parse_metric,
    "progress": lambda text: ProgressReader().feed(text, 0.0),
    "progress in a block": lambda text: ProgressReader().feed_block(text.encode(), 0.0),
    "own progress": lambda text: ProgressReader(r"(a|aa)+(?P<n>\d+)x").feed(text, 0.0),
    "stop rules": parse_rules,
    "broken rules": lambda text: broken_in(parse_rules("nan,loss>10"), text.encode()),
    "terminal": printable,
    "links": lambda text: detect(text, []),
    "html": parse_html,
    "links on the page": plain_text,
    "html on the page": lambda text: html_text(escape(text)),
    "references": decode_references,
}


@cache
def mix(size: int) -> str:
    """A bit of each."""
    return "".join(grown(before, again, "\n", size // len(HOSTILE)) for before, again in HOSTILE)


# What one long stretch of costs most: not the search but copies of it.
LONG = {
    "presentable": ("wandb: ", "https://"),
    "wandb link": ("wandb: /runs/", "https://"),
    "what matters": ("", "0"),
    "redact text": ("key=", ","),
    "lines": ("", "a\\\n"),
    "shell text": ("", "( ("),
    "signature": ("", "a"),
    "rerun": ("python ", "a"),
    "memory": ("", "0"),
    "error line": ("", "\x1b["),
}


def cost(run: Callable[[str], object], text: str) -> float:
    """Its CPU time, without the garbage collector: that looks at the whole test process, now and then."""
    gc.disable()
    try:
        begun = time.thread_time()
        with contextlib.suppress(UserError, ValueError, ApiError):
            run(text)
        return time.thread_time() - begun
    finally:
        gc.enable()


def grows_too_fast(run: Callable[[str], object], made: Callable[[int], str], size: int) -> str:
    """Why, if it does: four times the text takes far more than four times as long, and so does four times that.

    One such step alone proves nothing: where a list outgrows what the allocator keeps, each page is a fault.
    """
    return _step(run, made, size) and _step(run, made, 4 * size)


def _step(run: Callable[[str], object], made: Callable[[int], str], size: int) -> str:
    text, longer = made(size), made(4 * size)
    for _ in range(8):
        longer_s, once_s = cost(run, longer), cost(run, text)
        if longer_s < 4 * BARELY_S or longer_s < TIMES * once_s:
            return ""
    return f"{text[:40]!r}…: {once_s:.3f} s for {len(text)}, {longer_s:.3f} s for {len(longer)}"


def slow_ones(run: Callable[[str], object], texts: list[tuple[str, str, str]]) -> list[str]:
    """Those that take the square of their length, if any."""
    makers = [partial(grown, *text) for text in texts]
    costs = [cost(run, made(4 * KIB)) for made in makers]
    slow = [grows_too_fast(run, made, 4 * KIB) for made, taken in zip(makers, costs, strict=True) if taken > BARELY_S]
    return [why for why in slow if why]


def test_no_pattern_takes_the_square_of_a_text():
    slow = []
    for used in used_patterns():
        texts = [(*one, end) for one in attacks(used.pattern) for end in ENDS]
        found = slow_ones(used.run, texts) or [grows_too_fast(used.run, mix, MIB // 4) if used.searches else ""]
        slow += [f"{used.where} ({used.method}): {why}" for why in found if why]
    assert not slow, "\n".join(slow)


@pytest.mark.parametrize("name", READERS)
def test_no_reader_takes_the_square_of_a_text(name):
    run = READERS[name]
    assert not slow_ones(run, [(before, again, "\0!") for before, again in HOSTILE])
    if name in LONG:
        assert not grows_too_fast(run, mix, MIB // 4)
        assert not grows_too_fast(run, partial(grown, *LONG[name], "\0!"), MIB // 4)


def test_no_metric_takes_the_square_of_an_output(tmp_path: Path):
    def read(text: str) -> object:
        (tmp_path / "output.log").write_text(text)
        return last_values({1: str(tmp_path)}, r"(?:[a-z]+)*\s*=?\s*([0-9]+)x")

    assert not grows_too_fast(read, mix, MIB // 8)


def test_one_endless_secret_is_not_looked_at_again_and_again(monkeypatch):
    monkeypatch.setattr("bot.secrets.redact._PIECE", 64 * KIB)
    looked_at: list[int] = []
    redactor = Redactor(["abc123456"])
    spans = redactor._spans
    monkeypatch.setattr(redactor, "_spans", lambda data: looked_at.append(len(data)) or spans(data))
    given = [b"ok\ngithub_pat_", *[b"a" * 16 * KIB] * 128, b"\nok\n"]
    assert b"".join(redactor.stream(given)) == b"ok\n[redacted]\nok\n"
    assert sum(looked_at) < 4 * sum(map(len, given))


def test_no_env_file_takes_the_square_of_its_length(tmp_path: Path):
    def read(text: str) -> object:
        (tmp_path / ".env").write_text(text)
        (tmp_path / ".env").chmod(0o600)
        return read_env_file(str(tmp_path / ".env"))

    assert not slow_ones(read, [(f"A={before}", again, "\0!") for before, again in HOSTILE])


def test_a_square_is_noticed():
    """The test of the tests."""
    assert slow_ones(lambda text: sum(range(len(text) ** 2 // 50)), [("", " ", "!")])
