"""Decides whether a job left its GPUs idle for a whole window: gpu_idle_timeout's rule, made safe for unknowns. Pure.

The rule: stop a job when every one of its own GPUs was below the threshold (strictly below, as in the original)
in every sample of a whole window. Samples are taken once per period, at whole multiples of it since the job's start.
The first one that counts is `delay` periods after the start. So a stop comes `(delay + window − 1) × period` after
the start at the earliest.

A sample is the highest reading since the previous sample. The original reads only at the tick, and so takes a job that
works in short bursts between two ticks for an idle one.

An unknown reading never counts as idle: the window starts again after it. The same holds after a time without
readings, and after the machine was asleep. Times are those of the monotonic clock.
"""

from runner.idle.judgement import IdleAction, IdleVerdict, evidence, judge, sparkline, summary
from runner.idle.policy import DEFAULT, OFF, IdlePolicy, format_policy, parse_policy
from runner.idle.readings import LoadReading, Sample, read_own
from runner.idle.window import HISTORY, Window

__all__ = [
    "DEFAULT",
    "HISTORY",
    "OFF",
    "IdleAction",
    "IdlePolicy",
    "IdleVerdict",
    "LoadReading",
    "Sample",
    "Window",
    "evidence",
    "format_policy",
    "judge",
    "parse_policy",
    "read_own",
    "sparkline",
    "summary",
]
