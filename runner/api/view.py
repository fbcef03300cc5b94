"""Read the queue: jobs, the forecast, GPUs, output, evidence, usage, probes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from runner import clock
from runner.errors import UserError
from runner.gpu.availability import current_gpu_states
from runner.gpu.published import read_published
from runner.model import JobSpec, Phase, State
from runner.store.box import Box, BoxKey
from runner.store.jobs import Jobs
from runner.store.listing import Listing
from runner.store.measurements import Used
from runner.store.scheduling_queries import Line
from runner.store.watchdog_state import Watches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from runner.api.outlook import Foresight, Outlook
    from runner.api.waiting_reasons import WaitingReasons
    from runner.forecast.simulation import Length
    from runner.model import Job, Snapshot
    from runner.store.connection import Store
    from runner.store.durations import Known
    from runner.store.listing import Overview
    from runner.supervisor.log_reader import Log

RECENT = timedelta(hours=24)
_NO_ESTIMATE = dict.fromkeys(("estimated_start", "estimated_start_not_before", "estimated_start_not_after"))
_OF_SPEC = (
    "name", "command", "owner", "workspace", "dir", "snapshot", "priority", "gpus", "on", "gpu_type", "gpu_mem_mib",
    "cpus", "ram_mib", "time_limit_s", "begin_at", "after_ok", "after", "preemptible", "trial", "group", "parameters",
    "again_of", "slurm",
)  # fmt: skip
_OF_PROGRESS = ("position", "total", "unit", "rate", "eta_s", "eta_low_s", "eta_high_s", "metrics", "phase")
_EMPTY_SPEC = json.loads(json.dumps(JobSpec(command="", owner="", dir="", environment="").to_json()))


def described(row: Any, waiting_for: str | None, starts: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """Return everything that `ls --json` says about a job, from its row. Making a Job of it would take much longer."""
    spec = {**_EMPTY_SPEC, **json.loads(row["spec"])}
    stop = {"reason": row["stop_reason"], "by": row["stop_by"], "at": row["stop_at"]} if row["stop_reason"] else None
    return {
        "id": row["id"],
        **{"gpus_wanted" if name == "gpus" else name: spec[name] for name in _OF_SPEC},
        **{name: row[name] for name in ("state", "reason", "exit_code", "signal", "phase", "attempt")},
        "gpus": json.loads(row["gpus"]),
        **{name: row[name] for name in ("batch_size", "run_id", "submitted_at", "started_at", "finished_at")},
        "stop": stop,
        "held_by": row["held_by"],
        "waiting_for": waiting_for,
        "node": row["node"],
        "progress": _progress(row["progress"], row["attempt"]),
        **(starts or _NO_ESTIMATE),
    }


def _progress(stored: str | None, attempt: int) -> dict[str, Any] | None:
    """Return how far an attempt came, from what its row stores."""
    record = json.loads(stored) if stored else None
    return progress_json(record) if record and record["attempt"] == attempt else None


def progress_json(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how far an attempt is, with the keys of the JSON output; None if its output does not say."""
    progress = record["progress"]
    return {**{key: progress.get(key) for key in _OF_PROGRESS}, "at": record["at"]} if progress else None


class HasSpec(Protocol):
    """A job, or a preset."""

    @property
    def spec(self) -> JobSpec:
        """What was asked for."""


class View:
    """The jobs and GPUs of one state folder, for reading."""

    def __init__(self, folder: str, store: Store, reasons: WaitingReasons, job: Callable[[int], Job]) -> None:
        self._home, self._store, self._reasons, self._job = folder, store, reasons, job
        self._jobs, self._box, self._used = Jobs(store), Box(store), Used(store)
        self._line, self._watches = Line(store), Watches(store)
        self._foresight: Foresight | None = None

    def describe(self, jobs: Iterable[Job]) -> list[dict[str, Any]]:
        """Return jobs as dicts with the keys of the JSON output, ordered by number."""
        return list(self.describe_rows(Listing(self._store).rows_of([job.id for job in jobs])))

    def describe_rows(self, rows: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """Yield the same from the rows of jobs, one by one."""
        reasons = self._reasons.of_rows(rows)
        starts = self.outlook().described() if reasons else {}
        for row in rows:
            job = described(row, reasons.get(row["id"]), starts.get(row["id"]))
            if row["state"] == State.RUNNING.value:
                job["progress"] = self.live_progress(row["id"], row["attempt"])
            yield job

    def progress(self, job: Job) -> dict[str, Any] | None:
        """Return how far a job is, or how far it came; None if that is unknown."""
        if job.state is State.RUNNING:
            return self.live_progress(job.id, job.attempt)
        [row] = Listing(self._store).rows_of([job.id])
        return _progress(row["progress"], row["attempt"])

    def live_progress(self, job_id: int, attempt: int) -> dict[str, Any] | None:
        """Return how far a running attempt is, as the process that reads its output last wrote it."""
        from runner import rundir

        record = rundir.read(rundir.folder_of(self._home, job_id, attempt), rundir.PROGRESS)
        return progress_json(record) if record else None

    def folder_of(self, job: Job) -> str:
        """Return the run directory of a job's latest attempt. Its progress is moved there whenever it is written."""
        from runner import rundir

        return rundir.folder_of(self._home, job.id, job.attempt)

    def outlook(self) -> Outlook:
        """Return the forecast: when queued jobs start, and when the queue is empty."""
        if self._foresight is None:
            from runner.api.outlook import Foresight  # imported only when needed

            self._foresight = Foresight()
        if self._box.get(BoxKey.ENGINE) is not None:  # others' jobs decide when ours start
            from runner.api.outlook import Outlook
            from runner.forecast.estimates import Forecast

            return Outlook(clock.now(), Forecast())
        leases = self._line.leases()
        rooms = current_gpu_states(self._home, self._box, leases).rooms()
        cpu_slots = int(self._box.get(BoxKey.CPU_SLOTS, 1))
        stands_still = self._reasons.why_nothing_starts() is not None
        return self._foresight.outlook(
            self._store, rooms, cpu_slots, leases, stands_still=stands_still, read_left=self._left
        )

    def _left(self) -> dict[int, Length]:
        """Return how long running jobs still take, as far as their output says that."""
        now = clock.now()
        left: dict[int, Length] = {}
        if not (rows := self._jobs.under_way()):
            return left
        from runner.forecast.simulation import Length
        from runner.text.progress_words import is_sure, seconds_left

        for row in rows:
            seconds = seconds_left(self.live_progress(row.id, row.attempt) or {}, now)
            if seconds and seconds[2] > 0:  # one that should be over takes nobody knows how long
                low_s, about_s, high_s = (max(one, 0.0) for one in seconds)
                left[row.id] = Length(about_s, about_s) if is_sure(seconds) else Length(low_s, high_s)
        return left

    def takes(self, job_id: int) -> Known:
        """Return what is known about how long a job takes."""
        from runner.store.durations import Durations

        return Durations(self._store).of([job_id])[job_id]

    def when_empty(self) -> dict[str, Any] | None:
        """Return the command due because the queue is empty, with `due_at` (None while paused); None without one."""
        due = self._box.get(BoxKey.WHEN_EMPTY)
        return None if due is None or due["cancelled_by"] or due["ran_at"] else dict(due)

    def snapshot(self) -> tuple[Snapshot, float] | None:
        """Return the last known state of the GPUs and its age in seconds; None if there is none."""
        return read_published(self._home)

    def gpus(self) -> list[dict[str, Any]]:
        """Return the GPUs as dicts for the JSON output; values that are unknown or out of date are None."""
        return current_gpu_states(self._home, self._box, self._line.leases()).described()

    def log(self, job_id: int, attempt: int | None = None) -> Log:
        """Return the output of a job's latest attempt, or of the given one."""
        job = self._job(job_id)
        number = attempt or job.attempt
        if number == 0:
            raise UserError(f"Job {job_id} has not started yet: there is no output.")
        from runner import rundir
        from runner.supervisor.log_reader import Log

        return Log(rundir.folder_of(self._home, job_id, number))

    def evidence(self, job_id: int) -> dict[str, Any] | None:
        """Return the watchdogs' evidence against a job; None if there is none."""
        watch = self._watches.of([job_id]).get(job_id)
        return watch.evidence if watch else None

    def watched(self, job_id: int) -> dict[str, Any] | None:
        """Return what the watchdogs last stored about a job, and who kept it; None if nothing is stored."""
        watch = self._watches.of([job_id]).get(job_id)
        if watch is None:
            return None
        keep = {"by": watch.keep.by, "until": watch.keep.until_at} if watch.keep else None
        return {"idle": watch.state.get("why"), "kept": keep, "evidence": watch.evidence}

    def usage(self, job_id: int) -> dict[str, Any] | None:
        """Return the GPU usage of the latest attempt, so far or in total; None if unknown."""
        return self._used.of(job_id, self._job(job_id).attempt)

    def probe(self, job_id: int) -> dict[str, Any] | None:
        """Return how the batch of the latest attempt was found, or how far the probing is; None without a probe."""
        job = self._job(job_id)
        if job.spec.probe is None or not job.attempt:
            return None
        from runner import rundir
        from runner.batch import bars, detail, summary
        from runner.supervisor.probe_records import read_report

        if job.phase is Phase.PROBING:
            report = read_report(rundir.folder_of(self._home, job.id, job.attempt))
        else:
            report = self._jobs.probe(job.id, job.attempt)
        if report is None:
            return None
        plan = report.plan
        used = (self._used.of(job.id, job.attempt) or {}).get("peak_memory_mib") if job.state.final else None
        return {
            "said": summary(plan, report.about.total_mib, used, over=job.state.final),
            "detail": detail(plan),
            "bars": bars(plan) if plan.points or plan.line else [],
            "batch": plan.batch,
            "points": [list(point) for point in plan.points],
            "line": list(plan.line) if plan.line else None,
            "expected_mib": plan.expected_mib,
            "margin": plan.settings.margin,
            "budget_mib": plan.budget_mib,
            "too_large": plan.too_large,
            "seconds": plan.probed_s,
            "restarts": plan.restarts,
        }

    def environment_of(self, job: HasSpec) -> dict[str, str]:
        """Return the environment variables of a job, as far as they can be read now. They may contain secrets."""
        return {**self._jobs.environment(job.spec.environment), **self.env_file_of(job), **job.spec.env}

    def env_file_of(self, job: HasSpec) -> dict[str, str]:
        """Return the variables from a job's env file, which is where secrets belong; empty if it cannot be read."""
        from runner.config.env_file import read_env_file

        try:
            return read_env_file(job.spec.env_file) if job.spec.env_file else {}
        except UserError:
            return {}

    def overview(self) -> Overview:
        """Count jobs that are ready, not ready, live, and that ended in the last 24 hours."""
        return Listing(self._store).overview(clock.text(clock.now() - RECENT))
