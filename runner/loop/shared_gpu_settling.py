"""Jobs that share a GPU start one after another: the next one starts when the memory of the last has settled."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from runner.model import Gpu
    from runner.processes.waiter import Waiter
    from runner.store.scheduling_queries import Lease

AT_REST_S = 3.0
GROWTH_MIB = 64
LOOK_AGAIN_S = 1.0


@dataclass(slots=True)
class _Newcomer:
    """The last job that came to a GPU, and the GPU's memory since then."""

    job_id: int
    since: float
    beside: frozenset[tuple[int, int]] = field(default_factory=frozenset)  # all attempts on the GPU, including this one
    used_mib: int = 0
    grew_at: float = 0.0
    at_rest: bool = False


class MemorySettling:
    """Knows which GPUs have a job whose memory may still grow."""

    def __init__(self, waiter: Waiter, at_most_s: float) -> None:
        self._waiter, self._at_most_s = waiter, at_most_s
        self._newcomers: dict[str, _Newcomer] = {}
        self._will_look = False

    def why_not(self, gpu: Gpu, leases: Sequence[Lease], probing: Collection[int]) -> str | None:
        """Return why no other job may start beside those that hold these leases, or None if one may."""
        here = frozenset((lease.job_id, lease.attempt) for lease in leases)
        known = self._newcomers.get(gpu.uuid)
        came = here - known.beside if known else here
        now = time.monotonic()
        if came:
            known = self._newcomers[gpu.uuid] = _Newcomer(max(came)[0], since=now, grew_at=now)
        if known is None:
            return None
        known.beside = here
        measured = [job_id for job_id, _ in here if job_id in probing]
        if measured or (here and not self._is_at_rest(known, gpu, now)):
            self._look_again()
            job_id = measured[0] if measured else known.job_id
            return f"has #{job_id} on it, whose memory has not come to rest yet"
        return None

    def _is_at_rest(self, newcomer: _Newcomer, gpu: Gpu, now: float) -> bool:
        used_mib = gpu.memory_used_mib or 0
        if used_mib > newcomer.used_mib + GROWTH_MIB:
            newcomer.used_mib, newcomer.grew_at = used_mib, now
        quiet = newcomer.used_mib > 0 and now - newcomer.grew_at >= AT_REST_S
        newcomer.at_rest = newcomer.at_rest or quiet or now - newcomer.since >= self._at_most_s
        return newcomer.at_rest

    def _look_again(self) -> None:
        """Set one timer for all GPUs."""
        if self._will_look:
            return
        self._will_look = True

        def look() -> None:
            self._will_look = False

        self._waiter.after(min(LOOK_AGAIN_S, max(self._at_most_s, 0.01)), look)
