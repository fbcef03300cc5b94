"""Removes stale buttons (Kill, Keep, Extend) from a job's messages once it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.text import keyboards
from bot.text.keyboards import Press
from runner.api.chat import clock

if TYPE_CHECKING:
    from bot.chat import Chat
    from runner.api.chat import Shown
    from runner.model import Job

WHILE_IT_LASTS = frozenset({"kill", "kill now", "keep", "extend", "edit", "front", "up", "down", "hold", "release"})
QUESTIONS = frozenset({"killed", "back"})
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
        for shown in chat.messages.shown_about(job.id, clock.text(job.submitted_at), LATEST):
            if shown.chat in moved or not shown.person or not chat.gate.may_reach(shown.person, shown.chat):
                continue
            if shown.chat < 0 and shown.chat in changed:
                continue  # Telegram takes 20 messages a minute in a group, edits included
            if _tidy(chat, job, shown, shown.person):
                changed.append(shown.chat)
    return len(changed)


def _tidy(chat: Chat, job: Job, shown: Shown, person: int) -> bool:
    """Remove the stale buttons of one message. Return whether there were any."""
    left = _left(chat, job, shown, person)
    if left is None:
        return False
    if shown.number is None:
        chat.messages.change(shown.id, {**shown.body, "keyboard": left})
        return True
    body = {"message_id": shown.number, "keyboard": left}
    chat.messages.add(
        shown.chat, "editMessageReplyMarkup", body, lane="edit", person=person, job_id=job.id, lasts_s=LASTS_S
    )
    return True


def _left(chat: Chat, job: Job, shown: Shown, person: int) -> Keyboard | None:
    """Return the buttons that the message should have; None if none of them is stale."""
    rows: Keyboard = shown.body.get("keyboard") or []
    found = {one["data"]: chat.buttons.find(one["data"]) for row in rows for one in row if "data" in one}
    buttons = {nonce: button for nonce, button in found.items() if button is not None}
    gone = {nonce for nonce, button in buttons.items() if button.action in WHILE_IT_LASTS | QUESTIONS}
    if not gone:
        return None
    if any(button.data.get("back") == "job" for button in buttons.values() if button.action in QUESTIONS):
        return chat.keyboard(person, keyboards.of_job(job))
    left = [kept for row in rows if (kept := [one for one in row if one.get("data") not in gone])]
    actions = {button.action for button in buttons.values()}
    if actions & QUESTIONS or "rerun" in actions:
        return left
    again = chat.keyboard(person, [[Press("Rerun", "rerun", job.id)]])
    return [*left[:-1], [*left[-1], *again[0]]] if left and again else [*left, *again]
