"""Decides which names and values are secrets: `HF_TOKEN` is, `pad_token_id` is not. Pure."""

from __future__ import annotations

import re
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Likeness(IntEnum):
    """How much a name sounds like a secret's."""

    NONE = 0
    WEAK = 1
    """A value is hidden only if it looks random: `key=`, `token:`."""
    STRONG = 2
    """Any value is hidden, except placeholders and paths."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ALWAYS = _words("passwords secret secrets credential credentials authorization privatekey apitoken authkey")
_JOINED = ("password", "passwd", "passphrase", "apikey", "secretkey", "accesskey", "authtoken", "accesstoken")
# For the last word of a name: the words before it that make the name a secret's.
_COMPANY = {
    "key": _words(
        "api access secret private auth encryption signing account master storage subscription service ssh deploy "
        "license client app admin webhook"
    ),
    "token": _words(
        "access auth api bearer bot refresh session hf hub huggingface github gitlab gh slack telegram tg discord "
        "security personal secret oauth csrf jwt sas npm pypi wandb"
    ),
    **dict.fromkeys(
        ("pass", "pwd", "auth", "passcode"),
        _words("db database user admin root smtp mysql pg postgres redis mongo ftp ssh mail email http basic proxy my"),
    ),
}
# After these words a key, a token or a pass is no secret: a sort key, an EOS token, a forward pass.
_HARMLESS = _words(
    "pad eos bos unk mask cls sep special image audio video vision start stop end begin per next last first prev new "
    "max min num n each decoder encoder forced padding think prefix suffix single one time cost loss total avg mean "
    "cache primary foreign sort group dict partition public hot row monitor metric input output label feature query "
    "value past state weight param forward backward second two multi test tests batch config index hash map json "
    "object column"
)
# A name that ends in one of these describes a secret, but does not hold it.
_ABOUT = _words(
    "id ids name names file files path paths dir folder type types count counts length len size limit min max policy "
    "field fields url uri host arn version format index error errors expiry expires ttl age sock socket mode method "
    "user users required enabled disabled provider class kind map mask padding values value position embedding bias "
    "weight"
)
_SUFFIXES = _words("prod production dev staging live test old base64 b64")
_NOT_SECRET = _words("PWD OLDPWD")

_TRIVIAL = _words(
    "true false yes no on off none null nil nan default auto required optional disabled enabled unset empty str "
    "string bytes int float bool object any secretstr undefined missing redacted hidden masked unknown invalid valid "
    "ok failed expired password passwd secret token key apikey credentials username example placeholder localhost "
    "production development staging postgres anonymous public private changed set basic bearer digest"
)
_STAND_IN = re.compile(
    r"[*•xX.#\-]+|\$\{?\w+\}?|%\w|\{.*\}?|\[.*\]?|<.*|os\.environ.*|os\.getenv.*|\w[\w.]*\(.*|self\.\w+|\\+", re.DOTALL
)
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^\s:@]*")
_NUMBER = re.compile(r"[-+]?[0-9.,_]+(?:[eE][-+]?[0-9]+)?[%kKMGTB]*")


def likeness(name: str) -> Likeness:
    """Return how much this name sounds like a secret's."""
    words = [word.lower() for word in _WORD.findall(name)]
    while words and (words[-1] in _SUFFIXES or words[-1].isdigit()):
        words.pop()
    if not words or words[-1] in _ABOUT or name in _NOT_SECRET:
        return Likeness.NONE
    if any(word in _ALWAYS or word.endswith(_JOINED) for word in words):
        return Likeness.STRONG
    company = _COMPANY.get(words[-1])
    return Likeness.NONE if company is None else _in_company(words[:-1], company, shouted=name.isupper())


def _in_company(before: list[str], company: frozenset[str], *, shouted: bool) -> Likeness:
    if company & set(before[-2:]):
        return Likeness.STRONG
    if before and (before[-1] in _HARMLESS or before[-1].isdigit()):
        return Likeness.NONE
    return Likeness.STRONG if before and shouted else Likeness.WEAK


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name holds a secret."""
    like = likeness(name)
    return like is Likeness.STRONG or (like is Likeness.WEAK and name != "key" and name.isascii() and name.isalpha())


def secret_values(environment: Mapping[str, str]) -> set[str]:
    """Return the values in an environment that must not be shown."""
    return {value for name, value in environment.items() if looks_secret(name) and is_telling(value)}


def is_telling(value: str) -> bool:
    """Return whether a value is distinctive enough to search for: not short, no placeholder, word, number or path."""
    value = value.strip()
    if len(value) < 6 or is_stand_in(value) or is_path(value):
        return False
    if len(value) < 12 and (value.isdigit() or (value.isalpha() and (value.islower() or value.istitle()))):
        return False
    return not _NUMBER.fullmatch(value) or len(value) >= 12


def is_stand_in(value: str) -> bool:
    """Return whether a value is empty or only a placeholder."""
    return not value or value.lower() in _TRIVIAL or _STAND_IN.fullmatch(value) is not None


def is_path(value: str) -> bool:
    """Return whether a value is a path; some keys begin with a slash but are none."""
    return _PATH.fullmatch(value) is not None and not is_random(re.sub(r"[/+]", "", value))


def is_random(value: str) -> bool:
    """Return whether a value looks machine-made: digits, small and capital letters alternate often."""
    plain = value.replace("-", "").replace("_", "").rstrip("=")
    if not 16 <= len(plain) <= 1000 or not plain.isalnum() or not plain.isascii():
        return False
    kinds = ["0" if char.isdigit() else "a" if char.islower() else "A" for char in plain]
    changes = sum(kind != following for kind, following in pairwise(kinds))
    return "0" in kinds and len(set(kinds)) > 1 and changes >= 0.3 * len(plain)
