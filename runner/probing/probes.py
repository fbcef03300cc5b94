"""The runner's part in finding batch sizes: what it tells a supervisor to do, and what it does with the result."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.batch import Known, OutOfMemory, Plan, Run, budget_mib, summary
from runner.commands import memory_kind
from runner.commands.argv import names_in
from runner.config.profiles import Profile
from runner.engines import attempt_spec
from runner.gpu import published
from runner.gpu.attribution import holders
from runner.model import GpuHealth, State
from runner.store.batch_memory import KnownBatches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.batch.oom import Found
    from runner.config.settings import Settings
    from runner.gpu.telemetry import Telemetry
    from runner.model import Exit, Gpu, Job
    from runner.store.connection import Store
    from runner.store.jobs import Jobs

NEIGHBOURS_MIB = 512  # less is a desktop or a monitoring tool
NEIGHBOURS_PART = 0.05  # of the memory, if no processes are listed: some drivers count reserved memory as used
SEEN_EVERY_S = 4.0  # if a run was read less often, its peak may have been missed
_PROFILE = ("probe_args", "batch_arg", "run_id_arg", "default", "margin", "round_to", "round_from", "round_loss",
            "cap", "limit_s", "quiet_s")  # fmt: skip


class Probes:
    """Prepares attempts whose batch is searched, and remembers what they found."""

    def __init__(self, settings: Settings, store: Store, jobs: Jobs, telemetry: Telemetry) -> None:
        self._settings, self._jobs, self._telemetry = settings, jobs, telemetry
        self._known = KnownBatches(store)

    # -- before an attempt -----------------------------------------------------------------------------------------

    def order(
        self, job: Job, attempt: int, variables: Mapping[str, str], before_mib: Mapping[str, int]
    ) -> dict[str, Any] | None:
        """Return what the supervisor needs for the batch search, or None for a job that is not probed.

        `before_mib`: the memory used before the job came, for each GPU that it has alone.
        """
        asked = job.spec.probe
        if asked is None:
            return None
        command, profile = attempt_spec.command_of(job), _profile(asked, self._settings)
        gpus = self._gpus(job.gpus)
        about = self._about(job, gpus, variables, profile)
        known = None if asked.get("no_cache") else self._known.get(about["key"])
        return {
            "plan": self._plan(job, attempt, profile, gpus, before_mib).to_json(),
            "known": known,
            "about": about,
            "command": command,
            "values": {"job_id": str(job.id)},
            "placed": names_in(command, ("batch_size", "run_id")),
            "profile": {
                "probe_args": list(profile.probe_args),
                "batch_arg": profile.batch_arg,
                "run_id_arg": profile.run_id_arg,
            },
            "effective": asked.get("effective"),
            "words": memory_kind.words_of(job.spec.command, job.spec.argv),
            "readings": os.path.join(self._settings.home, published.FILE),
            "gpus": {uuid: before_mib.get(uuid) for uuid in job.gpus},
        }

    def _gpus(self, uuids: tuple[str, ...]) -> list[Gpu]:
        snapshot = self._telemetry.snapshot
        by_uuid = {gpu.uuid: gpu for gpu in (snapshot.gpus if snapshot else ())}
        return [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]

    def _about(self, job: Job, gpus: list[Gpu], variables: Mapping[str, str], profile: Profile) -> dict[str, Any]:
        models = {gpu.name for gpu in gpus}
        gpu = models.pop() if len(models) == 1 else None
        key = memory_kind.key(
            words=memory_kind.words_of(job.spec.command, job.spec.argv), folder=job.spec.dir, version="", gpu=gpu,
            gpus=len(job.gpus), env={**variables, **job.spec.env}, batch_arg=profile.batch_arg,
            run_id_arg=profile.run_id_arg,
        )  # fmt: skip
        totals = [gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib is not None]
        return {"key": key, "gpu": gpu, "total_mib": min(totals, default=0)}

    def _plan(self, job: Job, attempt: int, profile: Profile, gpus: list[Gpu], before_mib: Mapping[str, int]) -> Plan:
        assert job.spec.probe is not None
        settings = profile.settings(own=job.spec.probe.get("own"))
        if unified := next((gpu for gpu in gpus if gpu.unified), None):
            said = f"GPU {unified.index} has no memory of its own but the host's, so that of a batch cannot be measured"
            return Plan.unprobed(settings, 0, said)
        if len(gpus) < len(job.gpus) or any(_budget(gpu, 1) is None for gpu in gpus):
            return Plan.unprobed(settings, 0, "how much memory its GPU has is not known")
        budget = float(min(_budget(gpu, self._settings.slots_per_gpu) or 0 for gpu in gpus))
        before = self._before(job, attempt, gpus, budget)
        if before is not None:
            return before
        if why := next((why for gpu in gpus if gpu.uuid in before_mib and (why := _neighbours(gpu))), None):
            return Plan.unprobed(settings, budget, why)
        return Plan.start(settings, budget)

    def _before(self, job: Job, attempt: int, gpus: list[Gpu], budget: float) -> Plan | None:
        """Return the plan of an earlier attempt at the same job, if it still holds."""
        record = self._jobs.probe(job.id, attempt - 1)
        if record is None or record.get("edited") or {gpu.name for gpu in gpus} != {record["about"]["gpu"]}:
            return None
        plan = replace(Plan.from_json(record["plan"]), budget_mib=budget)
        fits = (plan.expected_mib or 0.0) <= budget
        return plan if isinstance(plan.step, Run) and fits else None

    # -- during it -------------------------------------------------------------------------------------------------

    def begun(self, job: Job, record: Mapping[str, Any]) -> None:
        """Record the start of the real run, and remember what was measured for other jobs of its kind."""
        plan = Plan.from_json(record["plan"])
        assert isinstance(plan.step, Run)
        about = record["about"]
        self._jobs.probed(job, record, plan.step.batch, summary(plan, about["total_mib"]))
        found = Known.of(plan) if not plan.restarts else None
        if found is not None:
            self._remember(record, found)

    # -- after it --------------------------------------------------------------------------------------------------

    def ended(self, job: Job, state: State, usage: Mapping[str, Any] | None, run_s: float) -> None:
        """Remember the peak of a real run that succeeded or was cancelled: it says more than a probe."""
        record = self._jobs.probe(job.id, job.attempt)
        peak = (usage or {}).get("peak_memory_mib")
        if record is None or not peak or state not in {State.SUCCEEDED, State.CANCELLED}:
            return
        plan, known = Plan.from_json(record["plan"]), self._known_of(record)
        if known is not None and isinstance(plan.step, Run):
            whole = state is State.SUCCEEDED and (usage or {}).get("samples", 0) * SEEN_EVERY_S >= run_s
            self._remember(record, known.refined(plan.step.batch, peak, whole=whole))

    def out_of_memory(self, job: Job, end: Exit, found: Found, usage: Mapping[str, Any] | None) -> Run | None:
        """Forget what was known after a real run ran out of memory. Return the next smaller run, or None to give up."""
        record = self._jobs.probe(job.id, job.attempt)
        if record is None:
            return None
        plan = Plan.from_json(record["plan"])
        if not isinstance(plan.step, Run):
            return None
        self._known.drop(record["about"]["key"])
        peak = (usage or {}).get("peak_memory_mib")
        after = plan.after(OutOfMemory(peak, found.wanted_mib, end.run_s if end.run_s is not None else end.duration_s))
        self._jobs.keep_probe(job, {**record, "plan": after.to_json()})
        return after.step if isinstance(after.step, Run) else None

    def _known_of(self, record: Mapping[str, Any]) -> Known | None:
        kept = self._known.get(record["about"]["key"])
        if kept is not None and kept["version"] == record["version"]:
            return Known.from_json(kept["known"])
        return Known.of(Plan.from_json(record["plan"]))

    def _remember(self, record: Mapping[str, Any], known: Known) -> None:
        about = record["about"]
        if about["key"] is not None and record["version"] is not None:
            body = {"version": record["version"], "known": known.to_json()}
            self._known.put(about["key"], about["gpu"], body)


def _profile(asked: Mapping[str, Any], settings: Settings) -> Profile:
    """Return what was asked for, on top of the box's settings."""
    general: dict[str, Any] = {
        "default": settings.probe_batch,
        "margin": settings.probe_margin / 100,
        "cap": settings.probe_cap,
        "round_to": settings.probe_round_to,
        "round_from": settings.probe_round_from,
        "limit_s": settings.probe_limit,
        "quiet_s": settings.probe_quiet,
    }
    said = {name: asked[name] for name in _PROFILE if name in asked}
    said["probe_args"] = tuple(said.get("probe_args", ()))
    return Profile(**{**general, **said})


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
    return f"others are on GPU {gpu.index}: {holders(gpu)}"
