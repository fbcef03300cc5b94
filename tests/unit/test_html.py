import pytest

from bot.text.html import (
    MESSAGE_UNITS,
    RAW_BYTES,
    Keep,
    Shrink,
    bold,
    code,
    escape,
    fit,
    italic,
    link,
    pre,
    shorten,
    units,
    visible_units,
)
from tests.telegram.html_text import parse_html
from tests.telegram.testing import Trial

FAMILY = "👨\u200d👩\u200d👧"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ("&lt;", "&amp;lt;"),
        ('"quotes" stay', '"quotes" stay'),
        ("tab\tand\nline", "tab\tand\nline"),
        ("dos\r\nline", "dos\nline"),
        ("a\u2028b\u2029c\x85d", "a\nb\nc\nd"),
        ("\x00\x1b[1m\x07\x7f", "␀␛[1m␇␡"),
        ("bar\rover", "bar␍over"),
        ("gnp\u202eexe.", "gnp�exe."),
        ("\u2066a\u2069\u200e\u200f\u061c", "�a����"),
        ("\ud800 \udfff", "� �"),
        ("\ufffe\uffff\x9b", "���"),
        ("r\u200bm\u00ad \u2060-\ufeffrf\u3164", "rm -rf"),
        ("\U000e0041\U000e0042!", "!"),
        (f"family {FAMILY}", f"family {FAMILY}"),
        ("a\u200db\u200cc", "abc"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("Z" + "\u0301" * 50, "Z" + "\u0301" * 3),
    ],
)
def test_escape(text: str, html: str) -> None:
    assert escape(text) == html


def test_each_kind_of_text_escapes_what_it_is_given() -> None:
    assert bold("<1>") == "<b>&lt;1&gt;</b>"
    assert italic("<1>") == "<i>&lt;1&gt;</i>"
    assert code("a&b") == "<code>a&amp;b</code>"
    assert pre("</pre>") == "<pre>&lt;/pre&gt;</pre>"


def test_a_link_keeps_its_address() -> None:
    html = link("run <1>", 'https://wandb.ai/a?b=1&c="x"')
    assert html == '<a href="https://wandb.ai/a?b=1&amp;c=&quot;x&quot;">run &lt;1&gt;</a>'
    text, entities = parse_html(html)
    assert text == "run <1>"
    assert dict(entities[0].extra) == {"url": 'https://wandb.ai/a?b=1&c="x"'}


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "tg://user?id=1",
        "ftp://a.b/c",
        "https://",
        "https:///path",
        "https://wandb.ai@evil.example/",
        "https://a.b/c d",
        "https://a.b/\u202e",
        "https://a.b\n",
        "",
    ],
)
def test_what_is_no_ordinary_address_gives_plain_text(url: str) -> None:
    assert link("<x>", url) == "&lt;x&gt;"


@pytest.mark.parametrize(("text", "count"), [("abc", 3), ("é", 1), ("🚀", 2), (FAMILY, 8), ("\ud800", 1), ("", 0)])
def test_units(text: str, count: int) -> None:
    assert units(text) == count


def test_visible_units_count_what_is_seen() -> None:
    html = bold("a<b") + pre("🚀&") + link("x", "https://a.b/?c=d&e") + italic("q")
    assert visible_units(html) == 3 + 3 + 1 + 1
    assert visible_units(html) == units(parse_html(html)[0])


@pytest.mark.parametrize(
    ("text", "limit", "keep", "short"),
    [
        ("abcdef", 6, "start", "abcdef"),
        ("abcdef", 5, "start", "abcd…"),
        ("abcdef", 5, "end", "…cdef"),
        ("abcdef", 5, "both", "ab…ef"),
        ("abcdef", 4, "both", "ab…f"),
        ("abcdef", 1, "end", "…"),
        ("abcdef", 0, "start", ""),
        ("abcdef", -5, "both", ""),
        ("ab🚀cd", 4, "start", "ab…"),
        ("ab🚀cd", 5, "start", "ab🚀…"),
        ("ab🚀cd", 4, "end", "…cd"),
        (f"ab{FAMILY}cd", 8, "start", "ab…"),
        (f"ab{FAMILY}cd", 8, "end", "…cd"),
        ("abe\u0301xyz", 4, "start", "ab…"),
        ("👍🏽👍🏽👍🏽", 8, "start", "👍🏽…"),
        ("🇩🇪x", 3, "start", "…"),
    ],
)
def test_shorten(text: str, limit: int, keep: Keep, short: str) -> None:
    assert shorten(text, limit, keep=keep) == short


def test_what_fits_is_left_whole() -> None:
    assert fit([bold("Job 1"), "\n", Shrink("log <1>"), "\n", italic("x")]) == (
        "<b>Job 1</b>\n<pre>log &lt;1&gt;</pre>\n<i>x</i>"
    )


def test_the_text_that_may_shrink_shrinks_and_the_rest_stays() -> None:
    html = fit([bold("Job 1"), "\n", Shrink("x" * 9000 + "the end"), "\nafter"])
    assert visible_units(html) == MESSAGE_UNITS
    assert html.startswith("<b>Job 1</b>\n<pre>…x")
    assert html.endswith("the end</pre>\nafter")


def test_short_texts_stay_whole_while_long_ones_share() -> None:
    html = fit([Shrink("A" * 5000, render=code, keep="start"), Shrink("B" * 100), Shrink("C" * 5000, keep="end")], 1101)
    assert html.count("B") == 100
    assert abs(html.count("A") - html.count("C")) <= 1
    assert visible_units(html) == 1101


def test_a_text_keeps_its_least() -> None:
    html = fit([Shrink("A" * 5000, at_least=800), Shrink("B" * 5000)], 1000)
    assert html.count("A") > 850
    assert visible_units(html) <= 1000
    html = fit([Shrink("A" * 5000, at_least=3000), Shrink("B" * 5000, at_least=3000)], 1000)
    assert html.count("A") == html.count("B") == 499


def test_what_a_text_is_wrapped_in_counts_too() -> None:
    html = fit([Shrink("a" * 5000, render=lambda text: bold("Output:") + "\n" + pre(text))], 100)
    assert visible_units(html) == 100
    assert html.startswith("<b>Output:</b>\n<pre>…aaa")


def test_a_text_without_anything_in_it_takes_its_frame_along() -> None:
    assert fit(["a", Shrink(" \n\u200b")]) == "a"


def test_if_even_the_fixed_parts_are_too_long_the_formatting_goes() -> None:
    html = fit([bold("x<" * 5000), Shrink("log")])
    assert visible_units(html) == MESSAGE_UNITS
    assert "<b>" not in html
    assert html.startswith("x&lt;x&lt;")


def test_the_raw_size_is_kept_too() -> None:
    parts = [link("x", "https://a.b/" + "y" * 2000) for _ in range(40)]
    html = fit([*parts, Shrink("&" * 4096)])
    assert len(html.encode()) <= RAW_BYTES
    Trial().send(html, parse_mode="HTML")


@pytest.mark.parametrize("parts", [[], [""], [" \n"], [Shrink("")], [bold("\u2063")], ["\u2800\u3000"]])
def test_a_message_is_never_empty(parts: list[str | Shrink]) -> None:
    assert fit(parts) == "…"
    Trial().send(fit(parts), parse_mode="HTML")


def test_a_huge_text_is_cut() -> None:
    assert MESSAGE_UNITS - 1 <= visible_units(fit([Shrink("🚀&<" * 3_000_000)])) <= MESSAGE_UNITS
