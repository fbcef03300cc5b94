"""Messages to chats: written in the transaction of what they report, sent afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.api.chat import clock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from runner.api.chat import Store

# Lanes of a chat, the most urgent first: somebody waits for an answer, and news can wait. Each lane keeps its order, so
# that a job's notices arrive in the right order. Files have a task of their own. Cards that come later do not wait for
# each other.
LANES = ("answer", "reply", "send", "file", "edit", "card")
_WAITING = "done_at IS NULL AND undeliverable IS NULL"
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


class Outbox:
    """Messages that wait to be sent, and the numbers of those that were sent."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waits: dict[int, tuple[str, float]] = {}  # by id: end of the wait, as stored and by the monotonic clock

    def add(
        self, chat: int, method: str, body: Mapping[str, Any], *, lane: str = "send", person: int | None = None,
        job_id: int | None = None, notice_id: int | None = None, lasts_s: float | None = None,
        at: datetime | None = None, after_s: float | None = None,
    ) -> int:  # fmt: skip
        """Queue a message and return its id. It is about what happened `at` that time.

        It is sent in `after_s` seconds at the earliest, and expires in `lasts_s` seconds.
        """
        assert lane in LANES, lane
        now = clock.now()
        due, expires = (None if s is None else clock.text(now + timedelta(seconds=s)) for s in (after_s, lasts_s))
        added = self._store.execute(
            "INSERT INTO messages"
            " (chat, person, job_id, notice_id, method, body, lane, created_at, next_try_at, expires_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (chat, person, job_id, notice_id, method, json.dumps(body), lane, clock.text(at or now), due, expires),
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
        """Return the first message of each lane of each chat; of edits, the first of each message; and all cards."""
        wanted = _WAITING + ("" if chat is None else " AND chat = :chat")
        return self._store.rows(
            "SELECT * FROM messages WHERE id IN ("
            f"SELECT min(id) FROM messages WHERE {wanted} AND lane NOT IN ('edit', 'card') GROUP BY chat, lane"
            f" UNION ALL SELECT id FROM messages WHERE {wanted} AND lane = 'card'"
            f" UNION ALL SELECT min(id) FROM messages WHERE {wanted} AND lane = 'edit'"
            " GROUP BY chat, json_extract(body, '$.message_id')) ORDER BY id",
            {"chat": chat},
        )

    def _wait_ends(self, row: Any) -> float:
        """Return when a message may be tried, by the monotonic clock: later steps of the wall clock do not matter."""
        stored = row["next_try_at"]
        at = clock.moment(stored)
        if at is None:
            return 0.0
        wait = self._waits.get(row["id"])
        if wait is None or wait[0] != stored:
            wait_s = min((at - clock.now()).total_seconds(), LONGEST_WAIT_S)
            wait = self._waits[row["id"]] = (stored, clock.monotonic() + wait_s)
        return wait[1]

    def waiting(self, chat: int | None = None) -> int:
        """Return how many messages wait to be sent, in all, or to one chat without cards that come later."""
        which = f"{_WAITING} AND (:chat IS NULL OR (chat = :chat AND lane <> 'card'))"
        return int(self._store.row(f"SELECT count(*) FROM messages WHERE {which}", {"chat": chat})[0])

    def begin(self, message_id: int) -> None:
        """Record that a try begins. If the process dies during it, the message may have arrived."""
        self._store.execute("UPDATE messages SET begun = 1, tries = tries + 1 WHERE id = ?", (message_id,))

    def done(self, message_id: int, number: int | None = None) -> None:
        """Mark a message as sent or no longer needed. `number` is its number in the chat; None if it has none.

        With a number it was delivered, and so was the notice that it is about.
        """
        at = clock.text(clock.now())
        with self._store.transaction():
            self._store.execute(
                "UPDATE messages SET done_at = ?, message = ?, begun = 0 WHERE id = ?", (at, number, message_id)
            )
            if number is not None:
                self._store.execute("UPDATE cards SET number = ? WHERE message_id = ?", (number, message_id))
                self._store.execute(
                    "UPDATE notices SET delivered_at = ? WHERE delivered_at IS NULL"
                    " AND id = (SELECT notice_id FROM messages WHERE id = ?)",
                    (at, message_id),
                )

    def handled(self, notice_id: int) -> None:
        """Mark a notice as handled, in the transaction of its messages. If it has none, it counts as delivered."""
        self._store.execute(
            "UPDATE notices SET handled_at = :now, delivered_at = CASE WHEN EXISTS"
            " (SELECT 1 FROM messages WHERE notice_id = :id) THEN delivered_at ELSE :now END WHERE id = :id",
            {"now": clock.text(clock.now()), "id": notice_id},
        )

    def skip_notices(self, before: str) -> None:
        """Mark open notices from before this time as handled and delivered: they are too old to send."""
        self._store.execute(
            "UPDATE notices SET handled_at = :now, delivered_at = :now"
            " WHERE handled_at IS NULL AND created_at < :before",
            {"now": clock.text(clock.now()), "before": before},
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

    def hurry(self, job_id: int) -> None:
        """Send the card of a job now: nothing else has told the person that the job is queued."""
        self._store.execute(
            f"UPDATE messages SET next_try_at = NULL WHERE {_WAITING} AND lane = 'card' AND job_id = ?", (job_id,)
        )

    def mark_undeliverable(self, message_id: int, why: str) -> None:
        """Mark a message as undeliverable. It is kept, and counted by `/status`."""
        self._store.execute("UPDATE messages SET undeliverable = ?, begun = 0 WHERE id = ?", (why, message_id))

    def undeliverable(self, since: str) -> list[tuple[str, int]]:
        """Return the reasons why messages since then are undeliverable, with counts, the most frequent first."""
        rows = self._store.rows(
            "SELECT undeliverable, count(*) AS n FROM messages WHERE undeliverable IS NOT NULL AND created_at > ?"
            " GROUP BY undeliverable ORDER BY n DESC",
            (since,),
        )
        return [(row["undeliverable"], row["n"]) for row in rows]

    def retry_unreachable(self, person: int, chat: int, since: str) -> int:
        """Queue unreachable messages since then again: the person is back in this chat. Return how many."""
        changed = self._store.execute(
            "UPDATE messages SET undeliverable = NULL, next_try_at = NULL WHERE person = ? AND chat = ?"
            " AND undeliverable LIKE 'unreachable%' AND lane IN ('reply', 'send', 'file') AND created_at > ?",
            (person, chat, since),
        )
        return int(changed.rowcount)

    def supersede(self, chat: int, number: int) -> None:
        """Drop waiting edits of this message: a newer edit replaces them."""
        self._drop("lane = 'edit' AND chat = ? AND json_extract(body, '$.message_id') = ?", chat, number)

    def supersede_menu(self, chat: int) -> None:
        """Drop waiting changes of the command menu in this chat: a newer one replaces them."""
        self._drop("method = 'setMyCommands' AND chat = ?", chat)

    def _drop(self, which: str, *values: int) -> None:
        sql = f"UPDATE messages SET done_at = ? WHERE {_WAITING} AND {which}"
        self._store.execute(sql, (clock.text(clock.now()), *values))

    def job_of(self, chat: int, number: int) -> int | None:
        """Return the job that the message with this number is about, or None."""
        row = self._store.row(
            "SELECT job_id FROM messages WHERE chat = ? AND message = ? AND job_id IS NOT NULL", (chat, number)
        )
        return row["job_id"] if row else None

    def shown_about(self, job_id: int, limit: int) -> list[Shown]:
        """Return the latest messages about a job, without cards: those sent, and those that are not being sent yet.

        A message that was about something else before, such as a question, is found by the edit that made it a message
        about the job.
        """
        rows = self._store.rows(
            "SELECT * FROM messages WHERE job_id = ?"
            " AND (lane IN ('reply', 'send') OR method IN ('editMessageText', 'editMessageCaption'))"
            " AND NOT EXISTS (SELECT 1 FROM cards WHERE cards.message_id = messages.id"
            " OR (cards.chat = messages.chat AND cards.number = messages.message))"
            " AND undeliverable IS NULL AND (message IS NOT NULL OR (done_at IS NULL AND NOT begun))"
            " ORDER BY id DESC LIMIT ?",
            (job_id, limit),
        )
        return [Shown(row["id"], row["chat"], row["person"], row["message"], self._as_it_is(row)) for row in rows]

    def _as_it_is(self, row: Any) -> dict[str, Any]:
        """Return the body of its latest edit, sent or waiting; without an edit, its own body."""
        edit = row["message"] and self._store.row(
            "SELECT body FROM messages WHERE chat = :chat AND lane = 'edit' AND (message = :number"
            " OR (done_at IS NULL AND undeliverable IS NULL AND json_extract(body, '$.message_id') = :number))"
            " ORDER BY id DESC LIMIT 1",
            {"chat": row["chat"], "number": row["message"]},
        )
        body: dict[str, Any] = json.loads((edit or row)["body"])
        return body

    def rewrite(self, message_id: int, text: str, keyboard: list[list[dict[str, str]]]) -> None:
        """Replace the text and the buttons of a message, unless it was sent or is being sent."""
        self._store.execute(
            "UPDATE messages SET body = json_set(body, '$.text', ?, '$.keyboard', json(?))"
            " WHERE id = ? AND done_at IS NULL AND NOT begun",
            (text, json.dumps(keyboard), message_id),
        )

    def change(self, message_id: int, body: Mapping[str, Any]) -> None:
        """Replace the body of a message, unless it was sent or is being sent."""
        self._store.execute(
            "UPDATE messages SET body = ? WHERE id = ? AND done_at IS NULL AND NOT begun",
            (json.dumps(body), message_id),
        )

    def move(self, chat: int, became: int) -> None:
        """Send what waits to the new id of a chat. Drop waiting edits: message numbers are different there."""
        self._drop("lane = 'edit' AND chat = ?", chat)
        self._store.execute(
            "UPDATE messages SET chat = ?, next_try_at = NULL, body = json_remove(body, '$.reply_to')"
            " WHERE chat = ? AND done_at IS NULL",
            (became, chat),
        )


def _message(row: Any) -> Message:
    created_at = clock.moment(row["created_at"])
    assert created_at is not None
    return Message(
        id=row["id"], chat=row["chat"], person=row["person"], job_id=row["job_id"], notice_id=row["notice_id"],
        method=row["method"], body=json.loads(row["body"]), lane=row["lane"], created_at=created_at,
        expires_at=clock.moment(row["expires_at"]), tries=row["tries"], begun=bool(row["begun"]),
    )  # fmt: skip
