"""Removes stale buttons (Kill, Keep, Extend) from a job's messages once it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.text import keyboards
from bot.text.buttons import BY_ACTION, ButtonKind, Press

if TYPE_CHECKING:
    from bot.chat import Chat
    from bot.store.outbox import Shown
    from runner.model import Job

QUESTION = {ButtonKind.YES_KILL, ButtonKind.NO_KILL}
LATEST = 6  # messages per job that are changed: Telegram limits edits
LASTS_S = 900.0

Keyboard = list[list[dict[str, str]]]


def take_away(chat: Chat, job_id: int) -> int:
    """Remove the buttons that do nothing for an ended job. Return how many messages that changes."""
    job = chat.queue.jobs.get(job_id)
    if job is None or not job.state.final:
        return 0
    changed: list[int] = []
    with chat.transaction():
        moved = chat.people.successors()  # a group with a new id has new message numbers
        for shown in chat.outbox.shown_about(job.id, LATEST):
            if shown.chat in moved or not shown.person or not chat.gate.may_reach(shown.person, shown.chat):
                continue
            if shown.chat < 0 and shown.chat in changed:
                continue  # Telegram takes 20 messages a minute in a group, edits included
            if _tidy(chat, job, shown, shown.person):
                changed.append(shown.chat)
    return len(changed)


def _tidy(chat: Chat, job: Job, shown: Shown, person: int) -> bool:
    """Remove the stale buttons of one message. Return whether there were any."""
    keyboard = _without_stale(chat, job, shown, person)
    if keyboard is None:
        return False
    if shown.number is None:
        chat.outbox.change(shown.id, {**shown.body, "keyboard": keyboard})
        return True
    body = {"message_id": shown.number, "keyboard": keyboard}
    chat.outbox.add(
        shown.chat, "editMessageReplyMarkup", body, lane="edit", person=person, job_id=job.id, lasts_s=LASTS_S
    )
    return True


def _without_stale(chat: Chat, job: Job, shown: Shown, person: int) -> Keyboard | None:
    """Return the buttons that the message should have; None if none of them is stale."""
    rows: Keyboard = shown.body.get("keyboard") or []
    nonces = [button["data"] for row in rows for button in row if "data" in button]
    buttons = {nonce: button for nonce in nonces if (button := chat.buttons.find(nonce)) is not None}
    kinds = {nonce: BY_ACTION[button.action] for nonce, button in buttons.items() if button.action in BY_ACTION}
    stale = {nonce for nonce, kind in kinds.items() if kind.value.while_unfinished or kind in QUESTION}
    if not stale:
        return None
    if any(kinds[nonce] in QUESTION and buttons[nonce].data.get("back") == "job" for nonce in kinds):
        return chat.keyboard(person, keyboards.of_job(job))
    remaining = [[button for button in row if button.get("data") not in stale] for row in rows]
    remaining = [row for row in remaining if row]
    if {*QUESTION, ButtonKind.RERUN} & set(kinds.values()):
        return remaining
    again = chat.keyboard(person, [[Press(ButtonKind.RERUN, job.id)]])
    return [*remaining[:-1], [*remaining[-1], *again[0]]] if remaining and again else [*remaining, *again]
