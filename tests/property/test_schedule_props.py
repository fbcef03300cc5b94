"""The scheduler on any queue and any box."""

from hypothesis import given
from hypothesis import strategies as st

from runner.schedule.choice import Waiting, choose
from runner.schedule.request import Request
from runner.schedule.room import CpuSlot, Room


@st.composite
def boxes(draw):
    rooms = []
    for index in range(draw(st.integers(0, 4))):
        slots = draw(st.integers(1, 3))
        free = draw(st.sets(st.integers(0, slots - 1)))
        why_not = draw(st.sampled_from([None, None, None, "is lost"]))
        free_slots = tuple(sorted(free))
        sick = why_not is not None
        name = f"GPU-{index}"
        rooms.append(Room(index=index, uuid=name, free_slots=free_slots, slots=slots, why_not=why_not, sick=sick))
    return rooms


@st.composite
def queues(draw):
    jobs = []
    for number in range(draw(st.integers(0, 12))):
        on = draw(st.one_of(st.just(()), st.sets(st.sampled_from("0123"), min_size=1).map(lambda s: tuple(sorted(s)))))
        gpus = draw(st.integers(0, 3)) if not on else draw(st.integers(1, len(on)))
        jobs.append(Waiting(number, Request(gpus=gpus, on=on), number))
    return jobs


@given(jobs=queues(), rooms=boxes(), cpus=st.integers(0, 3))
def test_whatever_is_asked_for(jobs, rooms, cpus):
    plan = choose(jobs, rooms, [CpuSlot(slot) for slot in range(cpus)])
    asked = {job.id: job.request for job in jobs}
    started = {start.job_id: [slot for slot in start.slots if slot[0]] for start in plan.starts}

    # each job starts or has a reason, and none both
    assert set(started) | set(plan.waiting) == set(asked)
    assert not set(started) & set(plan.waiting)
    assert all(plan.waiting.values())

    # no slot twice, only free ones, only on GPUs that may be used
    given_slots = [slot for slots in started.values() for slot in slots]
    assert len(given_slots) == len(set(given_slots))
    by_uuid = {room.uuid: room for room in rooms}
    for job_id, slots in started.items():
        job = asked[job_id]
        assert len({uuid for uuid, _ in slots}) == len(slots) == job.gpus
        for uuid, slot in slots:
            room = by_uuid[uuid]
            assert slot in room.free_slots
            assert room.why_not is None
            assert not job.on or str(room.index) in job.on

    # jobs without GPUs take no more than the CPU slots, first come first served
    cpu_jobs = [job.id for job in jobs if job.request.gpus == 0]
    assert [job_id for job_id in cpu_jobs if job_id in started] == cpu_jobs[:cpus]

    # nobody takes a GPU that somebody before him waits for, unless that one waits for a sick one
    for earlier in jobs:
        well = sum(room.matches(earlier.request.on) and not room.sick for room in rooms)
        if earlier.id in plan.waiting and 0 < earlier.request.gpus <= well:
            could_use = {room.uuid for room in rooms if room.matches(earlier.request.on)}
            for later in jobs:
                if later.id > earlier.id and later.id in started:
                    assert not could_use & {uuid for uuid, _ in started[later.id]}


@given(jobs=queues(), rooms=boxes())
def test_the_first_that_fits_is_never_kept_waiting(jobs, rooms):
    plan = choose(jobs, rooms, [CpuSlot(slot) for slot in range(3)])
    if jobs and jobs[0].request.gpus:
        fitting = sum(room.usable and room.matches(jobs[0].request.on) for room in rooms)
        assert (jobs[0].id in plan.waiting) == (fitting < jobs[0].request.gpus)
