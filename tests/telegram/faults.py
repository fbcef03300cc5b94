"""Injected faults: which calls go wrong, and how."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Fault(str, Enum):
    """One way for a call to go wrong."""

    TOO_MANY_REQUESTS = "429"
    SERVER_ERROR = "500"
    BAD_GATEWAY = "502"
    HANG_BEFORE = "hang_before"
    """Not done and never answered."""
    HANG_AFTER = "hang_after"
    """Done, but never answered."""
    CUT = "cut"
    """Done, but the answer breaks off in the middle."""
    REFUSED = "refused"
    """No connection, nothing done."""


@dataclass(slots=True)
class _Plan:
    """Faults for some methods (none named: all), in order or by chance."""

    methods: frozenset[str]
    faults: deque[Fault | None]
    probability: float | None = None

    def concerns(self, method: str) -> bool:
        return bool(self.faults) and (not self.methods or method.lower() in self.methods)


class Faults:
    """Decides for each call whether it goes wrong, and counts."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._plans: list[_Plan] = []
        self.outage = False
        self.retry_after_s = 1
        self.calls: Counter[str] = Counter()
        self.applied: Counter[tuple[str, Fault]] = Counter()

    def script(self, *faults: Fault | str | None, methods: Iterable[str] = ()) -> None:
        """Make the next calls (of these methods) go wrong in this order. None lets one pass."""
        self._plans.append(_Plan(_lower(methods), deque(None if fault is None else Fault(fault) for fault in faults)))

    def chance(self, probability: float, *faults: Fault | str, methods: Iterable[str] = ()) -> None:
        """From now on, make each call (of these methods) go wrong with this probability, in one of these ways."""
        kinds = deque(Fault(fault) for fault in faults or tuple(Fault))
        self._plans.append(_Plan(_lower(methods), deque(kinds), probability))

    def clear(self) -> None:
        """Stop all faults. The counts stay."""
        self._plans.clear()
        self.outage = False

    def next(self, method: str) -> Fault | None:
        """Return the fault for this call, or None if it goes well."""
        self.calls[method] += 1
        fault = Fault.REFUSED if self.outage else self._planned(method)
        if fault is not None:
            self.applied[method, fault] += 1
        return fault

    def _planned(self, method: str) -> Fault | None:
        for plan in self._plans:
            if not plan.concerns(method):
                continue
            if plan.probability is None:
                return plan.faults.popleft()
            if self._random.random() < plan.probability:
                return self._random.choice(list(plan.faults))
        return None


def _lower(methods: Iterable[str]) -> frozenset[str]:
    return frozenset(method.lower() for method in methods)
