"""The largest batch that safely fits: memory is measured in short runs, and a line says the rest. Pure.

`settings` says what is asked for, `steps` are the words between plan and driver, `plan` decides the next step, `fit`
holds the arithmetic, `plateau` says when a probe has seen enough, `known` remembers, `words` tells.
"""

from runner.batch.batch_settings import Accumulation, Settings, accumulate, budget_mib
from runner.batch.memory_history import Known, choose
from runner.batch.memory_line import Line, Point
from runner.batch.plan import Plan
from runner.batch.plateau import Plateau
from runner.batch.report import bars, detail, summary
from runner.batch.steps import Done, Failed, GiveUp, Measured, OutOfMemory, Probe, Run, Unmeasured

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
