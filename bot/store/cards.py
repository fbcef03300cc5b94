"""Cards: messages about a job or a group that are changed in place until it is over."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.api.chat import clock

if TYPE_CHECKING:
    from runner.api.chat import Store

WAITING, UNFINISHED = "QUEUED", "unfinished"  # the state of a card: its job waits; its group is not done
Keyboard = list[list[dict[str, str]]]
_OPEN = "messages.id IS NOT NULL AND messages.done_at IS NULL AND messages.undeliverable IS NULL"
_CARDS = (
    f"SELECT cards.*, messages.begun, ({_OPEN}) AS open FROM cards LEFT JOIN messages ON messages.id = cards.message_id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCard:
    """One card, of a job or of a group."""

    id: int
    chat: int
    person: int
    job_id: int | None
    group: str | None
    message_id: int | None  # in the outbox; None if an older message became the card
    number: int | None  # in the chat; None until it is sent
    text: str  # as it was when its state last changed
    keyboard: Keyboard  # the buttons it has now
    state: str  # the state that these buttons are for
    waits: bool  # it can still be changed in the outbox
    is_gone: bool  # it was never delivered, and never will be


class Cards:
    """The cards of everything that is not over. A card that has its last form is deleted here, not in the chat."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self, chat: int, person: int, text: str, keyboard: Keyboard, state: str, *, job_id: int | None = None,
        group: str | None = None, message_id: int | None = None, number: int | None = None,
    ) -> None:  # fmt: skip
        """Make a message a card. An older card of the same group in the same chat is no longer one."""
        if group is not None:
            self._store.execute("DELETE FROM cards WHERE chat = ? AND group_name = ?", (chat, group))
        self._store.execute(
            "INSERT INTO cards (chat, person, job_id, group_name, message_id, number, text, keyboard, state)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (chat, person, job_id, group, message_id, number, text, json.dumps(keyboard), state),
        )

    def all(self) -> list[JobCard]:
        """Return all cards, the oldest first."""
        return [_card(row) for row in self._store.rows(f"{_CARDS} ORDER BY cards.id")]

    def get(self, card_id: int) -> JobCard | None:
        """Return a card as it is now; None if it is over."""
        row = self._store.row(f"{_CARDS} WHERE cards.id = ?", (card_id,))
        return _card(row) if row else None

    def has(self, chat: int, job_id: int | None, group: str | None) -> bool:
        """Return whether there is a card of this job or group in a chat."""
        sql = "SELECT 1 FROM cards WHERE chat = ? AND job_id IS ? AND group_name IS ?"
        return self._store.row(sql, (chat, job_id, group)) is not None

    def note(self, card_id: int, text: str, keyboard: Keyboard, state: str) -> None:
        """Store what a card says, which buttons it has, and for which state."""
        sql = "UPDATE cards SET text = ?, keyboard = ?, state = ? WHERE id = ?"
        self._store.execute(sql, (text, json.dumps(keyboard), state, card_id))

    def note_keyboard(self, chat: int, number: int, keyboard: Keyboard) -> None:
        """Store the buttons that a message has now, if it is a card."""
        sql = "UPDATE cards SET keyboard = ? WHERE chat = ? AND number = ?"
        self._store.execute(sql, (json.dumps(keyboard), chat, number))

    def drop_unsent(self, job_id: int | None, group: str | None) -> None:
        """Drop the cards of this job or group that were not sent yet: its end says it all."""
        unsent = (
            "SELECT cards.message_id FROM cards JOIN messages ON messages.id = cards.message_id"
            f" WHERE cards.job_id IS ? AND cards.group_name IS ? AND {_OPEN} AND NOT messages.begun"
            " AND messages.lane = 'card'"
        )
        for row in self._store.rows(unsent, (job_id, group)):
            self._store.execute("UPDATE messages SET done_at = ? WHERE id = ?", (clock.text(clock.now()), row[0]))
            self._store.execute("DELETE FROM cards WHERE message_id = ?", (row[0],))

    def finish(self, card: JobCard) -> None:
        """Forget a card: it has its last form, which has no buttons, or it is gone."""
        self._store.execute("DELETE FROM cards WHERE id = ?", (card.id,))
        if card.number is not None:
            sql = "UPDATE messages SET body = json_remove(body, '$.keyboard') WHERE chat = ? AND message = ?"
            self._store.execute(sql, (card.chat, card.number))

    def move(self, chat: int, became: int) -> None:
        """Record the new id of a chat. Cards that were sent cannot be changed there."""
        self._store.execute("DELETE FROM cards WHERE chat = ? AND number IS NOT NULL", (chat,))
        self._store.execute("UPDATE cards SET chat = ? WHERE chat = ?", (became, chat))


def _card(row: Any) -> JobCard:
    is_open = bool(row["open"])
    return JobCard(
        id=row["id"], chat=row["chat"], person=row["person"], job_id=row["job_id"], group=row["group_name"],
        message_id=row["message_id"], number=row["number"], text=row["text"], keyboard=json.loads(row["keyboard"]),
        state=row["state"], waits=is_open and not row["begun"], is_gone=row["number"] is None and not is_open,
    )  # fmt: skip
