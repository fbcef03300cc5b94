"""A function with a part of it taken out, in its place as long as a test looks at it."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any


def function_at(module: str, path: str) -> FunctionType:
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    found = getattr(found, "fget", None) or getattr(found, "__wrapped__", found)
    assert isinstance(found, FunctionType), (module, path)
    return found


def source_of(module: str) -> str:
    return inspect.getsource(importlib.import_module(module))


@contextlib.contextmanager
def replaced(module: str, path: str, tree: ast.AST) -> Iterator[None]:
    """The function as it is in this tree. Only its code is changed: whoever imported it has the changed one."""
    function = function_at(module, path)
    whole = compile(tree, module, "exec")  # type: ignore[arg-type]
    original, changed = function.__code__, _code_at(whole, path.split("."))
    assert changed.co_freevars == original.co_freevars
    assert changed.co_code != original.co_code or changed.co_consts != original.co_consts, "nothing was changed"
    function.__code__ = changed
    try:
        yield
    finally:
        function.__code__ = original


def _code_at(code: CodeType, path: list[str]) -> CodeType:
    for name in path:
        code = next(part for part in code.co_consts if isinstance(part, CodeType) and part.co_name == name)
    return code


@contextlib.contextmanager
def without(module: str, path: str, text: str, instead: str) -> Iterator[None]:
    """The function with `instead` where `text` stands once in it."""
    whole, own = source_of(module), inspect.getsource(function_at(module, path))
    assert own.count(text) == 1, f"{text!r} stands {own.count(text)} times in {module}.{path}"
    with replaced(module, path, ast.parse(whole.replace(own, own.replace(text, instead)))):
        yield


def conditions(module: str, path: str) -> Iterator[tuple[str, ast.AST]]:
    """The module with each condition of a function made void in turn; what was made void, in words."""
    source = source_of(module)
    for number, place in enumerate(ast.walk(_node_at(ast.parse(source), path.split(".")))):
        for field, index, void in _voids(place):
            mutant = ast.parse(source)
            inside = list(ast.walk(_node_at(mutant, path.split("."))))[number]
            holder = getattr(inside, field)
            old = holder if index is None else holder[index]
            if isinstance(old, ast.Constant):
                continue
            new = ast.copy_location(ast.Constant(void), old)
            if index is None:
                setattr(inside, field, new)
            else:
                holder[index] = new
            yield f"{path}: {ast.unparse(old)} -> {void}", ast.fix_missing_locations(mutant)


def _voids(place: ast.AST) -> Iterator[tuple[str, int | None, bool]]:
    if isinstance(place, ast.BoolOp):
        for index in range(len(place.values)):
            yield "values", index, isinstance(place.op, ast.And)
    elif isinstance(place, ast.If):
        yield "test", None, False
    elif isinstance(place, ast.IfExp):
        yield "test", None, True


def _node_at(tree: ast.AST, path: list[str]) -> ast.AST:
    for name in path:
        tree = next(node for node in ast.iter_child_nodes(tree) if getattr(node, "name", None) == name)
    return tree
