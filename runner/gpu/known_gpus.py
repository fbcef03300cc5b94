"""The GPUs nightshift knows of: those that are read now, and those that were read before and are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.gpu.published import read_published
from runner.gpu.unread import is_identified, unread
from runner.model import GpuHealth
from runner.processes import linux

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.gpu.selection import Selection
    from runner.model import Gpu


class KnownGpus:
    """The last word about each GPU, by UUID."""

    def __init__(self, gpus: Iterable[Gpu] = ()) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}

    @classmethod
    def from_last_time(cls, home: str, *, simulated: bool) -> KnownGpus:
        """What an earlier sampler published. Readings of another boot count as never taken."""
        published = read_published(home)
        if published is None or published[0].simulated != simulated:
            return cls()
        snapshot, _ = published
        same_boot = snapshot.boot_id == linux.boot_id()
        identified = filter(is_identified, snapshot.gpus)
        return cls(gpu if same_boot else replace(gpu, sampled_at=0.0) for gpu in identified)

    def by_index(self) -> dict[int, Gpu]:
        """Those whose index still holds: it may be another after a reboot."""
        return {gpu.index: gpu for gpu in self._gpus.values() if gpu.sampled_at > 0}

    def forget_others(self, selection: Selection) -> None:
        """Keep only what is ours and was read since the boot."""
        self._gpus = {u: g for u, g in self._gpus.items() if g.sampled_at > 0 and selection.allows(g)}

    def merged(self, live: list[Gpu], why_gone: str) -> tuple[Gpu, ...]:
        """The live ones, and every other known one as unknown."""
        listed = {gpu.uuid for gpu in live}
        gone = [unread(gpu, GpuHealth.UNKNOWN, why_gone) for uuid, gpu in self._gpus.items() if uuid not in listed]
        both = sorted([*live, *gone], key=lambda gpu: gpu.index)
        self._gpus = {gpu.uuid: gpu for gpu in both if is_identified(gpu)}
        return tuple(both)
