"""With exact lengths and no surprises, what is forecast is what happens."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from runner.forecast.estimates import forecast
from runner.forecast.simulation import HeldSlot, Later, Length, Scene
from runner.schedule.choice import Running, Waiting, choose
from runner.schedule.request import Request
from runner.schedule.room import BoxLimits, CpuSlot, Room, free_cpu_slots

SECONDS = st.integers(1, 12)


def night(scene):
    """The box second by second, with nothing but the scheduler and a clock; when each job starts, and the last ends."""
    now, starts, over, use = 0, {}, set(), dict(scene.limits.use)
    queued, later = list(scene.queued), list(scene.later)
    live = {job.id: (job, 0, [one for one in scene.held if one.job_id == job.id]) for job in scene.running}
    while queued or later or live:
        assert now < 1000
        for number in [n for n, (_, since, _) in live.items() if since + scene.lengths[n].most_s <= now]:
            del live[number]
            over.add(number)
        ready = [one for one in later if one.begins_in_s <= now and one.after <= over]
        later, queued = [one for one in later if one not in ready], queued + [one.job for one in ready]
        while True:
            held = [one for _, _, slots in live.values() for one in slots]
            rooms = [furnished(room, held) for room in scene.rooms]
            cpus = free_cpu_slots(scene.cpu_slots, [CpuSlot(one.slot) for one in held if one.gpu == ""])
            running = [seen(job, now - since) for job, since, _ in live.values()]
            waiting = [replace(job, waited_s=job.waited_s + now) for job in queued]
            plan = choose(waiting, rooms, cpus, running, replace(scene.limits, use=use))
            for number, slots, memory_mib, _ in plan.starts:
                (job,) = [one for one in queued if one.id == number]
                queued.remove(job)
                starts[number] = now
                gpus = tuple(gpu for gpu, _ in slots if gpu)
                job = Running(number, job.request, gpus, job.request.limit_s, job.waited_s + now)
                live[number] = (job, now, [HeldSlot(gpu, slot, number, memory_mib) for gpu, slot in slots])
            if not plan.starts:
                break
        if live or queued or later:
            now += 1
            for job, _, _ in live.values():
                use[job.request.owner] = use.get(job.request.owner, 0) + len(job.gpus)
    return starts, now


def seen(job, for_s):
    ends_in_s = None if job.ends_in_s is None else max(0.0, job.ends_in_s - for_s)
    return replace(job, ends_in_s=ends_in_s, ran_s=for_s)


def furnished(room, held):
    here = [one for one in held if one.gpu == room.uuid]
    free = tuple(slot for slot in range(room.slots) if slot not in {one.slot for one in here})
    promised = sum(room.share_mib if one.memory_mib is None else one.memory_mib for one in here)
    return replace(room, free_slots=free, memory_mib=room.share_mib * room.slots - promised)


@st.composite
def requests(draw, most_gpus, memories, owner):
    gpus = draw(st.integers(0, most_gpus))
    return Request(
        owner=owner,
        gpus=gpus,
        gpu_mem_mib=draw(st.sampled_from([None, None, *memories])) if gpus else None,
        limit_s=draw(st.sampled_from([None, 12.0])),
        rank=draw(st.sampled_from([0, 0, 0, 1, -1])),
    )


@st.composite
def scenes(draw):
    """Several people, or jobs that want several GPUs or more than a slot's share of one.

    With both, whose turn it is may change while nothing happens: who waits for more than is free keeps it from others
    only until it is theirs.
    """
    count, people = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    slots = draw(st.integers(1, 2))
    share_mib = 12 // slots
    rooms, running, held, lengths = [], [], [], {}
    most_gpus = 1 if people > 1 else count
    memories = [5] if people > 1 and slots > 1 else [5, 10]
    for index in range(count):
        rooms.append(Room(index=index, uuid=f"GPU-{index}", slots=slots, free_slots=(), share_mib=share_mib))
        if draw(st.booleans()):
            number = 100 + index
            request = Request(owner="p0", limit_s=draw(st.sampled_from([None, 12.0])))
            running.append(Running(number, request, (f"GPU-{index}",), request.limit_s))
            held.append(HeldSlot(f"GPU-{index}", 0, number, share_mib if slots > 1 else None))
    rooms = [furnished(room, held) for room in rooms]
    jobs = [
        Waiting(number, draw(requests(most_gpus, memories, f"p{draw(st.integers(0, people - 1))}")), number)
        for number in range(1, draw(st.integers(1, 10)) + 1)
    ]
    later = []
    for job in jobs[1:]:
        if draw(st.integers(0, 3)) == 0:
            after = frozenset(draw(st.sets(st.integers(1, job.id - 1), max_size=2)))
            later.append(Later(job, after, float(draw(st.integers(0, 20)))))
    set_aside = {one.job.id for one in later}
    for number in [*(job.id for job in jobs), *(job.id for job in running)]:
        seconds = float(draw(SECONDS))
        lengths[number] = Length(seconds, seconds)
    limits = BoxLimits(gpus_each=draw(st.sampled_from([None, None, 3])))
    return Scene(
        queued=[job for job in jobs if job.id not in set_aside], later=later, running=running, held=held, rooms=rooms,
        cpu_slots={None: draw(st.integers(1, 2))}, limits=limits, lengths=lengths,
    )  # fmt: skip


@given(scenes())
def test_the_forecast_is_what_happens(scene):
    starts, done = night(scene)
    found = forecast(scene)
    assert {number: estimate.about_s for number, estimate in found.starts.items()} == starts
    assert found.done.about_s == done
    assert (found.unknown, found.bounded) == (0, 0)


@given(scenes(), st.data())
def test_who_is_not_known_to_start_is_not_said_to(scene, data):
    """Some lengths are known by the limit or not at all: whatever they turn out to be, no exact moment is promised."""
    vague = data.draw(st.sets(st.sampled_from(sorted(scene.lengths)), min_size=1))
    lengths = {number: Length() if number in vague else length for number, length in scene.lengths.items()}
    found = forecast(replace(scene, lengths=lengths))
    assert found.unknown == len(vague)
    assert found.done.latest_s is None
    for estimate in found.starts.values():
        assert estimate.latest_s is None or estimate.earliest_s is not None
        assert estimate.latest_s is None or estimate.earliest_s <= estimate.latest_s
