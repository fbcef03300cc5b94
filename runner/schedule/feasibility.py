"""Finds requests that this box can never meet: no single node has what they ask for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.schedule.room import counted, is_of_type, most_on_one_node, wanted
from runner.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.schedule.request import Request
    from runner.schedule.room import BoxLimits, Room


def never_fits(
    request: Request, existing: Sequence[Room], cpu_slots: Mapping[str | None, int], limits: BoxLimits
) -> str | None:
    """Return why a request can never be met on this box, or None if it can.

    `existing`: the GPUs of the empty box. `cpu_slots`: how many each node has.
    """
    if request.node is not None:
        if request.node not in cpu_slots:
            nodes = ", ".join(node for node in cpu_slots if node) or "only this host"
            return f"There is no node {request.node} (there is: {nodes})."
        existing = [room for room in existing if room.node == request.node]
        cpu_slots = {request.node: cpu_slots[request.node]}
    if request.gpus == 0 and not any(cpu_slots.values()):
        where = f"{request.node} takes" if request.node else "NIGHTSHIFT_CPU_SLOTS is 0: this box takes"
        return f"{where} no jobs without a GPU."
    beyond_gpus = _beyond_gpus(request, existing) if request.gpus else None
    return _beyond_host(request, limits) or beyond_gpus or _beyond_share(request, limits)


def _beyond_gpus(request: Request, existing: Sequence[Room]) -> str | None:
    if not existing:
        return "This box has no GPUs. For a job that needs none: --gpus 0"
    for name in request.on:
        if not any(room.matches((name,)) for room in existing):
            labels = ", ".join(room.label for room in existing)
            return f"There is no GPU {name} on this box (it has: {labels})."
    if request.gpu_type and not any(is_of_type(room.name, request.gpu_type) for room in existing):
        kinds = ", ".join(sorted({room.name for room in existing if room.name})) or "none whose name is known"
        return f"No GPU of this box is of type {request.gpu_type} (it has: {kinds})."
    suited = [room for room in existing if room.suits(request)]
    fitting = [room for room in suited if room.memory_mib is None or room.fits(request)]
    if (most := most_on_one_node(fitting)) >= request.gpus:
        return None
    if most_on_one_node(suited) >= request.gpus:
        most_mib = max(room.memory_mib or 0 for room in suited)
        return f"The job wants {wanted(request)}; the largest here has {format_mib(most_mib)}."
    several = len({room.node for room in existing}) > 1
    has = f"{'the largest node' if several else 'this box'} has {counted(most_on_one_node(existing))}"
    return f"The job wants {wanted(request)}; {has}. Ask for at most {most}."


def _beyond_host(request: Request, limits: BoxLimits) -> str | None:
    if limits.cpus is not None and request.cpus > limits.cpus:
        return f"The job wants {request.cpus} CPU cores; this box has {limits.cpus}."
    if limits.ram_mib is not None and request.ram_mib > limits.ram_mib:
        return f"The job wants {format_mib(request.ram_mib)} of memory; this box has {format_mib(limits.ram_mib)}."
    return None


def _beyond_share(request: Request, limits: BoxLimits) -> str | None:
    low = request.rank < 0
    at_most = limits.gpus_each_low if low else limits.gpus_each
    if at_most is None or request.gpus <= at_most:
        return None
    refusal = f"Here one person may have {counted(at_most)} at once, and the job wants {request.gpus}."
    more_if_low = not low and (limits.gpus_each_low is None or limits.gpus_each_low >= request.gpus)
    return f"{refusal} At low priority it may: -p low" if more_if_low else refusal
