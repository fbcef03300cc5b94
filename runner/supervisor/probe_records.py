"""The records of a batch search: what the runner orders, what the supervisor reports, what is remembered for later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner import rundir
from runner.batch import BatchPlan, MemoryHistory
from runner.commands.argv import JobCommand
from runner.config.profiles import Profile
from runner.model import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROFILE = ("probe_args", "batch_arg", "run_id_arg")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryKind(Record):
    """The kind of job that a measurement holds for, and the GPU that it was made on."""

    key: str | None = None  # None: it cannot be told which other jobs are of this kind
    gpu: str | None = None
    total_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedMemory(Record):
    """What earlier jobs of a kind needed, and for which version of their code that holds."""

    version: str | None = None
    known: MemoryHistory

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        return {"version": self.version, "known": self.known.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RememberedMemory:
        """Build it from the output of to_json."""
        return cls(version=data.get("version"), known=MemoryHistory.from_json(data["known"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOrder(Record):
    """Tells a supervisor how to find the batch of an attempt: the `probe` of spec.json."""

    plan: BatchPlan
    known: RememberedMemory | None = None
    about: MemoryKind = MemoryKind()
    command: JobCommand
    values: dict[str, str] = field(default_factory=dict)  # of the placeholders that do not depend on the batch
    placed: tuple[str, ...] = ()  # placeholders in the command
    profile: Profile
    effective: int | None = None  # the batch over all GPUs and accumulation steps
    words: tuple[str, ...] = ()
    readings: str  # the file that the sampler writes
    gpus: dict[str, int | None]  # MiB used before the attempt; None: it shares that GPU

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        return {
            **super(ProbeOrder, self).to_json(),
            "plan": self.plan.to_json(),
            "known": self.known.to_json() if self.known else None,
            "about": self.about.to_json(),
            "command": self.command.to_json(),
            "profile": {name: getattr(self.profile, name) for name in _PROFILE},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeOrder:
        """Build an order from the output of to_json."""
        profile = {name: data["profile"][name] for name in _PROFILE if name in data["profile"]}
        records = {
            "plan": BatchPlan.from_json(data["plan"]),
            "known": RememberedMemory.from_json(data["known"]) if data.get("known") else None,
            "about": MemoryKind.from_json(data.get("about") or {}),
            "command": JobCommand.from_json(data["command"]),
            "profile": Profile(**{**profile, "probe_args": tuple(profile.get("probe_args", ()))}),
        }
        return super(ProbeOrder, cls).from_json({**data, **records})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport(Record):
    """How far a batch search is, or what it found: probe.json, and the same in the database."""

    run_id: str = ""
    plan: BatchPlan
    version: str | None = None  # of the code
    about: MemoryKind = MemoryKind()
    edited: bool = False  # the job was edited since, so that the result no longer holds

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        return {**super(ProbeReport, self).to_json(), "plan": self.plan.to_json(), "about": self.about.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeReport:
        """Build a report from the output of to_json."""
        records = {"plan": BatchPlan.from_json(data["plan"]), "about": MemoryKind.from_json(data.get("about") or {})}
        return super(ProbeReport, cls).from_json({**data, **records})


def read_report(folder: str) -> ProbeReport | None:
    """Read probe.json. Return None if it is missing or incomplete."""
    data = rundir.read(folder, rundir.PROBE)
    return ProbeReport.from_json(data) if data and "plan" in data else None
