"""Find the largest batch that safely fits: short runs measure memory, and a straight line predicts the rest. Pure.

`batch_settings` holds what is asked for, `plan` decides the next step, and `steps` are the messages between the plan
and its driver. `memory_line` holds the arithmetic, `plateau` says when a probe has seen enough, `memory_history` keeps
results of earlier jobs, `oom` recognizes out-of-memory errors, and `report` writes it up for people.
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
