"""Every pattern of the product with the methods it is used by, and texts that are made to be slow for it."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import bot
import runner

_parser: Any = getattr(re, "_parser", None) or importlib.import_module("sre_parse")
_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")
_SEARCHING = {"search", "finditer", "findall", "sub", "subn", "split"}
_UNBOUNDED = 40  # a repeat that may take this many is pumped
_ENDS = ("", "\0!", " !", '"')
_REST = ("a", "0", " ", "\\", "'", ",", "/", ".", "-", "[", "\n", "\x1b[", "é", "─", "=x", "https://", "key=")


class Used(NamedTuple):
    """A pattern, where it stands, and whether it is tried at every place of a text or at its beginning alone."""

    where: str
    pattern: re.Pattern[Any]
    everywhere: bool

    def run(self, text: str) -> None:
        given: Any = text.encode() if isinstance(self.pattern.pattern, bytes) else text
        if self.everywhere:
            for _ in self.pattern.finditer(given):
                pass
        else:
            self.pattern.match(given)
            self.pattern.fullmatch(given)


def used_patterns() -> list[Used]:
    """All of them, each once."""
    sources = {name: ast.parse(path.read_text()) for name, path in _files()}
    methods = _methods_by_name(sources.values())
    found: dict[tuple[Any, int, bool], Used] = {}
    for name, tree in sources.items():
        module = importlib.import_module(name)
        for one in [*_of_module(module, methods), *_inline(module, tree)]:
            if isinstance(one.pattern, re.Pattern):
                found.setdefault((one.pattern.pattern, one.pattern.flags, one.everywhere), one)
    return list(found.values())


def _files() -> Iterator[tuple[str, Path]]:
    for package in (bot, runner):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path


def _methods_by_name(trees: Any) -> dict[str, set[str]]:
    """By which methods each name is used, wherever it was imported to."""
    found: dict[str, set[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _METHODS:
                owner = node.value
                name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
                found.setdefault(name, set()).add(node.attr)
    return found


def _of_module(module: ModuleType, methods: dict[str, set[str]]) -> Iterator[Used]:
    for name, value in vars(module).items():
        used = methods.get(name, {"search"})
        for pattern in _patterns_in(value):
            yield Used(f"{module.__name__}.{name}", pattern, bool(used & _SEARCHING))


def _patterns_in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from _patterns_in(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _patterns_in(one)


def _inline(module: ModuleType, tree: ast.Module) -> Iterator[Used]:
    """`re.search(r"...", text)` and patterns compiled inside functions."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, method = node.func.value, node.func.attr
        if isinstance(owner, ast.Name) and owner.id == "re" and method in (*_METHODS, "compile"):
            flags = _flags(module, node) if method in {"search", "match", "fullmatch", "compile"} else 0
            pattern = _value(module, node.args[0])
            if pattern is not None:
                yield Used(f"{module.__name__}:{node.lineno}", re.compile(pattern, flags), method in _SEARCHING)


def _flags(module: ModuleType, node: ast.Call) -> Any:
    place = 1 if node.func.attr == "compile" else 2  # type: ignore[attr-defined]
    return _value(module, node.args[place]) if len(node.args) > place else 0


def _value(module: ModuleType, node: ast.expr) -> Any:
    try:
        return eval(compile(ast.Expression(node), "pattern", "eval"), dict(vars(module)))
    except NameError:
        return None  # made from what a function was given; its module's own test is to feed that


# -- texts ------------------------------------------------------------------------------------------


def attacks(pattern: re.Pattern[Any]) -> list[str]:
    """Short texts that are to be repeated, with what comes before and after: `before|again|after`, NUL between."""
    source = pattern.pattern
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    flags = pattern.flags & ~(re.UNICODE if isinstance(source, bytes) else 0)
    tree = _parser.parse(text, flags & ~re.DEBUG)
    pumped = list(dict.fromkeys(_pumps(tree, "")))
    whole = _example(tree)
    pumped += [("", whole), ("", whole[:-1]), ("", f"{whole[:-1]}\n")]
    pumped += [(before, f"{before}{again}") for before, again in list(pumped) if before]
    return [(before, again) for before, again in dict.fromkeys(pumped) if again]


def _pumps(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """What each long repeat may eat, after what must stand before it."""
    for operation, given in tree:
        name = str(operation)
        if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
            _, most, body = given
            if most >= _UNBOUNDED:
                for again in _alternatives(body):
                    yield before, again
            yield from _pumps(body, before)
        elif name == "SUBPATTERN":
            yield from _pumps(given[3], before)
        elif name == "BRANCH":
            for branch in given[1]:
                yield from _pumps(branch, before)
        elif name in {"ASSERT", "ASSERT_NOT"}:
            yield from _pumps(given[1], before)
        before += _example([(operation, given)])


def _alternatives(body: Any) -> list[str]:
    """Some texts that a repeated piece takes."""
    if len(body) == 1 and str(body[0][0]) == "IN":
        return _members(body[0][1])[:4]
    if len(body) == 1 and str(body[0][0]) == "SUBPATTERN":
        return _alternatives(body[0][1][3])
    if len(body) == 1 and str(body[0][0]) == "BRANCH":
        return [_example(branch) for branch in body[0][1][1]]
    return [_example(body)]


def _example(tree: Any) -> str:
    return "".join(_one(str(operation), given) for operation, given in tree)


def _one(name: str, given: Any) -> str:
    if name == "LITERAL":
        return chr(given)
    if name == "NOT_LITERAL":
        return "a" if given != ord("a") else "b"
    if name == "ANY":
        return "a"
    if name == "IN":
        return (_members(given) or ["a"])[0]
    if name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        return _example(given[2]) * max(given[0], 1)
    if name == "SUBPATTERN":
        return _example(given[3])
    if name == "BRANCH":
        return _example(given[1][0])
    return ""


def _members(given: Any) -> list[str]:
    """Characters of a class; of a negated one those that most texts are made of."""
    kinds = [(str(kind), value) for kind, value in given]
    inside = re.compile("[" + "".join(map(_as_class, kinds)) + "]")
    candidates = [chr(value) for kind, value in kinds if kind == "LITERAL" and kinds[0][0] != "NEGATE"]
    candidates += [chr(value[0]) for kind, value in kinds if kind == "RANGE" and kinds[0][0] != "NEGATE"]
    candidates += [*"a0 A.-/\\'\"[(={:,;", "é", "─"]
    return [char for char in dict.fromkeys(candidates) if inside.match(char)]


def _as_class(member: tuple[str, Any]) -> str:
    kind, value = member
    if kind == "NEGATE":
        return "^"
    if kind == "LITERAL":
        return re.escape(chr(value))
    if kind == "RANGE":
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}[
        str(value).removeprefix("CATEGORY_")
    ]


def grown(before: str, again: str, end: str, size: int) -> str:
    """A text of about this size."""
    return before + again * (size // len(again) + 1) + end


# -- cost -------------------------------------------------------------------------------------------


class Growth(NamedTuple):
    """CPU seconds for a text, and for one of twice the size."""

    once_s: float
    twice_s: float


def cost(run: Callable[[], object]) -> float:
    begun = time.thread_time()
    run()
    return time.thread_time() - begun
