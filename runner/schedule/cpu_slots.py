"""The free slots for jobs without GPUs, by node. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from runner.schedule.room import CpuSlot

if TYPE_CHECKING:
    from collections.abc import Iterable


class CpuSlots:
    """Free slots, taken first from the node that has the most of them."""

    def __init__(self, free: Iterable[CpuSlot]) -> None:
        self._free: defaultdict[str | None, deque[int]] = defaultdict(deque)
        for slot, node in free:
            self._free[node].append(slot)
        self._nodes = list(self._free)
        # the nodes by how many slots they had when they were last at the top
        self._order = [(-len(self._free[node]), place) for place, node in enumerate(self._nodes)]
        heapify(self._order)

    def __bool__(self) -> bool:
        """Return whether any slot is free."""
        return self._roomiest() is not None

    def take(self, node: str | None) -> CpuSlot | None:
        """Remove and return a slot of this node, or of any if it is None. Return None if there is none."""
        if node is None:
            place = self._roomiest()
            if place is None:
                return None
            node = self._nodes[place]
        free = self._free.get(node)
        return CpuSlot(free.popleft(), node) if free else None

    def _roomiest(self) -> int | None:
        """Return the place of the node with the most free slots, the first if several have."""
        while self._order:
            count, place = self._order[0]
            now = -len(self._free[self._nodes[place]])
            if now == count:
                return place
            if now:
                heapreplace(self._order, (now, place))
            else:
                heappop(self._order)
        return None
