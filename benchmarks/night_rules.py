"""What nightshift's own rules say of a job: when it is found to be idle or hung, and how its batch is found."""

from __future__ import annotations

import math
from functools import cache

from benchmarks.night import TOTAL_MIB, Job
from runner.batch import BatchPlan, BatchSettings, Measured, OutOfMemory, Probe
from runner.idle import hung_rule, idle_rule
from runner.idle.policy import DEFAULT


@cache
def idle_stop_s(busy_s: float) -> float:
    """When the idle rule stops a job that does nothing any more after so long, from its start."""
    began = max(0.0, busy_s - 60.0)
    window = idle_rule.Window(DEFAULT, ("GPU-0",), 0.0)
    for second in range(1, 3600):
        at = began + second
        sample = window.take(idle_rule.LoadReading(at, {"GPU-0": 95.0 if at <= busy_s else 0.0}))
        if sample and window.judge(at).action is idle_rule.IdleAction.STOP:
            return at
    return math.inf


@cache
def hung_s(busy_s: float, policy: hung_rule.HungPolicy) -> float:
    """When a job that spins after so long is found to, from its start."""
    pulses, began = hung_rule.Pulses(), max(0.0, busy_s - 900.0)
    for second in range(0, 7200, 10):
        at = began + second
        works = at <= busy_s
        pulse = hung_rule.Pulse(at, 99.0, 500.0 if works else 180.0, 700.0)  # on two GPUs
        pulses.take(pulse, 1.0 if works else at - busy_s, policy)
        if hung_rule.judge(pulses, policy).hung:
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
