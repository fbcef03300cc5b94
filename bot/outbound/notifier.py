"""Turns notices into messages. `bot.text.notice_forms` says how each kind is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.chat import SOON_OVER_S, Picture
from bot.outbound import stale_buttons
from bot.outbound.card_forms import begin_or_drop
from bot.outbound.documents import results_of
from bot.outbound.recipients import recipients_of
from bot.pictures import plots
from bot.text import job_notices, log_excerpt, views
from bot.text.box_notices import NoticeContext
from bot.text.group_words import GroupContext
from bot.text.job_notices import NO_OUTPUT, JobContext, JobOutput
from bot.text.notice_forms import LEAST_NEWS, News, To, form_of
from bot.text.zones import zone_of
from bot.waiting import cancel_all, patiently, within
from runner.api import groups
from runner.api.chat import BoxKey, clock, progress_words
from runner.model import Reason, State
from runner.notices import Ended, GoesOn, GroupDone, IdleWarning, Paused, Started, TrialFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, tzinfo

    from bot.chat import Chat
    from bot.outbound.recipients import Recipient
    from bot.secrets.redact import Redactor
    from bot.text.keyboards import Rows
    from runner.api.chat import Log
    from runner.model import Job
    from runner.notices import AttemptEnd, Notice, Payload, Unknown

log = logging.getLogger(__name__)

OPEN = 100  # notices that are read at once
READERS = 2  # groups whose results are read at once
MANY, BURST, BURST_S = 4, 20, 60.0
EXCERPT_UNITS = 2500
LAST_LINES = 10
HEAD_BYTES = 64 << 10  # wandb prints the link to its run at the start
STOPPED_BY_WATCHDOG = {Reason.IDLE, Reason.HUNG}


@dataclass(frozen=True, slots=True)
class Draft:
    """A notice as text, with buttons and perhaps a picture."""

    html: str
    rows: Rows
    picture: Picture | None = None
    news: News = News.TROUBLE
    silent: bool = False


class Notifier:
    """Turns every notice into its messages, each notice once."""

    def __init__(self, chat: Chat, on_news: Callable[[Sequence[Notice]], None]) -> None:
        self._chat, self._on_news = chat, on_news
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
            await cancel_all(self._groups.values())

    async def _tell_all(self) -> None:
        wait_s: float | None = None
        self._stale += await patiently(self._chat.queue.box.get, BoxKey.STALE_BUTTONS, ())
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(wait_s, self._wake.wait())
            self._wake.clear()
            while notices := await patiently(self._open):
                own = await patiently(self._leave_to_groups, notices)
                for bundle in _bundles([notice for notice in own if not isinstance(notice.payload, GroupDone)]):
                    await (self.tell(bundle[0]) if len(bundle) < MANY else self.tell_together(bundle))
                self._tell_groups([notice for notice in own if isinstance(notice.payload, GroupDone)])
                await patiently(self._on_news, notices)
                self._stale += [ended.job_id for ended in notices if isinstance(ended.payload, Ended) and ended.job_id]
            wait_s = await self._take_buttons_away()
            await patiently(self._keep_stale)

    def _open(self) -> list[Notice]:
        """Return the open notices that no task is working on."""
        notices = self._chat.queue.notices.open(OPEN + len(self._groups))
        return [notice for notice in notices if notice.id not in self._groups]

    # -- stale buttons -----------------------------------------------------------------------------

    def _keep_stale(self) -> None:
        """Store the jobs that still have stale buttons, so that the bot goes on with them after a restart."""
        if [*self._stale] != self._chat.queue.box.get(BoxKey.STALE_BUTTONS, []):
            self._chat.queue.box.set(BoxKey.STALE_BUTTONS, [*self._stale])

    async def _take_buttons_away(self) -> float | None:
        """Remove the buttons of ended jobs, a limited number a minute, because Telegram limits edits.

        Return the seconds until more can be removed; None if all are done.
        """
        while self._stale:
            now = time.monotonic()
            if len(self._tidied_at) == BURST and (wait_s := self._tidied_at[0] + BURST_S - now) > 0:
                return wait_s
            changed = await patiently(stale_buttons.take_away, self._chat, self._stale.popleft())
            self._tidied_at += [now] * changed
            await asyncio.sleep(0)
        return None

    # -- groups ------------------------------------------------------------------------------------

    def _tell_groups(self, notices: Sequence[Notice]) -> None:
        """Start a task for each finished group: reading its results may take long and must not delay other notices."""
        for notice in notices:
            self._groups[notice.id] = asyncio.get_running_loop().create_task(self._tell_group(notice))

    async def _tell_group(self, notice: Notice) -> None:
        try:
            async with self._readers:
                await self.tell(notice)
            await patiently(self._on_news, [notice])
        except Exception:  # it stays open and is tried again when the next notice comes
            log.exception("no message was written for notice %s (%s)", notice.id, notice.kind)
        finally:
            del self._groups[notice.id]

    def _leave_to_groups(self, notices: Sequence[Notice]) -> list[Notice]:
        """Return the notices that get a message of their own, and mark the others as handled.

        Of a group's jobs only what went wrong gets a message; the rest is summed up when the whole group is done.
        """
        summed_up = {notice.id for notice in notices if self._is_summed_up(notice)}
        if summed_up:
            with self._chat.transaction():
                for notice in notices:
                    if notice.id in summed_up:
                        begin_or_drop(self._chat, notice)
                        self._chat.outbox.handled(notice.id)
        return [notice for notice in notices if notice.id not in summed_up]

    def _is_summed_up(self, notice: Notice) -> bool:
        payload = notice.payload
        if not isinstance(payload, Started | Ended) or (job := self._job(notice)) is None or job.spec.group is None:
            return False
        if isinstance(payload, Started):
            return True
        by_owner = payload.reason is Reason.USER and payload.by == job.spec.owner
        return payload.state is State.SUCCEEDED or by_owner

    # -- writing messages --------------------------------------------------------------------------

    async def tell(self, notice: Notice) -> None:
        """Write the messages of one notice and mark it as handled, in one transaction."""
        try:
            draft = await self._draft(notice)
        except Exception:  # one bad notice must not block those behind it, and must not be lost
            log.exception("notice %s (%s) is told in a few words", notice.id, notice.kind)
            draft = self._in_few_words(notice)
        await patiently(self._write, [notice], draft)

    async def tell_together(self, notices: Sequence[Notice]) -> None:
        """Send each person one message about many jobs that were cancelled at once before they started."""
        draft = Draft(job_notices.cancelled(notices, self._context()), [])
        await patiently(self._write, notices, draft)

    def _write(self, notices: Sequence[Notice], draft: Draft) -> None:
        with self._chat.transaction():
            everybody = [to for notice in notices for to in recipients_of(self._chat, notice)]
            for to in everybody if len(notices) == 1 else {to.person: to for to in everybody}.values():
                self._send(to, notices[0], draft)
            for notice in notices:
                begin_or_drop(self._chat, notice)
                self._chat.outbox.handled(notice.id)

    def _send(self, to: Recipient, notice: Notice, draft: Draft) -> None:
        person = self._chat.people.get(to.person)
        if person.noise == "none" or draft.news < LEAST_NEWS.get(person.noise, News.START):
            return
        hours = person.quiet if person.quiet is not None else self._chat.settings.quiet_hours
        self._chat.say(
            to.chat, to.person, draft.html, draft.rows, job_id=notice.job_id, reply_to=to.message, topic=to.topic,
            silent=draft.silent or is_quiet(hours, clock.now(), zone_of(person)), notice_id=notice.id,
            at=notice.created_at, picture=draft.picture,
        )  # fmt: skip

    # -- in which words ----------------------------------------------------------------------------

    async def _draft(self, notice: Notice) -> Draft:
        payload, form = self._presentable(notice.payload), form_of(notice.payload)
        context = await self._context_of(notice)
        if form is None or (form.to is To.SUBMITTER and not isinstance(context, JobContext)):
            return self._in_few_words(notice)
        plot = _plot(payload, context)
        picture = Picture(plot, form.caption(payload, context)) if plot and form.caption else None
        news, silent = form.news(payload), form.silent(payload)
        return Draft(form.text(payload, context), form.buttons(payload, context), picture, news, silent)

    def _presentable(self, payload: Payload | Unknown) -> Payload | Unknown:
        """Return the payload without secrets in the error line that it quotes, or without the line."""
        if not isinstance(payload, Paused | GoesOn) or payload.error is None:
            return payload
        job = self._chat.queue.jobs.get(payload.jobs[-1]) if payload.jobs else None
        if job is None or not self._chat.settings.log_text:
            return replace(payload, error=None)
        return replace(payload, error=self._chat.redactor_for(job).ends(payload.error))

    def _in_few_words(self, notice: Notice) -> Draft:
        form = form_of(notice.payload)
        news, silent = (form.news(notice.payload), form.silent(notice.payload)) if form else (News.TROUBLE, False)
        return Draft(job_notices.in_few_words(notice, self._chat.settings.box), [], None, news, silent)

    def _job(self, notice: Notice) -> Job | None:
        return self._chat.queue.jobs.get(notice.job_id) if notice.job_id is not None else None

    def _context(self) -> NoticeContext:
        return NoticeContext(**self._of_box())

    def _of_box(self) -> dict[str, Any]:
        indices = views.indices_of(self._chat.queue.view.gpus())
        return {"box": self._chat.settings.box, "indices": indices, "name_of": self._chat.name_of}

    async def _context_of(self, notice: Notice) -> NoticeContext:
        payload, job = notice.payload, self._job(notice)
        if isinstance(payload, GroupDone):
            return await self._context_of_group(payload.group)
        if job is None:
            return self._context()
        more: dict[str, Any] = {"quoted": self._chat.threads.get(job.id) is not None}
        if isinstance(payload, Ended | TrialFailed):
            more["output"] = await _output_of(self._chat, job, payload)
            if payload.attempt == job.attempt:
                far = self._chat.queue.view.progress(job)
                more["probe"] = self._chat.probe_of(job)
                more["progress"] = progress_words(far, clock.now(), ended=True, metrics=self._chat.settings.log_text)
        return JobContext(**self._of_box(), job=self._chat.shown(job), **more)

    async def _context_of_group(self, name: str) -> GroupContext:
        """Read the results of a finished group; none if it is no longer stored."""
        if self._chat.queue.groups.get(name) is None:
            return GroupContext(**self._of_box(), results=groups.compared((), {}, None))
        results = await results_of(self._chat, name)
        return GroupContext(**self._of_box(), results=results, standing=groups.standing(self._chat.queue, name))


async def _output_of(chat: Chat, job: Job, end: AttemptEnd) -> JobOutput:
    """Return the part of an attempt's output that says why it failed, without secrets; empty if it cannot be read."""
    if not end.attempt:
        return NO_OUTPUT
    try:
        if end.reason in STOPPED_BY_WATCHDOG and (evidence := chat.queue.view.evidence(job.id)):
            return JobOutput(str(evidence["text"]), evidence=evidence)
        if not chat.settings.log_text:
            return NO_OUTPUT
        output, redactor = chat.queue.view.log(job.id, end.attempt), chat.redactor_for(job)
        return await asyncio.to_thread(_excerpt, output, redactor, end)
    except Exception:  # the message goes out without it
        log.exception("the output of job %s cannot be shown", job.id)
        return NO_OUTPUT


def _excerpt(output: Log, redactor: Redactor, end: AttemptEnd) -> JobOutput:
    text = log_excerpt.presentable(output.tail(log_excerpt.LOG_BYTES), redactor)
    wandb_link = log_excerpt.wandb_link
    link = wandb_link(text) or wandb_link(log_excerpt.presentable(output.head(HEAD_BYTES), redactor))
    if end.state is State.SUCCEEDED:
        is_short = end.duration_s is not None and end.duration_s <= SOON_OVER_S  # its output is what was asked for
        last = log_excerpt.collapsed(text.strip().split("\n"))[-LAST_LINES:] if is_short else []
        return JobOutput("\n".join(last), link)
    return JobOutput(log_excerpt.what_matters(text, limit=EXCERPT_UNITS, stopped=end.state is State.CANCELLED), link)


def _plot(payload: Payload | Any, context: NoticeContext) -> dict[str, Any] | None:
    """Return what to draw for a notice, or None."""
    if isinstance(payload, IdleWarning):
        return plots.of_idleness(payload.to_json())
    if isinstance(context, JobContext):
        return plots.of_idleness(context.output.evidence)
    return plots.of_results(context.results) if isinstance(context, GroupContext) and context.standing else None


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
    return [part for bundle in bundles for part in ([bundle] if len(bundle) >= MANY else [[each] for each in bundle])]


def _canceller(notice: Notice) -> str | None:
    """Return who or what cancelled a job before it started; None for any other notice."""
    payload = notice.payload
    return payload.by if isinstance(payload, Ended) and not payload.attempt else None


def is_quiet(hours: tuple[int, int] | tuple[()] | None, now: datetime, zone: tzinfo | None = None) -> bool:
    """Return whether it is now within these quiet hours, in minutes since midnight in this zone, or the box's."""
    if not hours:
        return False
    here = now.astimezone(zone)
    minute, (begin, end) = here.hour * 60 + here.minute, hours
    return begin <= minute < end if begin <= end else minute >= begin or minute < end
