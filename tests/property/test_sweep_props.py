"""Sweeps, for any names, values and grids."""

import contextlib
import math
import re
import string

from hypothesis import given
from hypothesis import strategies as st

from runner.errors import UserError
from runner.sweep.sweeps import Range, combinations, filled, parse_text

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
GRIDS = st.dictionaries(
    NAMES, st.lists(TEXTS, min_size=1, max_size=4, unique=True).map(tuple), min_size=1, max_size=4
)  # fmt: skip
LINEAR = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda r: Range(r[0], r[0] + r[1]))
LOGARITHMIC = st.tuples(st.floats(1e-6, 1e6), st.floats(1.01, 1e6)).map(lambda r: Range(r[0], r[0] * r[1], True))
RANGES = LINEAR | LOGARITHMIC


def quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


@given(GRIDS, st.none() | st.integers(1, 300), st.booleans(), st.integers())
def test_combinations_are_different_and_of_the_grid(grid, samples, shuffled, seed):
    found = combinations(grid, samples=samples, shuffled=shuffled, seed=seed)
    total = math.prod(map(len, grid.values()))
    assert len(found) == (total if samples is None else min(samples, total))
    assert len({tuple(one.items()) for one in found}) == len(found)
    assert all(one[name] in values for one in found for name, values in grid.items())
    assert all(list(one) == list(grid) for one in found)
    assert found == combinations(grid, samples=samples, shuffled=shuffled, seed=seed)


@given(st.dictionaries(NAMES, RANGES, min_size=1, max_size=3), GRIDS, st.integers(1, 40), st.integers())
def test_what_is_drawn_lies_in_its_range_and_is_different(ranges, grid, samples, seed):
    both = {**grid, **ranges}
    found = combinations(both, samples=samples, seed=seed)
    assert len({tuple(one.items()) for one in found}) == len(found) == samples
    for name, one in ranges.items():
        numbers = sorted(float(values[name]) for values in found)
        assert one.low <= numbers[0] <= numbers[-1] <= one.high


@given(GRIDS, st.lists(st.text(string.printable.replace("{", "").replace("}", ""), max_size=6), min_size=5, max_size=5))
def test_a_message_says_the_same_as_what_it_was_made_of(grid, around):
    command = "t" + "".join(f"{text.replace('$', '')} {{{name}}}" for text, name in zip(around, grid, strict=False))
    values = (f"{name}={','.join(map(quoted, values))}" for name, values in grid.items())
    text = f"{command} ; {' '.join(values)}"
    words = [value for values in grid.values() for value in values]
    if any(value.startswith(("lin:", "log:")) or ".." in value for value in words):
        return  # a range, or refused because it might be meant as one
    if any(";" in value for value in words):
        return  # the last semicolon divides the message
    assert parse_text(text) == (command.strip(), grid)


@given(TEXTS, st.dictionaries(NAMES, TEXTS, max_size=3))
def test_text_without_braces_of_ours_stays_as_it_is(text, values):
    if not re.search(r"[{}]", text):
        assert filled(text, values) == text


@given(st.text("t{}ab;=,'\"\\ \n.$1lin:og", max_size=40))
def test_any_message_is_read_or_refused(text):
    with contextlib.suppress(UserError):
        sweep = parse_text(text)
        assert sweep.parameters
        filled(sweep.command, dict.fromkeys(sweep.parameters, ""))
