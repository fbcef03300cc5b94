"""The project's data types: frozen records and enums. Imports nothing from the project."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class State(str, Enum):
    """Where a job is in its life."""

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


class Memory(str, Enum):
    """A kind of memory that a job can run out of."""

    GPU = "gpu"
    HOST = "host"

    @property
    def ran_out(self) -> str:
        """Return the words that people read when it ran out."""
        return "the GPU ran out of memory" if self is Memory.GPU else "the machine ran out of memory"


class Phase(str, Enum):
    """What a RUNNING job is doing."""

    TRYING = "trying"
    PROBING = "probing"
    RUNNING = "running"
    STOPPING = "stopping"


class Priority(str, Enum):
    """A job's priority in the queue."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"

    @property
    def rank(self) -> int:
        """Return a number that is higher for the job that goes first."""
        return {"low": -1, "normal": 0, "high": 1}[self.value]


R = TypeVar("R", bound="Record")


class Record:
    """A dataclass that crosses a process border as JSON. Each version reads what other versions have written."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Return all fields. Values are not copied: `asdict` would cost twenty times as much."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls: type[R], data: Mapping[str, Any]) -> R:
        """Build a record from JSON. Ignore fields that a newer version may have added."""
        names = cls.__dataclass_fields__
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in names})


class Ref(NamedTuple):
    """One attempt, on whatever host it runs."""

    job_id: int
    attempt: int
    run_id: str

    @property
    def mark(self) -> str:
        """Return its name in the environment of its processes."""
        return f"{self.job_id}.{self.attempt}.{self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(Record):
    """What was asked for. It changes only while the job is queued, except the time limit, which may be extended."""

    command: str  # as given; an argument list is shown shell-quoted
    argv: tuple[str, ...] | None = None  # an exact argument list instead of shell text
    script: bool = False  # command is a whole file; its first line may name an interpreter
    terminal: bool = False  # it has a terminal, and ends when nobody sees it any more
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
    gpu_type: str | None = None  # a part of the GPU's name
    gpu_mem_mib: int | None = None  # free memory it needs on each GPU
    cpus: int = 0
    ram_mib: int = 0
    time_limit_s: float | None = None
    begin_at: str | None = None  # earliest start; ISO 8601, UTC
    after_ok: tuple[int, ...] = ()  # jobs that must have succeeded
    after: tuple[int, ...] = ()  # jobs that must have ended
    priority: Priority = Priority.NORMAL
    preemptible: bool = False
    trial: bool = False  # run it for a short time first, as soon as there is room
    group: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)  # of a sweep: the values in this job's command
    again_of: int | None = None  # the job that this one repeats unchanged
    retries: int = 0
    retry_on: tuple[str, ...] = ()  # reasons to retry; empty: only if the job is lost
    stop_grace_s: float | None = None
    idle: str | None = None  # when it counts as idle, as runner.idle writes it; None: the box's rule
    hung: str | None = None
    progress: str | None = None  # a pattern of its own for how far it is
    log: str | None = None  # a file it writes itself, from which progress is read
    stop_on: str | None = None  # rules about its metrics, as runner.progress.stop_rules writes them
    probe: dict[str, Any] | None = None  # how to find its batch size, as runner.api.specs writes it
    slurm: dict[str, str] = field(default_factory=dict)  # partition, account, qos, constraint

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobSpec:
        """Build a spec from the output of to_json."""
        return super(JobSpec, cls).from_json({**data, "priority": Priority(data.get("priority", "normal"))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A request to stop a job. It is data on the job, not a state."""

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
    position: float = 0  # order among the queued jobs of its priority, smallest first
    held_by: str | None = None  # who holds it in the queue
    begin_at: datetime | None = None  # earliest start: as submitted, or set by a retry
    retries_left: int = 0
    memory: Memory | None = None  # which memory it ran out of; None if the reason is not OOM, or in older queues
    untried: bool = False  # its attempt, the next one or the one that runs, is only a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit(Record):
    """How an attempt ended, as its supervisor saw it: the content of exit.json."""

    run_id: str = ""
    exit_code: int | None = None
    signal: int | None = None
    spawn_error: str | None = None  # why the program could not be executed at all
    stopped: bool = False  # the stop had begun before the main process ended
    timed_out: bool = False  # ... because the time limit was reached
    hung_up: bool = False  # nobody came to its terminal, or the client left it
    started_at: str
    finished_at: str
    duration_s: float
    output_bytes: int = 0
    dropped_bytes: int = 0  # output that did not fit on the disk
    strays: int = 0  # processes that outlived the main one and had to be killed
    cpu_s: float = 0.0
    max_rss_mib: float = 0.0
    run_s: float | None = None  # without the time of its probes
    host_kills: int = 0  # out-of-memory kills by the kernel: in its control group, or else on the whole host
    enforced: tuple[str, ...] = ()  # limits that the kernel enforced: cpu, memory
    # the runner adds these, after reading the output of a failed attempt
    memory: str | None = None  # which memory ran out: gpu or host
    error: str | None = None  # the line that says why it failed


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess(Record):
    """A process that uses a GPU, as the driver reports it. Its pid may belong to another PID namespace."""

    pid: int
    memory_mib: int | None = None
    utilization: int | None = None  # its share of the GPU's load; only given if several processes share the GPU
    of: str | None = None  # the mark of the attempt that it belongs to; None if it is not ours, or not known to be


class GpuHealth(str, Enum):
    """Whether a GPU can be used, as the driver reports it."""

    OK = "ok"
    LOST = "lost"  # fell off the bus; stays lost until a reset
    UNKNOWN = "unknown"  # no reading now; neither free nor dead
    UNSUPPORTED = "unsupported"  # e.g. split by MIG: listed, not scheduled


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu(Record):
    """One GPU at one moment, as the sampler read it. None means unknown, never zero."""

    index: int
    uuid: str
    name: str | None = None
    health: GpuHealth = GpuHealth.OK
    detail: str | None = None  # one sentence about a health that is not ok
    memory_total_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_used_mib: int | None = None
    unified: bool = False  # it has no memory of its own, uses the host's, and does not report how much
    utilization: int | None = None
    utilization_supported: bool = True  # False: this GPU never reports it
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    compute_mode: int | None = None  # NVML's number: 0 default, 2 prohibited, 3 one process
    processes: tuple[GpuProcess, ...] | None = None
    sampled_at: float = 0.0  # time.monotonic(), the same clock in every process of a host
    node: str | None = None  # the host that it is in; None: this one

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        processes = None if self.processes is None else [process.to_json() for process in self.processes]
        return {**Record.to_json(self), "health": self.health.value, "processes": processes}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Gpu:
        """Build a GPU from the output of to_json."""
        listed = data.get("processes")
        processes = None if listed is None else tuple(GpuProcess.from_json(p) for p in listed)
        return super(Gpu, cls).from_json({**data, "health": GpuHealth(data["health"]), "processes": processes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Record):
    """All GPUs at one moment, as the sampler publishes them."""

    at: str  # ISO 8601, UTC
    boot_id: str
    simulated: bool
    gpus: tuple[Gpu, ...]
    driver: str | None = None  # driver version
    trouble: str | None = None  # why no GPU can be read or no job may start; None when all is well
    answers: int | None = None  # the number of the request that this sample answers

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        return {**Record.to_json(self), "gpus": [gpu.to_json() for gpu in self.gpus]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Snapshot:
        """Build a snapshot from the output of to_json."""
        return super(Snapshot, cls).from_json({**data, "gpus": tuple(Gpu.from_json(g) for g in data["gpus"])})
