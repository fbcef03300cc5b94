"""The kinds of notices, and what each of them says. Pure.

The value of a kind and the names of the fields are stored. A field that an older version did not write has its default.
Times are ISO 8601 in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from runner.model import Reason, State

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from typing_extensions import Self


class NoticeKind(str, Enum):
    """What a notice is about."""

    STARTED = "started"
    ENDED = "ended"
    REQUEUED = "requeued"
    TRIAL_FAILED = "trial failed"
    IDLE_WARNING = "idle warning"
    LOOKS_HUNG = "looks hung"
    TIME_WARNING = "time warning"
    BAD_METRIC = "bad metric"
    GROUP_DONE = "group done"
    PAUSED = "paused"
    GOES_ON = "goes on"
    DRAINED = "drained"
    QUEUE_EMPTY = "queue empty"
    WHEN_EMPTY_RAN = "when empty ran"
    GPU_LOST = "gpu lost"
    GPU_BACK = "gpu back"
    GPU_HELD = "gpu held"
    DISK_LOW = "disk low"
    DISK_BACK = "disk back"
    BACKUP_FAILING = "backup failing"
    BACKUP_BACK = "backup back"
    NO_RUNNER = "no runner"
    RUNNER_BACK = "runner back"
    NEW_QUEUE = "new queue"
    QUEUE_RESTORED = "queue restored"


@dataclass(frozen=True, kw_only=True)
class Payload:
    """What a notice of one kind says."""

    kind: ClassVar[NoticeKind]

    def __init_subclass__(cls, *, kind: NoticeKind | None = None) -> None:
        if kind is not None:
            cls.kind = kind
            PAYLOADS[kind] = cls

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build a payload from stored data. Ignore unknown fields, and take defaults for those that are missing."""
        names = {field.name for field in fields(cls)}
        values = {name: value for name, value in data.items() if name in names and value is not None}
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


PAYLOADS: dict[str, type[Payload]] = {}  # by kind; the subclasses add themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A notice that a newer version wrote, or whose data cannot be read."""

    kind: str
    data: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the data as it was stored."""
        return dict(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An event that somebody is to be told about."""

    id: int
    job_id: int | None
    payload: Payload | Unknown
    created_at: datetime

    @property
    def kind(self) -> NoticeKind | str:
        """Return what it is about. It is plain text if this version does not know it."""
        return self.payload.kind


# -- jobs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Started(Payload, kind=NoticeKind.STARTED):
    """An attempt runs. If its batch was probed, `probe` says how it was found."""

    attempt: int = 1
    gpus: tuple[str, ...] = ()
    batch: int | None = None
    probe: str | None = None


@dataclass(frozen=True, kw_only=True)
class AttemptEnd(Payload):
    """How an attempt ended. There is no attempt if the job never started."""

    state: State
    reason: Reason
    attempt: int | None = None
    gpus: tuple[str, ...] = ()
    usage: dict[str, Any] | None = None
    by: str | None = None  # who stopped it, or the job that it depended on, like #12
    stop_reason: str | None = None
    duration_s: float | None = None
    duration_about: bool = False  # its end was not recorded
    exit_code: int | None = None
    signal: int | None = None
    memory: str | None = None  # which memory ran out: gpu or host
    why: str | None = None  # why it could not be started, or why it gets another attempt

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build it from stored data."""
        return super().from_json({**data, "state": State(data["state"]), "reason": Reason(data["reason"])})


@dataclass(frozen=True, kw_only=True)
class Ended(AttemptEnd, kind=NoticeKind.ENDED):
    """A job has ended."""


@dataclass(frozen=True, kw_only=True)
class Requeued(AttemptEnd, kind=NoticeKind.REQUEUED):
    """An attempt has ended, and the job waits for the next one."""

    wait_s: float | None = None  # how long a retry waits; None if it is not a retry


@dataclass(frozen=True, kw_only=True)
class TrialFailed(AttemptEnd, kind=NoticeKind.TRIAL_FAILED):
    """The trial of a job has failed, and the job is held."""


@dataclass(frozen=True, kw_only=True)
class IdleWarning(Payload, kind=NoticeKind.IDLE_WARNING):
    """A job's GPUs are idle, and it will be stopped. The samples show it."""

    why: str = ""
    text: str = ""
    threshold_percent: float = 0.0
    gpus: tuple[str, ...] = ()
    samples: tuple[list[float | None], ...] = ()  # each: seconds before the last one, then the percent of each GPU
    stops_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class LooksHung(Payload, kind=NoticeKind.LOOKS_HUNG):
    """A job makes no progress. Without `stops_at` it is left alone."""

    why: str = "looks hung"
    stops_at: str | None = None
    yields: bool = False  # it is stopped only if another job waits for its GPUs


@dataclass(frozen=True, kw_only=True)
class TimeWarning(Payload, kind=NoticeKind.TIME_WARNING):
    """A job is close to its time limit or, with `needs_s`, will not make it."""

    stops_at: str | None = None
    limit_s: float = 0.0
    more_s: float | None = None  # by how much it may be extended at most; None: as much as you like
    attempt: int | None = None
    needs_s: float | None = None  # how long its work still takes, by its progress
    left_s: float | None = None  # and how long it may still run


@dataclass(frozen=True, kw_only=True)
class BadMetric(Payload, kind=NoticeKind.BAD_METRIC):
    """A job printed a metric that is not a number, or that breaks a rule of its --stop-on."""

    metric: str = ""  # such as loss=nan
    rule: str = ""
    stops: bool = False
    where: str | None = None  # how far the job was


@dataclass(frozen=True, kw_only=True)
class GroupDone(Payload, kind=NoticeKind.GROUP_DONE):
    """All jobs of a group have ended. `counts` has those after job `after`: the others were in an earlier notice."""

    group: str
    counts: dict[str, int] = field(default_factory=dict)
    in_all: dict[str, int] = field(default_factory=dict)
    after: int = 0
    last: int | None = None
    since: str | None = None
    until: str | None = None


# -- the queue -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Paused(Payload, kind=NoticeKind.PAUSED):
    """The breaker has paused the queue."""

    why: str = ""
    error: str | None = None  # the line of output that says why the last of the jobs failed
    jobs: tuple[int, ...] = ()  # the attempts that failed, by job
    again: bool = False  # whether a job is tried by itself
    tries: int = 0
    try_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class GoesOn(Payload, kind=NoticeKind.GOES_ON):
    """The queue goes on, because job `trial` did not fail. Jobs like those that failed are held."""

    why: str = ""
    error: str | None = None
    jobs: tuple[int, ...] = ()
    trial: int
    held: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drained(Payload, kind=NoticeKind.DRAINED):
    """Nothing runs any more after /drain."""

    by: str = ""
    since: str | None = None


@dataclass(frozen=True, kw_only=True)
class QueueEmpty(Payload, kind=NoticeKind.QUEUE_EMPTY):
    """The last job has ended. `command` will run at `due_at` if one is set for an empty queue."""

    jobs: int = 0
    failed: int = 0
    states: dict[str, int] = field(default_factory=dict)
    since: str | None = None
    held: int = 0
    command: str | None = None
    due_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class WhenEmptyRan(Payload, kind=NoticeKind.WHEN_EMPTY_RAN):
    """The command for an empty queue has ended. It has no exit code if it could not be started."""

    command: str = ""
    exit_code: int | None = None


# -- the box ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GpuPayload(Payload):
    """Which GPU it is, and what is known about why."""

    gpu: str = ""
    index: int | None = None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class GpuLost(GpuPayload, kind=NoticeKind.GPU_LOST):
    """A GPU cannot be used any more."""


@dataclass(frozen=True, kw_only=True)
class GpuBack(GpuPayload, kind=NoticeKind.GPU_BACK):
    """A lost GPU can be used again."""


@dataclass(frozen=True, kw_only=True)
class GpuHeld(GpuPayload, kind=NoticeKind.GPU_HELD):
    """A GPU is still in use after its job ended."""


@dataclass(frozen=True, kw_only=True)
class DiskLow(Payload, kind=NoticeKind.DISK_LOW):
    """The disk of the state folder is nearly full."""

    free_mib: int
    files: int | None = None  # how many more fit; None: the disk does not count them
    folder: str = ""


@dataclass(frozen=True, kw_only=True)
class DiskBack(DiskLow, kind=NoticeKind.DISK_BACK):
    """The disk has room again."""

    since: str | None = None


@dataclass(frozen=True, kw_only=True)
class BackupFailing(Payload, kind=NoticeKind.BACKUP_FAILING):
    """The queue can no longer be copied."""

    folder: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class BackupBack(Payload, kind=NoticeKind.BACKUP_BACK):
    """The queue is copied again."""

    folder: str = ""
    since: str | None = None


@dataclass(frozen=True, kw_only=True)
class NoRunner(Payload, kind=NoticeKind.NO_RUNNER):
    """No runner is up."""

    since: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunnerBack(Payload, kind=NoticeKind.RUNNER_BACK):
    """A runner is up again."""

    since: str | None = None
    at: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewQueue(Payload, kind=NoticeKind.NEW_QUEUE):
    """The queue's file was gone and had no copy. `jobs` counts the run directories that are still there."""

    jobs: int = 0
    folder: str = ""


@dataclass(frozen=True, kw_only=True)
class QueueRestored(Payload, kind=NoticeKind.QUEUE_RESTORED):
    """The queue's file was gone and was restored from a copy."""

    origin: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return all fields, under the names that they are stored with."""
        return {"from": self.origin}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Build it from stored data."""
        return cls(origin=data.get("from", ""))


def payload_of(kind: str, data: Mapping[str, Any]) -> Payload | Unknown:
    """Return the payload of a stored notice; Unknown if this version cannot read it."""
    try:
        payload: Payload = PAYLOADS[kind].from_json(data)
    except (KeyError, TypeError, ValueError):
        return Unknown(kind=kind, data=data)
    return payload
