"""Applies the gate to each update: who goes on to the handlers, and who joins by a pairing link."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.access.gate import Caller, Candidate, Denied, Moved, actor_of
from bot.outbound.sender import follow
from bot.text.html import bold, code, escape

if TYPE_CHECKING:
    from telegram import Update

    from bot.chat import Chat


def welcome(chat: Chat, person_id: int, name: str, role: str) -> None:
    """Greet a person who joined by a link, and tell the admins. Inside a transaction."""
    chat.queue.audit.add(actor_of(person_id), "paired", {"role": role})
    chat.say(
        person_id,
        person_id,
        f"🌙 Welcome. You are {bold(role)} of {bold(chat.settings.box)}. /help lists what you can do.",
    )
    chat.set_menu(person_id)
    joined = f"🔑 {escape(name)} ({code(str(person_id))}) is now {bold(role)} of {bold(chat.settings.box)}"
    chat.tell_admins(f"{joined}, by a pairing link. /pair lists everybody and can take it back.", but=person_id)


def let_in(chat: Chat, update: Update) -> Caller | None:
    """Return the caller if the update may go on to the handlers; otherwise deal with it here and return None."""
    verdict = chat.gate.judge(update)
    if isinstance(verdict, Caller):
        return verdict
    if isinstance(verdict, Candidate):
        _pair(chat, update.update_id, verdict)
    elif isinstance(verdict, Moved):
        follow(chat, verdict.chat, verdict.became)
    elif isinstance(verdict, Denied):
        chat.gate.turn_away(verdict)
    return None


def _pair(chat: Chat, update_id: int, candidate: Candidate) -> None:
    with chat.transaction():
        role = chat.people.accept(candidate.code, candidate.id, candidate.name)
        chat.inbox.handled(update_id)
        if role is not None:
            welcome(chat, candidate.id, candidate.name, role)
