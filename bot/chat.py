"""What every part of the bot works with: the connection to the queue, the gate, and the way to send messages."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bot.access.button_rights import Rights
from bot.access.gate import Gate, person_of
from bot.access.submit_rate import Rate
from bot.commands import BY_NAME, menu
from bot.secrets.names import is_telling, secret_values
from bot.secrets.redact import Redactor
from bot.store.buttons import Buttons
from bot.store.cards import WAITING, Cards
from bot.store.inbox import Inbox
from bot.store.live_logs import LiveLogs
from bot.store.outbox import Outbox
from bot.store.people import People
from bot.store.threads import Threads
from bot.text.buttons import CopyKey, Link, Press
from bot.text.html import CAPTION_UNITS, MESSAGE_UNITS, fit
from bot.text.outgoing_text import finished
from bot.text.zones import box_zone, zone_of
from runner.api import Queue
from runner.api.chat import BoxKey, Listing, clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from bot.access.gate import Caller
    from bot.settings import ChatSettings
    from bot.text.buttons import Key
    from runner.api.view import HasSpec
    from runner.model import Job

QUESTION = "question"
QUESTION_S = 300.0
MENU_S = 3600.0
REDACTORS = 20
RETRY_UNREACHABLE_FOR = timedelta(days=1)
STILL_NEWS = timedelta(minutes=10)
SOON_OVER_S = 5.0  # a job that is over by then gets one message in all


def typed_in_chat(words: str) -> str:
    """Return how to give a terminal command here, in backticks unless tapping it sends it whole."""
    name, _, rest = words.partition(" ")
    if name in {"first", "sooner", "later"}:
        return "/queue"
    if name == "ls":
        return "/status"
    if name not in BY_NAME:
        return f"`nightshift {words}` on the box"
    return f"`/{words.replace(' -- ', ' ')}`" if rest else f"/{name}"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture for a message, and the short caption that then replaces its text."""

    plot: dict[str, Any]
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOf:
    """What a card is about, and in how many seconds it is to be shown, unless that is over by then."""

    job_id: int | None = None
    group: str | None = None
    state: str = WAITING
    after_s: float | None = None


class Chat:
    """What handlers, notices and the sender share."""

    def __init__(self, settings: ChatSettings, token: str = "") -> None:
        self.settings = settings
        self.queue = Queue(settings.home, actor="bot", typed=typed_in_chat, begin=True)
        store = self.queue.store
        self.inbox, self.people, self.buttons = Inbox(store), People(store), Buttons(store)
        self.outbox, self.threads, self.listing = Outbox(store), Threads(store), Listing(store)
        self.live_logs, self.cards = LiveLogs(self.queue.box), Cards(store)
        self.gate = Gate(settings, self.people)
        self._secrets = [token] if token else []
        self.redactor = Redactor(self._secrets)
        self._redactors: dict[frozenset[str], Redactor] = {}  # most jobs share their workspace's secrets
        self.username = ""
        self.rate = Rate(settings.submits_per_minute)
        self.troubles: dict[str, str] = {}  # problems of the bot itself that people must hear about, by part
        self.wake_sender: Callable[[], None] = lambda: None
        self.wake_live_logs: Callable[[], None] = lambda: None

    def meet(self, bot_id: int, username: str) -> None:
        """Record which bot this is. If it is a different bot, forget the inbox: its updates have other numbers."""
        box = self.queue.box
        if box.get(BoxKey.BOT_ID) not in {None, bot_id}:
            self.inbox.forget_all()
        if box.get(BoxKey.BOT_ID) is None:  # a box used without a bot so far may have weeks of old notices
            self.outbox.skip_notices(clock.text(clock.now() - STILL_NEWS))
        box.set(BoxKey.BOT_ID, bot_id)
        box.set(BoxKey.BOT_CHAT, self.settings.chat)
        if self.settings.chat == "telegram":
            box.set(BoxKey.BOT_USERNAME, username)
        self.set_menu(None)
        for person in self.gate.everybody():
            self.set_menu(person)

    def set_menu(self, person: int | None) -> None:
        """Offer a person the commands their role allows. Strangers (and None, the default menu) get only /start."""
        role = self.gate.role_of(person) if person is not None else None
        offered = menu(role) if role is not None else [BY_NAME["start"]]
        body = {"commands": [[command.name, command.help] for command in offered]}
        self.outbox.supersede_menu(person or 0)
        whose = person if role is not None else None  # taking a menu back needs no rights
        self.outbox.add(person or 0, "setMyCommands", body, lane="edit", person=whose, lasts_s=MENU_S)

    def close(self) -> None:
        """Close the connection to the queue."""
        self.queue.store.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body in one transaction, then wake the runner and the bot, and send the messages written in it."""
        with self.queue.store.transaction():
            yield
        self.queue.ring()
        self.wake_sender()

    def heard_from(self, caller: Caller) -> None:
        """Note the name of a person who wrote, and retry messages that could not reach them in the last day."""
        self.people.note_name(caller.id, caller.name)
        self.outbox.retry_unreachable(caller.id, caller.chat, clock.text(clock.now() - RETRY_UNREACHABLE_FOR))

    def name_of(self, actor: str) -> str:
        """Return a person's name, or their id if no name is known. Other actors are returned unchanged."""
        person = person_of(actor)
        return actor if person is None else self.people.get(person).name or str(person)

    @contextlib.contextmanager
    def read_by(self, person: int, chat: int) -> Iterator[None]:
        """Show and read local times in a person's zone inside the block; in a group, or without one, in the box's."""
        zone = zone_of(self.people.get(person)) if chat > 0 else None
        with clock.read_in(zone, "" if zone else f" ({box_zone()})"):
            yield

    def named(self, text: str) -> str:
        """Return the text with names in place of people's ids."""
        return re.sub(r"\btg:\d+", lambda actor: self.name_of(actor[0]), text)

    def redactor_for(self, job: HasSpec) -> Redactor:
        """Return a redactor that also hides the own secrets of a job or a preset."""
        from_file = {value for value in self.queue.view.env_file_of(job).values() if is_telling(value)}
        secrets = frozenset([*self._secrets, *secret_values(self.queue.view.environment_of(job)), *from_file])
        if secrets not in self._redactors:
            self._redactors = dict(list(self._redactors.items())[-REDACTORS:])
            self._redactors[secrets] = Redactor(secrets)
        return self._redactors[secrets]

    def shown(self, job: Job) -> Job:
        """Return the job with its secrets hidden. This must come before a cut, which could leave part of a secret."""
        redactor = self.redactor_for(job)
        parameters = {name: redactor.ends(value) for name, value in job.spec.parameters.items()}
        return replace(job, spec=replace(job.spec, command=redactor.ends(job.spec.command), parameters=parameters))

    def probe_of(self, job: Job) -> str | None:
        """Return one line on how the batch of the job's latest attempt was found, or None if it was not probed."""
        report = self.queue.view.probe(job.id)
        return str(report["said"]) if report else None

    def presentable(self, html: str, limit: int = MESSAGE_UNITS) -> str:
        """Return the text ready to send: without secrets, cut to fit, and with nothing that turns into a stray link."""
        return finished(fit([self.redactor.text(html)], limit))

    def keyboard(self, person: int, rows: Sequence[Sequence[Key]]) -> list[list[dict[str, str]]]:
        """Return rows of buttons that only this person can press, without those they may not use."""
        rights = Rights(self.queue, self.gate, person)
        rows = [[button for button in row if not isinstance(button, Press) or rights.may_press(button)] for row in rows]
        asks = any(isinstance(button, Press) and button.rule.question for row in rows for button in row)
        question = self.buttons.make(person, QUESTION, once=True, lasts_s=QUESTION_S) if asks else ""
        return [[self._button(person, button, question) for button in row] for row in rows if row]

    def _button(self, person: int, button: Key, question: str) -> dict[str, str]:
        """Make one button. Buttons of one question share its id: pressing one makes all of them invalid."""
        if isinstance(button, Link):
            return {"text": button.text, "url": button.url}
        if isinstance(button, CopyKey):
            return {"text": button.text, "copy": button.copied}
        rule = button.rule
        data = {**button.data, QUESTION: question} if rule.question else button.data
        lasts_s = QUESTION_S if rule.question else None
        nonce = self.buttons.make(person, rule.action, button.job_id, data, once=rule.question, lasts_s=lasts_s)
        return {"text": button.text or rule.label, "data": nonce} | ({"style": rule.style} if rule.style else {})

    def say(
        self, chat: int, person: int, html: str, rows: Sequence[Sequence[Key]] = (), *,
        job_id: int | None = None, reply_to: int | None = None, topic: int | None = None, silent: bool = False,
        notice_id: int | None = None, at: datetime | None = None, picture: Picture | None = None,
        card: CardOf | None = None,
    ) -> None:  # fmt: skip
        """Queue a message, with secrets removed. `at` is when the thing it reports happened.

        A card is silent, and changed in place from then on.
        """
        body: dict[str, Any] = {"text": self.presentable(html), "silent": silent}
        body |= {"reply_to": reply_to} if reply_to else {}
        body |= {"topic": topic} if topic else {}
        if keyboard := self.keyboard(person, rows):
            body["keyboard"] = keyboard
        if picture is not None:
            body |= {"plot": picture.plot, "caption": self.presentable(picture.caption, CAPTION_UNITS)}
        method = "sendMessage" if picture is None else "sendPhoto"
        lane = "card" if card and card.after_s else "reply" if notice_id is None else "send"
        message_id = self.outbox.add(
            chat, method, body, lane=lane, person=person, job_id=job_id, notice_id=notice_id, at=at,
            after_s=card.after_s if card else None,
        )  # fmt: skip
        if card is not None:
            self.cards.add(
                chat, person, body["text"], keyboard, card.state, message_id=message_id, job_id=card.job_id,
                group=card.group,
            )  # fmt: skip

    def tell_admins(self, html: str, rows: Sequence[Sequence[Key]] = (), *, but: int | None = None) -> None:
        """Send a message to each admin in private, except `but`."""
        for admin in self.gate.admins():
            if admin != but:
                self.say(admin, admin, html, rows)
