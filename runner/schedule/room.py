"""What a box has to give: GPUs with their free slots and memory, CPU slots, and the limits of the whole box. Pure.

GPUs and CPU slots belong to a node. All GPUs of a job come from one node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from runner.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from runner.schedule.choice import Running
    from runner.schedule.request import Request

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A GPU with its free slots and memory."""

    index: int
    uuid: str
    node: str | None = None  # the host that it is in; None: there is only one
    free_slots: tuple[int, ...]
    slots: int
    name: str | None = None
    memory_mib: int | None = None  # not promised to any job; None: unknown
    share_mib: int | None = None  # for a job that names no memory, if several jobs share the GPU
    why_not: str | None = None  # why it must not be used now; None: it may be
    sick: bool = False  # ... and nobody knows whether that will ever change

    def matches(self, names: tuple[str, ...]) -> bool:
        """Return whether a job that named these GPUs may use this one."""
        return not names or any(n == self.label or self.uuid.startswith(n) for n in names)

    def suits(self, request: Request) -> bool:
        """Return whether the request allows this GPU, free or not."""
        return self.is_named(request) and is_of_type(self.name, request.gpu_type)

    def is_named(self, request: Request) -> bool:
        """Return whether `--on` and `--node` allow this GPU."""
        return request.node in (None, self.node) and self.matches(request.on)

    @property
    def label(self) -> str:
        """Return the name of this GPU for people: its index, or node:index if there are several nodes."""
        return str(self.index) if self.node is None else f"{self.node}:{self.index}"

    @property
    def usable(self) -> bool:
        """Return whether a job may start here now."""
        return self.why_not is None and bool(self.free_slots)

    def left(self, slots: tuple[int, ...], memory_mib: int | None, why_not: str | None) -> Room:
        """Return a copy with these free slots and this memory. `replace` would take three times as long."""
        return Room(
            index=self.index, uuid=self.uuid, node=self.node, free_slots=slots, slots=self.slots, name=self.name,
            memory_mib=memory_mib, share_mib=self.share_mib, why_not=why_not, sick=self.sick,
        )  # fmt: skip

    def need_mib(self, request: Request) -> int | None:
        """Return the MiB that a job gets here, or None for all of it."""
        return request.gpu_mem_mib if request.gpu_mem_mib is not None or self.slots == 1 else self.share_mib

    def promised_mib(self, request: Request) -> int:
        """Return the MiB that this job takes away from others here."""
        return (self.share_mib or 0) if request.gpu_mem_mib is None else request.gpu_mem_mib

    def fits(self, request: Request, gone: Iterable[Running] = ()) -> bool:
        """Return whether there is enough memory for this job, once these jobs have left this GPU."""
        need_mib = self.need_mib(request)
        if need_mib is None:
            return True
        if self.memory_mib is None:
            return request.gpu_mem_mib is None
        freed_mib = sum(self.promised_mib(job.request) for job in gone)
        return need_mib <= self.memory_mib + freed_mib

    def has_room(self, request: Request, gone: Sequence[Running]) -> bool:
        """Return whether this job would find a slot and enough memory if these jobs had left this GPU."""
        return bool(self.free_slots or gone) and self.fits(request, gone)


class CpuSlot(NamedTuple):
    """A free slot for a job without GPUs."""

    slot: int
    node: str | None = None  # None: there is only one


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxLimits:
    """The limits of the whole box, and how much each owner has used."""

    cpus: int | None = None  # cores that jobs may reserve; None: no limit
    ram_mib: int | None = None
    gpus_each: int | None = None  # for one person at a time
    gpus_each_low: int | None = None  # the same for jobs of low priority, counting all GPUs of the person
    groups: Mapping[str, int] = field(default_factory=dict)  # how many jobs of a group may run at a time
    use: Mapping[str, float] = field(default_factory=dict)  # recent GPU seconds by owner
    age_s: float = DAY_S  # a waiting job gains one priority level per this much time


def free_slots(slots: int, taken: Collection[int]) -> tuple[int, ...]:
    """Return the free slots. None are free while more are taken than exist, as after the setting was lowered."""
    free = [slot for slot in range(slots) if slot not in taken]
    return tuple(free[: max(0, slots - len(taken))])


def free_cpu_slots(counts: Mapping[str | None, int], taken: Iterable[CpuSlot]) -> list[CpuSlot]:
    """Return the free CPU slots of all nodes. `counts`: how many each node has."""
    by_node: dict[str | None, set[int]] = {node: set() for node in counts}
    for slot, node in taken:
        by_node.setdefault(node, set()).add(slot)
    return [CpuSlot(slot, node) for node, count in counts.items() for slot in free_slots(count, by_node[node])]


def most_on_one_node(rooms: Iterable[Room]) -> int:
    """Return how many of these GPUs one job can have at most."""
    return max(Counter(room.node for room in rooms).values(), default=0)


def is_of_type(name: str | None, wanted_type: str | None) -> bool:
    """Return whether a GPU of this name matches `--gpu-type`: 1080ti matches GeForce GTX 1080 Ti."""
    if wanted_type is None:
        return True
    return name is not None and _letters(wanted_type) in _letters(name)


@lru_cache(maxsize=1_000)
def _letters(text: str) -> str:
    return "".join(char for char in text.lower() if char.isalnum())


def counted(count: int) -> str:
    """Return a number of GPUs in words."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def wanted(request: Request) -> str:
    """Return the requested GPUs in words."""
    words = counted(request.gpus)
    if request.gpu_type:
        words += f" of type {request.gpu_type}"
    if request.gpu_mem_mib:
        words += f" with {format_mib(request.gpu_mem_mib)}"
    if request.node:
        words += f" on {request.node}"
    return words
