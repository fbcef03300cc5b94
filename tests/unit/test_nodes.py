"""GPUs and CPU slots of several nodes: each job stays on one, and labels name it."""

from collections import Counter
from dataclasses import replace

import pytest

from runner.config.settings import Settings
from runner.engines.base import Can, Node
from runner.loop.placement import Placement
from runner.model import Gpu, Snapshot
from runner.processes import linux
from runner.schedule.choice import Preemption, Running, Start, Waiting, choose
from runner.schedule.feasibility import never_fits
from runner.schedule.request import Request, lane_of, request_in
from runner.schedule.room import BoxLimits, CpuSlot, Room
from runner.store.connection import open_store
from runner.store.scheduling_queries import Lease, cpu_of
from tests.step_context import a_context


def gpu(node, index, free=(0,), **more):
    return Room(index=index, uuid=f"GPU-{node}-{index}", node=node, free_slots=tuple(free), slots=1, **more)


def wants(number, **request):
    return Waiting(number, Request(**request), number)


def runs(number, *rooms, ends_in_s=None, **request):
    return Running(number, Request(gpus=len(rooms), **request), tuple(room.uuid for room in rooms), ends_in_s)


def nodes_of(plan):
    return {start.job_id: (start.node, len(start.slots)) for start in plan.starts}


HUB, POD = [gpu("hub", 0), gpu("hub", 1)], [gpu("pod", n) for n in range(3)]


# -- starts --------------------------------------------------------------------------------------------


def test_all_gpus_of_a_job_are_of_one_node():
    assert nodes_of(choose([wants(1, gpus=3)], [*HUB, *POD], ())) == {1: ("pod", 3)}
    plan = choose([wants(1, gpus=4)], [*HUB, *POD], ())
    assert plan.waiting == {1: "needs 4 GPUs; there are 3 that it may use on one node"}


def test_small_jobs_leave_the_emptier_node_to_wide_ones():
    plan = choose([wants(1), wants(2), wants(3, gpus=3)], [*POD, *HUB], ())
    assert nodes_of(plan) == {1: ("hub", 1), 2: ("hub", 1), 3: ("pod", 3)}


def test_a_job_goes_where_it_must_run():
    plan = choose(
        [wants(1, node="pod"), wants(2, on=("hub:1",)), wants(3, node="hub", on=("pod:2",))], [*HUB, *POD], ()
    )
    assert [start.slots for start in plan.starts] == [(("GPU-pod-0", 0),), (("GPU-hub-1", 0),)]
    assert plan.waiting == {3: "needs 1 GPU on hub; there are 0 that it may use"}


def test_an_index_alone_names_no_gpu_if_there_are_several_nodes():
    assert choose([wants(1, on=("0",))], [*HUB, *POD], ()).starts == []
    said = never_fits(Request(on=("0",)), [*HUB, *POD], {"hub": 1, "pod": 1}, BoxLimits())
    assert said == "There is no GPU 0 on this box (it has: hub:0, hub:1, pod:0, pod:1, pod:2)."


def test_reasons_name_the_node():
    rooms = [gpu("hub", 0, why_not="is lost"), gpu("pod", 0, ()), gpu("pod", 1)]
    assert choose([wants(1, gpus=2)], rooms, ()).waiting == {
        1: "needs 2 GPUs, 1 free on one node; GPU hub:0 is lost",
    }


def test_each_node_has_its_own_cpu_slots():
    jobs = [wants(1, gpus=0), wants(2, gpus=0), wants(3, gpus=0, node="pod"), wants(4, gpus=0, node="hub")]
    plan = choose(jobs, [], [CpuSlot(0, "hub"), CpuSlot(0, "pod"), CpuSlot(1, "pod")])
    slots = {start.job_id: (start.node, start.slots) for start in plan.starts}
    assert slots == {1: ("pod", (("", 0),)), 2: ("hub", (("", 0),)), 3: ("pod", (("", 1),))}
    assert plan.waiting == {4: "waits for a CPU slot on hub"}


# -- reservations and preemption -----------------------------------------------------------------------


def test_a_wide_job_reserves_one_node_only():
    rooms = [gpu("hub", 0, ()), gpu("hub", 1), gpu("pod", 0, ()), gpu("pod", 1)]
    busy = [runs(8, rooms[0], ends_in_s=100.0), runs(9, rooms[2], ends_in_s=50.0)]
    plan = choose([wants(1, gpus=2), wants(2), wants(3)], rooms, (), busy)
    assert nodes_of(plan) == {2: ("hub", 1)}
    assert plan.waiting[3].startswith("behind #1")


def test_a_second_wide_job_waits_for_another_node():
    rooms = [gpu("hub", 0, ()), gpu("hub", 1), gpu("pod", 0, ()), gpu("pod", 1)]
    busy = [runs(8, rooms[0], ends_in_s=50.0), runs(9, rooms[2], ends_in_s=100.0)]
    plan = choose([wants(1, gpus=2), wants(2, gpus=2), wants(3)], rooms, (), busy)
    assert plan.starts == []


def test_preemption_makes_room_on_one_node():
    rooms = [gpu(node, index, ()) for node in ("hub", "pod") for index in range(2)]
    low = {"preemptible": True, "rank": -1}
    busy = [runs(6, rooms[0], **low), runs(7, rooms[1]), runs(8, rooms[2], **low), runs(9, rooms[3], **low)]
    plan = choose([wants(1, gpus=2)], rooms, (), busy)
    assert plan.preemptions == [Preemption(8, 1), Preemption(9, 1)]


# -- what can never fit --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(gpus=4), "The job wants 4 GPUs; the largest node has 3 GPUs. Ask for at most 3."),
        (Request(gpus=3, node="hub"), "The job wants 3 GPUs on hub; this box has 2 GPUs. Ask for at most 2."),
        (Request(node="moon"), "There is no node moon (there is: hub, pod)."),
        (Request(gpus=0, node="hub"), "hub takes no jobs without a GPU."),
        (Request(gpus=3), None),
        (Request(gpus=0), None),
    ],
)
def test_the_largest_node_decides_what_can_never_fit(request_, said):
    assert never_fits(request_, [*HUB, *POD], {"hub": 0, "pod": 1}, BoxLimits()) == said


def test_a_node_in_the_request_makes_a_lane_of_its_own():
    assert request_in(lane_of(Request(node="pod"))) == Request(node="pod")
    assert lane_of(Request()) == "{}"


# -- the runner ----------------------------------------------------------------------------------------


class Nodes:
    """An engine with these nodes, as far as placement asks."""

    can = Can()

    def __init__(self, *names):
        self._nodes = [Node(name, self._reading(name), None, linux.boot_id(), 2) for name in names]

    def _reading(self, name):
        gpu = Gpu(index=0, uuid=f"GPU-{name}", memory_total_mib=100, memory_used_mib=0, utilization=0, processes=())
        return Snapshot(at="", boot_id="", simulated=True, gpus=(gpu,))

    def nodes(self):
        return self._nodes


@pytest.fixture
def placement_on(tmp_path):
    store = open_store(str(tmp_path / "home"))
    settings = Settings(home=str(tmp_path / "home"), box="hub")
    yield lambda *names: Placement(a_context(store, settings, Nodes(*names)))
    store.close()


def test_labels_name_the_node_as_soon_as_there_are_two(placement_on):
    assert [room.label for room in placement_on(None).rooms([])] == ["0"]
    assert [room.label for room in placement_on(None, "pod").rooms([])] == ["hub:0", "pod:0"]


def test_cpu_leases_count_for_their_node(placement_on):
    leases = [Lease(cpu_of(None), 0, 1, 1), Lease(cpu_of("pod"), 1, 2, 1), Lease(cpu_of("gone"), 0, 3, 1)]
    assert placement_on(None).free_cpu_slots(leases) == [CpuSlot(1)]
    assert placement_on(None, "pod").free_cpu_slots(leases) == [CpuSlot(1, "hub"), CpuSlot(0, "pod")]


def test_one_host_and_one_named_node_start_the_same():
    jobs = [wants(n, gpus=n % 3) for n in range(1, 9)]
    here = [replace(room, node=None, uuid=f"GPU-{n}") for n, room in enumerate(POD)]
    there = [replace(room, node="pod") for room in here]
    plans = [choose(jobs, here, [CpuSlot(0)]), choose(jobs, there, [CpuSlot(0, "pod")])]
    assert [start._replace(node=None) for start in plans[1].starts] == plans[0].starts
    assert Counter(start.node for start in plans[1].starts) == {"pod": len(plans[0].starts)}
    assert plans[0].starts[0] == Start(1, (("GPU-0", 0),))
