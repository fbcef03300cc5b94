"""Removes secrets from text before it leaves the box: known ones, known formats, values of telling names. Pure."""

from __future__ import annotations

import base64
import html
import json
import re
from bisect import bisect_left, bisect_right
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from bot.secrets.invisible_text import seen
from bot.secrets.names import Likeness, is_path, is_random, is_stand_in, is_telling, likeness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

REDACTED = "[redacted]"
_MARK = REDACTED.encode()
_PIECE = 1 << 20
"""How many bytes of a stream are searched together."""
_HELD = 16 << 10
"""How many bytes at its end wait for what follows; a private key fits in there."""
_CONTEXT = 256
_LEAST_OF_CUT = 8
_LONGEST_FORM = 512
_SHOWN = 32 << 10
"""How many characters of a long text are kept: several times what a message holds."""
_ENDS_KEPT = 200

Span = tuple[int, int]


def _shape(literals: str, pattern: str) -> tuple[tuple[bytes, ...], re.Pattern[bytes]]:
    return tuple(literal.encode() for literal in literals.split()), re.compile(pattern.encode())


# Each pattern is tried only if one of the words before it occurs; its group is what is hidden. Patterns begin with
# plain letters, which makes them fast. What must not come before those letters is checked by a lookbehind after them.
_SHAPES = (
    _shape("AKIA ASIA ABIA ACCA", r"(A(?:KIA|SIA|BIA|CCA)(?<![A-Za-z0-9]....)[0-9A-Z]{16})(?![A-Za-z0-9])"),
    _shape("ghp_ gho_ ghu_ ghs_ ghr_", r"(gh[pousr]_(?<![A-Za-z0-9]....)[A-Za-z0-9]{30,})"),
    _shape("github_pat_", r"(github_pat_[A-Za-z0-9_]{22,})"),
    _shape("hf_", r"(hf_(?<![A-Za-z0-9_]...)[A-Za-z0-9]{30,})"),
    _shape(
        "sk-",
        r"(sk-(?<![A-Za-z0-9_-]...)(?:(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{16,}|[a-f0-9]{32,}"
        r"|(?=[A-Za-z0-9_-]{0,99}[0-9])(?=[A-Za-z0-9_-]{0,99}[A-Z])[A-Za-z0-9_-]{20,}))",
    ),
    _shape("xox", r"(xox[abeoprs]-[A-Za-z0-9-]{10,})"),
    _shape("xapp-", r"(xapp-(?<![A-Za-z0-9_-].....)[0-9]-[A-Za-z0-9-]{10,})"),
    _shape(
        "hooks.slack.com discord", r"(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/([\w/-]{16,})"
    ),
    _shape("AIza", r"(AIza(?<![A-Za-z0-9_-]....)[0-9A-Za-z_-]{35})"),
    _shape("ya29.", r"(ya29\.(?<![A-Za-z0-9_-].....)[0-9A-Za-z_-]{20,})"),
    _shape("GOCSPX-", r"(GOCSPX-[0-9A-Za-z_-]{20,})"),
    _shape("glpat-", r"(glpat-[0-9A-Za-z_-]{20,})"),
    _shape("npm_", r"(npm_(?<![A-Za-z0-9_]....)[A-Za-z0-9]{36})"),
    _shape("pypi-AgEI", r"(pypi-AgEI[\w-]{30,})"),
    _shape("_live_ _test_ whsec_", r"((?:[srp]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,})"),
    _shape("SG.", r"(SG\.(?<![A-Za-z0-9_-]...)[\w-]{16,}\.[\w-]{16,})"),
    _shape("wandb_v1_", r"(wandb_v1_[A-Za-z0-9_]{30,})"),
    _shape(
        "wandb",
        r"wandb(?:[ .]login|: [^\n]{0,60}key)[^\n]{0,100}?(?<![0-9a-z])([0-9a-f]{40})(?![0-9a-z])",
    ),
    _shape("eyJ", r"(eyJ(?<![A-Za-z0-9_-]...)[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"),
    _shape("earer", r"earer(?<=[Bb]earer)\s+([A-Za-z0-9._~+/=-]{16,})"),
    _shape(
        "uthorization",
        r"(?i)authorization[\"'\\]*\s*[:=]\s*[\"'\\]*(?:bearer|basic|token|digest)\s+([^\s\"'<>\\,]{6,})",
    ),
    _shape("://", r"://[^\s/:@\"'<>]{0,200}:([^\s/@\"'<>]{1,500})@"),
    _shape("password", r"login\s+\S{1,200}\s+password\s+([^\s<>]+)"),
    _shape("ignature= sig=", r"(?:X-(?:Amz|Goog)-Signature|[?&;]sig)=([^\s&\"'<>]{16,})"),
)
_KEY_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(rb"[A-Za-z0-9+/=\s\\:,.-]{0,14000}")
_LONGEST_KEY = 14_000
_AFTER_COLON = re.compile(rb"(?::|%3[Aa])[A-Za-z0-9_-]{30,}")
_BOT_NUMBER = re.compile(rb"(?<![0-9])[0-9]{6,16}\Z")

_CAPITAL = re.compile(rb"[A-Z]")

_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
# Words in names that a value may follow. Another letter right after one makes it a different word.
_WORDS = tuple(
    re.compile(word + rb"[\w.-]{0,60}[\"'\]\\]{0,4}[ \t]{0,4}[=: \t]")
    for word in (
        rb"key(?![a-z])",
        rb"token(?![a-z])",
        rb"secret(?:s?(?![a-z])|key|access)",
        rb"pass(?:w(?:or)?ds?|phrase|code)?(?![a-z])",
        rb"pwd(?![a-z])",
        rb"credentials?(?![a-z])",
        rb"auth(?:(?![a-z])|orization|token|key)",
    )
)
_VALUE = (
    rb"(?:\\+\"([^\"\\\n]{0,2048})|\\+'([^'\\\n]{0,2048})"
    rb"|\"([^\"\\\n]{0,2048}(?:\\.[^\"\\\n]{0,2048}){0,16})|'([^'\\\n]{0,2048}(?:\\.[^'\\\n]{0,2048}){0,16})"
    rb"|([^\s\"'<>]{1,2048}))"
)
_BARE = 5
# A value without quotes ends where another name begins, and before the brackets around it.
_VALUE_END = re.compile(rb"(?<![,;&)\]}\\])[,;&)\]}\\]+(?:amp;)?(?:\Z|[\w.-]{1,60}[=:])")
_ASSIGNED = re.compile(rb"\\*[\"']?\]?[ \t]{0,4}(?::[ \t]*str[ \t]*=|=>|:=|=(?!=)|:(?!:))[ \t]{0,4}" + _VALUE)
_FOLLOWING = re.compile(rb"(?:[ \t]+|=)(?!-)" + _VALUE)


class Redactor:
    """Hides these secrets, and everything else that looks like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self.secrets = frozenset(secret.strip() for secret in secrets if is_telling(secret))
        forms = {form for secret in self.secrets for part in _parts(secret) for form in _forms(part)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._ends: dict[bytes, str] = {}
        self._held = max([_HELD, *(2 * len(form) for form in forms)])

    def text(self, text: str) -> str:
        """Return the text, plain or HTML, without secrets."""
        data = text.encode("utf-8", "surrogatepass")
        spans = self._spans(data)
        return _replaced(data, spans).decode("utf-8", "surrogatepass") if spans else text

    def ends(self, text: str) -> str:
        """Return as much of a text without secrets as a message can show: the two ends of a long one, which are cached.

        Text near a cut that was made before redaction is not shown: it may hold a part of a secret.
        """
        if len(text) <= _SHOWN:
            return self.text(text)
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._ends:
            near = text if len(text) <= 4 * _SHOWN else f"{text[: 2 * _SHOWN]}\n{text[-2 * _SHOWN :]}"
            self._ends = dict([*self._ends.items()][-_ENDS_KEPT:])
            shown, half = self.text(near), _SHOWN // 2
            self._ends[key] = shown if len(shown) <= _SHOWN else f"{shown[:half]}…{shown[-half:]}"
        return self._ends[key]

    def data(self, data: bytes) -> bytes:
        """Return a whole output without secrets."""
        return _replaced(data, self._spans(data))

    def pieces(self, data: bytes, cuts: Sequence[int]) -> list[bytes]:
        """Return an output cut at these places, without secrets. One that lies across a cut is hidden on both sides."""
        spans = self._spans(data)
        begins, ends = [span[0] for span in spans], [span[1] for span in spans]
        return [
            _replaced(data, spans[bisect_right(ends, start) : bisect_left(begins, end)], start, end)
            for start, end in pairwise(cuts)
        ]

    def stream(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield a huge output without secrets, piece by piece. A secret that is split over two pieces is hidden too."""
        waiting, done = bytearray(), 0  # the last bytes yielded stay, as context for what follows
        for chunk in chunks:
            waiting += chunk
            if len(waiting) < _PIECE:
                continue
            data = bytes(waiting)
            spans = self._spans(data)
            cut = _safe_cut(data, spans, len(data) - self._held)
            if cut > done:
                yield _replaced(data, spans, done, cut)
                kept = max(cut - _CONTEXT, 0)
                waiting, done = bytearray(data[kept:]), cut - kept
            else:  # all of it is one secret: its ends are enough to recognize it
                del waiting[cut + _CONTEXT : len(data) - self._held]
        data = bytes(waiting)
        yield _replaced(data, self._spans(data), done)

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines without secrets. A secret that spans several lines becomes one."""
        rest = b""
        for piece in self.stream(f"{line}\n".encode("utf-8", "surrogatepass") for line in lines):
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line.decode("utf-8", "surrogatepass") for line in whole)

    def _spans(self, data: bytes) -> list[Span]:
        """Return the spans to hide, sorted and without overlaps."""
        spans = self._all_spans(data)  # the raw bytes too: an escape may seem to include what follows it
        if visible := seen(data):
            spans += [visible.span(*span) for span in self._all_spans(visible.plain) if span[1] > span[0]]
        return _merged(spans)

    def _all_spans(self, data: bytes) -> list[Span]:
        return [*_named(data), *_shaped(data), *_private_keys(data), *_bot_tokens(data), *self._of_secrets(data)]

    def _of_secrets(self, data: bytes) -> Iterator[Span]:
        for form in self._forms:
            at = data.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = data.find(form, at + len(form))
            yield from _cut_off(data, form)


def _parts(secret: str) -> Iterator[str]:
    """Yield a very long secret in pieces, each of which is searched for: an excerpt may hold any part of it."""
    size = _LONGEST_FORM if len(secret) > 2 * _LONGEST_FORM else len(secret)
    yield from (secret[at : at + size] for at in range(0, len(secret), size))


def _forms(secret: str) -> set[bytes]:
    """Return a secret as it is written, and as it looks in URLs, HTML, JSON, Python, UTF-16, hex and base64."""
    quoted = quote(secret, safe="")
    texts = {
        secret,
        *(quoted, quote(secret), quote_plus(secret), re.sub(r"%..", lambda match: match[0].lower(), quoted)),
        *(html.escape(secret), html.escape(secret, quote=False), html.escape(secret).replace("&#x27;", "&#39;")),
        *(json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]),
    }
    plain = {text.encode("utf-8", "surrogatepass") for text in texts}
    wide = {secret.encode(code, "surrogatepass") for code in ("utf-16-le", "utf-16-be")}
    data = secret.encode("utf-8", "surrogatepass")
    return plain | wide | _in_hex(data) | _in_base64(data)


def _in_hex(secret: bytes) -> set[bytes]:
    """Return a secret in hex, in small and in capital letters, with the usual separators."""
    pairs = [f"{byte:02x}" for byte in secret]
    small = {"".join(pairs), " ".join(pairs), ":".join(pairs)}
    return {form.encode() for text in small for form in (text, text.upper())} | {"\\x".join(pairs).encode()}


def _in_base64(secret: bytes) -> set[bytes]:
    """Return the part of a secret's base64 that does not depend on its surroundings, for all three alignments."""
    forms = set()
    for before in range(3):
        bits = (before + len(secret)) * 8
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(b"\0" * before + secret)[(before * 8 + 5) // 6 : bits // 6])
    return {form for form in forms if len(form) >= 10}


def _cut_off(data: bytes, form: bytes) -> Iterator[Span]:
    """Yield a secret that an excerpt cuts off: its end at the start of the data, or its start at the data's end."""
    if len(data) < _LEAST_OF_CUT:
        return
    at = form.find(data[:_LEAST_OF_CUT], 1)
    while at > 0 and not data.startswith(form[at:]):
        at = form.find(data[:_LEAST_OF_CUT], at + 1)
    if at > 0:
        yield 0, len(form) - at
    size = form.rfind(data[-_LEAST_OF_CUT:], 0, len(form) - 1) + _LEAST_OF_CUT
    while size >= _LEAST_OF_CUT and not data.endswith(form[:size]):
        size = form.rfind(data[-_LEAST_OF_CUT:], 0, size - 1) + _LEAST_OF_CUT
    if size >= _LEAST_OF_CUT:
        yield len(data) - size, len(data)


def _shaped(data: bytes) -> Iterator[Span]:
    for literals, pattern in _SHAPES:
        if any(literal in data for literal in literals):
            yield from (match.span(1) for match in pattern.finditer(data))


def _private_keys(data: bytes) -> Iterator[Span]:
    """Yield private keys, up to their end line or as far as the text still looks like a key."""
    ends = [match.end() for match in _KEY_END.finditer(data)]
    last = 0
    for match in _KEY_BEGIN.finditer(data):
        begin, at = match.end(), bisect_left(ends, match.end())
        if match.start() < last:
            continue
        if at < len(ends) and ends[at] - begin <= _LONGEST_KEY and b"<" not in data[begin : ends[at]]:
            last = ends[at]
        else:
            body = _KEY_BODY.match(data, begin)
            last = body.end() if body else begin
        yield match.start(), last


def _bot_tokens(data: bytes) -> Iterator[Span]:
    """Yield tokens of Telegram bots: a number, a colon, 30 or more characters. Digests and names have no capitals."""
    for match in _AFTER_COLON.finditer(data):
        number = _BOT_NUMBER.search(data[max(match.start() - 17, 0) : match.start()])
        if number and _CAPITAL.search(match[0], 3):
            yield match.start() - len(number[0]), match.end()


def _named(data: bytes) -> Iterator[Span]:
    """Yield the values of names that sound like a secret's."""
    lowered = data.lower()
    for word in _WORDS:
        seen = 0
        for match in word.finditer(lowered):
            at = match.start()
            if at < seen or (name := _name(data, at, assigned=match[0][-1:] in (b"=", b":"))) is None:
                continue
            begin, seen = _value(data, name[1], is_option=data.startswith(b"-", name[0]))
            if begin < seen and _is_hidden(_likeness(data[slice(*name)]), data[begin:seen]):
                yield begin, seen


def _name(data: bytes, at: int, *, assigned: bool) -> Span | None:
    """Return where the name around a word is; None if it is not a secret's or cannot have a value."""
    before, after = data[max(at - 64, 0) : at], data[at : at + 64]
    start = at - len(before) + len(before.rstrip(_NAME))
    if not assigned and not data.startswith(b"-", start):
        return None
    end = at + len(after) - len(after.lstrip(_NAME))
    return (start, end) if _likeness(data[start:end]) else None


def _value(data: bytes, at: int, *, is_option: bool) -> Span:
    """Return where the value after a name is; an empty span if there is none."""
    match = _FOLLOWING.match(data, at) if is_option else _ASSIGNED.match(data, at)
    if match is None:
        return at, at
    begin, end = match.span(match.lastindex or 0)
    if match.lastindex == _BARE and (over := _VALUE_END.search(data, begin, end)):
        end = over.start()
    return begin, end


@lru_cache(maxsize=4096)
def _likeness(name: bytes) -> Likeness:
    return likeness(name.decode("ascii"))


def _is_hidden(like: Likeness, value: bytes) -> bool:
    text = value.decode("utf-8", "replace")
    if like is Likeness.WEAK:
        return is_random(text)
    return not is_stand_in(text.rstrip(".,;:)]}")) and not is_path(text)


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _safe_cut(data: bytes, spans: list[Span], latest: int) -> int:
    """Return where to cut, at `latest` or before: after a line if possible, and never inside a secret."""
    cut = data.rfind(b"\n", 0, max(latest, 0)) + 1 or max(latest, 0)
    return next((start for start, end in spans if start < cut < end), cut)


def _replaced(data: bytes, spans: list[Span], start: int = 0, end: int | None = None) -> bytes:
    end = len(data) if end is None else end
    pieces, at = [], start
    for begin, finish in spans:
        if begin >= end:
            break
        if finish > at:
            pieces += [data[at : max(begin, at)], _MARK]
            at = finish
    return b"".join([*pieces, data[min(at, end) : end]])
