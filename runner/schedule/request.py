"""What a job asks for. Queued jobs that ask for the same are in one lane. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.model import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything about a job that decides when and where it starts."""

    owner: str = ""
    gpus: int = 1
    on: tuple[str, ...] = ()  # which GPUs it may use, by label (see Room) or UUID; empty: any
    node: str | None = None  # the node that it must run on; None: any
    gpu_type: str | None = None  # a part of the GPU's name
    gpu_mem_mib: int | None = None  # memory it needs on each GPU
    cpus: int = 0
    ram_mib: int = 0
    rank: int = 0  # of its priority: -1, 0, 1
    preemptible: bool = False
    limit_s: float | None = None
    group: str | None = None
    untried: bool = False  # it asks for a trial only, which may go ahead of the queue

    @property
    def priority(self) -> int:
        """Return a number that is higher for the job that goes first. It may preempt lower preemptible jobs."""
        return 2 * self.rank + (0 if self.preemptible else 1)


HIGHEST_PRIORITY = Request(rank=1).priority
_DEFAULTS = {field.name: field.default for field in fields(Request)}


def request_of(spec: JobSpec, *, untried: bool | None = None) -> Request:
    """Return what a job with this spec asks for. A new or edited job is untried if its spec asks for a trial."""
    return Request(
        owner=spec.owner,
        gpus=spec.gpus,
        on=spec.on,
        gpu_type=spec.gpu_type,
        gpu_mem_mib=spec.gpu_mem_mib,
        cpus=spec.cpus,
        ram_mib=spec.ram_mib,
        rank=spec.priority.rank,
        preemptible=spec.preemptible,
        limit_s=spec.time_limit_s,
        group=spec.group,
        untried=spec.trial if untried is None else untried,
    )


def lane_of(request: Request) -> str:
    """Return the name of its lane: the fields that differ from the defaults, as JSON."""
    asked = {name: getattr(request, name) for name in _DEFAULTS}
    unusual = {name: value for name, value in asked.items() if value != _DEFAULTS[name]}
    return json.dumps(unusual, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=10_000)
def request_in(lane: str) -> Request:
    """Return the request of a lane, the inverse of lane_of."""
    asked: dict[str, Any] = json.loads(lane)
    if "on" in asked:
        asked["on"] = tuple(asked["on"])
    return Request(**asked)
