from runner.batch import (
    BatchPlan,
    BatchSettings,
    Failed,
    GiveUp,
    Measured,
    MemoryLine,
    OutOfMemory,
    Probe,
    Run,
    Unmeasured,
    bars,
    detail,
    summary,
)

SETTINGS = BatchSettings()


def probed():
    plan = BatchPlan.start(SETTINGS, 24_164).after(Measured(8910, seconds=7))
    return plan.after(Measured(2350 + 820 * plan.step.batch, seconds=7))


def test_one_line_says_it_all():
    assert summary(probed(), 24_564) == "batch 24, 90 % of 24 GiB, probed in 14 s"
    assert summary(probed(), 24_564, peak_mib=22_500) == "batch 24, 92 % of 24 GiB, probed in 14 s"
    assert summary(probed(), 81_559, peak_mib=22_500) == "batch 24, 28 % of 80 GiB, probed in 14 s"


def test_stepping_back_is_told():
    plan = probed().after(OutOfMemory(24_000, seconds=30))
    assert summary(plan, 24_564).endswith(", reduced once")


def test_what_is_known_or_unknown_is_told():
    run = Run(24, "known from an earlier job of its kind", confident=True)
    known = BatchPlan.remembered(SETTINGS, 24_164, MemoryLine(2350, 820), run)
    assert summary(known, 24_564) == "batch 24, 90 % of 24 GiB, known from an earlier job"


def test_whose_batch_it_is_and_why_is_told_once():
    unprobed = BatchPlan.unprobed(SETTINGS, 24_164, "others use this GPU")
    assert summary(unprobed, 24_564) == "batch 8, the default, because others use this GPU"
    assert summary(unprobed, 24_564, over=True) == "batch 8, the default, not probed"
    own = BatchPlan.unprobed(BatchSettings(own=12), 24_164, "others use this GPU")
    assert summary(own, 24_564) == "batch 12, your own, because others use this GPU"
    assert summary(own.after(OutOfMemory()), 24_564) == "batch 6, not probed, reduced once"


def test_a_reading_that_failed_later_is_no_probed_batch():
    plan = BatchPlan.start(SETTINGS, 81_000).after(Measured(3000, seconds=7))
    plan = plan.after(Measured(2400 + 75 * plan.step.batch, seconds=7))
    assert isinstance(plan.step, Probe)  # far beyond what ran: once more
    told = summary(plan.after(Unmeasured("the readings of its GPU stopped while it was probed")), 81_559)
    assert told.endswith("the default, because the readings of its GPU stopped while it was probed")


def test_the_only_batch_there_is_was_probed_all_the_same():
    plan = BatchPlan.start(SETTINGS, 24_164)
    for _ in range(3):
        plan = plan.after(OutOfMemory(seconds=2))
    plan = plan.after(Measured(24_000, seconds=2))
    assert summary(plan, 24_564) == "batch 1, probed in 8 s"


def test_a_probe_under_way_and_an_end_are_told():
    plan = BatchPlan.start(SETTINGS, 24_164)
    assert summary(plan.after(Measured(8910)), 24_564) == "probing batch 19"
    assert summary(plan, 24_564, over=True) == "ended while batch 8 was probed"
    for _ in range(4):
        plan = plan.after(OutOfMemory())
    assert isinstance(plan.step, GiveUp)
    assert summary(plan, 24_564) == plan.step.reason


def test_the_points_the_line_and_the_margin_are_told():
    told = "\n".join(detail(probed()))
    for words in (
        "21.7 GiB, 92 % of the 23.6 GiB",
        "batch 8 took 8.7 GiB",
        "batch 19 took",
        "2.3 GiB + 820 MiB",
        "chosen: batch 24",
    ):
        assert words in told


def test_a_failure_is_told_without_its_output():
    failed = BatchPlan.start(SETTINGS, 24_164).after(Failed("exit code 3", "Traceback\nValueError: no data"))
    assert summary(failed, 24_564) == "the probe at batch 8 failed (exit code 3)"


def test_the_fit_is_drawn_in_bars():
    assert bars(probed().after(OutOfMemory(24_000, seconds=30))) == [
        " batch (◀ chosen)",
        "     8 █████▉            8.7 GiB",
        "    19 ███████████▉     17.5 GiB",
        "    21 █████████████    19.1 GiB ◀",
        "    24 out of memory",
        " limit ░░░░░░░░░░░░░░   21.7 GiB",
        " total ░░░░░░░░░░░░░░░░ 23.6 GiB",
    ]


def test_half_of_what_was_too_large_says_so():
    plan = BatchPlan.start(BatchSettings(), 24_000).after(OutOfMemory()).unmeasured("the readings of its GPU stopped")
    assert summary(plan, 24_576) == "batch 4, half of 8, which was too large, because the readings of its GPU stopped"
