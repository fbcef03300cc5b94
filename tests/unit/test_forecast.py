from dataclasses import replace

from runner import clock
from runner.api.outlook import Outlook
from runner.forecast.estimates import Estimate, Forecast, agree, forecast, length_of
from runner.forecast.simulation import UNKNOWN, HeldSlot, Later, Length, Rest, Scene
from runner.schedule.room import BoxLimits
from tests.unit.test_schedule import gpu, runs, wants

HOUR = 3600.0


def sure(seconds):
    return Length(seconds, seconds)


def about(found):
    return {job_id: estimate.about_s for job_id, estimate in found.starts.items()}


def test_jobs_follow_each_other_on_one_gpu():
    lengths = {1: sure(100), 2: sure(50), 3: sure(10), 4: sure(1)}
    scene = Scene(
        queued=[wants(2), wants(3), wants(4)], running=[runs(1, 0)], held=[HeldSlot("GPU-0", 0, 1)],
        rooms=[gpu(0, free=())], lengths=lengths,
    )  # fmt: skip
    found = forecast(scene)
    assert about(found) == {2: 100, 3: 150, 4: 160}
    assert found.done.about_s == 161
    assert (found.unknown, found.bounded) == (0, 0)


def test_what_nobody_knows_is_not_made_up():
    scene = Scene(
        queued=[wants(2), wants(3)], running=[runs(1, 0)], held=[HeldSlot("GPU-0", 0, 1)], rooms=[gpu(0, free=())],
        lengths={2: sure(60), 3: sure(5)},
    )  # fmt: skip
    found = forecast(scene)
    assert about(found) == {2: None, 3: None}
    assert found.starts[3] == (60, None)
    assert found.done == (65, None)
    assert found.unknown == 1


def test_a_time_limit_is_a_bound_and_no_estimate():
    scene = Scene(queued=[wants(1), wants(2)], rooms=[gpu(0)], lengths={1: Length(0.0, HOUR), 2: sure(60)})
    found = forecast(scene)
    assert found.starts[1].about_s == 0
    assert found.starts[2] == (0, HOUR)
    assert found.starts[2].about_s is None
    assert (found.done, found.bounded) == ((60, HOUR + 60), 1)


def test_another_gpu_is_known_to_come_free():
    """What never ends holds one GPU; the others tell enough."""
    scene = Scene(
        queued=[wants(3), wants(4)], running=[runs(1, 0), runs(2, 1)],
        held=[HeldSlot("GPU-0", 0, 1), HeldSlot("GPU-1", 0, 2)], rooms=[gpu(0, free=()), gpu(1, free=())],
        lengths={2: sure(30), 3: sure(30), 4: sure(30)},
    )  # fmt: skip
    assert forecast(scene).starts == {3: (0, 30), 4: (30, 60)}


def test_jobs_after_others_and_not_before_a_moment():
    late = [Later(wants(2), frozenset({1})), Later(wants(3), begins_in_s=HOUR), Later(wants(4), frozenset({99}))]
    scene = Scene(queued=[wants(1)], later=late, rooms=[gpu(0)], lengths=dict.fromkeys((1, 2, 3, 4), sure(10)))
    found = forecast(scene)
    assert {number: found.starts[number].about_s for number in (1, 3)} == {1: 0, 3: HOUR}
    assert found.starts[4].latest_s is None  # nothing is known of what it waits for


def test_a_gpu_that_others_use_may_come_free_and_a_sick_one_is_not_counted_upon():
    taken = [gpu(0, why_not="is used by others")]
    assert forecast(Scene(queued=[wants(1)], rooms=taken, lengths={1: sure(5)})).starts[1] == (0, None)
    lost = [gpu(0, why_not="is lost", sick=True)]
    assert forecast(Scene(queued=[wants(1)], rooms=lost, lengths={1: sure(5)})).starts[1] == (None, None)


def test_several_on_one_gpu_by_memory():
    room = gpu(0, free=(0, 1, 2, 3), slots=4, memory_mib=20_000, share_mib=5_000)
    jobs = [wants(number, gpu_mem_mib=8_000) for number in (1, 2, 3)]
    found = forecast(Scene(queued=jobs, rooms=[room], lengths={1: sure(10), 2: sure(20), 3: sure(5)}))
    assert about(found) == {1: 0, 2: 0, 3: 10}


def test_a_preempted_job_goes_on_later():
    filler = runs(1, 0, preemptible=True, priority="low")
    scene = Scene(
        queued=[wants(2)], running=[filler], held=[HeldSlot("GPU-0", 0, 1)], rooms=[gpu(0, free=())],
        lengths={1: sure(100), 2: sure(10)},
    )  # fmt: skip
    found = forecast(scene)
    assert (about(found), found.done.about_s) == ({2: 0}, 110)


def test_who_makes_room_just_now_comes_back_before_those_behind_it():
    filler = replace(runs(1, 0, preemptible=True, priority="low", stopping=True), comes_back=True)
    behind, after = wants(3, preemptible=True, priority="low"), Later(wants(4, gpus=0), after=frozenset({1}))
    scene = Scene(
        queued=[wants(2), behind], later=[after], running=[filler], held=[HeldSlot("GPU-0", 0, 1)],
        rooms=[gpu(0, free=())], cpu_slots={None: 1}, lengths={1: sure(100), 2: sure(10), 3: sure(5), 4: sure(1)},
    )  # fmt: skip
    found = forecast(scene)
    assert (about(found), found.done.about_s) == ({2: 0, 3: 110, 4: 110}, 115)


def test_a_preempted_job_has_its_whole_limit_again():
    filler = runs(1, 0, preemptible=True, priority="low", limit_s=100.0)
    scene = Scene(
        queued=[wants(2)], running=[filler], held=[HeldSlot("GPU-0", 0, 1)], rooms=[gpu(0, free=())],
        lengths={1: Length(0.0, 20.0), 2: sure(10)},
    )  # fmt: skip
    assert forecast(scene).done == Estimate(10, 110)


def test_between_people_it_goes_by_turns():
    jobs = [*(wants(number, owner="ada") for number in (1, 2)), wants(3, owner="uma")]
    found = forecast(Scene(queued=jobs, rooms=[gpu(0)], lengths=dict.fromkeys((1, 2, 3), sure(10))))
    assert about(found) == {1: 0, 3: 10, 2: 20}


def test_jobs_without_gpus():
    jobs = [wants(number, gpus=0) for number in (1, 2, 3)]
    found = forecast(Scene(queued=jobs, cpu_slots={None: 2}, lengths=dict.fromkeys((1, 2, 3), sure(10))))
    assert (about(found), found.done.about_s) == ({1: 0, 2: 0, 3: 10}, 20)


def test_the_rest_is_summed_up():
    rooms, lengths = [gpu(0), gpu(1)], {1: sure(100), 2: sure(40)}
    scene = Scene(queued=[wants(1), wants(2)], rooms=rooms, lengths=lengths, rest=[Rest(10, 1, sure(30))])
    assert forecast(scene).done.about_s == (100 + 40 + 300) / 2
    short = Scene(queued=[wants(1), wants(2)], rooms=rooms, lengths=lengths, rest=[Rest(1, 1, sure(30))])
    assert forecast(short).done.about_s == 100
    unknown = Scene(queued=[wants(1), wants(2)], rooms=rooms, lengths=lengths, rest=[Rest(7, 1, UNKNOWN)])
    found = forecast(unknown)
    assert (found.done, found.unknown) == ((100, None), 7)


def test_the_work_is_bounded_however_odd_the_queue():
    jobs = [wants(number, owner=f"p{number}", limit_s=float(number)) for number in range(1, 1000)]
    lengths = {job.id: sure(10) for job in jobs}
    found = forecast(Scene(queued=jobs, rooms=[gpu(0)], lengths=lengths))
    assert found.starts[1].about_s == 0
    assert found.done.latest_s is None


def test_nothing_to_do():
    assert forecast(Scene(rooms=[gpu(0)])).done.about_s == 0


def test_how_long_a_job_takes_by_those_before_it():
    assert length_of([], None) == UNKNOWN
    assert length_of([], HOUR) == (0, HOUR)
    assert length_of([10, 20, 90], None) == (20, 20)
    assert length_of([10, 20, 90], 15) == (15, 15)


def test_a_job_that_takes_longer_than_usual():
    assert length_of([10, 20, 90], None, ran_s=5) == (15, 15)
    assert length_of([10, 20, 90], None, ran_s=30) == (60, 60)
    assert length_of([10, 20, 90], HOUR, ran_s=100) == (0, HOUR - 100)
    assert length_of([10, 20, 90], None, ran_s=100) == UNKNOWN


def test_relatives_that_differ_too_much_tell_nothing():
    assert agree([10, 11, 12])
    assert not agree([10])
    assert not agree([10, 100, 11, 120])


def test_caps_count():
    limits = BoxLimits(gpus_each=1)
    jobs = [wants(1, owner="ada"), wants(2, owner="ada")]
    found = forecast(Scene(queued=jobs, rooms=[gpu(0), gpu(1)], lengths={1: sure(9), 2: sure(9)}, limits=limits))
    assert about(found) == {1: 0, 2: 9}


def test_who_has_waited_long_comes_forward_in_the_forecast_too():
    jobs = [wants(1, priority="low", waited_s=60.0), wants(2)]
    scene = Scene(
        queued=jobs, running=[runs(9, 0)], held=[HeldSlot("GPU-0", 0, 9)], rooms=[gpu(0, free=())],
        lengths={9: sure(150), 1: sure(10), 2: sure(10)}, limits=BoxLimits(age_s=100.0),
    )  # fmt: skip
    assert about(forecast(scene)) == {1: 150, 2: 160}


def test_nobody_is_let_in_who_would_be_in_the_way_by_then():
    """At the start the small one would be gone in time; when there is room for it, no more."""
    scene = Scene(
        queued=[wants(3, gpus=2), wants(4, limit_s=60.0)], running=[runs(1, 0), runs(2, 1, ends_in_s=100.0)],
        held=[HeldSlot("GPU-0", 0, 1), HeldSlot("GPU-1", 0, 2)], rooms=[gpu(0, free=()), gpu(1, free=())],
        lengths={1: sure(50), 2: sure(100), 3: sure(10), 4: sure(60)},
    )  # fmt: skip
    assert about(forecast(scene)) == {3: 100, 4: 110}


def test_a_start_that_is_due_is_not_called_unknown():
    ahead = Outlook(clock.now(), Forecast(starts={1: Estimate(0.0, 0.0), 2: Estimate(0.0, None)}))
    assert [ahead.start_words(number) for number in (1, 2, 3)] == ["any moment", "", ""]
