"""`nightshift audit`: lists who did what, and checks that nobody changed the record."""

from __future__ import annotations

import json
from typing import Any

import click

from runner import clock
from runner.terminal.session import AS_JSON, open_queue, print_json
from runner.text.table import Row, print_table
from runner.text.words import long_time, printable

BROKEN = 1


@click.command("audit")
@click.option("-n", "limit", metavar="N", type=click.IntRange(1), default=50, show_default=True, help="The latest N.")
@AS_JSON
@click.option("--verify", is_flag=True, help="Check that no row was changed or removed; exit 1 if one was.")
def audit(limit: int, as_json: bool, verify: bool) -> int:
    """List who did what, from the terminal and from the chat."""
    with open_queue() as queue:
        if verify:
            return _verdict(queue.audit.first_broken(), as_json)
        entries = queue.audit.rows(limit)
    if as_json:
        print_json(entries)
    elif entries:
        rows = [_row(entry) for entry in entries]
        print_table(["ROW", "WHEN", "WHO", "DID", "WHAT"], rows, cut=(4,), right=(0,))
    else:
        print("Nobody has done anything yet.")
    return 0


def _verdict(broken: int | None, as_json: bool) -> int:
    if as_json:
        print_json({"first_broken": broken})
    elif broken is None:
        print("The record is whole: no row was changed or removed.")
    else:
        print(f"Row {broken} does not follow from the rows before it. It, or one before it, was changed or removed.")
    return 0 if broken is None else BROKEN


def _row(entry: dict[str, Any]) -> Row:
    at = clock.moment(entry["at"])
    assert at is not None
    data = " ".join(f"{key}={_text(value)}" for key, value in entry["data"].items())
    return Row([str(entry["id"]), long_time(at), printable(entry["actor"]), entry["action"], printable(data)])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
