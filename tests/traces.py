"""What the bot has done: everything it wrote down and every call it made. Who is not let in leaves none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.room import Room

EFFECTS = ("jobs", "attempts", "events", "notices", "audit", "workspaces", "box", "people", "pairings", "successors")
TABLES = (*EFFECTS, "inbox", "messages", "buttons", "threads", "environments")


def rows(room: Room, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in room.chat.queue.store.rows(f"SELECT * FROM {table}")]


def traces(room: Room, tables: tuple[str, ...] = TABLES) -> dict[str, Any]:
    """All of it; compare two to see what happened in between."""
    calls = {method: count for method, count in room.faults.calls.items() if method != "getUpdates"}
    return {table: rows(room, table) for table in tables} | ({"calls": calls} if tables is TABLES else {})


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What is there now and was not, by table."""
    changed = {name: (old, after[name]) for name, old in before.items() if old != after[name]}
    return {
        name: new if name == "calls" else [row for row in new if row not in old] or "fewer"
        for name, (old, new) in changed.items()
    }


def without_waiting_for_the_disk(room: Room) -> None:
    """For tests of thousands of messages that are not about crashes."""
    room.chat.queue.store.execute("PRAGMA synchronous = OFF")
