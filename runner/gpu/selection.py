"""Decides which GPUs of the box nightshift uses. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.errors import OperatorError
from runner.gpu.unread import is_identified

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.model import Gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"


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
            named = [gpu for gpu in gpus if names(entry, gpu)]
            if len(named) != 1:
                if self.lenient:
                    break
                raise OperatorError(_no_such(entry, gpus, several=len(named) > 1))
            chosen += named
        if not chosen:
            raise OperatorError(_none_left(VISIBLE if self.lenient else "NIGHTSHIFT_GPUS", self.entries))
        return [gpu for gpu in gpus if gpu in chosen]

    def allows(self, gpu: Gpu) -> bool:
        """Return whether an entry names this GPU."""
        return self.entries is None or any(names(entry, gpu) for entry in self.entries)


def parse(setting: str, environ: Mapping[str, str]) -> Selection:
    """Parse NIGHTSHIFT_GPUS. `auto` follows CUDA_VISIBLE_DEVICES if it is set; of simulated GPUs, all are chosen."""
    if setting.startswith("sim:"):
        return Selection(None)
    if setting != "auto":
        return Selection(_split(setting))
    return Selection(_split(environ[VISIBLE]), lenient=True) if VISIBLE in environ else Selection(None)


def names(entry: str, gpu: Gpu) -> bool:
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


def _none_left(variable: str, entries: Sequence[str]) -> str:
    return (
        f"{variable}={','.join(entries)} leaves no GPU: unset it, or set NIGHTSHIFT_GPUS to indices or UUIDs,"
        " or to `none`."
    )
