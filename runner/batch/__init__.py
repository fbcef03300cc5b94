"""Find the largest batch that safely fits: short runs measure memory, and a straight line predicts the rest. Pure.

`batch_settings` holds what is asked for, `plan` decides the next step, and `steps` are the messages between the plan
and its driver. `memory_line` holds the arithmetic and the results of earlier jobs, `plateau` says when a probe has seen
enough, `oom` recognizes out-of-memory errors, and `report` writes it up for people.
"""

from runner.batch.batch_settings import Accumulation, BatchSettings, accumulate, budget_mib
from runner.batch.memory_line import MemoryHistory, MemoryLine, Point, choose
from runner.batch.plan import BatchPlan
from runner.batch.plateau import Plateau
from runner.batch.report import bars, detail, summary
from runner.batch.steps import Failed, GiveUp, Measured, OutOfMemory, Probe, Run, RunEnded, Unmeasured
