"""An index of the GPUs with a free slot: finds the ones that a job prefers without a look at all the others. Pure.

A start or a reservation changes a few GPUs, and only those change their place in the index. So one start costs about
as much on a box of 8,000 GPUs as on one of 8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from runner.schedule.quotas import Reservation
    from runner.schedule.request import Request
    from runner.schedule.room import Room

    MayUse: TypeAlias = Callable[[str | None, Reservation | None], bool]  # by the name of a GPU

# reserved GPUs last, GPUs with fewer jobs first, then by index, then by place in the box
Entry: TypeAlias = "tuple[bool, int, int, int, Room]"
Kind: TypeAlias = "tuple[str | None, int | None]"  # the name of a GPU, the job that it is reserved for


class FreeRooms:
    """The GPUs where a job may start now, by the order in which jobs prefer them."""

    def __init__(self, rooms: Mapping[str, Room], reserved: Mapping[str, Reservation]) -> None:
        self._rooms, self._reserved = rooms, reserved  # the pass changes both, and says where
        self._places = {uuid: place for place, uuid in enumerate(rooms)}
        self._names: _Names | None = None
        self._all = _Index()
        self._by_names: dict[tuple[str, ...], tuple[list[str], _Index]] = {}  # `--on` -> the GPUs that it names
        self._naming: defaultdict[str, list[_Index]] = defaultdict(list)  # GPU -> the indexes of `--on` that have it
        self._fill(self._all, rooms)

    def __bool__(self) -> bool:
        """Return whether any slot is free."""
        return bool(self._all)

    def take(self, request: Request, may_use: MayUse) -> list[Room]:
        """Remove and return the GPUs for a job, or return none of them if there are not enough.

        The caller must call `update` for each of them.
        """
        index = self._named(request.on)[1] if request.on else self._all
        return index.take(request, may_use)

    def update(self, uuid: str) -> None:
        """Look again at a GPU: a job has started on it, or it was reserved."""
        self._all.put(self._entry(uuid), self._reserved.get(uuid))
        for index in self._naming.get(uuid, ()):
            index.put(self._entry(uuid), self._reserved.get(uuid))

    def named(self, on: tuple[str, ...]) -> list[Room]:
        """Return all GPUs, free or not, that a job with this `--on` may use, in the order of the box."""
        if not on:
            return list(self._rooms.values())
        return [self._rooms[uuid] for uuid in self._named(on)[0]]

    def _named(self, on: tuple[str, ...]) -> tuple[list[str], _Index]:
        if on not in self._by_names:
            self._names = self._names or _Names(self._rooms.values())
            uuids, index = sorted(self._names.find(on), key=self._places.__getitem__), _Index()
            self._fill(index, uuids)
            for uuid in uuids:
                self._naming[uuid].append(index)
            self._by_names[on] = uuids, index
        return self._by_names[on]

    def _fill(self, index: _Index, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            if self._rooms[uuid].usable:
                index.put(self._entry(uuid), self._reserved.get(uuid))

    def _entry(self, uuid: str) -> Entry:
        room = self._rooms[uuid]
        return uuid in self._reserved, room.slots - len(room.free_slots), room.index, self._places[uuid], room


class _Names:
    """The GPUs by index and by UUID, as people name them."""

    def __init__(self, rooms: Iterable[Room]) -> None:
        self._by_index: defaultdict[str, list[str]] = defaultdict(list)
        for room in rooms:
            self._by_index[str(room.index)].append(room.uuid)
        self._uuids = sorted(uuid for uuids in self._by_index.values() for uuid in uuids)

    def find(self, names: Iterable[str]) -> set[str]:
        """Return the UUIDs of all GPUs that have one of these indices, or whose UUID begins with one of these names."""
        found: set[str] = set()
        for name in names:
            found.update(self._by_index.get(name, ()))
            place = bisect_left(self._uuids, name)
            while place < len(self._uuids) and self._uuids[place].startswith(name):
                found.add(self._uuids[place])
                place += 1
        return found


class _Index:
    """Free GPUs in groups by name and reservation. A job may use all GPUs of a group that have the memory, or none."""

    def __init__(self) -> None:
        self._groups: dict[Kind, _Group] = {}
        self._group_of: dict[str, _Group] = {}

    def __bool__(self) -> bool:
        return bool(self._group_of)

    def put(self, entry: Entry, reservation: Reservation | None) -> None:
        """Move a GPU to the group where it belongs now; remove it if no job may start on it."""
        room = entry[-1]
        self._remove(room.uuid)
        if room.usable:
            kind = room.name, None if reservation is None else reservation.id
            group = self._groups.get(kind)
            if group is None:
                group = self._groups[kind] = _Group(kind, reservation)
            group.add(entry)
            self._group_of[room.uuid] = group

    def take(self, request: Request, may_use: MayUse) -> list[Room]:
        groups = [group for group in self._groups.values() if may_use(group.kind[0], group.reservation)]
        if sum(len(group.entries) for group in groups) < request.gpus:
            return []
        found = list(islice(merge(*(group.in_order(request) for group in groups)), request.gpus))
        if len(found) < request.gpus:
            for entry in found:
                self._group_of[entry[-1].uuid].put_back(entry, request)
            return []
        rooms = [entry[-1] for entry in found]
        for room in rooms:
            self._remove(room.uuid)
        return rooms

    def _remove(self, uuid: str) -> None:
        group = self._group_of.pop(uuid, None)
        if group is not None:
            del group.entries[uuid]
            if not group.entries:
                del self._groups[group.kind]


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
