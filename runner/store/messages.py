"""Messages to chats: written in the transaction of what they report, sent afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import clock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from runner.store.connection import Store

# Lanes of a chat. Each lane keeps its order, so that a job's notices arrive in the right order.
LANES = ("answer", "reply", "send", "file", "edit")
LONGEST_WAIT_S = 3600.0  # no wait is longer; a later stored time means that the clock was set back


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One call to the Bot API that is still to be made."""

    id: int
    chat: int
    person: int | None  # whose rights it depends on
    job_id: int | None
    notice_id: int | None
    method: str
    body: dict[str, Any]
    lane: str
    created_at: datetime
    expires_at: datetime | None
    tries: int
    begun: bool  # the result of the last try is unknown: it may have arrived


class Shown(NamedTuple):
    """A message as the chat shows it, or will show it once it is sent."""

    id: int
    chat: int
    person: int | None
    number: int | None  # None until it is sent
    body: dict[str, Any]  # with the buttons it has now


class Messages:
    """Messages that wait to be sent, and the numbers of those that were sent."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waits: dict[int, tuple[str, float]] = {}  # by id: end of the wait, as stored and by the monotonic clock

    def add(
        self, chat: int, method: str, body: Mapping[str, Any], *, lane: str = "send", person: int | None = None,
        job_id: int | None = None, notice_id: int | None = None, lasts_s: float | None = None,
        at: datetime | None = None,
    ) -> int:  # fmt: skip
        """Queue a message and return its id. It is about what happened `at` that time, and expires in `lasts_s` s."""
        assert lane in LANES, lane
        now = clock.now()
        expires = None if lasts_s is None else clock.text(now + timedelta(seconds=lasts_s))
        added = self._store.execute(
            "INSERT INTO messages (chat, person, job_id, notice_id, method, body, lane, created_at, expires_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (chat, person, job_id, notice_id, method, json.dumps(body), lane, clock.text(at or now), expires),
        )
        return int(added.lastrowid)

    def due(self, chat: int | None = None, now: float | None = None) -> list[Message]:
        """Return the first message of each lane of each chat, except those that wait for a retry."""
        now = clock.monotonic() if now is None else now
        return [_message(row) for row in self._first(chat) if self._wait_ends(row) <= now]

    def next_try_in(self, now: float) -> float | None:
        """Return the seconds from `now` until the next retry; None if no first message waits for one."""
        ends = {row["id"]: self._wait_ends(row) for row in self._first(None)}
        self._waits = {number: wait for number, wait in self._waits.items() if number in ends}
        return min((end - now for end in ends.values() if end > now), default=None)

    def _first(self, chat: int | None) -> list[Any]:
        """Return the first message of each lane of each chat; for edits, the first of each edited message."""
        wanted = "told_at IS NULL AND parked IS NULL" + ("" if chat is None else " AND chat = :chat")
        return self._store.rows(
            "SELECT * FROM messages WHERE id IN ("  # noqa: S608
            f"SELECT min(id) FROM messages WHERE {wanted} AND lane != 'edit' GROUP BY chat, lane UNION ALL "
            f"SELECT min(id) FROM messages WHERE {wanted} AND lane = 'edit'"
            " GROUP BY chat, json_extract(body, '$.message_id')) ORDER BY id",
            {"chat": chat},
        )

    def _wait_ends(self, row: Any) -> float:
        """Return when a message may be tried, by the monotonic clock: later steps of the wall clock do not matter."""
        stored = row["next_try_at"]
        at = clock.moment(stored)
        if at is None:
            return 0.0
        known = self._waits.get(row["id"])
        if known is None or known[0] != stored:
            wait_s = min((at - clock.now()).total_seconds(), LONGEST_WAIT_S)
            known = self._waits[row["id"]] = (stored, clock.monotonic() + wait_s)
        return known[1]

    def waiting(self) -> int:
        """Return how many messages wait to be sent."""
        return int(self._store.row("SELECT count(*) FROM messages WHERE told_at IS NULL AND parked IS NULL")[0])

    def begin(self, message_id: int) -> None:
        """Record that a try begins. If the process dies during it, the message may have arrived."""
        self._store.execute("UPDATE messages SET begun = 1, tries = tries + 1 WHERE id = ?", (message_id,))

    def told(self, message_id: int, number: int | None = None) -> None:
        """Mark a message as done; `number` is its number in the chat, None if it has none."""
        self._store.execute(
            "UPDATE messages SET told_at = ?, message = ?, begun = 0 WHERE id = ?",
            (clock.text(clock.now()), number, message_id),
        )

    def again(
        self, message_id: int, after_s: float, *, arrived_perhaps: bool, body: Mapping[str, Any] | None = None
    ) -> None:
        """Schedule a retry in `after_s` seconds, perhaps with another body."""
        at = clock.text(clock.now() + timedelta(seconds=after_s))
        self._waits[message_id] = (at, clock.monotonic() + after_s)
        self._store.execute(
            "UPDATE messages SET next_try_at = ?, begun = ?, body = coalesce(?, body) WHERE id = ?",
            (at, arrived_perhaps, None if body is None else json.dumps(body), message_id),
        )

    def park(self, message_id: int, why: str) -> None:
        """Mark a message as undeliverable. It is kept, and counted by `/status`."""
        self._store.execute("UPDATE messages SET parked = ?, begun = 0 WHERE id = ?", (why, message_id))

    def parked(self, since: str) -> list[tuple[str, int]]:
        """Return the reasons why messages since then are undeliverable, with counts, the most frequent first."""
        rows = self._store.rows(
            "SELECT parked, count(*) AS n FROM messages WHERE parked IS NOT NULL AND created_at > ?"
            " GROUP BY parked ORDER BY n DESC",
            (since,),
        )
        return [(row["parked"], row["n"]) for row in rows]

    def unpark(self, person: int, chat: int, since: str) -> int:
        """Queue unreachable messages since then again: the person is back in this chat. Return how many."""
        changed = self._store.execute(
            "UPDATE messages SET parked = NULL, next_try_at = NULL WHERE person = ? AND chat = ?"
            " AND parked LIKE 'unreachable%' AND lane IN ('reply', 'send', 'file') AND created_at > ?",
            (person, chat, since),
        )
        return int(changed.rowcount)

    def supersede(self, chat: int, number: int) -> None:
        """Drop waiting edits of this message: a newer edit replaces them."""
        self._store.execute(
            "UPDATE messages SET told_at = ? WHERE lane = 'edit' AND chat = ? AND told_at IS NULL AND parked IS NULL"
            " AND json_extract(body, '$.message_id') = ?",
            (clock.text(clock.now()), chat, number),
        )

    def supersede_menu(self, chat: int) -> None:
        """Drop waiting changes of the command menu in this chat: a newer one replaces them."""
        self._store.execute(
            "UPDATE messages SET told_at = ? WHERE method = 'setMyCommands' AND chat = ? AND told_at IS NULL"
            " AND parked IS NULL",
            (clock.text(clock.now()), chat),
        )

    def job_of(self, chat: int, number: int) -> int | None:
        """Return the job that the message with this number is about, or None."""
        row = self._store.row(
            "SELECT job_id FROM messages WHERE chat = ? AND message = ? AND job_id IS NOT NULL", (chat, number)
        )
        return row["job_id"] if row else None

    def shown_about(self, job_id: int, since: str, limit: int) -> list[Shown]:
        """Return the latest messages about a job: those that were sent, and those that are not being sent yet.

        `since` is when the job was submitted. A message that was about something else before, such as a question, is
        found by the edit that made it a message about the job.
        """
        rows = self._store.rows(
            "SELECT * FROM messages INDEXED BY messages_by_age WHERE created_at >= ? AND job_id = ?"
            " AND (lane IN ('reply', 'send') OR method IN ('editMessageText', 'editMessageCaption')) AND parked IS NULL"
            " AND (message IS NOT NULL OR (told_at IS NULL AND NOT begun))"
            " ORDER BY id DESC LIMIT ?",
            (since, job_id, limit),
        )
        return [Shown(row["id"], row["chat"], row["person"], row["message"], self._as_it_is(row)) for row in rows]

    def _as_it_is(self, row: Any) -> dict[str, Any]:
        """Return the body of its latest edit, sent or waiting; without an edit, its own body."""
        edit = row["message"] and self._store.row(
            "SELECT body FROM messages WHERE chat = :chat AND lane = 'edit' AND (message = :number"
            " OR (told_at IS NULL AND parked IS NULL AND json_extract(body, '$.message_id') = :number))"
            " ORDER BY id DESC LIMIT 1",
            {"chat": row["chat"], "number": row["message"]},
        )
        found: dict[str, Any] = json.loads((edit or row)["body"])
        return found

    def change(self, message_id: int, body: Mapping[str, Any]) -> None:
        """Replace the body of a message, unless it was sent or is being sent."""
        self._store.execute(
            "UPDATE messages SET body = ? WHERE id = ? AND told_at IS NULL AND NOT begun",
            (json.dumps(body), message_id),
        )

    def move(self, chat: int, became: int) -> None:
        """Send what waits to the new id of a chat. Drop waiting edits: message numbers are different there."""
        self._store.execute(
            "UPDATE messages SET told_at = ? WHERE lane = 'edit' AND chat = ? AND told_at IS NULL AND parked IS NULL",
            (clock.text(clock.now()), chat),
        )
        self._store.execute(
            "UPDATE messages SET chat = ?, next_try_at = NULL, body = json_remove(body, '$.reply_to')"
            " WHERE chat = ? AND told_at IS NULL",
            (became, chat),
        )

    def forget(self, before: str) -> int:
        """Delete messages from before this time that are done or undeliverable. Return how many."""
        return int(
            self._store.execute(
                "DELETE FROM messages WHERE created_at < ? AND (told_at IS NOT NULL OR parked IS NOT NULL)", (before,)
            ).rowcount
        )


def _message(row: Any) -> Message:
    created_at = clock.moment(row["created_at"])
    assert created_at is not None
    return Message(
        id=row["id"], chat=row["chat"], person=row["person"], job_id=row["job_id"], notice_id=row["notice_id"],
        method=row["method"], body=json.loads(row["body"]), lane=row["lane"], created_at=created_at,
        expires_at=clock.moment(row["expires_at"]), tries=row["tries"], begun=bool(row["begun"]),
    )  # fmt: skip
