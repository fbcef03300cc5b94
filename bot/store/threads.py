"""The chat and message that each job was submitted from: its notices go there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from runner.api.chat import Store


class Thread(NamedTuple):
    """The message that a job was submitted with."""

    job_id: int
    person: int
    chat: int
    message: int | None
    topic: int | None


class Threads:
    """One row for each job that came from a chat."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def start(self, thread: Thread) -> None:
        """Store where a job was submitted."""
        self._store.execute("INSERT OR REPLACE INTO threads VALUES (?, ?, ?, ?, ?)", thread)

    def get(self, job_id: int) -> Thread | None:
        """Return where a job was submitted; None if it came from a terminal."""
        row = self._store.row("SELECT * FROM threads WHERE job_id = ?", (job_id,))
        return _thread(row) if row else None

    def of_group(self, name: str, after: int) -> tuple[list[Thread], bool]:
        """Return where its jobs numbered above `after` were submitted, once per person and chat.

        Also return whether one of them came from a terminal.
        """
        rows = self._store.rows(
            "SELECT threads.*, min(jobs.id) AS first FROM jobs LEFT JOIN threads ON threads.job_id = jobs.id"
            " WHERE jobs.group_name = ? AND jobs.id > ? GROUP BY person, chat ORDER BY first",
            (name, after),
        )
        threads = [_thread(row) for row in rows if row["job_id"] is not None]
        return threads, len(threads) < len(rows)

    def begun_by(self, chat: int, message: int) -> list[int]:
        """Return the jobs that were submitted with this message."""
        sql = "SELECT job_id FROM threads WHERE chat = ? AND message = ? ORDER BY job_id"
        return [row["job_id"] for row in self._store.rows(sql, (chat, message))]

    def move(self, chat: int, became: int) -> None:
        """Record the new id of a chat. Message numbers are different there, so they are dropped."""
        self._store.execute("UPDATE threads SET chat = ?, message = NULL WHERE chat = ?", (became, chat))


def _thread(row: Any) -> Thread:
    return Thread(row["job_id"], row["person"], row["chat"], row["message"], row["topic"])
