"""The records of a batch search: what the runner orders, what the supervisor reports, what is remembered for later."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from runner import rundir
from runner.batch import BatchPlan, MemoryHistory
from runner.commands.placeholders import JobCommand
from runner.config.profiles import Profile
from runner.model import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

_PROFILE = ("probe_args", "batch_arg", "run_id_arg")

N = TypeVar("N", bound="_NestedRecord")


class _NestedRecord(Record):
    """A record with fields that are records."""

    __slots__ = ()
    RECORDS: ClassVar[Mapping[str, type[Record]]]  # the types of these fields, by name

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        values = super().to_json()
        return {name: value.to_json() if isinstance(value, Record) else value for name, value in values.items()}

    @classmethod
    def from_json(cls: type[N], data: Mapping[str, Any]) -> N:
        """Build it from the output of to_json. A field that is missing or null gets its default."""
        records = {name: kind.from_json(data[name]) for name, kind in cls.RECORDS.items() if data.get(name)}
        others = {name: value for name, value in data.items() if name not in cls.RECORDS}
        return super().from_json({**others, **records})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryKind(Record):
    """The kind of job that a measurement holds for, and the GPU that it was made on."""

    key: str | None = None  # None: it cannot be told which other jobs are of this kind
    gpu: str | None = None
    total_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedMemory(_NestedRecord):
    """What earlier jobs of a kind needed, and for which version of their code that holds."""

    RECORDS = MappingProxyType({"known": MemoryHistory})

    version: str | None = None
    known: MemoryHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOrder(_NestedRecord):
    """Tells a supervisor how to find the batch of an attempt: the `probe` of spec.json."""

    RECORDS = MappingProxyType(
        {"plan": BatchPlan, "known": RememberedMemory, "about": MemoryKind, "command": JobCommand}
    )

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
        profile = {name: getattr(self.profile, name) for name in _PROFILE}
        return {**super(ProbeOrder, self).to_json(), "profile": profile}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeOrder:
        """Build an order from the output of to_json."""
        profile = {name: data["profile"][name] for name in _PROFILE if name in data["profile"]}
        profile["probe_args"] = tuple(profile.get("probe_args", ()))
        return super(ProbeOrder, cls).from_json({**data, "profile": Profile(**profile)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport(_NestedRecord):
    """How far a batch search is, or what it found: probe.json, and the same in the database."""

    RECORDS = MappingProxyType({"plan": BatchPlan, "about": MemoryKind})

    run_id: str = ""
    plan: BatchPlan
    version: str | None = None  # of the code
    about: MemoryKind = MemoryKind()
    edited: bool = False  # the job was edited since, so that the result no longer holds


def read_report(folder: str) -> ProbeReport | None:
    """Read probe.json. Return None if it is missing or incomplete."""
    data = rundir.read(folder, rundir.PROBE)
    return ProbeReport.from_json(data) if data and "plan" in data else None
