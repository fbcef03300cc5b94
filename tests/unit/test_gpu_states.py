import math

import pytest

from runner.gpu.availability import GpuStates, StartRules
from runner.model import Gpu, GpuHealth, Snapshot
from runner.store.scheduling_queries import Lease


def a_gpu(**fields):
    values = {"memory_total_mib": 24576, "memory_used_mib": 0, "utilization": 0, "processes": ()}
    return Gpu(index=0, uuid="GPU-a", name="A100", **{**values, **fields})


def standing(gpu, age_s=0.5, leases=(), trouble=None, **rules):
    snapshot = Snapshot(at="", boot_id="", simulated=False, gpus=(gpu,), trouble=trouble)
    return GpuStates((snapshot, age_s), leases, StartRules(**rules))


OURS = Lease("GPU-a", 0, 12, 1)


@pytest.mark.parametrize(
    ("gpu", "options", "state", "detail"),
    [
        (a_gpu(), {}, "free", None),
        (a_gpu(memory_used_mib=300), {}, "free", None),
        (a_gpu(utilization=90, memory_used_mib=20000), {"leases": [OURS]}, "busy", None),
        (a_gpu(utilization=90), {}, "taken", "90 % utilisation"),
        (a_gpu(utilization=90), {"max_utilization": 95}, "free", None),
        (a_gpu(memory_used_mib=12288), {}, "taken", "12.0 of 24.0 GiB"),
        (a_gpu(memory_used_mib=12288), {"max_foreign_percent": 60}, "free", None),
        (a_gpu(memory_used_mib=None), {}, "unknown", "cannot be read"),
        (a_gpu(health=GpuHealth.LOST, detail="fell off the bus"), {}, "lost", "fell off the bus"),
        (a_gpu(), {"age_s": 60}, "unknown", "1m 00s ago"),
        (a_gpu(), {"age_s": math.inf}, "unknown", "before the last boot"),
        (a_gpu(), {"trouble": "reboot needed"}, "held", "reboot needed"),
    ],
)
def test_a_gpu_is_called_what_it_is(gpu, options, state, detail):
    [told] = standing(gpu, **options).described()
    assert told["state"] == state
    assert (told["detail"] is None) == (detail is None)
    assert detail is None or detail in told["detail"]


def test_old_readings_are_no_readings():
    [told] = standing(a_gpu(temperature_c=40, power_w=50.0), age_s=60).described()
    for key in ("memory_used_mib", "utilization", "temperature_c", "power_w"):
        assert told[key] is None
    assert told["memory_total_mib"] == 24576


def test_a_gpu_has_room_as_far_as_it_is_free():
    [room] = standing(a_gpu(), slots=2, leases=[OURS]).rooms()
    assert (room.free_slots, room.usable) == ((1,), True)
    [room] = standing(a_gpu(utilization=90)).rooms()
    assert not room.usable
    [room] = standing(a_gpu(), age_s=60).rooms()
    assert not room.usable
    assert GpuStates(None, (), StartRules()).described() == GpuStates(None, (), StartRules()).rooms() == []
