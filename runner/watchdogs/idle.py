"""Watches running jobs: warns about jobs that leave their GPUs idle, stops them, and finds jobs that look hung.

`runner.idle` decides. This module feeds it with readings and acts on its verdicts.
Whether a job was warned about is in its database row. The readings are kept in memory and saved every few seconds.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from runner import clock, rundir
from runner.errors import UserError
from runner.gpu.attribution import own_load
from runner.idle import hung_rule, stall_rule
from runner.idle.idle_rule import IdleAction, IdleVerdict, Window, evidence, read_own, summary
from runner.idle.policy import parse_policy
from runner.model import Reason, State
from runner.notices import IdleWarning
from runner.processes import linux
from runner.progress.pace import Progress
from runner.step import Step
from runner.store.box import BoxKey
from runner.store.watchdog_state import Watches
from runner.supervisor.log_reader import Log
from runner.text.words import short_time
from runner.watchdogs.hung import HungWatch, Suspect, Told

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import TypeVar

    from runner.model import Gpu, Job, Ref
    from runner.step import Context
    from runner.store.scheduling_queries import UnderWay
    from runner.store.watchdog_state import Keep, Watched

    T = TypeVar("T")

log = logging.getLogger(__name__)

ACTOR = "the idle watch"
SAVE_EVERY_S, SHORTEST_SAVE_S = 5.0, 0.9  # the shorter one saves every reading, as there is one per second
SHOWN_SAMPLES = 120


@dataclass(slots=True)
class WatchedJob:
    """What is known about one live job."""

    attempt: int
    gpus: tuple[str, ...]
    window: Window | None
    suspect: Suspect
    own_idle: bool = False  # the job has an idle rule of its own, which wins over its counter
    own_hung: bool = False
    progress: Progress | None = None  # the last that was known
    printed_at: float = math.inf  # when the job last printed, monotonic clock; inf: not looked yet
    stopping: bool = False
    why: str | None = None  # the latest verdict, for people
    saved: str = ""  # what was saved last
    read_at: float = -math.inf  # when the last reading was taken, monotonic clock

    @property
    def counter(self) -> stall_rule.Standstill | None:
        """Return since when the job's counter stands still; None if it has no counter of real work."""
        return stall_rule.standstill(self.progress, self.printed_at, self.suspect.moving.at)


class IdleWatch(Step):
    """Watches all live jobs that have GPUs."""

    def __init__(self, context: Context) -> None:
        self._context, self._settings, self._jobs = context, context.settings, context.jobs
        self._notices, self._box = context.notices, context.box
        self._watches, self._boot_id = Watches(context.store), linux.boot_id()
        self._hung = HungWatch(context, self._watches)
        self._watched: dict[int, WatchedJob] = {}
        self._without_gpus: set[tuple[int, int]] = set()  # jobs and attempts without GPUs, which need no second look-up
        self._unsure = False
        self._save_at = 0.0

    # -- starting and ending watches ---------------------------------------------------------------

    def tick(self) -> None:
        """Watch the jobs that run now. Warn about them and stop them where the rules say so."""
        self._follow()
        self._judge()

    def _follow(self) -> None:
        """Go on where an earlier runner stopped. Drop the jobs that have ended."""
        rows = {row.id: row for row in self._context.live()}
        if self._unsure:
            self._go_by_what_is_written()
        for job_id in [job_id for job_id, watch in self._watched.items() if not _is_of(watch, rows.get(job_id))]:
            del self._watched[job_id]
            self._watches.end(job_id)
        live = {(row.id, row.attempt) for row in rows.values()}
        self._without_gpus &= live
        new = {job_id for job_id, _ in live - self._without_gpus if _is_watched(rows[job_id])}
        self._take_up(new - self._watched.keys())
        for job_id, watch in self._watched.items():
            watch.stopping = rows[job_id].stop_reason is not None

    def _take_up(self, job_ids: Iterable[int]) -> None:
        running = [job for job_id in job_ids if (job := self._jobs.get(job_id)) and job.state is State.RUNNING]
        self._without_gpus |= {(job.id, job.attempt) for job in running if not job.gpus}
        with_gpus = [job for job in running if job.gpus]
        rows = self._watches.of([job.id for job in with_gpus]) if with_gpus else {}
        for job in with_gpus:
            row = rows.get(job.id)
            self._watched[job.id] = self._taken_up(job, row if row and row.attempt == job.attempt else None)

    def _taken_up(self, job: Job, row: Watched | None) -> WatchedJob:
        """Return the watch over a job; `row` is what an earlier runner saved of this attempt."""
        policy = self._rule(job, job.spec.idle, self._settings.idle, parse_policy)
        hung_policy = self._rule(job, job.spec.hung, self._settings.hung, hung_rule.parse_policy)
        watch = WatchedJob(
            job.attempt,
            job.gpus,
            None,
            Suspect(hung_policy),
            own_idle=bool(job.spec.idle),
            own_hung=bool(job.spec.hung),
        )
        if row is not None:
            self._go_on(watch, row)
        if (watch.window.policy if watch.window else None) != policy:  # the watch begins, or the box's rule has changed
            began = _monotonic_start(job) if job.spec.probe is None else time.monotonic()
            watch.window = Window(policy, job.gpus, began) if policy else None
        watch.saved = self._state(watch)
        if row is None:
            self._watches.begin(job.id, job.attempt, watch.saved)
        return watch

    def _rule(self, job: Job, own: str | None, general: str, parse: Callable[[str], T]) -> T:
        try:
            return parse(own or general)
        except UserError as error:  # the rule was checked at submission, maybe by another version
            log.error("job %s goes by the rule of the box: %s", job.id, error)
            return parse(general)

    def _go_on(self, watch: WatchedJob, row: Watched) -> None:
        try:
            state = row.state
            window = _with_told(state["window"], row) if state["window"] else None
            watch.window = Window.from_json(window, self._boot_id) if window else None
            watch.suspect = Suspect.from_json(watch.suspect.policy, state["hung"], self._boot_id)
            boot_id, progress = state.get("progress") or ("", {})
            watch.progress = Progress.from_json(progress) if boot_id == self._boot_id else None
        except (KeyError, TypeError, ValueError):  # written by another version: start from nothing
            watch.window, watch.suspect, watch.progress = None, Suspect(watch.suspect.policy), None

    def rolled_back(self) -> None:
        """Keep the readings and decide again: the last decisions were not saved."""
        self._unsure = True

    def _go_by_what_is_written(self) -> None:
        rows = self._watches.of(self._watched)
        for job_id, watch in list(self._watched.items()):
            row = rows.get(job_id)
            if row is None or row.attempt != watch.attempt:
                del self._watched[job_id]
                continue
            told = (row.state.get("hung") or {}).get("told")
            watch.suspect.told, watch.saved = Told(*told) if told else None, ""
            if watch.window is not None:
                state = _with_told(watch.window.to_json(self._boot_id), row)
                watch.window = Window.from_json(state, self._boot_id)
        self._unsure = False
        self._save_at = 0.0

    # -- the readings ------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the latest values of all watched jobs' GPUs."""
        by_uuid, shared = self._context.gpus(), self._shared()
        running = {ref.job_id: ref for ref in self._context.running}
        for job_id, watch in self._watched.items():
            own = [by_uuid[uuid] for uuid in watch.gpus if uuid in by_uuid]
            if own and max(gpu.sampled_at for gpu in own) > watch.read_at:
                self._read_one(job_id, watch, own, shared, running.get(job_id))

    def _read_one(self, job_id: int, watch: WatchedJob, own: list[Gpu], shared: set[str], ref: Ref | None) -> None:
        watch.read_at = max(gpu.sampled_at for gpu in own)
        if watch.window is not None:
            percent = watch.window.policy.threshold_percent
            reading = read_own(
                own, watch.gpus, threshold_percent=percent, shared=shared,
                by_process=_by_process(own, ref), asleep_s=linux.asleep_s(),
            )  # fmt: skip
            if reading is not None:
                watch.window.take(reading)
        pulse, silent_s = _pulse(own, watch.gpus, shared), self._silent_s(job_id, watch)
        watch.printed_at = watch.read_at - silent_s
        if progress := self._context.progress(job_id):
            watch.progress = replace(progress, metrics={})
        rests = bool(watch.counter and watch.window and watch.window.idle_since is not None)
        moved_bytes = partial(self._context.engine.moved_bytes, ref) if ref else None
        watch.suspect.take(pulse, silent_s, moved_bytes, rests=rests)

    def _silent_s(self, job_id: int, watch: WatchedJob) -> float:
        folder = rundir.folder_of(self._settings.home, job_id, watch.attempt)
        grew = Log(folder).last_grew()
        # a job that never printed, maybe because it writes to a file of its own, does not count as silent
        return max(0.0, time.time() - grew) if grew is not None else 0.0

    def _shared(self) -> set[str]:
        """Return the GPUs that more than one of our jobs uses."""
        held = Counter(uuid for watch in self._watched.values() for uuid in watch.gpus)
        return {uuid for uuid, count in held.items() if count > 1}

    # -- verdicts ----------------------------------------------------------------------------------

    def _judge(self) -> None:
        if not self._watched:
            return
        now, rows = time.monotonic(), self._watches.of(self._watched)
        for job_id, watch in self._watched.items():
            if watch.stopping:
                continue
            keep_until = self._keep_until(rows[job_id].keep, now)
            if watch.window is not None:
                self._judge_idle(job_id, watch, watch.window, rows[job_id], now, keep_until)
            kept = keep_until is not None and now < keep_until
            counter = None if watch.own_hung else watch.counter
            if self._hung.judge(job_id, watch.suspect, now, kept=kept, counter=counter, seen=self._seen(watch)):
                self.leave()
        if now >= self._save_at:
            self.leave()

    def leave(self) -> None:
        """Save the state of each watch."""
        for job_id, watch in self._watched.items():
            if (state := self._state(watch)) != watch.saved:
                self._watches.save(job_id, state)
                watch.saved = state
        self._save_at = time.monotonic() + self._save_every_s()

    def _save_every_s(self) -> float:
        """Return how often to save: often enough that a quick restart of the runner leaves no gap in the readings."""
        gaps = [watch.window.policy.gap_s for watch in self._watched.values() if watch.window]
        return max(SHORTEST_SAVE_S, min([SAVE_EVERY_S, *(gap / 3 for gap in gaps)]))

    def _state(self, watch: WatchedJob) -> str:
        state = {
            "window": watch.window.to_json(self._boot_id) if watch.window else None,
            "hung": watch.suspect.to_json(self._boot_id),
            "progress": [self._boot_id, watch.progress.to_json()] if watch.progress else None,
            "why": watch.why,
        }
        return json.dumps(state)

    def _judge_idle(
        self,
        job_id: int,
        watch: WatchedJob,
        window: Window,
        row: Watched,
        now: float,
        keep_until: float | None,
    ) -> None:
        counter = None if watch.own_idle else watch.counter
        verdict = window.judge(
            now,
            keep_until=keep_until,
            warn_before_s=self._settings.idle_warning,
            counter=counter,
            advancing_s=self._settings.idle_advancing,
        )
        watch.why = _joined(self._in_words(window, verdict), self._seen(watch), "; ")
        if verdict.action is IdleAction.KEEP:
            if row.warning is not None:
                self._watches.warned(job_id, None, None)
                self.leave()
        elif verdict.action is IdleAction.WARN:
            if window.is_news(verdict):
                self._warn(job_id, window, verdict, verdict.stop_in_s or 0.0)
        elif self._may_stop(job_id, window, verdict, row, now):
            self._stop(job_id, window, verdict)

    def _keep_until(self, keep: Keep | None, now: float) -> float | None:
        """Return until when somebody wants the job left alone, on this boot's monotonic clock. None: nobody does."""
        if keep is None:
            return None
        until_at = clock.moment(keep.until_at)
        if keep.until is None or until_at is None:
            return math.inf
        return keep.until if keep.boot_id == self._boot_id else now + (until_at - clock.now()).total_seconds()

    def _in_words(self, window: Window, verdict: IdleVerdict) -> str:
        if not verdict.idle:
            return verdict.why
        left = round((verdict.stop_in_s or 0.0) / window.policy.period_s)
        return f"{summary(verdict.idle, window.policy, self._names())}, of {len(verdict.idle) + left}"

    def _seen(self, watch: WatchedJob) -> str:
        """Return what is known of the job's counter; "" if it has none."""
        progress = watch.progress
        if progress is None or progress.advanced_at is None or watch.counter is None:
            return ""
        now = clock.now()
        since = now - timedelta(seconds=time.monotonic() - progress.advanced_at)
        return stall_rule.in_words(progress, short_time(since, now))

    def _warn(self, job_id: int, window: Window, verdict: IdleVerdict, stop_in_s: float) -> None:
        evidence = self._evidence(job_id, window, verdict)
        stops_at = clock.text(clock.now() + timedelta(seconds=stop_in_s))
        notice = self._notices.add(IdleWarning.from_json({**evidence, "stops_at": stops_at}), job_id)
        self._jobs.note(job_id, None, "idle warning", {"why": evidence["why"], "stops_at": stops_at})
        self._watches.warned(job_id, notice, evidence)
        self.leave()
        log.info("job %s: %s; it is stopped at %s", job_id, evidence["why"], stops_at)

    def _may_stop(self, job_id: int, window: Window, verdict: IdleVerdict, row: Watched, now: float) -> bool:
        """Return whether to stop the job now. If its warning is not delivered, wait one more idle window at most."""
        if row.put_off_until is not None:
            self._hurry(job_id, window, verdict, row, now)
            return now >= row.put_off_until
        if row.warning is None or self._box.get(BoxKey.BOT_ID) is None or self._notices.has_arrived(row.warning):
            return True
        self._watches.put_off(job_id, now + window.policy.window_s)
        self._jobs.note(job_id, None, "stop put off", {"why": "nobody could be warned"})
        return False

    def _hurry(self, job_id: int, window: Window, verdict: IdleVerdict, row: Watched, now: float) -> None:
        """If a late warning has now been delivered, warn again and stop after the usual warning time instead."""
        lead_s = self._settings.idle_warning
        lead_s = window.policy.window_s / 2 if lead_s is None else lead_s
        if row.put_off_until is None or row.put_off_until - now <= lead_s or row.warning is None:
            return
        if self._notices.has_arrived(row.warning):
            self._warn(job_id, window, verdict, lead_s)
            self._watches.put_off(job_id, now + lead_s)

    def _stop(self, job_id: int, window: Window, verdict: IdleVerdict) -> None:
        job = self._jobs.get(job_id)
        if job is None:
            return
        evidence = self._evidence(job_id, window, verdict)
        self._watches.judged(job_id, evidence)
        self._jobs.ask_to_stop(job, Reason.IDLE, ACTOR)
        self.leave()
        log.info("job %s is stopped: %s", job_id, evidence["why"])

    def _evidence(self, job_id: int, window: Window, verdict: IdleVerdict) -> dict[str, Any]:
        names, seen = self._names(), self._seen(self._watched[job_id])
        shown = window.samples[-SHOWN_SAMPLES:]
        last = shown[-1].at if shown else 0.0
        return {
            "why": _joined(summary(verdict.idle, window.policy, names), seen, "; "),
            "text": _joined(evidence(shown, verdict, window.policy, names), seen, "\n"),
            "threshold_percent": window.policy.threshold_percent,
            "gpus": [names.get(uuid, uuid) for uuid in window.gpus],
            "samples": [[round(s.at - last, 1), *(s.percent.get(uuid) for uuid in window.gpus)] for s in shown],
        }

    def _names(self) -> dict[str, str]:
        return {gpu.uuid: str(gpu.index) for gpu in self._context.gpus().values()}


def _joined(said: str, more: str, by: str) -> str:
    return f"{said}{by}{more}" if more else said


def _is_watched(row: UnderWay) -> bool:
    """Return whether to watch it: from its real run on. A probe or a trial may wait for its data or for memory."""
    return row.started_at is not None and not row.probing and not row.untried


def _is_of(watch: WatchedJob, row: UnderWay | None) -> bool:
    return row is not None and row.attempt == watch.attempt


def _with_told(window: Mapping[str, Any], row: Watched) -> dict[str, Any]:
    """Take from the row whether the job was warned about, because others change the row too."""
    return {**window, "told": [] if row.warning is None else [IdleAction.WARN.value]}


def _monotonic_start(job: Job) -> float:
    """Return when the job started, on the monotonic clock."""
    ran_s = (clock.now() - job.started_at).total_seconds() if job.started_at else 0.0
    return time.monotonic() - max(0.0, ran_s)


def _by_process(gpus: Iterable[Gpu], ref: Ref | None) -> dict[str, float]:
    """Return an attempt's own share of the load on GPUs that other processes use too, if the driver reports it."""
    if ref is None:
        return {}
    loads = {gpu.uuid: own_load(gpu, ref.mark) for gpu in gpus if len(gpu.processes or ()) > 1}
    return {uuid: float(load) for uuid, load in loads.items() if load is not None}


def _pulse(gpus: Collection[Gpu], own: tuple[str, ...], shared: set[str]) -> hung_rule.Pulse:
    """Combine the readings of all GPUs of a job. On a GPU shared with another job, they count as unknown."""
    loads = {gpu.uuid: (gpu.utilization, gpu.power_w, gpu.power_limit_w) for gpu in gpus if gpu.uuid not in shared}
    return hung_rule.pulse(max(gpu.sampled_at for gpu in gpus), [loads.get(uuid, (None, None, None)) for uuid in own])
