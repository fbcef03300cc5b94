"""What every part of the bot works with: the connection to the queue, the gate, and the way to send messages."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bot.access.gate import Gate, actor_of, person_of
from bot.access.rate_limit import Rate
from bot.commands import BY_NAME, menu
from bot.roles import Role
from bot.secrets.names import is_telling
from bot.secrets.redact import Redactor, secret_values
from bot.telegram_html import CAPTION_UNITS, MESSAGE_UNITS, fit
from bot.text.keyboards import Link, Press
from bot.text.outgoing_text import finished
from runner.api import Queue
from runner.api.chat import Buttons, Inbox, Listing, Messages, People, Threads, clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from bot.access.gate import Caller
    from bot.settings import ChatSettings
    from runner.model import Job

QUESTION = "question"
QUESTION_S = 300.0
MENU_S = 3600.0
REDACTORS = 20
UNPARKED_FOR = timedelta(days=1)
STILL_NEWS = timedelta(minutes=10)


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


class Chat:
    """What handlers, notices and the sender share."""

    def __init__(self, settings: ChatSettings, token: str = "") -> None:
        self.settings = settings
        self.queue = Queue(settings.home, actor="bot", typed=typed_in_chat, begin=True)
        store = self.queue.store
        self.inbox, self.people, self.buttons = Inbox(store), People(store), Buttons(store)
        self.messages, self.threads, self.listing = Messages(store), Threads(store), Listing(store)
        self.gate = Gate(settings, self.people)
        self._secrets = [token] if token else []
        self.redactor = Redactor(self._secrets)
        self._redactors: dict[frozenset[str], Redactor] = {}  # most jobs share their workspace's secrets
        self.username = ""
        self.rate = Rate(settings.submits_per_minute)
        self.troubles: dict[str, str] = {}  # problems of the bot itself that people must hear about, by part
        self.wake_sender: Callable[[], None] = lambda: None

    def meet(self, bot_id: int, username: str) -> None:
        """Record which bot this is. If it is a different bot, forget the inbox: its updates have other numbers."""
        box = self.queue.box
        if box.get("bot id") not in {None, bot_id}:
            self.inbox.forget_all()
        if box.get("bot id") is None:  # a box used without a bot so far may have weeks of old notices
            self.queue.outbox.forget_untold(clock.text(clock.now() - STILL_NEWS))
        box.set("bot id", bot_id)
        box.set("bot chat", self.settings.chat)
        if self.settings.chat == "telegram":
            box.set("bot username", username)
        self.set_menu(None)
        for person in self.gate.everybody():
            self.set_menu(person)

    def set_menu(self, person: int | None) -> None:
        """Offer a person the commands their role allows. Strangers (and None, the default menu) get only /start."""
        role = self.gate.role_of(person) if person is not None else None
        shown = menu(role) if role is not None else [BY_NAME["start"]]
        body = {"commands": [[command.name, command.help] for command in shown]}
        self.messages.supersede_menu(person or 0)
        whose = person if role is not None else None  # taking a menu back needs no rights
        self.messages.add(person or 0, "setMyCommands", body, lane="edit", person=whose, lasts_s=MENU_S)

    def close(self) -> None:
        """Close the connection to the queue."""
        self.queue.store.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body in one transaction, then wake the runner and the bot, and send the messages written in it."""
        with self.queue.store.transaction():
            yield
        self.queue.ring()  # processes woken from inside the transaction could not see its changes yet
        self.wake_sender()

    def heard_from(self, caller: Caller) -> None:
        """Note the name of a person who wrote, and retry messages that could not reach them in the last day."""
        self.people.note_name(caller.id, caller.name)
        self.messages.unpark(caller.id, caller.chat, clock.text(clock.now() - UNPARKED_FOR))

    def name_of(self, actor: str) -> str:
        """Return a person's name, or their id if no name is known. Other actors are returned unchanged."""
        person = person_of(actor)
        return actor if person is None else self.people.get(person).name or str(person)

    def named(self, text: str) -> str:
        """Return the text with names in place of people's ids."""
        return re.sub(r"\btg:\d+", lambda found: self.name_of(found[0]), text)

    def redactor_for(self, job: Job) -> Redactor:
        """Return a redactor that also hides this job's own secrets."""
        from_file = {value for value in self.queue.env_file_of(job).values() if is_telling(value)}
        secrets = frozenset([*self._secrets, *secret_values(self.queue.environment_of(job)), *from_file])
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
        found = self.queue.probe(job.id)
        return str(found["said"]) if found else None

    def presentable(self, html: str, limit: int = MESSAGE_UNITS) -> str:
        """Return the text ready to send: without secrets, cut to fit, and with nothing that turns into a stray link."""
        return finished(fit([self.redactor.text(html)], limit))

    def keyboard(self, person: int, rows: Sequence[Sequence[Press | Link]]) -> list[list[dict[str, str]]]:
        """Return rows of buttons that only this person can press, without those they may not use."""
        rights = Rights(self, person)
        rows = [[one for one in row if isinstance(one, Link) or rights.may_press(one)] for row in rows]
        asks = any(isinstance(one, Press) and one.question for row in rows for one in row)
        question = self.buttons.make(person, QUESTION, once=True, lasts_s=QUESTION_S) if asks else ""
        return [[self._button(person, one, question) for one in row] for row in rows if row]

    def _button(self, person: int, one: Press | Link, question: str) -> dict[str, str]:
        """Make one button. Buttons of one question share its id: pressing one makes all of them invalid."""
        if isinstance(one, Link):
            return {"text": one.text, "url": one.url}
        data = {**one.data, QUESTION: question} if one.question else one.data
        lasts_s = QUESTION_S if one.question else None
        nonce = self.buttons.make(person, one.action, one.job_id, data, once=one.question, lasts_s=lasts_s)
        return {"text": one.text, "data": nonce} | ({"style": one.style} if one.style else {})

    def say(
        self, chat: int, person: int, html: str, rows: Sequence[Sequence[Press | Link]] = (), *,
        job_id: int | None = None, reply_to: int | None = None, topic: int | None = None, silent: bool = False,
        notice_id: int | None = None, at: datetime | None = None, picture: Picture | None = None,
    ) -> None:  # fmt: skip
        """Queue a message, with secrets removed. `at` is when the thing it reports happened."""
        body: dict[str, Any] = {"text": self.presentable(html), "silent": silent}
        body |= {"reply_to": reply_to} if reply_to else {}
        body |= {"topic": topic} if topic else {}
        if keyboard := self.keyboard(person, rows):
            body["keyboard"] = keyboard
        if picture is not None:
            body |= {"plot": picture.plot, "caption": self.presentable(picture.caption, CAPTION_UNITS)}
        method = "sendMessage" if picture is None else "sendPhoto"
        lane = "reply" if notice_id is None else "send"
        self.messages.add(chat, method, body, lane=lane, person=person, job_id=job_id, notice_id=notice_id, at=at)

    def tell_admins(self, html: str, rows: Sequence[Sequence[Press | Link]] = (), *, but: int | None = None) -> None:
        """Send a message to each admin in private, except `but`."""
        for admin in self.gate.admins():
            if admin != but:
                self.say(admin, admin, html, rows)


OF_USERS = frozenset({"rerun", "lines", "script"})
OF_OWNERS = frozenset({"kill", "kill now", "keep", "extend", "edit", "front", "up", "down", "hold", "release"})
OF_ADMINS = frozenset({"drain", "revoke", "revoked", "people", "cancel links", "cancel when empty"})
KILL_GROUP, RERUN_FAILED = "kill group", "rerun failed"
RELEASE_ALL, RESUME = "release all", "resume"


def role_to_resume(chat: Chat) -> Role:
    """Return the role needed to resume the queue: admin if a person paused or drained it, else user."""
    paused, draining = chat.queue.box.get("paused"), chat.queue.box.get("draining")
    by_person = draining or (paused and paused["by"] != "breaker")
    return Role.ADMIN if by_person else Role.USER


class Rights:
    """What one person may press, at the moment a message is written for them."""

    def __init__(self, chat: Chat, person: int) -> None:
        self._chat, self._actor = chat, actor_of(person)
        self._role = chat.gate.role_of(person)
        self._owners: dict[int, str | None] = {}

    def may_press(self, press: Press) -> bool:
        """Return whether pressing this would do anything for this person."""
        if press.action in OF_ADMINS:
            return self._role is Role.ADMIN
        if press.action in {KILL_GROUP, RERUN_FAILED}:
            return self._has_any(press.action, str(press.data["group"]))
        if press.action == RESUME:
            return self._role is not None and self._role >= role_to_resume(self._chat)
        if press.action == RELEASE_ALL:
            return any(self.may_change(number) for number in press.data["jobs"])
        if press.action in OF_OWNERS and press.job_id is not None:
            return self.may_change(press.job_id)
        return press.action not in OF_USERS or self._is_user

    def may_change(self, job_id: int) -> bool:
        """Return whether this person may change the job: admins may, and users may change their own."""
        if self._role is Role.ADMIN:
            return True
        if job_id not in self._owners:
            job = self._chat.queue.jobs.get(job_id)
            self._owners[job_id] = job.spec.owner if job else None
        return self._is_user and self._owners[job_id] == self._actor

    @property
    def _is_user(self) -> bool:
        return self._role is not None and self._role >= Role.USER

    def _has_any(self, action: str, group: str) -> bool:
        """Return whether the action would affect at least one job of the group that this person may change."""
        groups = self._chat.queue.groups
        found = groups.unfinished(group) if action == KILL_GROUP else groups.failed(group)
        return self._is_user and any(self._role is Role.ADMIN or one.owner == self._actor for one in found)
