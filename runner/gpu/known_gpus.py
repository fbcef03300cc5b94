"""The GPUs nightshift knows: those it can read now, and those it read earlier that are gone."""

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
    """The latest known state of each GPU, by UUID."""

    def __init__(self, gpus: Iterable[Gpu] = ()) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}

    @classmethod
    def from_last_time(cls, home: str, *, simulated: bool) -> KnownGpus:
        """Load what an earlier sampler published. GPUs read before the last boot count as never read."""
        published = read_published(home)
        if published is None or published[0].simulated != simulated:
            return cls()
        snapshot, _ = published
        same_boot = snapshot.boot_id == linux.boot_id()
        identified = filter(is_identified, snapshot.gpus)
        return cls(gpu if same_boot else replace(gpu, sampled_at=0.0) for gpu in identified)

    def by_index(self) -> dict[int, Gpu]:
        """Return the GPUs read since the boot, by index. A reboot may change the index."""
        return {gpu.index: gpu for gpu in self._gpus.values() if gpu.sampled_at > 0}

    def forget_others(self, selection: Selection) -> None:
        """Keep only GPUs that the selection allows and that were read since the boot."""
        self._gpus = {u: g for u, g in self._gpus.items() if g.sampled_at > 0 and selection.allows(g)}

    def merged(self, live: list[Gpu], why_gone: str) -> tuple[Gpu, ...]:
        """Return the live GPUs and all other known ones, those with health UNKNOWN. Remember the result."""
        listed = {gpu.uuid for gpu in live}
        gone = [unread(gpu, GpuHealth.UNKNOWN, why_gone) for uuid, gpu in self._gpus.items() if uuid not in listed]
        both = sorted([*live, *gone], key=lambda gpu: gpu.index)
        self._gpus = {gpu.uuid: gpu for gpu in both if is_identified(gpu)}
        return tuple(both)
