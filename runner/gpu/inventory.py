"""Which GPUs the box has, which of them nightshift uses, and what is known of those that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runner.errors import OperatorError
from runner.gpu.published import read_published
from runner.model import Gpu, GpuHealth
from runner.processes import linux

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
_UNIDENTIFIED = "unknown-"


def unread(gpu: Gpu, health: GpuHealth, detail: str) -> Gpu:
    """Return the GPU with this health and detail, and None for all values that change over time."""
    unknown: dict[str, Any] = dict.fromkeys(("memory_used_mib", "utilization", "temperature_c", "power_w", "processes"))
    return replace(gpu, health=health, detail=detail, **unknown)


def unidentified(index: int) -> Gpu:
    """Return a GPU that the driver lists but that has not told its UUID yet."""
    uuid = f"{_UNIDENTIFIED}{index}"
    return Gpu(index=index, uuid=uuid, health=GpuHealth.UNKNOWN, detail="has not answered yet")


def is_identified(gpu: Gpu) -> bool:
    """Return whether the UUID is the GPU's own, not a placeholder."""
    return not gpu.uuid.startswith(_UNIDENTIFIED)


@dataclass(frozen=True, slots=True)
class Selection:
    """Chooses GPUs by entries, each an index or the beginning of a UUID. None chooses all GPUs."""

    entries: tuple[str, ...] | None
    lenient: bool = False  # as in CUDA, an entry that does not match one GPU ends the list

    def choose(self, gpus: Sequence[Gpu]) -> list[Gpu]:
        """Return the chosen GPUs. Raise OperatorError if none is left, or if an entry does not name exactly one.

        If `lenient`, such an entry only ends the list.
        """
        if self.entries is None:
            return list(gpus)
        chosen: list[Gpu] = []
        for entry in self.entries:
            named = [gpu for gpu in gpus if _names(entry, gpu)]
            if len(named) != 1:
                if self.lenient:
                    break
                raise OperatorError(_no_such(entry, gpus, several=len(named) > 1))
            chosen += named
        if not chosen:
            variable = VISIBLE if self.lenient else "NIGHTSHIFT_GPUS"
            raise OperatorError(
                f"{variable}={','.join(self.entries)} leaves no GPU: unset it, or set NIGHTSHIFT_GPUS to indices or"
                " UUIDs, or to `none`."
            )
        return [gpu for gpu in gpus if gpu in chosen]

    def allows(self, gpu: Gpu) -> bool:
        """Return whether an entry names this GPU."""
        return self.entries is None or any(_names(entry, gpu) for entry in self.entries)


def parse_selection(setting: str, environ: Mapping[str, str]) -> Selection:
    """Parse NIGHTSHIFT_GPUS. `auto` follows CUDA_VISIBLE_DEVICES if it is set; of simulated GPUs, all are chosen."""
    if setting.startswith("sim:"):
        return Selection(None)
    if setting != "auto":
        return Selection(_split(setting))
    return Selection(_split(environ[VISIBLE]), lenient=True) if VISIBLE in environ else Selection(None)


def _names(entry: str, gpu: Gpu) -> bool:
    """Return whether an entry, an index or the beginning of a UUID, names this GPU."""
    if entry.isdigit():
        return int(entry) == gpu.index
    return len(entry) > len("GPU-") and is_identified(gpu) and gpu.uuid.lower().startswith(entry.lower())


def _split(text: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


def _no_such(entry: str, gpus: Sequence[Gpu], *, several: bool) -> str:
    there = ", ".join(f"{g.index} ({g.uuid if is_identified(g) else g.detail})" for g in gpus)
    what = "names more than one GPU" if several else "names no GPU of this box"
    return f"NIGHTSHIFT_GPUS: {entry!r} {what}. There are: {there}. Give indices, UUIDs or `auto`."


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
