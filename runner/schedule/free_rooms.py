"""An index of the GPUs with a free slot: finds the ones that a job prefers without a look at all the others. Pure.

All GPUs of a job come from one node. A start or a reservation changes a few GPUs, and only those change their place in
the index. So one start costs about as much on 8,000 GPUs, of one node or of many, as on 8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from runner.schedule.ranking import Ranking

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from runner.schedule.quotas import Reservation
    from runner.schedule.request import Request
    from runner.schedule.room import Room

    MayUse: TypeAlias = Callable[[str | None, Reservation | None], bool]  # by the name of a GPU

# reserved GPUs last, GPUs with fewer jobs first, then by index, then by place in the box
Entry: TypeAlias = "tuple[bool, int, int, int, Room]"
Kind: TypeAlias = "tuple[str | None, int | None]"  # the name of a GPU, the job that it is reserved for
Rank: TypeAlias = tuple[int, int, int]  # GPUs reserved for others, jobs on them, free GPUs of the node


class FreeRooms:
    """The GPUs where a job may start now, by the order in which jobs prefer them."""

    def __init__(self, rooms: Mapping[str, Room], reserved: Mapping[str, Reservation]) -> None:
        self._rooms, self._reserved = rooms, reserved  # the pass changes both, and says where
        self._places = {uuid: place for place, uuid in enumerate(rooms)}
        self._names: _Names | None = None
        self._all = self._scope(rooms.values())
        self._by_names: dict[tuple[tuple[str, ...], str | None], _Scope] = {}  # `--on`, `--node` -> what they name
        self._naming: defaultdict[str, list[_Scope]] = defaultdict(list)  # GPU -> those that have it

    def __bool__(self) -> bool:
        """Return whether any slot is free."""
        return bool(self._all)

    def take(self, request: Request, may_use: MayUse) -> list[Room]:
        """Remove and return the GPUs for a job, or return none of them if no node has enough.

        The caller must call `update` for each of them.
        """
        return self._named(request).take(request, may_use)

    def update(self, uuid: str) -> None:
        """Look again at a GPU: a job has started on it, or it was reserved."""
        for scope in (self._all, *self._naming.get(uuid, ())):
            scope.put(self._entry(uuid), self._reserved.get(uuid))

    def named(self, request: Request) -> list[Room]:
        """Return all GPUs, free or not, that `--on` and `--node` allow, in the order of the box."""
        if not request.on and request.node is None:
            return list(self._rooms.values())
        return [self._rooms[uuid] for uuid in self._named(request).uuids]

    def _named(self, request: Request) -> _Scope:
        names = request.on, request.node
        if names == ((), None):
            return self._all
        if names not in self._by_names:
            scope = self._by_names[names] = self._scope(self._find(request))
            for uuid in scope.uuids:
                self._naming[uuid].append(scope)
        return self._by_names[names]

    def _find(self, request: Request) -> Iterable[Room]:
        rooms: Iterable[Room] = self._rooms.values()
        if request.on:
            self._names = self._names or _Names(rooms)
            rooms = (self._rooms[uuid] for uuid in sorted(self._names.find(request.on), key=self._places.__getitem__))
        return rooms if request.node is None else (room for room in rooms if room.node == request.node)

    def _scope(self, rooms: Iterable[Room]) -> _Scope:
        scope = _Scope(rooms := list(rooms))
        for room in rooms:
            if room.usable:
                scope.put(self._entry(room.uuid), self._reserved.get(room.uuid))
        return scope

    def _entry(self, uuid: str) -> Entry:
        room = self._rooms[uuid]
        return uuid in self._reserved, room.slots - len(room.free_slots), room.index, self._places[uuid], room


class _Names:
    """The GPUs by label and by UUID, as people name them."""

    def __init__(self, rooms: Iterable[Room]) -> None:
        self._by_label: defaultdict[str, list[str]] = defaultdict(list)
        for room in rooms:
            self._by_label[room.label].append(room.uuid)
        self._uuids = sorted(uuid for uuids in self._by_label.values() for uuid in uuids)

    def find(self, names: Iterable[str]) -> set[str]:
        """Return the UUIDs of all GPUs that have one of these labels, or whose UUID begins with one of these names."""
        found: set[str] = set()
        for name in names:
            found.update(self._by_label.get(name, ()))
            place = bisect_left(self._uuids, name)
            while place < len(self._uuids) and self._uuids[place].startswith(name):
                found.add(self._uuids[place])
                place += 1
        return found


class _Scope:
    """The GPUs that jobs with the same `--on` and `--node` may use: an index for each node, and the nodes in order."""

    def __init__(self, rooms: Sequence[Room]) -> None:
        self.uuids = [room.uuid for room in rooms]
        self._nodes = {node: _Index() for node in dict.fromkeys(room.node for room in rooms)}
        self._kinds: dict[Kind, Reservation | None] = {}
        self._rankings: dict[Hashable, Ranking] = {}
        self._changed: list[str | None] = []  # the node of each change
        self._free = 0

    def __bool__(self) -> bool:
        return self._free > 0

    def put(self, entry: Entry, reservation: Reservation | None) -> None:
        """Note what a GPU is like now."""
        room = entry[-1]
        node = self._nodes[room.node]
        self._free -= len(node)
        node.put(entry, reservation)
        self._free += len(node)
        self._changed.append(room.node)
        if room.usable:
            self._kinds.setdefault(_kind(room, reservation), reservation)

    def take(self, request: Request, may_use: MayUse) -> list[Room]:
        """Remove and return the GPUs for a job from the node that it prefers, or none if no node has enough."""
        node = self._preferred(request, may_use)
        rooms = node.take(request, may_use) if node else []
        self._free -= len(rooms)
        return rooms

    def _preferred(self, request: Request, may_use: MayUse) -> _Index | None:
        if len(self._nodes) == 1:
            return next(iter(self._nodes.values()))
        kinds = tuple(kind for kind, reservation in self._kinds.items() if may_use(kind[0], reservation))
        key = kinds, request.gpus, request.gpu_mem_mib  # jobs that have this in common rank all nodes alike
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = self._rankings[key] = Ranking(self._nodes)
        first = ranking.first(self._changed, lambda node: self._nodes[node].rank(request, may_use))
        return self._nodes[first[0]] if first else None


class _Index:
    """Free GPUs of one node, in groups by name and reservation.

    A job may use all GPUs of a group that have the memory, or none.
    """

    def __init__(self) -> None:
        self._groups: dict[Kind, _Group] = {}
        self._group_of: dict[str, _Group] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    def put(self, entry: Entry, reservation: Reservation | None) -> None:
        """Move a GPU to the group where it belongs now; remove it if no job may start on it."""
        room = entry[-1]
        self._remove(room.uuid)
        if room.usable:
            kind = _kind(room, reservation)
            group = self._groups.get(kind)
            if group is None:
                group = self._groups[kind] = _Group(kind, reservation)
            group.add(entry)
            self._group_of[room.uuid] = group

    def rank(self, request: Request, may_use: MayUse) -> Rank | None:
        """Return how much a job prefers this node, the smallest first; None if it has too few GPUs for the job.

        Reserved GPUs and those with other jobs come last. Then the node with the fewest free GPUs comes first, so
        that others stay whole for wide jobs.
        """
        found = self._find(request, may_use)
        for entry in found[:-1]:  # the last one is still in its heap
            self._group_of[entry[-1].uuid].put_back(entry, request)
        if not found:
            return None
        reserved, jobs = sum(entry[0] for entry in found), sum(entry[1] for entry in found)
        return reserved, jobs, len(self)

    def take(self, request: Request, may_use: MayUse) -> list[Room]:
        """Remove and return the GPUs for a job, or none if there are not enough."""
        rooms = [entry[-1] for entry in self._find(request, may_use)]
        for room in rooms:
            self._remove(room.uuid)
        return rooms

    def _find(self, request: Request, may_use: MayUse) -> list[Entry]:
        """Return the GPUs for a job; all but the last one have left their heaps. Or none if there are not enough."""
        groups = [group for group in self._groups.values() if may_use(group.kind[0], group.reservation)]
        if sum(len(group.entries) for group in groups) < request.gpus:
            return []
        found = list(islice(merge(*(group.in_order(request) for group in groups)), request.gpus))
        if len(found) < request.gpus:
            for entry in found:
                self._group_of[entry[-1].uuid].put_back(entry, request)
            return []
        return found

    def _remove(self, uuid: str) -> None:
        group = self._group_of.pop(uuid, None)
        if group is not None:
            del group.entries[uuid]
            if not group.entries:
                del self._groups[group.kind]


def _kind(room: Room, reservation: Reservation | None) -> Kind:
    return room.name, None if reservation is None else reservation.id


class _Group:
    """Free GPUs of one name that are reserved for the same job, or for none."""

    def __init__(self, kind: Kind, reservation: Reservation | None) -> None:
        self.kind, self.reservation = kind, reservation
        self.entries: dict[str, Entry] = {}
        # memory asked for -> a heap of the GPUs that have it. Those that left the group since are still in it
        self._heaps: dict[int | None, list[Entry]] = {}

    def add(self, entry: Entry) -> None:
        self.entries[entry[-1].uuid] = entry
        self._heaps.clear()

    def in_order(self, request: Request) -> Iterator[Entry]:
        """Yield the GPUs with enough memory, the preferred first. All but the last one leave the heap."""
        heap = self._heaps.get(request.gpu_mem_mib)
        if heap is None:
            heap = self._heaps[request.gpu_mem_mib] = [e for e in self.entries.values() if e[-1].fits(request)]
            heapify(heap)
        while heap:
            if heap[0][-1].uuid in self.entries:
                yield heap[0]
            heappop(heap)

    def put_back(self, entry: Entry, request: Request) -> None:
        """Undo what `in_order` did to a GPU that was not taken."""
        heappush(self._heaps[request.gpu_mem_mib], entry)
