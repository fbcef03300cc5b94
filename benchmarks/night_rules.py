"""What nightshift's own rules say of a job: when it is found to be idle or hung, and how its batch is found."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.night import TOTAL_MIB, Job
from runner.batch import BatchPlan, BatchSettings, Measured, OutOfMemory, Probe
from runner.idle import hung_rule, idle_rule
from runner.idle.policy import DEFAULT
from runner.progress.pace import Pace, Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.idle.stall_rule import Standstill


def progress_at(job: Job, worked_s: float, at: float) -> Progress | None:
    """What is read of a job's output after so much work in this attempt, which ends at `at`."""
    if job.prints is None or worked_s < 2 * job.prints.step_s:
        return None
    epoch_s, pace = job.work_s / job.prints.epochs, Pace()
    for position, (printed_s, evaluated) in enumerate(printed(job, epoch_s), start=1):
        if printed_s > worked_s:
            break
        pace.interrupted |= evaluated
        pace.advance(position, at - worked_s + printed_s)
    return Progress(
        position=pace.position,
        unit="step",
        at=at,
        advanced_at=pace.at,
        step_s=pace.step_s,
        gap_s=pace.gap_s,
        longest_pause_s=pace.longest_pause_s,
        pauses=pace.pauses,
        evaluated=pace.evaluated,
        work=True,
    )


def printed(job: Job, epoch_s: float) -> Iterator[tuple[float, bool]]:
    """The seconds of work at which it prints a step, and whether it has printed an evaluation since the last one.

    It evaluates in silence at the end of each epoch, and then prints the result.
    """
    assert job.prints is not None
    train_s = epoch_s * (1 - job.prints.pause)
    for epoch in range(job.prints.epochs):
        for step in range(1, int(train_s / job.prints.step_s) + 1):
            yield epoch * epoch_s + step * job.prints.step_s, epoch > 0 and step == 1


@cache
def idle_stop_s(busy_s: float, counter: Standstill | None = None) -> float:
    """When the idle rule stops a job that does nothing any more after so long, from its start."""
    began = max(0.0, busy_s - 60.0)
    window = idle_rule.Window(DEFAULT, ("GPU-0",), 0.0)
    for second in range(1, 3600):
        at = began + second
        sample = window.take(idle_rule.LoadReading(at, {"GPU-0": 95.0 if at <= busy_s else 0.0}))
        if sample and at > busy_s and window.judge(at, counter=counter).action is idle_rule.IdleAction.STOP:
            return at
    return math.inf


@cache
def hung_s(busy_s: float, policy: hung_rule.HungPolicy, counter: Standstill | None = None) -> float:
    """When a job that spins after so long is found to, from its start."""
    not_before = counter.stops_at(policy.silent_s) if counter else -math.inf
    policy = hung_rule.with_counter(policy, counter)
    pulses, began = hung_rule.Pulses(), max(0.0, busy_s - 900.0)
    for second in range(0, 7200, 10):
        at = began + second
        works = at <= busy_s
        pulse = hung_rule.Pulse(at, 99.0, 500.0 if works else 180.0, 700.0)  # on two GPUs
        pulses.take(pulse, 1.0 if works else at - busy_s, policy)
        if at >= not_before and hung_rule.judge(pulses, policy).hung:
            return at
    return math.inf


def found_batch(job: Job) -> tuple[BatchPlan, float]:
    """The plan with its real run, and how long its probes took: 15 s to load, memory at rest 4 s later."""
    settings = BatchSettings()
    plan, spent_s = BatchPlan.start(settings, TOTAL_MIB), 0.0
    while isinstance(plan.step, Probe):
        took_s = 19.0 + plan.step.quiet_s
        mib = 1_500 + plan.step.batch * job.mib / 20
        outcome = (
            OutOfMemory(TOTAL_MIB, seconds=15.0) if mib > TOTAL_MIB else Measured(mib, 0.0, took_s, "plateau", 4.0)
        )
        plan, spent_s = plan.after(outcome), spent_s + outcome.seconds + 2.0
    return plan, spent_s
