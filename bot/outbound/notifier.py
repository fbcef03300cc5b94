"""Turns notices into messages: who gets what, where, and whether with a sound."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.access.gate import person_of
from bot.chat import Picture
from bot.outbound import stale_buttons
from bot.outbound.group_results import results_of
from bot.pictures import plots
from bot.store_retry import patiently
from bot.telegram_html import CAPTION_UNITS, escape
from bot.text import box_words, group_words, keyboards, log_excerpt, views, warning_words
from bot.text.log_excerpt import LOG_BYTES
from bot.timeouts import within
from runner.api import groups
from runner.api.chat import clock
from runner.model import Reason, State

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bot.chat import Chat
    from bot.secrets.redact import Redactor
    from bot.text.keyboards import Press
    from runner.api.chat import Log, Thread
    from runner.model import Job, Notice

log = logging.getLogger(__name__)

EXCERPT_UNITS = 2500
OPEN = 100  # notices that are read at once
READERS = 2  # groups whose results are read at once
MANY, BURST, BURST_S = 4, 20, 60.0
STALE = "jobs with stale buttons"
HEAD_BYTES = 64 << 10  # wandb prints the link to its run at the start
WATCHED = {Reason.IDLE.value, Reason.HUNG.value}  # stopped by a watchdog, which keeps evidence
SILENT = {"started", "gpu back", "disk back", "runner back", "backup back", "drained"}
# what each choice of /notify leaves out
LEAVES_OUT = {
    "all": frozenset(),
    "ends": frozenset({"started"}),
    "failures": frozenset({"succeeded", "requeued", "queue empty", *SILENT}),
}


class Recipient(NamedTuple):
    """A person to tell, and where."""

    person: int
    chat: int
    message: int | None = None
    topic: int | None = None


class Output(NamedTuple):
    """What to show of a job's output, or the watchdog's evidence against the job."""

    excerpt: str = ""
    wandb: str | None = None
    against: dict[str, Any] | None = None


class Said(NamedTuple):
    """A notice as text, with buttons and perhaps a picture."""

    html: str
    rows: Sequence[Sequence[Press]] = ()
    picture: Picture | None = None


class Notifier:
    """Turns every notice into its messages, each notice once."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._stale: deque[int] = deque()
        self._tidied_at: deque[float] = deque(maxlen=BURST)
        self._groups: dict[int, asyncio.Task[None]] = {}  # by notice id: tasks that read the results of finished groups
        self._readers = asyncio.Semaphore(READERS)
        self._wake = asyncio.Event()
        self._wake.set()

    def wake(self) -> None:
        """Wake the notifier: there may be a notice."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            await self._tell_all()
        finally:
            for task in self._groups.values():
                task.cancel()
            await asyncio.gather(*self._groups.values(), return_exceptions=True)

    async def _tell_all(self) -> None:
        wait_s: float | None = None
        self._stale += await patiently(partial(self._chat.queue.box.get, STALE, ()))
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(wait_s, self._wake.wait())
            self._wake.clear()
            while notices := await patiently(self._open):
                left = await patiently(partial(self._leave_to_groups, notices))
                for bundle in _bundles([notice for notice in left if notice.kind != groups.DONE]):
                    await (self.tell(bundle[0]) if len(bundle) < MANY else self.tell_together(bundle))
                self._tell_apart([notice for notice in left if notice.kind == groups.DONE])
                self._stale += _over(notices)
            wait_s = await self._take_buttons_away()
            await patiently(self._keep_stale)

    def _open(self) -> list[Notice]:
        """Return the open notices that no task is working on."""
        notices = self._chat.queue.outbox.open(OPEN + len(self._groups))
        return [notice for notice in notices if notice.id not in self._groups]

    def _tell_apart(self, notices: Sequence[Notice]) -> None:
        """Start a task for each finished group: reading its results may take long and must not delay other notices."""
        for notice in notices:
            self._groups[notice.id] = asyncio.get_running_loop().create_task(self._tell_group(notice))

    async def _tell_group(self, notice: Notice) -> None:
        try:
            async with self._readers:
                await self.tell(notice)
        except Exception:  # it stays open and is tried again when the next notice comes
            log.exception("notice %s (%s) could not be told", notice.id, notice.kind)
        finally:
            del self._groups[notice.id]

    def _keep_stale(self) -> None:
        """Store the jobs that still have stale buttons, so that the bot goes on with them after a restart."""
        if [*self._stale] != self._chat.queue.box.get(STALE, []):
            self._chat.queue.box.set(STALE, [*self._stale])

    async def _take_buttons_away(self) -> float | None:
        """Remove the buttons of ended jobs, a limited number a minute, because Telegram limits edits.

        Return the seconds until more can be removed; None if all are done.
        """
        while self._stale:
            now = time.monotonic()
            if len(self._tidied_at) == BURST and (left_s := self._tidied_at[0] + BURST_S - now) > 0:
                return left_s
            changed = await patiently(partial(stale_buttons.take_away, self._chat, self._stale.popleft()))
            self._tidied_at += [now] * changed
            await asyncio.sleep(0)
        return None

    def _leave_to_groups(self, notices: Sequence[Notice]) -> list[Notice]:
        """Return the notices that get a message of their own, and mark the others as delivered.

        Of a group's jobs only what went wrong gets a message; the rest is summed up when the whole group is done.
        """
        quiet = {notice.id for notice in notices if self._is_for_group(notice)}
        if quiet:
            with self._chat.transaction():
                for number in quiet:
                    self._chat.queue.outbox.told(number)
        return [notice for notice in notices if notice.id not in quiet]

    def _is_for_group(self, notice: Notice) -> bool:
        if notice.kind not in {"started", "ended"} or notice.job_id is None:
            return False
        job = self._chat.queue.jobs.get(notice.job_id)
        if job is None or job.spec.group is None:
            return False
        asked_for = notice.data.get("reason") == Reason.USER.value and notice.data.get("by") == job.spec.owner
        return notice.kind == "started" or notice.data.get("state") == State.SUCCEEDED.value or asked_for

    async def tell(self, notice: Notice) -> None:
        """Write the messages of one notice and mark it as delivered, in one transaction."""
        job = self._chat.queue.jobs.get(notice.job_id) if notice.job_id is not None else None
        output = await self._output(notice, job)
        try:
            if notice.kind == groups.DONE:
                said = await self._group_done(notice)
            else:
                said = self._words(notice, job and self._chat.shown(job), output)
        except Exception:  # one bad notice must not block those behind it, and must not be lost
            log.exception("notice %s (%s) is told in a few words", notice.id, notice.kind)
            said = Said(views.in_few_words(notice, self._chat.settings.box))
        await patiently(partial(self._write, notice, said))

    async def tell_together(self, notices: Sequence[Notice]) -> None:
        """Send each person one message about many jobs that were cancelled at once before they started."""
        said = Said(views.cancelled(notices, self._chat.settings.box, self._chat.name_of))
        await patiently(partial(self._write_together, notices, said))

    def _write_together(self, notices: Sequence[Notice], said: Said) -> None:
        with self._chat.transaction():
            people = {to.person: to for notice in notices for to in self._recipients(notice)}
            for to in people.values():
                self._send(to, notices[0], said)
            for notice in notices:
                self._chat.queue.outbox.told(notice.id)

    def _write(self, notice: Notice, said: Said) -> None:
        with self._chat.transaction():
            for recipient in self._recipients(notice):
                self._send(recipient, notice, said)
            self._chat.queue.outbox.told(notice.id)

    def _send(self, to: Recipient, notice: Notice, said: Said) -> None:
        person = self._chat.people.get(to.person)
        if person.noise == "none" or _aspect(notice) in LEAVES_OUT.get(person.noise, frozenset()):
            return
        hours = person.quiet if person.quiet is not None else self._chat.settings.quiet_hours
        self._chat.say(
            to.chat, to.person, said.html, said.rows, job_id=notice.job_id, reply_to=to.message, topic=to.topic,
            silent=_is_silent(notice) or is_quiet(hours, clock.now()), notice_id=notice.id, at=notice.created_at,
            picture=said.picture,
        )  # fmt: skip

    # -- to whom -----------------------------------------------------------------------------------

    def _recipients(self, notice: Notice) -> list[Recipient]:
        """Return the place where the job was submitted, or the admins if it came from a terminal or is about the box.

        The admins also get a notice whose submitter has no role any more.
        """
        gate = self._chat.gate
        if notice.kind == groups.DONE:
            return self._of_group(notice)
        thread = self._chat.threads.get(notice.job_id) if notice.job_id is not None else None
        if thread is not None and (found := self._at(thread)):
            return [found]
        people = set(gate.admins())
        if notice.kind in ("paused", "goes on"):  # also to the owners of the failed and the held jobs
            about = {*notice.data.get("jobs", ()), *notice.data.get("held", ())}
            owners = {person_of(job.spec.owner) for number in about if (job := self._chat.queue.jobs.get(number))}
            people |= {owner for owner in owners if owner is not None and gate.role_of(owner) is not None}
        return [Recipient(person, person) for person in sorted(people)]

    def _at(self, thread: Thread) -> Recipient | None:
        """Return the submitter in the chat where they asked, or in private; None if they have no role any more."""
        gate = self._chat.gate
        if gate.may_reach(thread.person, thread.chat):
            return Recipient(thread.person, thread.chat, thread.message, thread.topic)
        return Recipient(thread.person, thread.person) if gate.role_of(thread.person) is not None else None

    def _of_group(self, notice: Notice) -> list[Recipient]:
        """Return everybody who submitted one of the group's jobs, once per chat.

        The admins are added if a job came from a terminal, or if one of these people has no role any more.
        """
        threads, others = self._chat.threads.of_group(notice.data["group"], notice.data["after"])
        found = [self._at(thread) for thread in threads]
        people = {(to.person, to.chat): to for to in reversed(found) if to}
        if others or None in found or not people:
            told = {to.person for to in people.values()}
            people |= {
                (admin, admin): Recipient(admin, admin) for admin in self._chat.gate.admins() if admin not in told
            }
        return list(people.values())

    # -- in which words ----------------------------------------------------------------------------

    async def _output(self, notice: Notice, job: Job | None) -> Output:
        """Return what to show of an ended job's output; empty if it cannot be read."""
        if job is None or notice.kind != "ended" or not notice.data.get("attempt"):
            return Output()
        try:
            return await self._read_output(notice, job)
        except Exception:  # the message goes out without it
            log.exception("the output of job %s cannot be told", job.id)
            return Output()

    async def _read_output(self, notice: Notice, job: Job) -> Output:
        if notice.data.get("reason") in WATCHED and (against := self._chat.queue.evidence(job.id)):
            return Output(str(against["text"]), against=against)
        if not self._chat.settings.log_text:
            return Output()
        output = self._chat.queue.log(job.id, notice.data["attempt"])
        failed = notice.data["state"] != State.SUCCEEDED.value
        return await asyncio.to_thread(_told_by, output, self._chat.redactor_for(job), failed=failed)

    def _words(self, notice: Notice, job: Job | None, output: Output) -> Said:
        box, data = self._chat.settings.box, notice.data
        if job is not None:
            return self._about_job(notice, job, output)
        if notice.kind.startswith("gpu "):
            return Said(box_words.gpu_trouble(notice.kind, data, box, views.indices_of(self._chat.queue.gpus())))
        if notice.kind not in box_words.OF_THE_BOX:
            return Said(views.in_few_words(notice, box))
        rows = {"paused": keyboards.resume(), "drained": keyboards.resume()}.get(notice.kind, [])
        if notice.kind == "queue empty" and data.get("command"):
            rows = keyboards.cancel_when_empty()
        if notice.kind == "goes on" and data.get("held"):
            rows = keyboards.release(data["held"])
        return Said(box_words.OF_THE_BOX[notice.kind](data, box), rows)

    def _about_job(self, notice: Notice, job: Job, output: Output) -> Said:
        box, data = self._chat.settings.box, notice.data
        if notice.kind == "started":
            indices, quoted = views.indices_of(self._chat.queue.gpus()), self._chat.threads.get(job.id) is not None
            html = views.started(
                job, data.get("gpus", ()), box, indices, data.get("attempt", 1), quoted=quoted, probe=data.get("probe")
            )
            return Said(html, keyboards.of_job(job))
        if notice.kind == "ended":
            return self._ended(notice, job, output)
        if notice.kind == "idle warning":
            return self._idle_warning(job, data)
        if notice.kind == "time warning":
            return self._time_warning(job, data)
        words = views.OF_A_JOB.get(notice.kind)
        said = words(job, data, box) if words else views.in_few_words(notice, box)
        return Said(said, keyboards.of_idle(job) if _can_be_kept(notice, job) else keyboards.of_job(job))

    async def _group_done(self, notice: Notice) -> Said:
        """Describe a finished group with its results; if it is no longer stored, only with the notice's counts."""
        name, box = str(notice.data["group"]), self._chat.settings.box
        if self._chat.queue.groups.get(name) is None:
            return Said(group_words.done(notice.data, box, groups.compared((), {}, None)))
        results = await results_of(self._chat, name)
        plot = plots.of_results(results)
        picture = Picture(plot, group_words.done(notice.data, box, results, CAPTION_UNITS)) if plot else None
        rows = keyboards.of_group(groups.standing(self._chat.queue, name))
        return Said(group_words.done(notice.data, box, results), rows, picture)

    def _idle_warning(self, job: Job, data: dict[str, Any]) -> Said:
        """Describe an idle warning, with Keep buttons unless the job has ended or is being stopped."""
        box, plot = self._chat.settings.box, plots.of_idleness(data)
        rows = keyboards.of_idle(job) if _is_live(job) else keyboards.of_job(job)
        picture = Picture(plot, warning_words.idle_caption(job, data, box)) if plot else None
        return Said(warning_words.idle_warning(job, data, box), rows, picture)

    def _time_warning(self, job: Job, data: dict[str, Any]) -> Said:
        """Describe a time limit warning, with Extend buttons unless the job has ended, is stopping or was extended."""
        late = job.state.final or job.stop or job.spec.time_limit_s != data["limit_s"]
        rows = keyboards.of_job(job) if late else keyboards.of_time(job, data["limit_s"], data.get("more_s"))
        return Said(warning_words.time_warning(job, data, self._chat.settings.box), rows)

    def _ended(self, notice: Notice, job: Job, output: Output) -> Said:
        data = notice.data
        by = data.get("by") or (job.stop.by if job.stop else None)
        ended = partial(
            views.ended, job, data, box=self._chat.settings.box, indices=views.indices_of(self._chat.queue.gpus()),
            by=self._chat.name_of(by) if by else None, wandb=output.wandb,
            probe=self._chat.probe_of(job) if data.get("attempt") == job.attempt else None,
        )  # fmt: skip
        plot = plots.of_idleness(output.against)
        why = str(output.against["why"]) if output.against else ""
        picture = Picture(plot, ended(excerpt=why, limit=CAPTION_UNITS, shown_as=escape)) if plot else None
        return Said(ended(excerpt=output.excerpt), keyboards.of_job(job), picture)


def _told_by(output: Log, redactor: Redactor, *, failed: bool) -> Output:
    text = log_excerpt.presentable(output.tail(LOG_BYTES), redactor)
    link = log_excerpt.wandb_link(text) or log_excerpt.wandb_link(
        log_excerpt.presentable(output.head(HEAD_BYTES), redactor)
    )
    return Output(log_excerpt.what_matters(text, limit=EXCERPT_UNITS) if failed else "", link)


def _is_live(job: Job) -> bool:
    return not job.state.final and job.stop is None


def _can_be_kept(notice: Notice, job: Job) -> bool:
    """Return whether the notice warns that a hung job will be stopped, and the job can still be kept."""
    return notice.kind == "looks hung" and "stops_at" in notice.data and _is_live(job)


def _bundles(notices: Sequence[Notice]) -> list[list[Notice]]:
    """Split notices into bundles, one message each.

    At least MANY jobs in a row that the same person or the same failed job cancelled before they started form one.
    """
    bundles: list[list[Notice]] = []
    for notice in notices:
        if bundles and (by := _canceller(notice)) and _canceller(bundles[-1][0]) == by:
            bundles[-1].append(notice)
        else:
            bundles.append([notice])
    return [part for bundle in bundles for part in ([bundle] if len(bundle) >= MANY else [[one] for one in bundle])]


def _canceller(notice: Notice) -> str | None:
    """Return who or what cancelled a job before it started; None for any other notice."""
    return notice.data.get("by") if notice.kind == "ended" and not notice.data.get("attempt") else None


def _over(notices: Sequence[Notice]) -> list[int]:
    """Return the jobs that have ended."""
    return [notice.job_id for notice in notices if notice.kind == "ended" and notice.job_id is not None]


def _aspect(notice: Notice) -> str:
    """Return the word under which LEAVES_OUT lists this notice."""
    if notice.kind == "when empty ran" and notice.data.get("exit_code") == 0:
        return "queue empty"
    if notice.kind == groups.DONE and set(notice.data["counts"]) <= {State.SUCCEEDED.value}:
        return "succeeded"
    return "succeeded" if notice.data.get("state") == State.SUCCEEDED.value else notice.kind


def _is_silent(notice: Notice) -> bool:
    """Return whether a notice comes without a sound. An empty queue after a single job does: its end was announced."""
    lone = notice.kind == "queue empty" and notice.data.get("jobs", 0) < 2 and not notice.data.get("command")
    return notice.kind in SILENT or lone


def is_quiet(hours: tuple[int, int] | tuple[()] | None, now: datetime) -> bool:
    """Return whether it is now within these quiet hours, in minutes since midnight of the box's local time."""
    if not hours:
        return False
    here = now.astimezone()
    minute, (begin, end) = here.hour * 60 + here.minute, hours
    return begin <= minute < end if begin <= end else minute >= begin or minute < end
