"""Every pattern of the product with the methods it is used by, and texts that are made to be slow for it."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import bot
import runner

_parser: Any = getattr(re, "_parser", None) or importlib.import_module("sre_parse")
_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")
_FLAGS_THIRD = {"search", "match", "fullmatch", "finditer", "findall"}
_SEARCHING = {"search", "finditer", "findall", "sub", "subn", "split"}
_UNBOUNDED = 40  # a repeat that may take this many is pumped
ENDS = ("\0!",)
ALWAYS = ("a", "0", " ", "\\", "'", ",", "/", ".", "-", "[", "\n", "\x1b[", "é", "─", "=x", "https://", "key=")


class Used(NamedTuple):
    """A pattern, where it stands, and how it is used: at every place of a text (finditer), or from its beginning."""

    where: str
    pattern: re.Pattern[Any]
    method: str

    @property
    def searches(self) -> bool:
        """Whether it is tried at every place."""
        return self.method == "finditer"

    def run(self, text: str) -> None:
        given: Any = text.encode() if isinstance(self.pattern.pattern, bytes) else text
        found = getattr(self.pattern, self.method)(given)
        if self.method == "finditer":
            for _ in found:
                pass


def used_patterns() -> list[Used]:
    """All of them, each once."""
    sources = {name: ast.parse(path.read_text()) for name, path in _files()}
    methods = _methods_by_name(sources.values())
    found: dict[tuple[Any, int, str], Used] = {}
    for name, tree in sources.items():
        module = importlib.import_module(name)
        for one in [*_of_module(module, methods), *_inline(module, tree)]:
            found.setdefault((one.pattern.pattern, one.pattern.flags, one.method), one)
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
                found.setdefault(_name(node.value), set()).add(_as_run(node.attr))
    return found


def _name(owner: ast.expr) -> str:
    """`P` in `P.match`, `module.P.match` and `P[kind].match`."""
    if isinstance(owner, ast.Subscript):
        return _name(owner.value)
    return owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")


def _as_run(method: str) -> str:
    return "finditer" if method in _SEARCHING else method


def _of_module(module: ModuleType, methods: dict[str, set[str]]) -> Iterator[Used]:
    for name, value in vars(module).items():
        for pattern in _patterns_in(value):
            for method in sorted(methods.get(name, {"finditer"})):
                yield Used(f"{module.__name__}.{name}", pattern, method)


def _patterns_in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from _patterns_in(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _patterns_in(one)


def _inline(module: ModuleType, tree: ast.Module) -> Iterator[Used]:
    """`re.search(r"...", text)` inside functions."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, method = node.func.value, node.func.attr
        if isinstance(owner, ast.Name) and owner.id == "re" and method in _METHODS:
            flags = _value(module, node.args[2]) if method in _FLAGS_THIRD and len(node.args) > 2 else 0
            given = node.args[0]
            for choice in (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,):
                pattern = re.compile(_value(module, choice), flags)
                yield Used(f"{module.__name__}:{node.lineno}", pattern, _as_run(method))


def _value(module: ModuleType, node: ast.expr) -> Any:
    return eval(compile(ast.Expression(node), "pattern", "eval"), dict(vars(module)))


# -- texts ------------------------------------------------------------------------------------------


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """What may be slow for a pattern: what stands at the beginning, and what follows it again and again."""
    source = pattern.pattern
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    flags = pattern.flags & ~(re.UNICODE if isinstance(source, bytes) else 0)
    tree = _parser.parse(text, flags & ~re.DEBUG)
    pumped = list(dict.fromkeys(_pumps(tree, "")))
    whole = _example(tree)
    pumped += [("", whole), ("", whole[:-1]), ("", f"{whole[:-1]}\n")]
    pumped += [(before, f"{before}{again}") for before, again in list(pumped) if before]
    pumped += [("", again) for again in ALWAYS]
    return [(before, again) for before, again in dict.fromkeys(pumped) if again]


def _pumps(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """What each long repeat may eat, after what must stand before it."""
    for operation, given in tree:
        name = str(operation)
        if name in {"MAX_REPEAT", "MIN_REPEAT"}:
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
        return _members(body[0][1])[:3]
    if len(body) == 1 and str(body[0][0]) == "SUBPATTERN":
        return _alternatives(body[0][1][3])
    if len(body) == 1 and str(body[0][0]) == "BRANCH":
        return [_example(branch) for branch in body[0][1][1]]
    return [_example(body)]


def _example(tree: Any) -> str:
    return "".join(_one(str(operation), given) for operation, given in tree)


def _one(name: str, given: Any) -> str:
    made: dict[str, Callable[[], str]] = {
        "LITERAL": lambda: chr(given),
        "NOT_LITERAL": lambda: "a" if given != ord("a") else "b",
        "ANY": lambda: "a",
        "IN": lambda: (_members(given) or ["a"])[0],
        "MAX_REPEAT": lambda: _example(given[2]) * max(given[0], 1),
        "MIN_REPEAT": lambda: _example(given[2]) * max(given[0], 1),
        "SUBPATTERN": lambda: _example(given[3]),
        "BRANCH": lambda: _example(given[1][0]),
    }
    return made[name]() if name in made else ""


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
