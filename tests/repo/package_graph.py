"""The packages of the program and who imports whom: `python -m tests.repo.package_graph` prints the graph.

A package is a folder right below `bot/` or `runner/` with all that is in it; a file right below them stands for itself.
Every import counts, also inside a function and for types alone.
"""

from __future__ import annotations

import ast
import graphlib
import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPS = ("bot", "runner")
AREAS = (*TOPS, "tests", "benchmarks")


def modules() -> dict[str, Path]:
    """Every module of the program, by its dotted name."""
    found = {}
    for path in sorted(file for top in TOPS for file in (ROOT / top).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def package_of(module: str) -> str:
    """The package a module belongs to."""
    return ".".join(module.split(".")[:2])


def imports_of(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the program that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module


def graph() -> dict[str, dict[str, set[str]]]:
    """For each package the packages it imports, and by which of its modules."""
    known = modules()
    found: dict[str, dict[str, set[str]]] = {package_of(module): {} for module in known if module not in TOPS}
    for module, path in known.items():
        if module in TOPS:
            continue
        own = found[package_of(module)]
        for target in imports_of(path, known):
            if target not in TOPS and package_of(target) != package_of(module):
                own.setdefault(package_of(target), set()).add(f"{module} -> {target}")
    return found


def cycle() -> list[str]:
    """A cycle of packages with the imports that close it, or nothing."""
    found = graph()
    try:
        graphlib.TopologicalSorter(found).prepare()
    except graphlib.CycleError as error:
        around = list(reversed(error.args[1]))
        return [", ".join(sorted(found[one][other])) for one, other in itertools.pairwise(around)]
    return []


def main() -> None:
    """Print the graph, the size of each folder and area, and class names that mean two things."""
    found, around = graph(), cycle()
    for step in around:
        print("In a circle:", step)
    print("Packages, lowest first, and what each imports:")
    for package in sorted(found) if around else graphlib.TopologicalSorter(found).static_order():
        print(f"  {package:24} {' '.join(sorted(found[package]))}")
    for title, rows in (("folder", sizes("folder")), ("area", sizes("area"))):
        print(f"\nFiles and lines of each {title}:")
        for name, (files, lines) in sorted(rows.items()):
            print(f"  {name:32} {files:4} {lines:7,}")
    print("\nClass names that mean more than one thing:")
    for name, places in doubled_classes().items():
        print(f"  {name:24} {' '.join(places)}")


def sizes(by: str) -> dict[str, tuple[int, int]]:
    """The number of files and of lines of each folder, or of each area."""
    found: dict[str, tuple[int, int]] = {}
    for area in AREAS:
        for path in (ROOT / area).rglob("*.py"):
            name = area if by == "area" else str(path.parent.relative_to(ROOT))
            files, lines = found.get(name, (0, 0))
            found[name] = files + 1, lines + len(path.read_text().splitlines())
    return found


def doubled_classes() -> dict[str, list[str]]:
    """Names that more than one class of the program has, and where these are."""
    places = defaultdict(list)
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


if __name__ == "__main__":
    main()
