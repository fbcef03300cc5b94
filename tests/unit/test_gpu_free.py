"""Who holds a GPU's memory, and whether a job may start there."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.gpu.attribution import foreign_memory_mib, holders
from runner.gpu.availability import why_not_free
from runner.model import Gpu, GpuHealth, GpuProcess

OURS, THEIRS = 4_100_001, 4_100_002  # beyond the largest PID there can be


def _gpu(**changes: Any) -> Gpu:
    usual: dict[str, Any] = {
        "index": 0,
        "uuid": "GPU-a",
        "memory_total_mib": 24576,
        "memory_used_mib": 0,
        "utilization": 0,
        "compute_mode": 0,
        "processes": (),
    }
    return Gpu(**{**usual, **changes})


def _held(**held: int | None) -> tuple[GpuProcess, ...]:
    pids = {"ours": OURS, "theirs": THEIRS}
    return tuple(
        GpuProcess(pid=pids[who], memory_mib=mib, of="1.1.aa" if who == "ours" else None) for who, mib in held.items()
    )


@pytest.mark.parametrize(
    ("gpu", "leased", "expected"),
    [
        (_gpu(memory_used_mib=700), False, 700),
        (_gpu(memory_used_mib=700, processes=None), False, 700),
        (_gpu(memory_used_mib=None), False, None),
        (_gpu(memory_used_mib=None, processes=_held(ours=5)), True, None),
        (_gpu(memory_used_mib=9000, processes=_held(ours=5000, theirs=3900)), True, 4000),
        (_gpu(memory_used_mib=9000, processes=_held(ours=9000)), True, 0),
        (_gpu(memory_used_mib=9000, processes=_held(theirs=9000)), True, None),
        (_gpu(memory_used_mib=9000, processes=()), True, None),
        (_gpu(memory_used_mib=9000, processes=None), True, None),
        (_gpu(memory_used_mib=9000, processes=_held(ours=None)), True, None),
        (_gpu(memory_used_mib=100, processes=_held(ours=5000)), True, None),
    ],
    ids=[
        "nobody of ours: all of it",
        "no list needed then",
        "unknown use",
        "unknown use with a list",
        "ours taken off",
        "all ours",
        "host PIDs",
        "hidden list",
        "no list",
        "sizes not told",
        "ours by chance",
    ],
)
def test_foreign_memory(gpu: Gpu, leased: bool, expected: int | None) -> None:
    assert foreign_memory_mib(gpu, leased=leased) == expected


def test_holders_are_named_as_far_as_they_can_be() -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    name = Path("/proc/self/comm").read_text().strip()
    listed = (GpuProcess(pid=THEIRS, memory_mib=100), GpuProcess(pid=os.getpid(), memory_mib=5222))
    assert holders(_gpu(processes=listed)) == (
        f"pid {os.getpid()} ({name}, {me}) 5.1 GiB, pid {THEIRS} (not visible from here) 0.1 GiB"
    )
    assert holders(_gpu(processes=(listed[0], replace(listed[1], of="1.1.aa"))), foreign=True).startswith(
        f"pid {THEIRS}"
    )
    assert holders(_gpu(processes=(GpuProcess(pid=THEIRS),))) == f"pid {THEIRS} (not visible from here)"


def test_a_long_list_of_holders_is_cut() -> None:
    listed = tuple(GpuProcess(pid=THEIRS + i, memory_mib=i) for i in range(6))
    assert holders(_gpu(processes=listed)).endswith(" and 2 more")


@pytest.mark.parametrize("processes", [None, ()])
def test_holders_nobody_names(processes: tuple[GpuProcess, ...] | None) -> None:
    assert holders(_gpu(processes=processes)) == "processes the driver does not name"


@pytest.mark.parametrize(
    "gpu",
    [
        _gpu(),
        _gpu(utilization=49),
        _gpu(memory_used_mib=2457),
        _gpu(utilization=None, utilization_supported=False),
        _gpu(compute_mode=3),
        _gpu(compute_mode=None),
        _gpu(processes=None, memory_used_mib=300),
    ],
)
def test_free(gpu: Gpu) -> None:
    assert why_not_free(gpu, leased_by_us=0) is None


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (_gpu(health=GpuHealth.LOST, detail="fell off"), "lost: fell off"),
        (_gpu(health=GpuHealth.LOST), "lost"),
        (_gpu(health=GpuHealth.UNKNOWN, detail="has not answered for 3 s"), "unknown: has not answered for 3 s"),
        (_gpu(health=GpuHealth.UNSUPPORTED, detail="is split"), "unsupported: is split"),
        (_gpu(memory_used_mib=None), "unknown: its memory cannot be read"),
        (_gpu(memory_total_mib=None), "unknown: its memory cannot be read"),
        (_gpu(utilization=50), "busy: 50 % utilisation by others"),
        (_gpu(utilization=None), "unknown: its utilisation cannot be read"),
        (_gpu(compute_mode=2), "its compute mode is Prohibited: `nvidia-smi -c 0` allows jobs"),
        (
            _gpu(memory_used_mib=6246, processes=_held(theirs=6200)),
            f"6.1 of 24.0 GiB held by pid {THEIRS} (not visible from here) 6.1 GiB",
        ),
        (_gpu(memory_used_mib=2458, processes=None), "2.4 of 24.0 GiB held by processes the driver does not name"),
    ],
)
def test_not_free(gpu: Gpu, reason: str) -> None:
    assert why_not_free(gpu, leased_by_us=0) == reason


@pytest.mark.parametrize(
    "gpu",
    [
        _gpu(utilization=100, memory_used_mib=9000, processes=_held(ours=9000)),
        _gpu(utilization=None, memory_used_mib=9000, processes=_held(ours=9000)),
        _gpu(memory_used_mib=9000, processes=None),
        _gpu(memory_used_mib=9000, processes=_held(theirs=9000)),
        _gpu(memory_used_mib=9000, processes=_held(ours=7000, theirs=1900)),
    ],
    ids=["our own load", "load not read", "no list", "host PIDs", "little of others"],
)
def test_a_slot_beside_our_own_job_is_ours_by_lease(gpu: Gpu) -> None:
    assert why_not_free(gpu, leased_by_us=1) is None


@pytest.mark.parametrize(
    "gpu",
    [
        _gpu(health=GpuHealth.UNKNOWN, detail="?"),
        _gpu(memory_used_mib=None),
        _gpu(compute_mode=2),
        _gpu(compute_mode=3),
        _gpu(memory_used_mib=9000, processes=_held(ours=1000, theirs=8000)),
    ],
    ids=["unknown", "memory unknown", "prohibited", "one process only", "others too large"],
)
def test_a_lease_does_not_make_everything_free(gpu: Gpu) -> None:
    assert why_not_free(gpu, leased_by_us=1) is not None


def test_without_a_lease_all_that_is_held_is_in_the_way() -> None:
    """One of our jobs on another GPU that strays onto this one holds its memory no less."""
    stray = _gpu(memory_used_mib=9000, processes=_held(ours=9000))
    assert why_not_free(stray, leased_by_us=0) is not None


def test_the_limits_are_settings() -> None:
    busy = _gpu(utilization=60, memory_used_mib=6000)
    assert why_not_free(busy, leased_by_us=0, max_utilization=70, max_foreign_share=0.5) is None
    assert why_not_free(_gpu(), leased_by_us=0, max_utilization=0, max_foreign_share=0) is None
    assert why_not_free(_gpu(memory_used_mib=1), leased_by_us=0, max_foreign_share=0) is not None


def test_a_gpu_without_memory_of_its_own_is_judged_by_its_load() -> None:
    unified: dict[str, Any] = {"unified": True, "memory_total_mib": None, "memory_used_mib": None}
    assert why_not_free(_gpu(**unified), leased_by_us=0) is None
    assert "busy" in (why_not_free(_gpu(**unified, utilization=80), leased_by_us=0) or "")
    assert why_not_free(_gpu(memory_total_mib=None, memory_used_mib=None), leased_by_us=0) is not None


def test_who_makes_a_gpu_busy_is_named_where_the_driver_tells() -> None:
    busy = _gpu(utilization=97, processes=(GpuProcess(pid=THEIRS, memory_mib=512),))
    said = why_not_free(busy, leased_by_us=0)
    assert said == f"busy: 97 % utilisation by pid {THEIRS} (not visible from here) 0.5 GiB"
