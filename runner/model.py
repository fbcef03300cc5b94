"""The words of the project as frozen data. Knows nothing but itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class State(str, Enum):
    """Where a job is on its way."""

    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"

    @property
    def final(self) -> bool:
        """True for the states a job never leaves. A rerun is a new job."""
        return self in FINAL_STATES

    @property
    def live(self) -> bool:
        """True while an attempt holds its GPUs."""
        return self in LIVE_STATES


FINAL_STATES = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.LOST})
LIVE_STATES = frozenset({State.STARTING, State.RUNNING})


class Reason(str, Enum):
    """Why a job is in its final state."""

    EXIT = "EXIT"
    SIGNAL = "SIGNAL"
    OOM = "OOM"
    SPAWN = "SPAWN"
    USER = "USER"
    IDLE = "IDLE"
    HUNG = "HUNG"
    TIMEOUT = "TIMEOUT"
    DEPENDENCY = "DEPENDENCY"
    PREEMPTED = "PREEMPTED"
    HOST = "HOST"
    SUPERVISOR = "SUPERVISOR"


class Phase(str, Enum):
    """What a RUNNING job is doing."""

    PROBING = "probing"
    RUNNING = "running"
    STOPPING = "stopping"


class Priority(str, Enum):
    """Which of two waiting jobs goes first."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"

    @property
    def rank(self) -> int:
        """Higher goes first."""
        return {"low": -1, "normal": 0, "high": 1}[self.value]


T = TypeVar("T")


def _from_json(cls: type[T], data: Mapping[str, Any]) -> T:
    """Build a record from JSON, leaving out what a newer version may have added."""
    known = _names_of(cls)  # type: ignore[arg-type]
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known})


@cache
def _names_of(cls: type) -> frozenset[str]:
    """Asked for every job that is read, of which there may be a hundred thousand."""
    return frozenset(f.name for f in fields(cls))


def _to_json(record: Any) -> dict[str, Any]:
    """A record of plain values; `asdict` would copy every one of them, at twenty times the cost."""
    return {name: getattr(record, name) for name in record.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What was asked for. Changes only while the job waits, but for its time limit, which may be extended."""

    command: str  # as given; an argument list is shown shell-quoted
    argv: tuple[str, ...] | None = None  # an exact argument list instead of shell text
    script: bool = False  # command is a whole file; its first line may name an interpreter
    owner: str
    name: str | None = None
    workspace: str | None = None
    dir: str
    snapshot: dict[str, Any] | None = None  # the copy of its code, as runner.snapshot.code_copy writes it; {}: wanted
    environment: str  # key of the captured environment in the store
    env: dict[str, str] = field(default_factory=dict)  # --env, on top of the captured one
    env_file: str | None = None  # read when the job starts, so that its secrets are never copied
    umask: int = 0o022
    gpus: int = 1
    on: tuple[str, ...] = ()  # indices or UUIDs
    gpu_type: str | None = None  # a part of their name
    gpu_mem_mib: int | None = None  # that it needs on each of them
    cpus: int = 0
    ram_mib: int = 0
    time_limit_s: float | None = None
    begin_at: str | None = None  # not before; ISO 8601, UTC
    after_ok: tuple[int, ...] = ()  # jobs that must have succeeded
    after: tuple[int, ...] = ()  # jobs that must have ended
    priority: Priority = Priority.NORMAL
    preemptible: bool = False
    group: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)  # of a sweep: the values in its command
    again_of: int | None = None  # the job of which this is a plain rerun
    retries: int = 0
    retry_on: tuple[str, ...] = ()  # reasons; none named: when it is lost
    stop_grace_s: float | None = None
    idle: str | None = None  # when it counts as idle, as runner.idle writes it; None is the box's own rule
    hung: str | None = None
    probe: dict[str, Any] | None = None  # how its batch is to be found, as runner.api.probe_options writes it

    def to_json(self) -> dict[str, Any]:
        """Everything, in JSON's own types."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobSpec:
        """The inverse of to_json."""
        return _from_json(cls, {**data, "priority": Priority(data.get("priority", "normal"))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A stop was asked for: data on the job, not a state."""

    reason: Reason
    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as the queue knows it."""

    id: int
    spec: JobSpec
    state: State
    reason: Reason | None = None
    phase: Phase | None = None
    exit_code: int | None = None
    signal: int | None = None
    attempt: int = 0
    gpus: tuple[str, ...] = ()  # UUIDs held by the latest attempt
    batch_size: int | None = None
    run_id: str
    submitted_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    stop: Stop | None = None
    position: float = 0  # among the waiting of its priority, the smallest first
    held_by: str | None = None  # who keeps it from starting while it waits
    begin_at: datetime | None = None  # it does not start before: its own time, or a retry's
    retries_left: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a job, with a run directory of its own."""

    job_id: int
    number: int
    gpus: tuple[str, ...]
    claimed_at: datetime
    boot_id: str
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact about a job or the box, written once."""

    id: int
    job_id: int | None
    attempt: int | None
    at: datetime
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An event that somebody is to be told about."""

    id: int
    job_id: int | None
    kind: str
    data: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """What the supervisor saw of an attempt's end: the content of exit.json."""

    exit_code: int | None = None
    signal: int | None = None
    spawn_error: str | None = None  # it could not be executed at all
    stopped: bool = False  # the stop had begun before the main process ended
    timed_out: bool = False  # ... because the time limit was reached
    started_at: str
    finished_at: str
    duration_s: float
    output_bytes: int = 0
    dropped_bytes: int = 0  # output that found no room on the disk
    strays: int = 0  # processes that outlived the main one and had to be ended
    cpu_s: float = 0.0
    max_rss_mib: float = 0.0
    run_s: float | None = None  # without the probes before it
    host_kills: int = 0  # by the kernel, for want of memory, in its control group or else on the host while it ran
    enforced: tuple[str, ...] = ()  # limits that the kernel kept: cpu, memory

    def to_json(self) -> dict[str, Any]:
        """Everything, in JSON's own types."""
        return _to_json(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Exit:
        """The inverse of to_json."""
        return _from_json(cls, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process the driver says is using a GPU. Its pid may be of another PID namespace."""

    pid: int
    memory_mib: int | None = None
    utilization: int | None = None  # its part in the GPU's load; told only where several share it


class GpuHealth(str, Enum):
    """How far a GPU can be trusted, by the driver's own word."""

    OK = "ok"
    LOST = "lost"  # fell off the bus; stays lost until a reset
    UNKNOWN = "unknown"  # no reading now; neither free nor dead
    UNSUPPORTED = "unsupported"  # e.g. split by MIG: listed, not scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU at one moment, as the sampler saw it. None means unknown, never zero."""

    index: int
    uuid: str
    name: str | None = None
    health: GpuHealth = GpuHealth.OK
    detail: str | None = None  # one sentence about a health other than ok
    memory_total_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_used_mib: int | None = None
    unified: bool = False  # it has no memory of its own: it uses the host's, and tells nothing of it
    utilization: int | None = None
    utilization_supported: bool = True  # False: this GPU never tells
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    compute_mode: int | None = None  # NVML's number: 0 default, 2 prohibited, 3 one process
    processes: tuple[GpuProcess, ...] | None = None
    sampled_at: float = 0.0  # time.monotonic(), the same clock in every process of a host

    def to_json(self) -> dict[str, Any]:
        """Everything, in JSON's own types."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Gpu:
        """The inverse of to_json."""
        listed = data.get("processes")
        processes = None if listed is None else tuple(GpuProcess(**p) for p in listed)
        return _from_json(cls, {**data, "health": GpuHealth(data["health"]), "processes": processes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All GPUs at one moment: what the sampler publishes."""

    at: str  # ISO 8601, UTC
    boot_id: str
    simulated: bool
    gpus: tuple[Gpu, ...]
    driver: str | None = None  # driver version
    trouble: str | None = None  # why telemetry as a whole is missing or starts are held; None when all is well
    answers: int | None = None  # the number of the request this snapshot was taken for

    def to_json(self) -> dict[str, Any]:
        """Everything, in JSON's own types."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Snapshot:
        """The inverse of to_json."""
        return _from_json(cls, {**data, "gpus": tuple(Gpu.from_json(g) for g in data["gpus"])})
