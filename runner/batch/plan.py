"""The procedure as a state machine: probe, probe again, run, step back. No clock, no I/O: what it says is done outside.

    plan = Plan.start(settings, budget_mib)
    while isinstance(plan.step, Probe | Run):
        plan = plan.after(outcome of plan.step)

A plan is data and goes through JSON, because the real run may step back in a new attempt, under another supervisor.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from runner.batch.batch_settings import Settings
from runner.batch.memory_line import FARTHER, Line, Point, bent, flat, proportional, steepest, through
from runner.batch.steps import Done, Failed, GiveUp, Kind, OutOfMemory, Probe, Run, Step, Unmeasured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.batch.steps import Outcome

MOST_RESTARTS = 3
MOST_TRIES = 5  # after the first that ran
LATE_S = 300.0  # so much work lost is worth a smaller batch rather than a second loss
EARLY_STEP, LATE_STEP = 0.9, 0.75
WORTH_A_POINT = 1.25  # points closer together than this say little about a slope
NEAR = 2  # times the largest batch that ever ran: farther the real run does not go without a probe
READINGS_S = 1.0  # what looks like settling may be no more than the time between readings
AGAIN = 0.4  # of the quiet that is asked of the first probe: it has shown how soon memory settles
FAR_ENOUGH = 64  # a batch as large as this, and eight times the first, would have shown what a sample takes
PREALLOCATED = 0.5  # of the budget: held whatever the batch, it was taken in advance

_STEPS: dict[str, type[Probe | Run | GiveUp | Done]] = {c.__name__: c for c in (Probe, Run, GiveUp, Done)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where the procedure is."""

    settings: Settings
    budget_mib: float
    step: Step
    points: tuple[Point, ...] = ()  # what ran in a probe, in the order of probing
    too_large: int | None = None  # the smallest batch that ran out of memory
    line: Line | None = None  # what the choice was made with
    probes: int = 0
    tries: int = 0  # those of them after the first that ran
    probed_s: float = 0.0
    settled_s: float = 0.0  # of work for each sample, until memory last grew
    restarts: int = 0
    failure: str | None = None  # why a probe could not be used, though the job ran in another

    # -- where it begins ------------------------------------------------------------------------------------------

    @classmethod
    def start(cls, settings: Settings, budget_mib: float) -> Plan:
        """With the first probe."""
        plan = cls(settings=settings, budget_mib=budget_mib, step=Done(0))
        if budget_mib <= 0:
            return replace(plan, step=plan._users("there is no memory left on the GPU to measure with"))
        return replace(plan, step=plan._probe(settings.first, "first"))

    @classmethod
    def unprobed(cls, settings: Settings, budget_mib: float, why: str) -> Plan:
        """At the user's batch, because nothing could be measured."""
        plan = cls(settings=settings, budget_mib=budget_mib, step=Done(0))
        return replace(plan, step=plan._users(why))

    @classmethod
    def remembered(cls, settings: Settings, budget_mib: float, line: Line, run: Run) -> Plan:
        """With the real run, at a batch that is known from before."""
        return cls(settings=settings, budget_mib=budget_mib, step=run, line=line)

    # -- how it goes on -------------------------------------------------------------------------------------------

    def after(self, outcome: Outcome) -> Plan:
        """The plan with its next step, given what became of this one."""
        if isinstance(self.step, Run):
            return self._after_run(self.step, outcome)
        if not isinstance(self.step, Probe):
            raise TypeError(f"nothing comes after {self.step}")
        probes, tries = self.probes + 1, self.tries + bool(self.points)
        plan = replace(self, probes=probes, tries=tries, probed_s=self.probed_s + outcome.seconds)
        return plan._after_probe(self.step, outcome)

    def repeated(self, outcome: Unmeasured) -> Plan:
        """The same step once more, because nobody saw how it went."""
        return replace(self, probes=self.probes + 1, probed_s=self.probed_s + outcome.seconds)

    def unmeasured(self, why: str) -> Plan:
        """At the user's batch after all. What was measured before is not gone by, nor remembered."""
        return replace(self, line=None, step=self._users(why))

    def _after_probe(self, probe: Probe, outcome: Outcome) -> Plan:
        if isinstance(outcome, OutOfMemory):
            plan = replace(self, too_large=min(probe.batch, self.too_large or probe.batch))
            return plan._then(plan._smaller(probe.batch))
        if isinstance(outcome, Failed):
            return self._failed(probe, outcome)
        if isinstance(outcome, Unmeasured):
            return self.unmeasured(outcome.why)
        if outcome.used_mib < 1:
            return self.unmeasured("the probe was not seen to use any GPU memory")
        settled_s = max(self.settled_s, (outcome.settled_s - READINGS_S) / probe.batch)
        points = (*self.points, Point(probe.batch, outcome.used_mib))
        return replace(self, points=points, settled_s=settled_s)._with_line()

    def _failed(self, probe: Probe, outcome: Failed) -> Plan:
        said = f"the probe at batch {probe.batch} failed ({outcome.exit})"
        if not self.points:
            return replace(self, step=GiveUp(f"{said}:\n{outcome.output}" if outcome.output else said))
        # the program works, so it is this batch that it does not like: a small data set, a rule of its own
        plan = replace(self, failure=said)
        return plan._then(plan._run(plan._largest_that_ran(), f"{said} and this one ran", confident=True))

    def _then(self, step: Step) -> Plan:
        """With this step; a run that needed no line still gets one, for what may come after it."""
        if not isinstance(step, Run):
            return replace(self, step=step)
        return replace(self, step=step, line=self._cautious_line() if step.confident else None)

    def _smaller(self, batch: int) -> Step:
        """After a probe that ran out of memory."""
        if not self.points:
            if batch == 1:
                return GiveUp("out of memory even at batch 1: this job does not fit on this GPU")
            return self._probe(max(batch // 2, 1), "smaller")
        if self._is_flat():
            return self._users(_prealloc(self.points[-1].mib, self.budget_mib))
        below = self._largest_that_ran()
        if batch - below <= 1 or self.tries >= MOST_TRIES:
            return self._run(below, f"batch {batch} ran out of memory and this one ran", confident=True)
        return self._probe((below + batch) // 2, "between")

    def _with_line(self) -> Plan:
        """After a probe that was measured."""
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

    def _near(self, line: Line, batch: int, why: str) -> Plan:
        """The real run, or a probe where it would go far beyond what ran: memory may bend, data may be too few."""
        probed = self.settings.rounded(batch)
        if probed > NEAR * self._largest_that_ran() and self.tries < MOST_TRIES:
            return replace(self, line=line, step=self._probe(probed, "near"))
        return replace(self, line=line, step=self._run(batch, why, confident=True))

    def _second(self, first: Point) -> Step:
        guess = min(proportional(first, self.target_mib), self.most)
        if first.batch <= guess == self.most <= NEAR * first.batch:
            # safe without a second point, and there is no larger one to look for
            return self._run(guess, "it is the largest allowed, and sure to fit", confident=True)
        if guess >= WORTH_A_POINT * first.batch:
            return self._probe(guess, "second")
        if first.batch > 1:
            return self._probe(first.batch // 2, "second")
        if self.most > 1 and first.mib <= self.target_mib:
            return self._probe(2, "second")
        return self._run(1, "it is the smallest there is", confident=first.mib <= self.target_mib)

    def _after_flat(self, lower: Point, upper: Point) -> Plan:
        """More batch took no more memory: taken in advance, or so small that it cannot be seen yet."""
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
            return self.unmeasured("memory did not grow with the batch, and from where on it would is not known")
        why = "memory hardly grows with the batch, and up to here that is sure"
        return replace(self, line=line, step=self._run(safe, why, confident=True))

    # -- the real run ---------------------------------------------------------------------------------------------

    def _after_run(self, run: Run, outcome: Outcome) -> Plan:
        if not isinstance(outcome, OutOfMemory):
            return replace(self, step=Done(run.batch))
        plan = replace(self, restarts=self.restarts + 1, too_large=min(run.batch, self.too_large or run.batch))
        if run.batch == 1:
            return replace(plan, step=GiveUp("out of memory even at batch 1: this job does not fit on this GPU"))
        if plan.restarts > MOST_RESTARTS:
            return replace(
                plan, step=GiveUp(f"out of memory {plan.restarts} times, the last time at batch {run.batch}")
            )
        batch = plan._back_from(run, outcome)
        why = f"batch {run.batch} ran out of memory"
        return replace(plan, step=Run(batch, why, run.confident))

    def _back_from(self, run: Run, outcome: OutOfMemory) -> int:
        """The next smaller safe batch."""
        if self.line is None or not run.confident:
            return max(run.batch // 2, 1)
        late = outcome.seconds > LATE_S
        most = int(run.batch * (LATE_STEP if late else EARLY_STEP))
        corrected = self._corrected(self.line, run.batch, outcome).largest(self.target_mib, run.batch - 1)
        batch = min(most, corrected)
        ran = [point.batch for point in self.points if point.batch < run.batch and point.mib <= self.target_mib]
        if ran and not late:
            # one that ran in a probe has shown as much as a run that ended as soon
            batch = max(batch, *ran) if self.restarts < MOST_RESTARTS else max(ran)
        return min(max(self.settings.rounded(max(batch, 1)), 1), run.batch - 1)

    def _corrected(self, line: Line, batch: int, outcome: OutOfMemory) -> Line:
        """The line made steeper by what the failure shows: it needed the whole budget at least."""
        needed = max((outcome.peak_mib or 0.0) + (outcome.wanted_mib or 0.0), self.budget_mib)
        return Line(line.fixed_mib, max(line.per_sample_mib, (needed - line.fixed_mib) / batch))

    # -- parts ----------------------------------------------------------------------------------------------------

    @property
    def target_mib(self) -> float:
        """What may be used."""
        return self.settings.margin * self.budget_mib

    @property
    def most(self) -> int:
        """The largest batch that may be taken."""
        return self.settings.cap if self.too_large is None else max(min(self.settings.cap, self.too_large - 1), 1)

    @property
    def batch(self) -> int | None:
        """The batch of the real run; None where that is not known."""
        return self.step.batch if isinstance(self.step, Run | Done) else None

    @property
    def expected_mib(self) -> float | None:
        """The memory that the batch of this step should take; None where nothing says so."""
        if self.line is None or not isinstance(self.step, Run | Done):
            return None
        return self.line.at(self.step.batch)

    @property
    def is_halved(self) -> bool:
        """Whether nothing could be measured, and the user's batch is known to be too large."""
        if not isinstance(self.step, Run) or self.step.confident or self.restarts or self.line is not None:
            return False
        return self.too_large is not None and 1 < self.step.batch == self.too_large // 2

    def _nearest_points(self) -> tuple[Point, Point]:
        """The two that matter for what is larger than all of them."""
        lower, upper = sorted(self.points)[-2:]
        return lower, upper

    def _cautious_line(self) -> Line:
        """Through two that ran; with one alone as if nothing were fixed, never too low for what is larger."""
        if len(self.points) > 1 and not self._is_flat():
            return through(*self._nearest_points())
        top = max(self.points)
        return Line(0.0, top.mib / top.batch)

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

    def _users(self, why: str) -> Run:
        """The user's batch, or less where even that is known to be too large."""
        known_bad = self.too_large is not None and self.settings.users >= self.too_large
        batch = max((self.too_large or 0) // 2, 1) if known_bad else self.settings.users
        return Run(batch, why, confident=False)

    # -- JSON -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Everything, in JSON's own types."""
        step = {"is": type(self.step).__name__, **asdict(self.step)}
        points = [list(point) for point in self.points]
        line = list(self.line) if self.line else None
        return {**asdict(self), "step": step, "points": points, "line": line}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """The inverse of to_json."""
        step = dict(data["step"])
        made: Step = _STEPS[step.pop("is")](**step)
        points = tuple(Point(*point) for point in data["points"])
        line = Line(*data["line"]) if data["line"] else None
        names = {field.name for field in fields(cls)}
        known = {name: value for name, value in data.items() if name in names}
        parts = {
            **known,
            "settings": Settings.from_json(data["settings"]),
            "step": made,
            "points": points,
            "line": line,
        }
        return cls(**parts)


def _prealloc(held_mib: float, budget: float) -> str:
    return (
        f"memory does not depend on the batch: {100 * held_mib / budget:.0f} % is held whatever it is, as by frameworks"
        " that take it in advance (to be probed, JAX needs XLA_PYTHON_CLIENT_PREALLOCATE=false,"
        " TensorFlow TF_FORCE_GPU_ALLOW_GROWTH=true)"
    )
