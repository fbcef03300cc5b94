from runner.batch import GiveUp, Line, Measured, OutOfMemory, Plan, Run, Settings, detail, summary

SETTINGS = Settings()


def probed():
    plan = Plan.start(SETTINGS, 24_164).after(Measured(8910, seconds=7))
    return plan.after(Measured(2350 + 820 * plan.step.batch, seconds=7))


def test_one_line_says_it_all():
    assert summary(probed(), 24_564) == "batch 24, 90 % of 24 GiB, probed in 14 s"
    assert summary(probed(), 24_564, peak_mib=22_500) == "batch 24, 92 % of 24 GiB, probed in 14 s"
    assert summary(probed(), 81_559, peak_mib=22_500) == "batch 24, 28 % of 80 GiB, probed in 14 s"


def test_stepping_back_is_told():
    plan = probed().after(OutOfMemory(24_000, seconds=30))
    assert summary(plan, 24_564).endswith(", stepped back once")


def test_what_is_known_or_unknown_is_told():
    run = Run(24, "known from an earlier job of its kind", confident=True)
    known = Plan.remembered(SETTINGS, 24_164, Line(2350, 820), run)
    assert summary(known, 24_564) == "batch 24, 90 % of 24 GiB, known from before"
    unprobed = Plan.unprobed(SETTINGS, 24_164, "others use this GPU")
    assert summary(unprobed, 24_564) == "batch 8, not probed: others use this GPU"


def test_a_probe_under_way_and_an_end_are_told():
    plan = Plan.start(SETTINGS, 24_164)
    assert summary(plan.after(Measured(8910)), 24_564) == "probing, 1 measured"
    for _ in range(4):
        plan = plan.after(OutOfMemory())
    assert isinstance(plan.step, GiveUp)
    assert summary(plan, 24_564) == plan.step.reason


def test_the_points_the_line_and_the_margin_are_told():
    told = "\n".join(detail(probed()))
    for words in ("23.6 GiB", "92%", "batch 8 took 8.7 GiB", "batch 19 took", "2.3 GiB + 820 MiB", "chosen: batch 24"):
        assert words in told
