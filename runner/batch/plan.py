"""The batch search as a state machine: probe, probe again, run, step back. No clock, no I/O: a driver does the steps.

    plan = BatchPlan.start(settings, budget_mib)
    while isinstance(plan.step, Probe | Run):
        plan = plan.after(outcome of plan.step)

A plan is stored as JSON, because the real run may step back in a new attempt, under another supervisor.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from runner.batch.batch_settings import BatchSettings
from runner.batch.memory_line import FARTHER, MemoryLine, Point, bent, flat, proportional, steepest, through
from runner.batch.steps import Failed, GiveUp, Kind, OutOfMemory, Probe, Run, RunEnded, Step, Unmeasured
from runner.model import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.batch.steps import Outcome

MOST_RESTARTS = 3
MOST_TRIES = 5  # probes after the first one that ran
LATE_S = 300.0  # after this much lost work, step back further to avoid a second loss
EARLY_STEP, LATE_STEP = 0.9, 0.75
WORTH_A_POINT = 1.25  # closer points say little about a slope
NEAR = 2  # times the largest batch that ran: the real run does not go further without a probe
READINGS_S = 1.0  # memory may seem to settle only because of the time between readings
AGAIN = 0.4  # of the first probe's quiet time: that one has shown how soon memory settles
FAR_ENOUGH = 64  # a batch this large, and eight times the first, would have shown how much a sample takes
DOES_NOT_FIT = "out of memory even at batch 1: this job does not fit on this GPU"
PREALLOCATED = 0.5  # of the budget: if this much is used at every batch, it was allocated in advance

# by their names in JSON
_STEPS: dict[str, type[Step]] = {"Probe": Probe, "Run": Run, "GiveUp": GiveUp, "Done": RunEnded}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan(Record):
    """The state of one batch search."""

    settings: BatchSettings
    budget_mib: float
    step: Step
    points: tuple[Point, ...] = ()  # probes that ran, in the order of probing
    too_large: int | None = None  # the smallest batch that ran out of memory
    line: MemoryLine | None = None  # the line used for the choice
    probes: int = 0
    tries: int = 0  # probes after the first one that ran
    probed_s: float = 0.0
    settled_s: float = 0.0  # seconds of work per sample until memory last grew
    restarts: int = 0
    failure: str | None = None  # why a probe failed, though the job ran in another one

    # -- the first step -------------------------------------------------------------------------------------------

    @classmethod
    def start(cls, settings: BatchSettings, budget_mib: float) -> BatchPlan:
        """Start with the first probe. If the GPU has no memory left, start the real run at the user's batch."""
        if budget_mib <= 0:
            return cls.unprobed(settings, budget_mib, "there is no memory left on the GPU to measure with")
        plan = cls(settings=settings, budget_mib=budget_mib, step=RunEnded(0))
        return replace(plan, step=plan._probe(settings.first, "first"))

    @classmethod
    def unprobed(cls, settings: BatchSettings, budget_mib: float, why: str) -> BatchPlan:
        """Start the real run at the user's batch, because nothing could be measured."""
        plan = cls(settings=settings, budget_mib=budget_mib, step=RunEnded(0))
        return replace(plan, step=plan._fallback_run(why))

    @classmethod
    def remembered(cls, settings: BatchSettings, budget_mib: float, line: MemoryLine, run: Run) -> BatchPlan:
        """Start the real run at a batch that is known from earlier jobs."""
        return cls(settings=settings, budget_mib=budget_mib, step=run, line=line)

    # -- the next step --------------------------------------------------------------------------------------------

    def after(self, outcome: Outcome) -> BatchPlan:
        """Return the plan with its next step, given the outcome of the current one."""
        if isinstance(self.step, Run):
            return self._after_run(self.step, outcome)
        if not isinstance(self.step, Probe):
            raise TypeError(f"nothing comes after {self.step}")
        probes, tries = self.probes + 1, self.tries + bool(self.points)
        plan = replace(self, probes=probes, tries=tries, probed_s=self.probed_s + outcome.seconds)
        return plan._after_probe(self.step, outcome)

    def repeated(self, outcome: Unmeasured) -> BatchPlan:
        """Return the plan with the same step again, because no reading showed how it went."""
        return replace(self, probes=self.probes + 1, probed_s=self.probed_s + outcome.seconds)

    def unmeasured(self, why: str) -> BatchPlan:
        """Return the plan with a run at the user's batch. Earlier measurements are neither used nor remembered."""
        return replace(self, line=None, step=self._fallback_run(why))

    def _after_probe(self, probe: Probe, outcome: Outcome) -> BatchPlan:
        if isinstance(outcome, OutOfMemory):
            plan = replace(self, too_large=min(probe.batch, self.too_large or probe.batch))
            return plan._then(plan._smaller(probe.batch))
        if isinstance(outcome, Failed):
            return self._failed(probe, outcome)
        if isinstance(outcome, Unmeasured):
            return self.unmeasured(outcome.why)
        if outcome.used_mib < 1:
            return self.unmeasured("the probe did not use any GPU memory")
        settled_s = max(self.settled_s, (outcome.settled_s - READINGS_S) / probe.batch)
        points = (*self.points, Point(probe.batch, outcome.used_mib))
        return replace(self, points=points, settled_s=settled_s)._with_line()

    def _failed(self, probe: Probe, outcome: Failed) -> BatchPlan:
        failure = f"the probe at batch {probe.batch} failed ({outcome.exit})"
        if not self.points:
            return replace(self, step=GiveUp(f"{failure}:\n{outcome.output}" if outcome.output else failure))
        # the program works, so it must be this batch: maybe the data set is too small for it
        plan = replace(self, failure=failure)
        return plan._then(plan._run(plan._largest_that_ran(), f"{failure} and this one ran", confident=True))

    def _then(self, step: Step) -> BatchPlan:
        """Return the plan with this step. A confident run also gets a line, in case it must step back."""
        if not isinstance(step, Run):
            return replace(self, step=step)
        return replace(self, step=step, line=self._cautious_line() if step.confident else None)

    def _smaller(self, batch: int) -> Step:
        """Return the step after a probe that ran out of memory."""
        if not self.points:
            if batch == 1:
                return GiveUp(DOES_NOT_FIT)
            return self._probe(max(batch // 2, 1), "smaller")
        if self._is_flat():
            return self._fallback_run(_prealloc(self.points[-1].mib, self.budget_mib))
        below = self._largest_that_ran()
        if batch - below <= 1 or self.tries >= MOST_TRIES:
            return self._run(below, f"batch {batch} ran out of memory and this one ran", confident=True)
        return self._probe((below + batch) // 2, "between")

    def _with_line(self) -> BatchPlan:
        """Return the plan after a probe that was measured."""
        if len(self.points) == 1:
            return self._then(self._second(self.points[0]))
        lower, upper = self._nearest_points()
        if flat(lower, upper):
            return self._after_flat(lower, upper)
        line = bent(self.points, self.target_mib, self.most)
        batch = line.largest(self.target_mib, self.most)
        if batch < 1:
            return replace(self, line=line, step=self._run(1, "even batch 1 is over the margin", confident=False))
        why = f"it is the largest within {100 * self.settings.margin:.0f} % by a line through {len(self.points)} points"
        return self._near(line, batch, why)

    def _near(self, line: MemoryLine, batch: int, why: str) -> BatchPlan:
        """Return the plan with the real run, or with a probe if that batch is far larger than any that ran."""
        probed = self.settings.rounded(batch)
        if probed > NEAR * self._largest_that_ran() and self.tries < MOST_TRIES:
            return replace(self, line=line, step=self._probe(probed, "near"))
        return replace(self, line=line, step=self._run(batch, why, confident=True))

    def _second(self, first: Point) -> Step:
        guess = min(proportional(first, self.target_mib), self.most)
        if first.batch <= guess == self.most <= NEAR * first.batch:
            # safe without a second point, and no larger batch is allowed
            return self._run(guess, "it is the largest allowed, and sure to fit", confident=True)
        if guess >= WORTH_A_POINT * first.batch:
            return self._probe(guess, "second")
        if first.batch > 1:
            return self._probe(first.batch // 2, "second")
        if self.most > 1 and first.mib <= self.target_mib:
            return self._probe(2, "second")
        return self._run(1, "it is the smallest there is", confident=first.mib <= self.target_mib)

    def _after_flat(self, lower: Point, upper: Point) -> BatchPlan:
        """Return the plan after memory did not grow: it was allocated in advance, or grows too little to see."""
        line = steepest(lower, upper)
        safe = line.largest(self.target_mib, self.most)
        if upper.mib < PREALLOCATED * self.budget_mib and safe >= self.most:
            why = "a sample takes so little memory that the largest batch allowed is sure to fit"
            return self._near(line, safe, why)
        farther = min(upper.batch * FARTHER, safe, self.most)
        much = upper.mib >= PREALLOCATED * self.budget_mib
        far = much and upper.batch >= max(FAR_ENOUGH, FARTHER * self.points[0].batch)
        if farther > upper.batch and not far and self.tries < MOST_TRIES:
            return replace(self, step=self._probe(farther, "farther"))
        if much:
            return self.unmeasured(_prealloc(upper.mib, self.budget_mib))
        if safe < 1:
            return self.unmeasured("memory did not grow with the batch, so the largest batch that fits is unknown")
        why = "memory hardly grows with the batch, and this is the largest one that is sure to fit"
        return replace(self, line=line, step=self._run(safe, why, confident=True))

    # -- the real run ---------------------------------------------------------------------------------------------

    def _after_run(self, run: Run, outcome: Outcome) -> BatchPlan:
        if not isinstance(outcome, OutOfMemory):
            return replace(self, step=RunEnded(run.batch))
        plan = replace(self, restarts=self.restarts + 1, too_large=min(run.batch, self.too_large or run.batch))
        if run.batch == 1:
            return replace(plan, step=GiveUp(DOES_NOT_FIT))
        if plan.restarts > MOST_RESTARTS:
            why = f"out of memory {plan.restarts} times, the last time at batch {run.batch}"
            return replace(plan, step=GiveUp(why))
        why = f"batch {run.batch} ran out of memory"
        return replace(plan, step=Run(plan._back_from(run, outcome), why, run.confident))

    def _back_from(self, run: Run, outcome: OutOfMemory) -> int:
        """Return the next smaller safe batch."""
        if self.line is None or not run.confident:
            return max(run.batch // 2, 1)
        late = outcome.seconds > LATE_S
        most = int(run.batch * (LATE_STEP if late else EARLY_STEP))
        corrected = self._corrected(self.line, run.batch, outcome).largest(self.target_mib, run.batch - 1)
        batch = min(most, corrected)
        ran = [point.batch for point in self.points if point.batch < run.batch and point.mib <= self.target_mib]
        if ran and not late:
            # a batch that ran in a probe has proved as much as a run that failed this early
            batch = max(batch, *ran) if self.restarts < MOST_RESTARTS else max(ran)
        return min(max(self.settings.rounded(max(batch, 1)), 1), run.batch - 1)

    def _corrected(self, line: MemoryLine, batch: int, outcome: OutOfMemory) -> MemoryLine:
        """Return a steeper line: the failed run needed at least the whole budget."""
        needed = max((outcome.peak_mib or 0.0) + (outcome.wanted_mib or 0.0), self.budget_mib)
        return MemoryLine(line.fixed_mib, max(line.per_sample_mib, (needed - line.fixed_mib) / batch))

    # -- helpers --------------------------------------------------------------------------------------------------

    @property
    def target_mib(self) -> float:
        """Return how many MiB may be used."""
        return self.settings.margin * self.budget_mib

    @property
    def most(self) -> int:
        """Return the largest batch that may be chosen."""
        return self.settings.cap if self.too_large is None else max(min(self.settings.cap, self.too_large - 1), 1)

    @property
    def batch(self) -> int | None:
        """Return the batch of the real run, or None before it is chosen."""
        return self.step.batch if isinstance(self.step, Run | RunEnded) else None

    @property
    def expected_mib(self) -> float | None:
        """Return the memory in MiB that the batch of this step should take, or None if unknown."""
        if self.line is None or not isinstance(self.step, Run | RunEnded):
            return None
        return self.line.at(self.step.batch)

    @property
    def is_halved(self) -> bool:
        """Return whether nothing could be measured and half of a batch that was too large is used."""
        if not isinstance(self.step, Run) or self.step.confident or self.restarts or self.line is not None:
            return False
        return self.too_large is not None and 1 < self.step.batch == self.too_large // 2

    def _nearest_points(self) -> tuple[Point, Point]:
        """Return the two largest points, which say most about still larger batches."""
        lower, upper = sorted(self.points)[-2:]
        return lower, upper

    def _cautious_line(self) -> MemoryLine:
        """Return a line that is not too low for larger batches: through two points, or through one and zero."""
        if len(self.points) > 1 and not self._is_flat():
            return through(*self._nearest_points())
        top = max(self.points)
        return MemoryLine(0.0, top.mib / top.batch)

    def _is_flat(self) -> bool:
        return len(self.points) > 1 and flat(*self._nearest_points())

    def _largest_that_ran(self) -> int:
        return max(point.batch for point in self.points)

    def _probe(self, batch: int, kind: Kind) -> Probe:
        ends: Any = "by itself" if self.settings.bounded else "at plateau"
        quiet_s, limit_s = self.settings.quiet_s, self.settings.limit_s
        if not self.points:
            return Probe(batch, kind, ends, limit_s, quiet_s)
        hidden_s = READINGS_S * batch / self._largest_that_ran()
        again_s = min(max(AGAIN * quiet_s, hidden_s), quiet_s)
        return Probe(batch, kind, ends, limit_s, again_s, self.settled_s * batch)

    def _run(self, batch: int, why: str, *, confident: bool) -> Run:
        return Run(self.settings.rounded(batch), why, confident)

    def _fallback_run(self, why: str) -> Run:
        """Return a run at the user's batch, or at half of the smallest batch that ran out of memory, if not larger."""
        known_bad = self.too_large is not None and self.settings.fallback >= self.too_large
        batch = max((self.too_large or 0) // 2, 1) if known_bad else self.settings.fallback
        return Run(batch, why, confident=False)

    # -- JSON -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        kind = next(name for name, step in _STEPS.items() if isinstance(self.step, step))
        step = {"is": kind, **asdict(self.step)}
        return {**super(BatchPlan, self).to_json(), "settings": self.settings.to_json(), "step": step}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchPlan:
        """Build a plan from the output of to_json."""
        kind = _STEPS[data["step"]["is"]]
        parts = {
            "settings": BatchSettings.from_json(data["settings"]),
            "step": kind(**{f.name: data["step"][f.name] for f in fields(kind) if f.name in data["step"]}),
            "points": tuple(Point(*point) for point in data.get("points", ())),
            "line": MemoryLine(*data["line"]) if data.get("line") else None,
        }
        return super(BatchPlan, cls).from_json({**data, **parts})


def _prealloc(held_mib: float, budget: float) -> str:
    return (
        f"memory does not depend on the batch: {100 * held_mib / budget:.0f} % is in use at every batch, as with"
        " frameworks that allocate in advance (before a probe, set XLA_PYTHON_CLIENT_PREALLOCATE=false for JAX,"
        " TF_FORCE_GPU_ALLOW_GROWTH=true for TensorFlow)"
    )
