"""The nodes in the order in which a job prefers them. Pure."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Rank = tuple[Any, ...]  # the smallest is preferred


class Ranking:
    """Nodes by rank, then in the order of the box. Only nodes that changed since the last call are ranked again."""

    def __init__(self, nodes: Iterable[str | None]) -> None:
        self._nodes = list(nodes)
        self._places = {node: place for place, node in enumerate(self._nodes)}
        self._ranks: dict[str | None, Rank | None] = {}
        self._heap: list[tuple[Rank, int]] = []  # those of `_ranks`, and old ones
        self._seen = 0

    def first(self, changed: Sequence[str | None], rank_of: Callable[[str | None], Rank | None]) -> list[str | None]:
        """Return the preferred node in a list, empty if no node has a rank. `changed` grows from call to call."""
        for node in dict.fromkeys(changed[self._seen :] if self._ranks else self._nodes):
            if node in self._places:
                rank = self._ranks[node] = rank_of(node)
                if rank is not None:
                    heappush(self._heap, (rank, self._places[node]))
        self._seen = len(changed)
        while self._heap and self._ranks[self._nodes[self._heap[0][1]]] != self._heap[0][0]:
            heappop(self._heap)
        return [self._nodes[self._heap[0][1]]] if self._heap else []
