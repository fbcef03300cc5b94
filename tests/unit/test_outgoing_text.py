"""What leaves as text: no link that nobody meant, no line break before a unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.text.html import bold, code, escape, pre
from bot.text.outgoing_text import finished, plain
from tests.telegram.detect_entities import detect
from tests.telegram.html_text import parse_html


def links(html):
    """What Telegram makes a link of in this HTML."""
    text, known = parse_html(html)
    units = text.encode("utf-16-le")
    found = [one for one in detect(text, known) if one.type in {"url", "bot_command"}]
    return [units[2 * one.offset : 2 * one.end].decode("utf-16-le") for one in found]


@pytest.mark.parametrize(
    "html",
    [
        "train.py", "run.sh, model.pt and data.zip", bold("train.py"), "🌙 (see <i>README.md</i>)", "seed=1,train.py:3",
        "“ckpt-3.pt” 10.0.0.1", "TRAIN.PY", "a &amp; b.rs", "…net.so", "/data", "code in /scratch.", "пример.рус.py",
    ],
)  # fmt: skip
def test_names_of_files_and_folders_are_no_links(html):
    assert links(html) != [] or "рус" in html
    assert links(finished(html)) == []
    assert parse_html(finished(html))[0] == parse_html(html)[0]


@pytest.mark.parametrize(
    "html",
    ["1.5 of 2.25", "e.g. this", "done. Next", "#12 · lab1", "https://t.me/lab_bot?start=x", "/status shows it", "a/b"],
)
def test_other_words_stay_as_they_are(html):
    assert finished(html) == html


def test_code_and_links_that_are_meant_stay():
    for html in (code("train.py `x` 5 %"), pre("a.py\n/data 3 s"), '<a href="https://wandb.ai/x">wandb.ai</a>'):
        assert finished(html) == html


def test_what_is_to_be_typed_is_code_that_a_tap_copies():
    assert finished("Send `/kill 12` or /kill &lt;b&gt;") == "Send <code>/kill 12</code> or /kill &lt;b&gt;"
    assert finished("Like\n`/batch\na &lt; b`") == "Like\n<code>/batch\na &lt; b</code>"
    assert finished("one ` alone") == "one ` alone"
    assert plain("held; `/release 15` lets it start after 5 s") == "held; /release 15 lets it start after 5\u00a0s"


@pytest.mark.parametrize("quantity", ["3.5 GiB", "300 MiB", "45 %", "61 °C", "250 W", "14 s", "1 h", "5 min", "20 ms"])
def test_a_unit_stays_with_its_number(quantity):
    assert finished(f"after {quantity} · so") == f"after {quantity.replace(' ', chr(0xA0))} · so"


def test_other_spaces_break_lines():
    for text in ("12 seeds", "2 Watts", "GPU 0 works", "3 held", "#5 h4"):
        assert finished(text) == text


WORDS = st.text(st.sampled_from("ab1._-~@/#:;()`'\"… é😀AZpyszt \n"), max_size=30)


@given(WORDS, st.booleans())
def test_whatever_people_call_things_no_bare_link_is_left(text, strong):
    html = bold(text) if strong else escape(text)
    left = [link for link in links(finished(html)) if not link.startswith(("http://", "https://"))]
    assert left == []


@given(WORDS)
def test_twice_is_as_good_as_once(text):
    once = finished(escape(text))
    assert finished(once) == once
