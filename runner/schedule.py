"""Which waiting job starts on which GPU, and why the others wait. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Request(Protocol):
    """What the scheduler must know of a waiting job."""

    @property
    def id(self) -> int:
        """The job's number."""

    @property
    def gpus(self) -> int:
        """How many GPUs it wants."""

    @property
    def on(self) -> tuple[str, ...]:
        """Which GPUs it may have, by index or UUID; empty for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a GPU has to give."""

    index: int
    uuid: str
    free_slots: tuple[int, ...]
    slots: int
    why_not: str | None = None  # it must not be used now, and the reason
    sick: bool = False  # ... and nobody knows whether it will ever be well again

    def matches(self, names: tuple[str, ...]) -> bool:
        """Whether a job that named these GPUs may have this one."""
        return not names or any(n == str(self.index) or self.uuid.startswith(n) for n in names)

    @property
    def usable(self) -> bool:
        """A job may start here now."""
        return self.why_not is None and bool(self.free_slots)


class Start(NamedTuple):
    """A job and the slots it is to have: (GPU's UUID, slot)."""

    job_id: int
    slots: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The scheduler's answer."""

    starts: list[Start]
    waiting: dict[int, str]  # job id -> why it waits


def choose(queued: Sequence[Request], gpus: Sequence[Room], cpu_slots: Sequence[int]) -> Plan:
    """Start jobs in the order given, as long as there is room.

    A job that cannot start keeps what it could use from those behind it, so that it is not overtaken for
    ever; jobs that want other GPUs, or none, go on. One that waits for a sick GPU keeps nothing: it might
    wait for ever, and the healthy ones with it.
    """
    room = {gpu.uuid: gpu for gpu in gpus}
    cpus = list(cpu_slots)
    kept: dict[str, int] = {}  # GPU -> the first job that waits for it
    plan = Plan([], {})
    for job in queued:
        if job.gpus == 0:
            if cpus:
                plan.starts.append(Start(job.id, (("", cpus.pop(0)),)))
            else:
                plan.waiting[job.id] = "waits for a CPU slot"
            continue
        allowed = [gpu for gpu in room.values() if gpu.matches(job.on)]
        chosen = _pick(job.gpus, [gpu for gpu in allowed if gpu.uuid not in kept])
        if chosen is None:
            plan.waiting[job.id] = why_waiting(job, allowed, kept)
            if sum(not gpu.sick for gpu in allowed) >= job.gpus:
                kept.update({gpu.uuid: job.id for gpu in allowed if gpu.uuid not in kept})
            continue
        plan.starts.append(Start(job.id, tuple((gpu.uuid, gpu.free_slots[0]) for gpu in chosen)))
        for gpu in chosen:
            room[gpu.uuid] = replace(gpu, free_slots=gpu.free_slots[1:])
    return plan


def free_slots(slots: int, taken: Collection[int]) -> tuple[int, ...]:
    """Slots to be had; none while more are taken than there are, as after a setting was lowered."""
    free = [slot for slot in range(slots) if slot not in taken]
    return tuple(free[: max(0, slots - len(taken))])


def _pick(count: int, gpus: Sequence[Room]) -> list[Room] | None:
    """The emptiest GPUs first, so that jobs share one only when they must."""
    usable = sorted((g for g in gpus if g.usable), key=lambda g: (g.slots - len(g.free_slots), g.index))
    return usable[:count] if len(usable) >= count else None


def why_waiting(job: Request, allowed: Sequence[Room], kept: dict[str, int]) -> str:
    """One sentence for the person who asks."""
    if len(allowed) < job.gpus:
        return f"needs {_gpus(job.gpus)}; there are {len(allowed)} that it may use"
    holding_back = [kept[gpu.uuid] for gpu in allowed if gpu.uuid in kept and gpu.usable]
    if holding_back:
        return f"behind #{holding_back[0]}, which waits for the same GPUs"
    troubles = [f"GPU {gpu.index} {gpu.why_not}" for gpu in allowed if gpu.why_not is not None]
    free = sum(gpu.usable for gpu in allowed)
    busy = f"needs {_gpus(job.gpus)}, {free} free"
    return "; ".join([busy, *troubles])


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def never_fits(gpus: int, on: tuple[str, ...], existing: Sequence[Room], cpu_slots: int) -> str | None:
    """Why a request can never be met on this box, or None if it can."""
    if gpus == 0:
        return "NIGHTSHIFT_CPU_SLOTS is 0: this box takes no jobs without a GPU." if cpu_slots == 0 else None
    for name in on:
        if not any(gpu.matches((name,)) for gpu in existing):
            known = ", ".join(str(gpu.index) for gpu in existing) or "none"
            return f"There is no GPU {name} on this box (it has: {known})."
    allowed = sum(gpu.matches(on) for gpu in existing)
    if allowed < gpus:
        if not existing:
            return "This box has no GPUs. For a job that needs none: --gpus 0"
        return f"The job wants {_gpus(gpus)}; this box has {_gpus(len(existing))}. Ask for at most {allowed}."
    return None
