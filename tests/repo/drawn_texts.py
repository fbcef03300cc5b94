"""Draws texts of the product for a reader who has never seen it: `python -m tests.repo.drawn_texts 60 SEED`.

Have somebody restate each in their own words. What they misread is rewritten.
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.config.options import OPTIONS
from runner.config.settings import Settings
from tests.repo.package_graph import ROOT, modules

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def texts() -> dict[str, list[str]]:
    """Return every text of each kind, with where it is from."""
    found: dict[str, list[str]] = {"docstring": [], "error": [], "chat text": [], "help": [], "document": []}
    for name, path in modules().items():
        tree = ast.parse(path.read_text())
        for kind, text in _in_module(name, tree):
            found[kind].append(f"{path.relative_to(ROOT)}: {text}")
    found["help"] += [f"{option.flags[-1]}: {option.help}" for option in OPTIONS]
    found["help"] += [
        f"NIGHTSHIFT_{name.upper()}: {field.description}" for name, field in Settings.model_fields.items()
    ]
    found["document"] += [f"{path.name}: {sentence}" for path in DOCUMENTS for sentence in _sentences(path)]
    return found


def _in_module(name: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and (
            text := ast.get_docstring(node)
        ):
            yield "docstring", f"{node.name}: {text}"
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            if isinstance(node.exc.args[0], (ast.JoinedStr, ast.Constant)):
                yield "error", _shown(node.exc.args[0])
        elif isinstance(node, (ast.JoinedStr, ast.Constant)) and name.startswith(("bot.text", "bot.handlers")):
            text = _shown(node)
            if len(text.split()) >= 5 and not text.startswith("SELECT"):
                yield "chat text", text


def _shown(node: ast.expr) -> str:
    """Return a string of the program with its values in braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    assert isinstance(node, ast.JoinedStr)
    return "".join(
        f"{{{ast.unparse(part.value)[:30]}}}" if isinstance(part, ast.FormattedValue) else str(ast.literal_eval(part))
        for part in node.values
    )


def _sentences(path: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    for paragraph in text.split("\n\n"):
        if not paragraph.lstrip().startswith(("#", "|", "<")):
            yield from (one for one in re.split(r"(?<=[.:]) ", paragraph.replace("\n", " ").strip()) if len(one) > 40)


def main() -> None:
    number, seed = int(sys.argv[1]), int(sys.argv[2])
    drawn, kinds = random.Random(seed), texts()
    for index in range(number):
        kind = list(kinds)[index % len(kinds)]
        print(f"{index + 1}. [{kind}] {drawn.choice(kinds[kind])}\n")


if __name__ == "__main__":
    main()
