"""Telegram's HTML: what it means, and what is refused."""

import html

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.local_chat.bot_api.formatted_text import Entity, utf16_length
from bot.local_chat.bot_api.methods import ApiError
from tests.telegram.entities import tidy
from tests.telegram.html_text import parse_html
from tests.telegram.testing import Trial

MEANINGS = {
    "plain": ("plain", []),
    "<b>x</b>": ("x", [("bold", 0, 1)]),
    "<STRONG>x</strong >": ("x", [("bold", 0, 1)]),
    "<i>x</i><em>y</em>": ("xy", [("italic", 0, 1), ("italic", 1, 1)]),
    "<u>x</u> <ins>y</ins>": ("x y", [("underline", 0, 1), ("underline", 2, 1)]),
    "<s>x</s> <strike>y</strike> <del>z</del>": (
        "x y z",
        [("strikethrough", 0, 1), ("strikethrough", 2, 1), ("strikethrough", 4, 1)],
    ),
    '<span class="tg-spoiler">x</span>': ("x", [("spoiler", 0, 1)]),
    "<tg-spoiler>x</tg-spoiler>": ("x", [("spoiler", 0, 1)]),
    "<code>x</code>": ("x", [("code", 0, 1)]),
    "<pre>x</pre>": ("x", [("pre", 0, 1)]),
    '<pre><code class="language-python">x</code></pre>': ("x", [("pre", 0, 1, {"language": "python"})]),
    '<code class="language-python"><pre>x</pre></code>': ("x", [("pre", 0, 1, {"language": "python"})]),
    '<code class="language-python">x</code>': ("x", [("code", 0, 1)]),
    "<blockquote>x</blockquote>": ("x", [("blockquote", 0, 1)]),
    "<blockquote expandable>x</blockquote>": ("x", [("expandable_blockquote", 0, 1)]),
    '<a href="https://a.bc/?x=1&amp;y">x</a>': ("x", [("text_link", 0, 1, {"url": "https://a.bc/?x=1&y"})]),
    "<a href='a.bc'>x</a>": ("x", [("text_link", 0, 1, {"url": "http://a.bc/"})]),
    "<a>wandb.ai/run</a>": ("wandb.ai/run", [("text_link", 0, 12, {"url": "http://wandb.ai/run"})]),
    '<a href="tg://user?id=7">x</a>': ("x", [("text_mention", 0, 1, {"user_id": 7})]),
    # a link to nowhere leaves its text and no trace
    '<a href="http://localhost:80/">x</a>': ("x", []),
    '<a href="javascript:alert(1)">x</a>': ("x", []),
    '<tg-emoji emoji-id="5368324170671202286">x</tg-emoji>': (
        "x",
        [("custom_emoji", 0, 1, {"custom_emoji_id": "5368324170671202286"})],
    ),
    "<b></b>x": ("x", []),
    "<b>x</>": ("x", [("bold", 0, 1)]),
    '<b any="thing" other>x</b>': ("x", [("bold", 0, 1)]),
    "<b>a<i>b</i></b>": ("ab", [("bold", 0, 2), ("italic", 1, 1)]),
    "&lt;&gt;&amp;&quot;": ('<>&"', []),
    "&lt &#65;&#x1F600;": ("< A😀", []),
    "&nbsp;&apos;&;&#0;&#x110000;&#99999999999;": ("&nbsp;&apos;&;&#0;&#x110000;&#99999999999;", []),
    "a > b": ("a > b", []),
    "&#0000065;&#00000065;": ("A&#00000065;", []),
    "😀<b>x</b>": ("😀x", [("bold", 2, 1)]),
    "<b>😀</b>": ("😀", [("bold", 0, 2)]),
}

REFUSED = {
    "<b>x": 'Can\'t find end tag corresponding to start tag "b"',
    "a < b": 'Unsupported start tag "" at byte offset 2',
    "<br/>": 'Unsupported start tag "br/" at byte offset 0',
    "é<p>x</p>": 'Unsupported start tag "p" at byte offset 2',
    "<b": "Unclosed start tag at byte offset 0",
    "x<": "Unclosed start tag at byte offset 1",
    "<a href": 'Unclosed start tag "a" at byte offset 0',
    "<a href=": 'Unclosed start tag "a" at byte offset 0',
    '<a href="x': "Unclosed start tag at byte offset 0",
    "<a href=abc": "Unclosed start tag at byte offset 0",
    "<a ='x'>": 'Empty attribute name in the tag "a" at byte offset 0',
    "<a href=a/b>x</a>": "Unexpected end of name token at byte offset 8",
    "</b>": "Unexpected end tag at byte offset 0",
    "<b>x</b": "Unclosed end tag at byte offset 4",
    "<b><i>x</b></i>": 'Unmatched end tag at byte offset 7, expected "</i>", found "</b>"',
    "<span>x</span>": 'Tag "span" must have class "tg-spoiler" at byte offset 0',
    '<tg-emoji emoji-id="x">y</tg-emoji>': "Invalid custom emoji identifier specified",
    "&#xd800;": "Text contains invalid Unicode characters after decoding HTML entities, "
    "check for unmatched surrogate code units",
}


@pytest.mark.parametrize("source", MEANINGS)
def test_meaning(source):
    text, entities = parse_html(source)
    wanted_text, wanted = MEANINGS[source]
    shown = [entity.to_json() for entity in entities]
    fields = [dict(zip(("type", "offset", "length"), entity[:3], strict=True)) for entity in wanted]
    assert (text, shown) == (
        wanted_text,
        [a | (b[3] if len(b) > 3 else {}) for a, b in zip(fields, wanted, strict=True)],
    )


@pytest.mark.parametrize("source", REFUSED)
def test_refusal(source):
    with pytest.raises(ApiError) as refused:
        parse_html(source)
    assert refused.value.code == 400
    assert refused.value.description == f"Bad Request: can't parse entities: {REFUSED[source]}"


NESTING = {
    "bold inside code goes": ([("code", 0, 4), ("bold", 1, 2)], [("code", 0, 4)]),
    "bold round code keeps its ends": (
        [("bold", 0, 6), ("pre", 2, 2)],
        [("bold", 0, 2), ("pre", 2, 2), ("bold", 4, 2)],
    ),
    "bold is cut at a link's ends": (
        [("bold", 0, 6), ("text_link", 2, 2)],
        [("bold", 0, 2), ("text_link", 2, 2), ("bold", 2, 2), ("bold", 4, 2)],
    ),
    "touching bolds join": ([("bold", 0, 2), ("bold", 2, 2)], [("bold", 0, 4)]),
    "a link inside a link goes": ([("text_link", 0, 4), ("text_link", 1, 2)], [("text_link", 0, 4)]),
    "a quote inside a quote goes": ([("blockquote", 0, 4), ("blockquote", 1, 2)], [("blockquote", 0, 4)]),
    "code inside a quote stays": ([("blockquote", 0, 4), ("code", 1, 2)], [("blockquote", 0, 4), ("code", 1, 2)]),
    "code that fills a quote stays": ([("blockquote", 0, 4), ("code", 0, 4)], [("blockquote", 0, 4), ("code", 0, 4)]),
    "touching links stay two": (
        [("text_link", 0, 2), ("text_link", 2, 2)],
        [("text_link", 0, 2), ("text_link", 2, 2)],
    ),
    "bold from the middle of code on keeps its rest": (
        [("code", 0, 4), ("bold", 2, 4)],
        [("code", 0, 4), ("bold", 4, 2)],
    ),
    "a link round a quote goes": ([("text_link", 0, 6), ("blockquote", 2, 2)], [("blockquote", 2, 2)]),
    "a link before a quote stays": (
        [("text_link", 0, 2), ("blockquote", 2, 2)],
        [("text_link", 0, 2), ("blockquote", 2, 2)],
    ),
    "code that leaves a quote goes": ([("blockquote", 0, 4), ("code", 2, 4)], [("blockquote", 0, 4)]),
    "pre wins over code": ([("code", 0, 4), ("pre", 0, 4)], [("pre", 0, 4)]),
    "empty ones go": ([("bold", 2, 0)], []),
}


@pytest.mark.parametrize("case", NESTING)
def test_nesting(case):
    given_, wanted = NESTING[case]
    assert [(e.type, e.offset, e.length) for e in tidy(Entity(*entity) for entity in given_)] == wanted


def test_over_a_hundred_entities_are_dropped_in_silence():
    trial = Trial()
    sent = trial.send("<b>x</b> " * 120, parse_mode="HTML")
    assert len(sent["entities"]) == 100
    assert len(sent["text"]) == 239


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
OPENINGS = st.sampled_from(
    [
        *("<b>", "<i>", "<u>", "<s>", "<code>", "<pre>", "<blockquote>", "<blockquote expandable>", "<tg-spoiler>"),
        *('<a href="https://a.bc/">', '<span class="tg-spoiler">', '<code class="language-c">'),
    ]
)
PIECES = st.recursive(
    WORDS.map(lambda word: (html.escape(word, quote=False), word)),
    lambda inner: st.tuples(OPENINGS, st.lists(inner, max_size=3)).map(
        lambda tagged: (
            f"{tagged[0]}{''.join(source for source, _ in tagged[1])}</{tagged[0][1:].split()[0].rstrip('>')}>",
            "".join(plain for _, plain in tagged[1]),
        )
    ),
    max_leaves=6,
)


@given(st.lists(PIECES, max_size=5))
def test_escaped_text_in_known_tags_is_always_read_back(pieces):
    source, plain = "".join(piece[0] for piece in pieces), "".join(piece[1] for piece in pieces)
    text, entities = parse_html(source)
    assert text == plain
    assert all(entity.offset >= 0 and entity.length > 0 and entity.end <= utf16_length(plain) for entity in entities)


@given(WORDS)
@example("\uffff\U00010000")
def test_length_counts_utf16_units(text):
    assert utf16_length(text) == len(text.encode("utf-16-le")) // 2


@given(st.text(st.sampled_from("<>&;/=\"'ab #x1\n pre code é😀"), max_size=60))
def test_any_text_is_read_or_refused_with_a_reason(source):
    try:
        text, entities = parse_html(source)
    except ApiError as error:
        assert error.description.startswith("Bad Request: can't parse entities: ")  # noqa: PT017
    else:
        assert all(entity.end <= utf16_length(text) for entity in entities)
