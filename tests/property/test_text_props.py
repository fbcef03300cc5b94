import random
import shlex
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from bot.inbound import parse
from bot.secrets.names import is_telling
from bot.secrets.redact import Redactor
from bot.text import html as telegram_html
from bot.text import log_excerpt, quiet_hours
from bot.text.html import Shrink, bold, code, escape, fit, italic, link, pre, shorten, units, visible_units
from runner.commands.argument_changes import changed
from runner.errors import UserError
from tests.telegram.html_text import parse_html
from tests.telegram.testing import Trial

KEEPS = st.sampled_from(["start", "end", "both"])
HOSTILE = [
    *[
        "<",
        ">",
        "&",
        "&lt;",
        "&#60;",
        "&#x3c;",
        "&amp;lt;",
        "<b>",
        "</b>",
        "</pre>",
        "<a href='tg://user?id=1'>",
        "<!--",
    ],
    *[
        "\x00",
        "\x1b[31m",
        "\r",
        "\n",
        "\t",
        "\x7f",
        "\x9b",
        "\x85",
        "\b",
        "\ud83d",
        "\ude00",
        "\udfff",
        "\ufffe",
        "\ufeff",
    ],
    *[
        "\u202e",
        "\u2066",
        "\u200b",
        "\u200d",
        "\u2028",
        "\u0333",
        "\u030a",
        "\u0301" * 30,
        "\u2800",
        "\u3164",
        "\U000e0041",
    ],
    *[
        "👨\u200d👩\u200d👧",
        "🚀",
        "🇩🇪",
        "👍🏽",
        "é",
        "e\u0301",
        "数",
        "می\u200cخ",
        "\U0010ffff",
        "@ada",
        "#tag",
        "/kill",
        "https://a.b/c",
    ],
    *["“", "—", "–", "…", "--", "a b", "x" * 500, "&" * 900, "<" * 900, "🚀" * 900, '"', "'", "\\", "\u00a0", "1–5"],
]
ANY = st.characters(codec=None, categories=("L", "M", "N", "P", "S", "Z", "C"))
TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(ANY, max_size=40),
    st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(ANY, max_size=5)), max_size=14).map("".join),
)
RENDERS = st.sampled_from([escape, bold, italic, code, pre, lambda text: link(text, "https://a.b/?c=" + text[:9])])
PARTS = st.lists(
    st.one_of(
        st.builds(lambda render, text: render(text), RENDERS, TEXTS),
        st.builds(Shrink, TEXTS.map(lambda text: text * 3), RENDERS, KEEPS, st.integers(0, 3000)),
    ),
    max_size=6,
)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial()


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(parts=PARTS, limit=st.sampled_from([4096, 4096, 1024, 100]))
def test_whatever_is_put_together_is_sent(trial: Trial, parts: list[str | Shrink], limit: int) -> None:
    html = fit(parts, limit)
    sent = trial.send(html, parse_mode="HTML")
    assert units(sent["text"]) <= limit
    assert visible_units(html) <= limit
    assert visible_units(html) == units(parse_html(html)[0])
    assert len(html.encode()) <= telegram_html.RAW_BYTES


def test_a_thousand_hostile_strings_are_sent(trial: Trial) -> None:
    numbers = random.Random(20)
    for _ in range(1000):
        text = "".join(
            numbers.choice([*HOSTILE, chr(numbers.randrange(0x110000))]) for _ in range(numbers.randrange(40))
        )
        html = fit([bold(text[:9]), Shrink(text, render=numbers.choice([escape, pre])), code(text[:5])])
        assert units(trial.send(html, parse_mode="HTML")["text"]) <= telegram_html.MESSAGE_UNITS


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_what_is_shown_is_what_was_meant(text: str) -> None:
    shown, entities = parse_html(escape(text))
    assert shown == telegram_html.printable(text)
    assert not entities
    assert telegram_html.printable(shown) == shown
    assert units(shown) <= units(text)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, limit=st.integers(-2, 60), keep=KEEPS)
@example(text="🇩🇪" * 40, limit=5, keep="both")
@example(text="e" + "\u0301" * 100, limit=9, keep="end")
def test_shortened_text_is_short_and_still_text(text: str, limit: int, keep: telegram_html.Keep) -> None:
    short = shorten(text, limit, keep=keep)
    assert units(short) <= max(limit, 0)
    if units(text) <= limit:
        assert short == text
    elif limit > 0:
        start, _, end = (short, "", "") if keep == "start" else ("", "", short)
        assert "…" in short
        if keep == "start":
            assert text.startswith(start.removesuffix("…"))
        if keep == "end":
            assert text.endswith(end.removeprefix("…"))


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
@example(text="a—–b – —–-c ——")
def test_straightening_twice_is_straightening_once(text: str) -> None:
    once = parse.straighten(text)
    assert parse.straighten(once) == once


@given(text=st.text(st.characters(min_codepoint=9, max_codepoint=126), max_size=80))
def test_plain_ascii_is_straight(text: str) -> None:
    assert parse.straighten(text) == text


ENTITIES = st.lists(
    st.tuples(st.sampled_from(["code", "pre", "bold"]), st.integers(-3, 60), st.integers(-3, 60)), max_size=4
)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, entities=ENTITIES)
def test_code_stays_and_no_entity_is_too_odd(text: str, entities: list[tuple[str, int, int]]) -> None:
    straight = parse.straighten(text, entities)
    assert parse.straighten(text, [("pre", 0, units(text))]) == text
    assert straight.count("🚀") == text.count("🚀")


@settings(max_examples=300, deadline=None)
@given(text=TEXTS)
def test_nothing_people_type_breaks_anything(text: str) -> None:
    for read in (parse.job_numbers, quiet_hours.quiet_hours):
        with suppress(UserError):
            read(text)
    assert all(line.strip() for line in parse.lines(text))
    parse.command_of(text, "mybot")
    parse.command_of(f"/{text}", "mybot")
    parse.suggestion(text, ["submit", "kill"])


LOG = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from(
            [
                *[b"\n", b"\r", b"\b", b"\x1b[31m", b"\x1b]0;", b"\x07", b"  ", b"    x\n", b"| ", b"+ "],
                *[b"Traceback (most recent call last):\n", b'  File "a.py", line 1, in f\n', b"ValueError: x\n"],
                *[
                    b"\nDuring handling of the above exception, another exception occurred:\n\n",
                    b"[rank0]: ",
                    b"[rank1]: ",
                ],
                *[
                    b"Original Traceback (most recent call last):\n",
                    b"  + Exception Group Traceback (most recent call last):\n",
                ],
                "╭── Traceback (most recent call last) ──╮\n│ a.py:1 in f │\n╰──╯\n".encode(),
                *[
                    b"Fatal Python error: x\n",
                    b"Current thread 0x1 (most recent call first):\n",
                    b"Killed\n",
                    b"wandb: x\n",
                ],
                *[b"usage: x\n", b"x: error: y\n", b"SyntaxError: z\n", b"Root Cause (first observed failure):\n"],
                *[b"ChildFailedError: \n", b"  rank : 1\n", b" 50%|#  | 1/2 [00:01<00:01, 1it/s]", b"long " * 200],
            ]
        ),
    ),
    max_size=30,
).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(output=LOG, limit=st.integers(0, 400))
def test_no_output_is_too_strange(output: bytes, limit: int) -> None:
    text = log_excerpt.clean(output)
    told = log_excerpt.what_matters(text, limit=limit)
    assert units(told) <= limit
    assert not any(char < " " and char not in "\n\t" for char in text + told)
    log_excerpt.wandb_link(text)


SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=8, max_size=40).filter(is_telling)


@settings(max_examples=250, deadline=None)
@given(before=TEXTS, secret=SECRETS, after=TEXTS, sizes=st.lists(st.integers(1, 50), min_size=1, max_size=10))
@example(before="\x1b", secret="0000000:", after="", sizes=[1])
def test_a_known_secret_never_gets_out(before: str, secret: str, after: str, sizes: list[int]) -> None:
    secret = secret.strip()
    assume(secret not in "[redacted]")
    redactor = Redactor([secret])
    told = redactor.text(f"{before}{secret}{after}")
    assert secret not in told.replace("[redacted]", "\0")
    data = f"{before}{secret}{after}".encode("utf-8", "surrogatepass")
    pieces, at = [], 0
    while at < len(data):
        pieces.append(data[at : at + sizes[at % len(sizes)]])
        at += len(pieces[-1])
    assert b"".join(redactor.stream(pieces)) == redactor.data(data)


WORDS = [
    "epoch",
    "loss=0.123",
    "tokens=512",
    "tokenizer",
    "lr=3e-4",
    "keys",
    "auth",
    "author",
    "pass",
    "数据",
    "key=",
    "\n",
]
PROSE = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(text=PROSE)
def test_ordinary_words_stay(text: str) -> None:
    assert Redactor(["sw0rdfish!"]).text(text) == text


VALUES = st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF, exclude_characters="\x00"), max_size=12)
PLAIN_VALUES = VALUES.filter(lambda value: not value.startswith(("-", "+")) and "=" not in value)
NAMES = st.sampled_from(["--lr", "--bs", "-x", "--data-dir", "--model.size"])


@settings(max_examples=250, deadline=None)
@given(flags=st.dictionaries(NAMES, PLAIN_VALUES), name=NAMES, value=PLAIN_VALUES)
def test_an_argument_list_has_the_change_and_nothing_else(flags: dict[str, str], name: str, value: str) -> None:
    argv = ["python", "train.py", *(word for pair in flags.items() for word in pair)]
    expected = ["python", "train.py", *(word for pair in {**flags, name: value}.items() for word in pair)]
    assert changed(shlex.join(argv), argv, [name, value])[1] == expected


AROUND = st.sampled_from(
    [
        ("", ""),
        ("A=1  B='x  y' ", "   # done --lr 9"),
        ("cd 'my dir' && ", " | tee  log.txt"),
        ("( ", " ) > out 2>&1"),
        ("for i in 1 2; do ", "; done"),
        ('echo "--lr $(date --lr 7)"; ', " || exit 1"),
        ("\n# a comment\n", "\n\n"),
        ("time ", " <<E\n--lr 5\nE\n"),
    ]
)
SPACES = st.sampled_from([" ", "  ", "\t", " \\\n  "])


@settings(max_examples=400, deadline=None)
@given(around=AROUND, space=SPACES, joined=st.booleans(), old=PLAIN_VALUES, new=PLAIN_VALUES)
def test_shell_text_is_kept_to_the_letter_but_for_the_value(
    around: tuple[str, str], space: str, joined: bool, old: str, new: str
) -> None:
    def command(value: str) -> str:
        flag = f"--lr={value}" if joined else f"--lr{space}{value}"
        return f"{around[0]}python{space}train.py{space}--bs{space}'3 2'{space}{flag}{space}--x{around[1]}"

    text, argv = changed(command(shlex.quote(old)), None, ["--lr", new])
    expected = shlex.quote(f"--lr={new}") if joined else None
    if expected is not None:
        assert text == command("@").replace("--lr=@", expected)
    else:
        tilde = "~/" + shlex.quote(new[2:]) if new.startswith("~/") and new != "~/" else shlex.quote(new)
        assert text == command(tilde)
    assert argv is None


@settings(max_examples=300, deadline=None)
@given(command=TEXTS, changes=st.lists(TEXTS, max_size=4))
def test_no_change_is_too_strange(command: str, changes: list[str]) -> None:
    with suppress(UserError):
        text, argv = changed(command, None, changes)
        assert argv is None
        assert changes or text == command
