"""The largest batch that safely fits: memory is measured in short runs, and a line says the rest. Pure.

`settings` says what is asked for, `steps` are the words between plan and driver, `plan` decides the next step, `fit`
holds the arithmetic, `plateau` says when a probe has seen enough, `known` remembers, `words` tells.
"""

from runner.batch.fit import Line, Point
from runner.batch.known import Known, choose
from runner.batch.plan import Plan
from runner.batch.plateau import Plateau
from runner.batch.settings import Accumulation, Settings, accumulate, budget_mib
from runner.batch.steps import Done, Failed, GiveUp, Measured, OutOfMemory, Probe, Run, Unmeasured
from runner.batch.words import bars, detail, summary

__all__ = [
    "Accumulation",
    "Done",
    "Failed",
    "GiveUp",
    "Known",
    "Line",
    "Measured",
    "OutOfMemory",
    "Plan",
    "Plateau",
    "Point",
    "Probe",
    "Run",
    "Settings",
    "Unmeasured",
    "accumulate",
    "bars",
    "budget_mib",
    "choose",
    "detail",
    "summary",
]
