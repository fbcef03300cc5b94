"""Hung at 100 %: what is told from power and silence, and what is not."""

from __future__ import annotations

import json
import re

import pytest

from runner.errors import UserError
from runner.idle.hung_rule import (
    DEFAULT,
    USUAL_AT_MOST,
    HungAction,
    HungPolicy,
    Pulse,
    Pulses,
    format_policy,
    judge,
    parse_policy,
    pulse,
)

NOW = 3600.0


def seen(
    usual_w: float = 400.0,
    now_w: float | None = 124.0,
    percent: float | None = 100.0,
    silent_s: float = 720.0,
    worked_s: float = NOW,
    limit_w: float | None = None,
    without: tuple[float, float] = (0.0, 0.0),
) -> Pulses:
    """A job that worked and spoke, and then has spun in silence."""
    pulses = Pulses()
    for at in range(int(worked_s)):
        pulses.take(Pulse(float(at), 97.0, usual_w, limit_w), 0.0)
    for after in range(int(silent_s) + 1):
        if not without[0] <= after < without[1]:
            pulses.take(Pulse(worked_s + after, percent, now_w, limit_w), float(after))
    return pulses


def test_a_dead_lock_is_told_in_one_sentence() -> None:
    verdict = judge(seen())
    assert verdict.hung
    assert verdict.why == "looks hung: 12 min silent at 31 % of its usual power"


@pytest.mark.parametrize(
    ("pulses", "said"),
    [
        (seen(silent_s=590.0), "it showed signs of life 9m 50s ago"),
        (seen(percent=60.0), "its GPUs are at 60 %"),
        (seen(now_w=200.0), "it draws 50 % of its usual power"),
        (seen(now_w=390.0), "it draws 98 % of its usual power"),
        (seen(now_w=None), "not judged: utilisation or power is not known"),
        (seen(percent=None), "not judged: utilisation or power is not known"),
        (seen(worked_s=60.0), "not judged: its usual power is not known yet"),
        (seen(worked_s=60.0, limit_w=300.0), "it draws 41 % of what its GPUs may draw"),
        (seen(usual_w=130.0, limit_w=800.0), "it draws 95 % of its usual power"),
        (seen(without=(300.0, 400.0)), "not judged: readings are missing"),
    ],
)
def test_what_is_not_certain_is_no_alert(pulses: Pulses, said: str) -> None:
    verdict = judge(pulses)
    assert (verdict.hung, verdict.why) == (False, said)


def test_a_job_that_hangs_at_once_is_judged_by_what_its_gpus_may_draw() -> None:
    """As seen on V100s: 65 to 76 of 300 W at 100 %, with no work before it to compare with."""
    verdict = judge(seen(worked_s=0.0, now_w=150.0, limit_w=600.0))
    assert (verdict.hung, verdict.plain) == (True, True)
    assert verdict.why == "looks hung: 12 min silent at 25 % of what its GPUs may draw"


@pytest.mark.parametrize(
    ("limit_w", "now_w", "plain"),
    [(800.0, 124.0, True), (800.0, 190.0, True), (500.0, 190.0, False), (None, 124.0, False)],
)
def test_what_is_plain_is_far_below_the_limit_of_several_gpus(limit_w, now_w, plain) -> None:
    verdict = judge(seen(now_w=now_w, limit_w=limit_w))
    assert (verdict.hung, verdict.plain) == (True, plain)


def test_it_can_be_asked_before_the_whole_silence_is_over() -> None:
    assert judge(seen(silent_s=300.0), silent_s=300.0).why == "looks hung: 5 min silent at 31 % of its usual power"
    assert not judge(seen(silent_s=299.0), silent_s=300.0).hung
    worked_on = seen(now_w=400.0, silent_s=300.0)
    for after in range(301, 620):
        worked_on.take(Pulse(NOW + after, 100.0, 120.0), float(after))
    assert judge(worked_on, silent_s=300.0).hung
    assert not judge(worked_on).hung


def test_one_moment_of_work_is_enough_to_be_alive() -> None:
    pulses = seen(silent_s=700.0)
    pulses.take(Pulse(NOW + 710.0, 100.0, 380.0), 710.0)
    assert not judge(pulses).hung


def test_a_job_that_works_in_silence_teaches_nothing_and_is_not_hung() -> None:
    assert not judge(seen(now_w=400.0, silent_s=7200.0)).hung


def test_it_may_work_on_for_a_while_after_its_last_word() -> None:
    pulses = seen(now_w=400.0, silent_s=1800.0)
    for after in range(1801, 2500):
        pulses.take(Pulse(NOW + after, 100.0, 120.0), float(after))
        if not 2400 <= after < 2410:  # one reading in ten seconds is looked at
            assert judge(pulses).hung == (after >= 2410)


def test_pauses_do_not_lower_what_is_usual() -> None:
    pulses = Pulses()
    for at in range(3600):
        resting = at % 60 < 40
        pulses.take(Pulse(float(at), 0.0 if resting else 98.0, 60.0 if resting else 400.0), 0.0)
    assert set(pulses.usual_w) == {400.0}


def test_what_is_kept_is_bounded() -> None:
    pulses = seen(silent_s=86400.0)
    assert len(pulses.usual_w) == USUAL_AT_MOST
    assert len(pulses.since) <= DEFAULT.silent_s / 10 + 2
    assert judge(pulses).hung


def test_the_next_runner_goes_on_with_it_unless_the_machine_was_restarted() -> None:
    before = seen(silent_s=700.0)
    state = json.loads(json.dumps(before.to_json("boot")))
    after = Pulses.from_json(state, "boot")
    after.take(Pulse(NOW + 720.0, 100.0, 124.0), 720.0)
    assert judge(after).why == "looks hung: 12 min silent at 31 % of its usual power"
    assert not Pulses.from_json(state, "another boot").usual_w


def test_a_pulse_is_known_only_if_all_of_it_is() -> None:
    assert pulse(1.0, [(100.0, 300.0, 400.0), (98.0, 280.0, 400.0)]) == Pulse(1.0, 98.0, 580.0, 800.0)
    assert pulse(1.0, [(100.0, 300.0, 400.0), (98.0, 280.0, None)]) == Pulse(1.0, 98.0, 580.0, None)
    assert pulse(1.0, [(100.0, 300.0, 400.0), (98.0, None, 400.0)]) == Pulse(1.0, None, None)
    assert pulse(1.0, [(None, 300.0, 400.0)]) == Pulse(1.0, None, None)
    assert pulse(1.0, []) == Pulse(1.0, None, None)


def test_one_gpu_may_rest_while_the_others_wait_for_it() -> None:
    """As seen in dead-locks of which one rank has died or saves its work: it is at 0 %, the others at 100 %."""
    assert pulse(1.0, [(0.0, 60.0, 400.0), (100.0, 90.0, 400.0)]) == Pulse(1.0, 100.0, 150.0, 800.0)
    assert pulse(1.0, [(30.0, 60.0, 400.0), (100.0, 90.0, 400.0)]).percent == 30.0
    assert pulse(1.0, [(0.0, 60.0, 400.0), (2.0, 60.0, 400.0)]).percent == 2.0


def test_a_single_gpu_has_no_peer_to_wait_for() -> None:
    assert pulse(1.0, [(100.0, 90.0, 400.0)]) == Pulse(1.0, 100.0, 90.0, None)


def test_off_is_off() -> None:
    assert not judge(seen(), HungPolicy(HungAction.OFF)).hung


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("yield", HungPolicy()),
        ("alert", HungPolicy(HungAction.ALERT)),
        ("yield:1h", HungPolicy(HungAction.YIELD, 3600.0)),
        ("Kill", HungPolicy(HungAction.KILL)),
        ("off", HungPolicy(HungAction.OFF)),
        ("kill:15m", HungPolicy(HungAction.KILL, 900.0)),
    ],
)
def test_a_policy_as_it_is_typed(text: str, policy: HungPolicy) -> None:
    assert parse_policy(text) == policy
    assert parse_policy(format_policy(policy)) == policy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "yield, alert, kill or off"),
        ("warn", "alert, kill or off"),
        ("alert:", "alert, kill or off"),
        ("off:10m", "alert, kill or off"),
        ("alert:5", "has no unit"),
        ("alert:5s", "from 1m to 1d"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        parse_policy(text)


def test_one_that_was_never_seen_at_work_and_has_been_silent_for_long_may_work_just_so() -> None:
    """Small kernels keep two GPUs at 100 % and draw little: after days of it there is much to lose."""
    assert judge(seen(worked_s=60.0, limit_w=800.0, silent_s=1200.0)).plain
    late = judge(seen(worked_s=60.0, limit_w=800.0, silent_s=3700.0))
    assert (late.hung, late.plain) == (True, False)
    assert judge(seen(limit_w=800.0, silent_s=3700.0)).plain
