"""The runner's part in finding batch sizes: what it tells a supervisor to do, and what it does with the result."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.batch import BatchPlan, MemoryHistory, OutOfMemory, Run, budget_mib, summary
from runner.commands import job_kinds
from runner.commands.placeholders import names_in
from runner.config.profiles import Profile
from runner.engines import attempt_spec
from runner.gpu import published
from runner.gpu.attribution import holders
from runner.model import GpuHealth, State
from runner.store.measurements import KnownBatches
from runner.supervisor.probe_records import MemoryKind, ProbeOrder, ProbeReport, RememberedMemory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.batch.oom import MemoryShortage
    from runner.config.settings import Settings
    from runner.model import Exit, Gpu, Job
    from runner.step import Context

NEIGHBOURS_MIB = 512  # less is a desktop or a monitoring tool
NEIGHBOURS_PART = 0.05  # of the memory, if no processes are listed: some drivers count reserved memory as used
SEEN_EVERY_S = 4.0  # if a run was read less often, its peak may have been missed


class Probes:
    """Prepares attempts whose batch is searched, and remembers what they found."""

    def __init__(self, context: Context) -> None:
        self._context, self._settings, self._jobs = context, context.settings, context.jobs
        self._known = KnownBatches(context.store)

    # -- before an attempt -----------------------------------------------------------------------------------------

    def order(
        self, job: Job, attempt: int, variables: Mapping[str, str], before_mib: Mapping[str, int]
    ) -> ProbeOrder | None:
        """Return what the supervisor needs for the batch search, or None for a job that is not probed.

        `before_mib`: the memory used before the job came, for each GPU that it has alone.
        """
        options = job.spec.probe
        if options is None:
            return None
        command, profile = attempt_spec.command_of(job), _profile(options, self._settings)
        gpus = self._gpus(job.gpus)
        kind = self._kind(job, gpus, variables, profile)
        return ProbeOrder(
            plan=self._plan(job, attempt, profile, gpus, before_mib),
            known=None if options.get("no_cache") else self._known.get(kind.key),
            about=kind,
            command=command,
            values={"job_id": str(job.id)},
            placed=names_in(command, ("batch_size", "run_id")),
            profile=profile,
            effective=options.get("effective"),
            words=tuple(job_kinds.words_of(job.spec.command, job.spec.argv)),
            readings=os.path.join(self._settings.home, published.FILE),
            gpus={uuid: before_mib.get(uuid) for uuid in job.gpus},
        )

    def _gpus(self, uuids: tuple[str, ...]) -> list[Gpu]:
        by_uuid = self._context.gpus()
        return [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]

    def _kind(self, job: Job, gpus: list[Gpu], variables: Mapping[str, str], profile: Profile) -> MemoryKind:
        models = {gpu.name for gpu in gpus}
        gpu = models.pop() if len(models) == 1 else None
        key = job_kinds.key(
            words=job_kinds.words_of(job.spec.command, job.spec.argv), folder=job.spec.dir, version="", gpu=gpu,
            gpus=len(job.gpus), env={**variables, **job.spec.env}, batch_arg=profile.batch_arg,
            run_id_arg=profile.run_id_arg,
        )  # fmt: skip
        totals = [gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib is not None]
        return MemoryKind(key=key, gpu=gpu, total_mib=min(totals, default=0))

    def _plan(
        self, job: Job, attempt: int, profile: Profile, gpus: list[Gpu], before_mib: Mapping[str, int]
    ) -> BatchPlan:
        settings = profile.settings()
        if self._context.engine.can.places:  # the GPU is not known yet: the node plans, from its first reading
            report = self._jobs.probe(job.id, attempt - 1)
            again = report is not None and not report.edited and isinstance(report.plan.step, Run)
            return report.plan if report is not None and again else BatchPlan.start(settings, 1.0)
        if unified := next((gpu for gpu in gpus if gpu.unified), None):
            unmeasurable = f"GPU {unified.index} has no memory of its own, so that of a batch cannot be measured"
            return BatchPlan.unprobed(settings, 0, unmeasurable)
        if len(gpus) < len(job.gpus) or any(_budget(gpu, 1) is None for gpu in gpus):
            return BatchPlan.unprobed(settings, 0, "the memory of its GPU is unknown")
        budget = float(min(_budget(gpu, self._settings.slots_per_gpu) or 0 for gpu in gpus))
        if (earlier := self._earlier_plan(job, attempt, gpus, budget)) is not None:
            return earlier
        if why := next((why for gpu in gpus if gpu.uuid in before_mib and (why := _neighbours(gpu))), None):
            return BatchPlan.unprobed(settings, budget, why)
        return BatchPlan.start(settings, budget)

    def _earlier_plan(self, job: Job, attempt: int, gpus: list[Gpu], budget: float) -> BatchPlan | None:
        """Return the plan of an earlier attempt at the same job, if it still holds."""
        report = self._jobs.probe(job.id, attempt - 1)
        if report is None or report.edited or {gpu.name for gpu in gpus} != {report.about.gpu}:
            return None
        plan = replace(report.plan, budget_mib=budget)
        fits = (plan.expected_mib or 0.0) <= budget
        return plan if isinstance(plan.step, Run) and fits else None

    # -- during it -------------------------------------------------------------------------------------------------

    def begun(self, job: Job, report: ProbeReport) -> None:
        """Record the start of the real run, and remember what was measured for other jobs of its kind."""
        plan = report.plan
        assert isinstance(plan.step, Run)
        self._jobs.probed(job, report, plan.step.batch, summary(plan, report.about.total_mib))
        if not plan.restarts:
            self._remember(report, MemoryHistory.of(plan))

    # -- after it --------------------------------------------------------------------------------------------------

    def ended(self, job: Job, state: State, usage: Mapping[str, Any] | None, run_s: float) -> None:
        """Remember the peak of a real run that succeeded or was cancelled: it says more than a probe."""
        report = self._jobs.probe(job.id, job.attempt)
        peak = (usage or {}).get("peak_memory_mib")
        if report is None or not peak or state not in {State.SUCCEEDED, State.CANCELLED}:
            return
        history, step = self._history(report), report.plan.step
        if history is not None and isinstance(step, Run):
            whole = state is State.SUCCEEDED and (usage or {}).get("samples", 0) * SEEN_EVERY_S >= run_s
            self._remember(report, history.refined(step.batch, peak, whole=whole))

    def out_of_memory(
        self, job: Job, end: Exit, shortage: MemoryShortage, usage: Mapping[str, Any] | None
    ) -> Run | None:
        """Forget what was known after a real run ran out of memory. Return the next smaller run, or None to give up."""
        report = self._jobs.probe(job.id, job.attempt)
        if report is None or not isinstance(report.plan.step, Run):
            return None
        self._known.drop(report.about.key)
        peak = (usage or {}).get("peak_memory_mib")
        ran_s = end.run_s if end.run_s is not None else end.duration_s
        after = report.plan.after(OutOfMemory(peak, shortage.wanted_mib, ran_s))
        self._jobs.keep_probe(job, replace(report, plan=after))
        return after.step if isinstance(after.step, Run) else None

    def _history(self, report: ProbeReport) -> MemoryHistory | None:
        remembered = self._known.get(report.about.key)
        if remembered is not None and remembered.version == report.version:
            return remembered.known
        return MemoryHistory.of(report.plan)

    def _remember(self, report: ProbeReport, history: MemoryHistory | None) -> None:
        kind = report.about
        if history is not None and kind.key is not None and report.version is not None:
            self._known.put(kind.key, kind.gpu, RememberedMemory(version=report.version, known=history))


def _profile(options: Mapping[str, Any], settings: Settings) -> Profile:
    """Return the job's own options, on top of the box's settings."""
    box: dict[str, Any] = {
        "default": settings.probe_batch,
        "margin": settings.probe_margin / 100,
        "cap": settings.probe_cap,
        "round_to": settings.probe_round_to,
        "round_from": settings.probe_round_from,
        "limit_s": settings.probe_limit,
        "quiet_s": settings.probe_quiet,
    }
    return Profile.from_json({**box, **options})


def _budget(gpu: Gpu, slots: int) -> int | None:
    if gpu.health is not GpuHealth.OK or gpu.memory_total_mib is None or gpu.memory_used_mib is None:
        return None
    return budget_mib(gpu.memory_total_mib, gpu.memory_reserved_mib or 0, gpu.memory_used_mib, slots)


def _neighbours(gpu: Gpu) -> str | None:
    """Return why nothing can be measured beside the processes already on the GPU, or None."""
    listed = sum(process.memory_mib or 0 for process in gpu.processes or ())
    unlisted = 0 if gpu.processes else gpu.memory_used_mib or 0
    if listed < NEIGHBOURS_MIB and unlisted < max(NEIGHBOURS_MIB, NEIGHBOURS_PART * (gpu.memory_total_mib or 0)):
        return None
    return f"other processes use GPU {gpu.index}: {holders(gpu)}"
