"""The judgement of idle jobs: the policy, the window, the verdict, and the labelled traces."""

from __future__ import annotations

import json
import math
import re

import pytest

from runner.errors import UserError
from runner.idle import idle_rule
from runner.idle.idle_rule import IdleAction, LoadReading, Sample, Window, judge
from runner.idle.policy import DEFAULT, IdlePolicy, format_policy, parse_policy
from runner.model import Gpu, GpuHealth
from tests import idle_traces
from tests.idle_traces import BOOT, RULES, TRACES, Watcher, decided

SHORT = IdlePolicy(20.0, 3.0, 7, 1)


# -- the policy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("20%:3s:7:1", SHORT),
        ("20:3s:7:1", SHORT),
        (" 20 % : 3s : 7 : 1 ", SHORT),
        ("20%", IdlePolicy(20.0, 5.0, 60, 12)),
        ("20%:3s", IdlePolicy(20.0, 3.0, 60, 12)),
        ("1.5%:1m30s:10", IdlePolicy(1.5, 90.0, 10, 12)),
        ("100%:1h:168:0", IdlePolicy(100.0, 3600.0, 168, 0)),
        ("off", None),
        ("OFF", None),
    ],
)
def test_a_policy_as_it_is_typed(text: str, policy: IdlePolicy | None) -> None:
    assert parse_policy(text) == policy
    assert parse_policy(format_policy(policy)) == policy


def test_the_default_is_its_own_text() -> None:
    assert format_policy(DEFAULT) == "5%:5s:60:12"
    assert parse_policy("5%:5s:60:12") == DEFAULT
    assert format_policy(None) == "off"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write it like"),
        ("20%:3s:7:1:9", "write it like"),
        ("20%::7", "write it like"),
        ("101%", "from 1% to 100%"),
        ("-1%", "from 1% to 100%"),
        ("often", "from 1% to 100%"),
        ("nan", "from 1% to 100%"),
        ("٥%", "from 1% to 100%"),
        ("0%", "or off"),
        ("5%:3", "3s, 3m or 3h"),
        ("5%:500ms", "from 1s to 1h"),
        ("5%:2h", "from 1s to 1h"),
        ("5%:5s:0", "from 1 to 10000"),
        ("5%:5s:10001", "from 1 to 10000"),
        ("5%:5s:7.5", "from 1 to 10000"),
        ("5%:5s:60:-1", "write 0, 1, 2"),
        ("5%:1h:169", "longer than 7 days"),
        ("5%:1h:1:169", "longer than 7 days"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        parse_policy(text)


def test_a_policy_goes_through_json() -> None:
    assert IdlePolicy.from_json(json.loads(json.dumps(SHORT.to_json()))) == SHORT


# -- the traces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_every_trace_is_decided_as_by_hand(trace: idle_traces.Trace) -> None:
    watcher = Watcher(trace).run()
    assert ("keep" if watcher.stopped_at is None else "kill") == trace.label
    assert watcher.stops == (trace.label == "kill")
    if trace.expected_at is not None:
        assert watcher.stopped_at == pytest.approx(
            trace.expected_at, abs=12.0 if trace.power else 6.0 if trace.advances else 1.0
        )


def test_the_suite_has_both_labels_and_the_other_rules_fail_on_some() -> None:
    assert len(TRACES) >= 60
    assert {trace.label for trace in TRACES} == {"keep", "kill"}
    for rule in RULES.keys() - {"nightshift"}:
        assert [trace.name for trace in TRACES if decided(rule, trace) != trace.label]


def test_gpu_idle_timeouts_rule_stops_at_the_printed_moments() -> None:
    """The reference beside ours is right about the original, at least where that has told."""
    assert [idle_traces.gpu_idle_timeout(trace) for trace in TRACES[:2]] == [42.13, 36.261]


def test_the_document_has_the_table() -> None:
    text = idle_traces.DOCUMENT.read_text()
    assert text == idle_traces.with_table(text), "run: python -m tests.idle_traces"


def test_each_time_of_idleness_is_warned_of_once() -> None:
    by_name = {trace.name: trace for trace in TRACES}
    assert Watcher(by_name["never touches its GPU"]).run().warned_at == [205.0]
    assert Watcher(by_name["the runner restarts twice"]).run().warned_at == [205.0]
    assert Watcher(by_name["evaluation on the CPU"]).run().warned_at == [510.0, 1110.0, 1710.0]


# -- the window ----------------------------------------------------------------------------------------------------


def fed(window: Window, until_s: int, *percent: float | None, since_s: int = 1, asleep_s: float = 0.0) -> Window:
    """A reading a second."""
    for second in range(since_s, until_s + 1):
        window.take(LoadReading(float(second), dict(zip(window.gpus, percent, strict=True)), None, asleep_s))
    return window


def a_window(policy: IdlePolicy = SHORT, gpus: int = 1) -> Window:
    return Window(policy, tuple(f"GPU-{n}" for n in range(gpus)), 0.0)


def test_samples_are_taken_at_whole_periods_since_the_start() -> None:
    window = Window(SHORT, ("GPU-0",), 0.5)
    for second in range(1, 12):
        window.take(LoadReading(float(second), {"GPU-0": 1.0}))
    assert [sample.at for sample in window.samples] == [4.0, 7.0, 10.0]


def test_a_sample_is_the_highest_of_its_period() -> None:
    window = a_window()
    for second, percent in enumerate([0, 60, 3, 0, 0, 1], start=1):
        window.take(LoadReading(float(second), {"GPU-0": float(percent)}))
    assert [sample.percent["GPU-0"] for sample in window.samples] == [60.0, 1.0]


def test_a_reading_that_is_not_new_counts_once() -> None:
    window = a_window()
    for _ in range(100):
        window.take(LoadReading(3.0, {"GPU-0": 90.0}))
    window.take(LoadReading(6.0, {"GPU-0": 0.0}))
    assert [sample.percent["GPU-0"] for sample in window.samples] == [90.0, 0.0]


def test_readings_that_come_a_little_early_still_make_a_sample_each() -> None:
    window = a_window(IdlePolicy(20.0, 1.0, 7, 1))
    for second in range(1, 11):
        window.take(LoadReading(second + (0.05 if second % 2 else -0.05), {"GPU-0": 0.0}))
    assert len(window.samples) == 10


def test_memory_is_bounded() -> None:
    window = fed(a_window(), 3000, 0.0)
    assert len(window.samples) == SHORT.window + idle_rule.HISTORY


@pytest.mark.parametrize(("silent_s", "counts"), [(6, True), (7, False)])
def test_readings_may_be_missing_for_two_periods_and_no_longer(silent_s: int, counts: bool) -> None:
    window = fed(fed(a_window(), 18, 0.0), 30, 0.0, since_s=18 + silent_s)
    assert (window.samples[5] in window.judge(30.0).idle) == counts
    assert (window.judge(30.0).action is IdleAction.STOP) == counts


def test_missing_samples_do_not_count_as_idle_ones() -> None:
    window = fed(fed(a_window(), 15, 0.0), 21, 0.0, since_s=21)
    assert window.judge(21.0).action is not IdleAction.STOP  # six samples: the seventh tick had none
    assert fed(window, 24, 0.0, since_s=22).judge(24.0).action is IdleAction.STOP


def test_a_machine_that_slept_is_judged_anew() -> None:
    window = fed(fed(a_window(), 18, 0.0), 36, 0.0, since_s=19, asleep_s=3600.0)
    verdict = window.judge(36.0)
    assert verdict.action is IdleAction.WARN
    assert len(verdict.idle) == 6
    assert "asleep for 1h 00m" in verdict.why


def test_a_gpu_that_is_not_read_is_unknown_and_says_so() -> None:
    window = a_window(gpus=2)
    window.take(LoadReading(3.0, {"GPU-0": 0.0}, "GPU 1 fell off the bus"))
    assert window.judge(3.0).why == "not judged: GPU 1 fell off the bus"


def test_a_job_without_gpus_is_never_idle() -> None:
    window = fed(a_window(gpus=0), 100)
    assert window.judge(100.0).action is IdleAction.KEEP
    assert window.judge(100.0).why == "not judged: it has no GPU"


def test_the_next_runner_goes_on_with_it() -> None:
    before = fed(a_window(), 19, 0.0)
    assert before.is_news(before.judge(19.0))  # the warning
    state = json.loads(json.dumps(before.to_json(BOOT)))
    after = Window.from_json(state, BOOT)
    assert after is not None
    assert (after, after.samples) == (before, before.samples)
    assert not after.is_news(after.judge(19.0))
    verdict = fed(after, 21, 0.0, since_s=20).judge(21.0)
    assert verdict.action is IdleAction.STOP
    assert [after.is_news(verdict), after.is_news(verdict)] == [True, False]


def test_after_a_restart_of_the_machine_nothing_is_taken_over() -> None:
    assert Window.from_json(a_window().to_json("another boot"), BOOT) is None


def test_a_busy_sample_makes_the_warning_news_again() -> None:
    window = fed(a_window(), 15, 0.0)
    assert window.is_news(window.judge(15.0))
    fed(fed(window, 18, 90.0, since_s=16), 33, 0.0, since_s=19)
    assert window.is_news(window.judge(33.0))


# -- the verdict ---------------------------------------------------------------------------------------------------


def samples(*percents: float | None, gpus: int = 1) -> list[Sample]:
    return [
        Sample(3.0 * n, {f"GPU-{g}": percent for g in range(gpus)}, "not told" if percent is None else None)
        for n, percent in enumerate(percents, start=1)
    ]


def decide(made: list[Sample], **given: float | None) -> idle_rule.IdleVerdict:
    return judge(made, SHORT, made[-1].at if made else 0.0, 0.0, **given)  # type: ignore[arg-type]


def test_a_whole_window_below_the_threshold_is_stopped() -> None:
    assert decide(samples(*[0] * 7)).action is IdleAction.STOP
    assert decide(samples(90, *[0] * 7)).action is IdleAction.STOP
    assert decide(samples(*[19.9] * 7)).action is IdleAction.STOP


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("percent", [20.0, 100.0, None])
def test_one_sample_that_is_not_below_it_keeps_the_job(at: int, percent: float | None) -> None:
    made = samples(*(percent if n == at else 0.0 for n in range(7)))
    assert decide(made).action is not IdleAction.STOP


def test_one_busy_gpu_of_several_keeps_the_job() -> None:
    made = [Sample(3.0 * n, {"GPU-0": 0.0, "GPU-1": 20.0}) for n in range(1, 8)]
    assert decide(made).action is IdleAction.KEEP
    assert decide(made).why == "busy: at 20 %"


def test_the_delay_is_the_only_grace() -> None:
    slow = IdlePolicy(20.0, 3.0, 7, 4)
    made = samples(*[0] * 10)
    assert judge(made[:9], slow, 27.0, 0.0).action is IdleAction.WARN
    assert judge(made, slow, 30.0, 0.0).action is IdleAction.STOP  # (4 + 7 − 1) × 3 s


@pytest.mark.parametrize("delay", [0, 1])
def test_no_delay_is_as_good_as_one_sample(delay: int) -> None:
    policy = IdlePolicy(20.0, 3.0, 7, delay)
    assert judge(samples(*[0] * 7), policy, 21.0, 0.0).action is IdleAction.STOP
    assert judge(samples(*[0] * 6), policy, 18.0, 0.0).action is not IdleAction.STOP


@pytest.mark.parametrize(
    ("warn_before_s", "first_warning"), [(None, 4), (21.0, 1), (100.0, 1), (3.0, 6), (5.0, 6), (0.0, 0)]
)
def test_when_the_warning_comes(warn_before_s: float | None, first_warning: int) -> None:
    made = samples(*[0] * 6)
    actions = [decide(made[:n], warn_before_s=warn_before_s).action for n in range(1, 7)]
    warned = [n for n, action in enumerate(actions, start=1) if action is IdleAction.WARN]
    assert warned == (list(range(first_warning, 7)) if first_warning else [])


def test_a_warning_says_how_long_is_left() -> None:
    assert decide(samples(*[0] * 5)).stop_in_s == 6.0


def test_what_is_kept_is_kept_and_judged_anew_afterwards() -> None:
    made = samples(*[0] * 20)
    assert decide(made, keep_until=math.inf).action is IdleAction.KEEP
    assert decide(made, keep_until=61.0).why == "somebody asked to keep it for another 1 s"
    assert decide(made, keep_until=43.0).action is IdleAction.WARN  # six samples since
    assert decide(made, keep_until=42.0).action is IdleAction.STOP


def test_a_window_that_got_no_readings_lately_stops_nothing() -> None:
    made = samples(*[0] * 7)
    assert judge(made, SHORT, 21.0 + 9.0, 0.0).action is IdleAction.STOP
    verdict = judge(made, SHORT, 21.0 + 9.1, 0.0)
    assert (verdict.action, verdict.why) == (IdleAction.KEEP, "not judged: there have been no readings for 9.1 s")
    assert decide([]).why == "not judged yet"


# -- reading the sampler's snapshot --------------------------------------------------------------------------------


def a_gpu(index: int, utilization: int | None = 0, **other: object) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}", utilization=utilization, sampled_at=100.0, **other)  # type: ignore[arg-type]


def test_only_the_jobs_own_gpus_are_read() -> None:
    reading = idle_rule.read_own([a_gpu(0, 3), a_gpu(1, 80)], ["GPU-0"], threshold_percent=5.0)
    assert reading == LoadReading(100.0, {"GPU-0": 3.0})
    assert idle_rule.read_own([a_gpu(1)], ["GPU-0"], threshold_percent=5.0) is None


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (a_gpu(0, None), "GPU 0 does not tell its utilisation"),
        (a_gpu(0, 0, health=GpuHealth.LOST, detail="fell off the bus"), "GPU 0 fell off the bus"),
        (a_gpu(0, 0, health=GpuHealth.UNKNOWN), "GPU 0 gives no reading"),
    ],
)
def test_what_the_driver_does_not_tell_is_unknown(gpu: Gpu, said: str) -> None:
    reading = idle_rule.read_own([gpu, a_gpu(1)], ["GPU-0", "GPU-1"], threshold_percent=5.0)
    assert reading == LoadReading(100.0, {"GPU-0": None, "GPU-1": 0.0}, said)


def test_a_gpu_left_out_of_the_list_or_read_long_before_the_others_is_unknown() -> None:
    old = Gpu(index=1, uuid="GPU-1", utilization=0, sampled_at=96.0)
    reading = idle_rule.read_own([a_gpu(0), old], ["GPU-0", "GPU-1", "GPU-2"], threshold_percent=5.0)
    assert reading is not None
    assert reading.percent == {"GPU-0": 0.0, "GPU-1": None, "GPU-2": None}
    assert reading.unknown == "GPU 1 was last read 4 s before the others; GPU-2 is not listed"


@pytest.mark.parametrize(
    ("device", "by_process", "own"),
    [(80, {}, None), (80, {"GPU-0": 0.0}, 0.0), (80, {"GPU-0": 70.0}, 70.0), (4, {}, 4.0), (5, {}, None)],
)
def test_on_a_shared_gpu_it_is_the_jobs_own_part_that_counts(
    device: int, by_process: dict[str, float], own: float | None
) -> None:
    reading = idle_rule.read_own(
        [a_gpu(0, device)], ["GPU-0"], threshold_percent=5.0, shared={"GPU-0"}, by_process=by_process
    )
    assert reading is not None
    assert reading.percent == {"GPU-0": own}
    assert (reading.unknown or "").startswith("GPU 0 is shared") == (own is None)


# -- the evidence --------------------------------------------------------------------------------------------------


def test_the_evidence_names_the_rule_and_shows_the_bars() -> None:
    made = [Sample(3.0 * n, {"GPU-a": p, "GPU-b": p and p + 1}) for n, p in enumerate([90, None, 40, *[0] * 7])]
    verdict = judge(made, SHORT, made[-1].at, -100.0)
    assert verdict.action is IdleAction.STOP
    assert idle_rule.evidence(made, verdict, SHORT, {"GPU-a": "0", "GPU-b": "1"}).splitlines() == [
        "all of GPU 0,1 below 20 % in 7 samples over 21 s",
        "GPU 0 ▇·▃▁▁▁▁▁▁▁ at most 0 %",
        "GPU 1 ▇·▃▁▁▁▁▁▁▁ at most 0 %",
    ]


def test_the_summary_reads_well_for_the_default() -> None:
    made = [Sample(5.0 * n, {"GPU-a": 0.0}) for n in range(60)]
    assert idle_rule.summary(made, DEFAULT, {"GPU-a": "0"}) == "GPU 0 below 5 % in 60 samples over 5m 00s"


def test_a_long_row_of_bars_is_shortened_without_losing_the_peaks() -> None:
    bars = idle_rule.sparkline([0.0] * 100 + [100.0] + [0.0] * 99, width=40)
    assert len(bars) == 40
    assert bars.count("▇") == 1
    assert idle_rule.sparkline([0, 1, 25, 26, 50, 75, 76, 100]) == "▁▂▂▃▃▅▇▇"
