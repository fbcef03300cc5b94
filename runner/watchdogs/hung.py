"""Acts on jobs that look hung: warns their owners in time to answer, and stops some of them.

`runner.idle.hung_rule` decides what looks hung. This module looks for other signs of life, sends notices, and stops.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.gpu.availability import GpuStates, start_rules
from runner.idle import hung_rule
from runner.model import Reason
from runner.notices import LooksHung
from runner.schedule.choice import choose
from runner.store.box import BoxKey, box_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.idle.stall_rule import Standstill
    from runner.model import Snapshot
    from runner.step import Context
    from runner.store.watchdog_state import Watches

log = logging.getLogger(__name__)

ACTOR = "the watch over hung jobs"
LOOKS_AFTER_S = 60.0  # a job that printed more recently needs no other sign of life
MOVES_BYTES = 1 << 20  # like a checkpoint being written or uploaded; a hung job only exchanges heartbeats
_NOBODY_THERE: dict[str, Any] = {"utilization": 0, "memory_used_mib": 0, "processes": ()}


@dataclass(slots=True)
class Moving:
    """Whether a job's processes read or write. GPUs may wait at 100 % while one process saves a checkpoint."""

    at: float = -math.inf  # when they last did, monotonic clock
    _looked_at: float = -math.inf
    _bytes: int = 0

    def look(self, now: float, moved_bytes: Callable[[], int | None]) -> None:
        """Every few seconds, look how many bytes the job's processes have read and written."""
        if now - self._looked_at < hung_rule.EVERY_S or (moved := moved_bytes()) is None:
            return
        in_a_row = now - self._looked_at < 3 * hung_rule.EVERY_S
        if in_a_row and moved - self._bytes >= MOVES_BYTES:
            self.at = now
        self._looked_at, self._bytes = now, moved


@dataclass(frozen=True, slots=True)
class Told:
    """The notice that a job looks hung, and the stop it announced."""

    notice: int
    stop_at: float | None = None  # earliest time of the stop, monotonic clock; None: no stop
    put_off: bool = False  # the stop was delayed once, because the notice was not delivered


@dataclass(slots=True)
class Suspect:
    """What is known about whether one live job is hung."""

    policy: hung_rule.HungPolicy
    pulses: hung_rule.Pulses = field(default_factory=hung_rule.Pulses)
    moving: Moving = field(default_factory=Moving)
    told: Told | None = None

    def take(
        self,
        pulse: hung_rule.Pulse,
        silent_s: float,
        moved_bytes: Callable[[], int | None] | None,
        *,
        rests: bool = False,
    ) -> None:
        """Take a reading. `silent_s`: seconds since the job last printed. `moved_bytes`: what its processes moved.

        `rests`: its GPUs are idle, and it has a counter. They may wait for a checkpoint too.
        """
        spins = pulse.percent is not None and pulse.percent >= hung_rule.SPINNING_PERCENT
        if (spins or rests) and silent_s >= LOOKS_AFTER_S and moved_bytes is not None:
            self.moving.look(pulse.at, moved_bytes)
        if self.policy.action is hung_rule.HungAction.OFF:
            return
        self.pulses.take(pulse, min(silent_s, pulse.at - self.moving.at), self.policy)

    def to_json(self, boot_id: str) -> dict[str, Any]:
        """Return everything that another runner needs to continue."""
        told = [self.told.notice, self.told.stop_at, self.told.put_off] if self.told else None
        moved_at = None if self.moving.at == -math.inf else self.moving.at
        return {"pulses": self.pulses.to_json(boot_id), "told": told, "moved_at": moved_at}

    @classmethod
    def from_json(cls, policy: hung_rule.HungPolicy, data: Mapping[str, Any], boot_id: str) -> Suspect:
        """Build a suspect from the output of to_json. After a reboot, start from nothing."""
        if data["pulses"]["boot_id"] != boot_id:
            return cls(policy)
        moving = Moving(-math.inf if data["moved_at"] is None else data["moved_at"])
        told = Told(*data["told"]) if data["told"] else None
        return cls(policy, hung_rule.Pulses.from_json(data["pulses"], boot_id), moving, told)


class HungWatch:
    """Judges suspects. Call every method in a transaction."""

    def __init__(self, context: Context, watches: Watches) -> None:
        self._context, self._jobs, self._notices = context, context.jobs, context.notices
        self._box, self._line, self._watches = context.box, context.line, watches

    def judge(
        self,
        job_id: int,
        suspect: Suspect,
        now: float,
        *,
        kept: bool,
        counter: Standstill | None = None,
        seen: str = "",
    ) -> bool:
        """Warn about the job, stop it, or do nothing. Return whether there is something new to save.

        `counter`: since when the job's own counter stands still. `seen`: the same in words.
        """
        before = suspect.told
        if kept:
            suspect.told = None
            suspect.pulses.since.clear()  # from now on, only a new silence of full length counts
            return before is not None
        policy = hung_rule.with_counter(suspect.policy, counter)
        early, whole = (
            hung_rule.judge(suspect.pulses, policy, policy.alert_s),
            hung_rule.judge(suspect.pulses, policy),
        )
        warn_s = policy.silent_s - policy.alert_s
        is_excused = counter is not None and now < counter.stops_at(suspect.policy.silent_s) - warn_s
        if is_excused or not early.hung:
            suspect.told = None
        elif _may_be_stopped(policy, early):
            self._warn(job_id, suspect, policy, _with_seen(early.why, seen), now)
            if whole.hung and self._is_due(job_id, suspect, now):
                self._stop(job_id, _with_seen(whole.why, seen))
        elif whole.hung and suspect.told is None:
            suspect.told = Told(self._tell(job_id, LooksHung(why=_with_seen(whole.why, seen))))
        return suspect.told != before

    def _warn(self, job_id: int, suspect: Suspect, policy: hung_rule.HungPolicy, why: str, now: float) -> None:
        if suspect.told is not None and suspect.told.stop_at is not None:
            return
        in_s = policy.silent_s - policy.alert_s
        stops_at = clock.text(clock.now() + timedelta(seconds=in_s))
        yields = policy.action is hung_rule.HungAction.YIELD
        suspect.told = Told(self._tell(job_id, LooksHung(why=why, stops_at=stops_at, yields=yields)), now + in_s)

    def _tell(self, job_id: int, warning: LooksHung) -> int:
        self._jobs.note(job_id, None, "looks hung", warning.to_json())
        log.info("job %s %s", job_id, warning.why)
        return self._notices.add(warning, job_id)

    def _is_due(self, job_id: int, suspect: Suspect, now: float) -> bool:
        """Return whether to stop it now: the time has come, the notice arrived, and for `yield` another job waits."""
        told = suspect.told
        if told is None or told.stop_at is None or now < told.stop_at:
            return False
        if suspect.policy.action is hung_rule.HungAction.YIELD and not self._is_in_the_way(job_id):
            return False
        if told.put_off or self._box.get(BoxKey.BOT_ID) is None or self._notices.has_arrived(told.notice):
            return True
        suspect.told = Told(told.notice, now + suspect.policy.silent_s, put_off=True)
        return False

    def _is_in_the_way(self, job_id: int) -> bool:
        """Return whether a queued job would start if this one were gone, and would not start anyway."""
        if self._box.any(BoxKey.PAUSED, BoxKey.DRAINING):
            return False
        leaving = {job.id for job in self._line.running() if job.stopping}
        return bool(self._served(leaving | {job_id}) - self._served(leaving))

    def _served(self, gone: set[int]) -> set[int]:
        """Return the jobs that would start, or for which others would be preempted, if these jobs were gone."""
        running = self._line.running()
        left = {uuid for job in running if job.id in gone for uuid in job.gpus}
        leases = [lease for lease in self._line.leases() if lease.job_id not in gone]
        rooms = [
            replace(room, node=name)
            for name, node in self._context.nodes().items()
            if node.snapshot
            for room in GpuStates((_without(node.snapshot, left), 0.0), leases, start_rules(self._box)).rooms()
        ]
        waiting = [job for job in self._line.waiting(sum(room.slots for room in rooms)) if job.request.gpus]
        others = [job for job in running if job.id not in gone]
        plan = choose(waiting, rooms, (), others, box_limits(self._context.store), explain=False)
        return {start.job_id for start in plan.starts} | {preemption.for_id for preemption in plan.preemptions}

    def _stop(self, job_id: int, why: str) -> None:
        job = self._jobs.get(job_id)
        if job is None:
            return
        self._watches.judged(job_id, {"why": why, "text": why})
        self._jobs.ask_to_stop(job, Reason.HUNG, ACTOR)
        log.info("job %s is stopped: %s", job_id, why)


def _with_seen(why: str, seen: str) -> str:
    return f"{why}; {seen}" if seen else why


def _without(snapshot: Snapshot, left: set[str]) -> Snapshot:
    """Return a reading as it would be if all jobs had left these GPUs."""
    gpus = (replace(gpu, **_NOBODY_THERE) if gpu.uuid in left else gpu for gpu in snapshot.gpus)
    return replace(snapshot, gpus=tuple(gpus))


def _may_be_stopped(policy: hung_rule.HungPolicy, verdict: hung_rule.HungVerdict) -> bool:
    return policy.action is hung_rule.HungAction.KILL or (policy.action is hung_rule.HungAction.YIELD and verdict.plain)
