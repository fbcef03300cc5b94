"""Whether a job has left its GPUs idle for a whole window: seed 003's rule, made safe against what is not known. Pure.

The rule: a job is stopped when every one of its own GPUs was below the threshold (strictly, as the original compares)
in every sample of a whole window. Samples are taken each period, at whole multiples of it since the job's start, the
first `delay` periods after the start: so it comes `(delay + window − 1) × period` after the start at the earliest.

A sample is the highest reading since the one before it, up to the reading at its tick. The original reads at the tick
alone, and so takes a job that works in short bursts between two ticks for an idle one.

An unknown reading is never an idle one: the window begins anew after it, as it does after a time without readings
and after the machine was asleep. Times are those of the monotonic clock.
"""

from runner.idle.evidence import evidence, sparkline, summary
from runner.idle.judgement import Action, Verdict, judge
from runner.idle.policy import DEFAULT, OFF, Policy, format_policy, parse_policy
from runner.idle.readings import Reading, Sample, read_own
from runner.idle.window import HISTORY, Window

__all__ = [
    "DEFAULT",
    "HISTORY",
    "OFF",
    "Action",
    "Policy",
    "Reading",
    "Sample",
    "Verdict",
    "Window",
    "evidence",
    "format_policy",
    "judge",
    "parse_policy",
    "read_own",
    "sparkline",
    "summary",
]
