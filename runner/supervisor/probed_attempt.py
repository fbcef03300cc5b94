"""An attempt that finds its batch first: probes, then the real run, all within the same lease. Start with `run`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from dataclasses import replace

from runner import clock, rundir
from runner.batch import BatchPlan, Failed, GiveUp, Probe, Run, Unmeasured, accumulate, choose
from runner.commands import job_kinds
from runner.commands.placeholders import realised
from runner.config.job_environment import isolated
from runner.supervisor.gpu_memory import Gauge
from runner.supervisor.job_processes import Execution, Since
from runner.supervisor.output import OutputWriter
from runner.supervisor.probe import ProbeLog, Trial
from runner.supervisor.probe_records import ProbeOrder, ProbeReport
from runner.supervisor.scratch import scratch_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.rundir import AttemptSpec
    from runner.supervisor.gpu_memory import MemoryReading
    from runner.supervisor.job_processes import Ready

BACK_WITHIN_S = 30.0
BLIND_S = 2.0  # without readings for this long, take the memory of ended processes as freed
LOOK_EVERY_MS, TRY_AGAIN_MS = 100, 1000


def run(folder: str, spec: AttemptSpec, ready: Ready, on_run: Callable[[], None]) -> Execution:
    """Find the batch and run the job with it. Return the execution that ended the attempt: the run or a probe."""
    attempt = _Probed(folder, spec, ready)
    last = attempt.find()
    if last is not None:
        return last
    real = Execution(folder, attempt.spec_of_run(), ready, attempt.since)
    real.start()
    on_run()
    real.watch()
    attempt.write_if_unwritten()
    return real


class _Probed:
    """An attempt that is looking for its batch."""

    def __init__(self, folder: str, spec: AttemptSpec, ready: Ready) -> None:
        self._folder, self._spec, self._ready = folder, spec, ready
        self._order = ProbeOrder.from_json(spec.probe or {})
        self._plan = self._order.plan
        self._gauge = Gauge(self._order.readings, self._order.gpus)
        self._scratch = os.path.join(folder, rundir.SCRATCH)
        self._version: str | None = None
        self._steps = 1
        self._repeated = self._unwritten = False
        self.since = Since(clock.text(clock.now()), time.monotonic())

    def find(self) -> Trial | None:
        """Probe until the batch is known. Return None then, or the last probe if the attempt ends with it."""
        self._write()
        self._version = job_kinds.code_version(self._spec.dir, self._order.words)
        self._plan = self._remembered() or self._plan
        number, trial = 0, None
        while isinstance(self._plan.step, Probe):
            number += 1
            trial = self._try(self._plan.step, number)
            if not trial.is_over:
                self._plan = self._after(trial)
            if trial.is_over:
                return self._ended_with(trial)
            self._write()
        if trial is not None and isinstance(self._plan.step, GiveUp):
            return self._ended_with(trial, self._plan.step.reason)
        self._settle_accumulation()
        self._write()
        return None

    def _remembered(self) -> BatchPlan | None:
        """Return a plan without probes if the memory of this kind of job is known for this code; otherwise None."""
        remembered, plan = self._order.known, self._plan
        if remembered is None or not isinstance(plan.step, Probe) or remembered.version != self._version:
            return None
        run = choose(remembered.known, plan.budget_mib, plan.settings)
        return BatchPlan.remembered(plan.settings, plan.budget_mib, remembered.known.line, run) if run else None

    def _settle_accumulation(self) -> None:
        effective, step = self._order.effective, self._plan.step
        if effective and isinstance(step, Run):
            accumulation = accumulate(step.batch, effective, len(self._order.gpus))
            self._steps = accumulation.steps
            if accumulation.batch != step.batch:
                why = f"it divides the effective batch of {effective} well; {step.batch} would fit"
                self._plan = replace(self._plan, step=replace(step, batch=accumulation.batch, why=why))

    # -- one probe -------------------------------------------------------------------------------------------------

    def _try(self, probe: Probe, number: int) -> Trial:
        run_id = f"{self._spec.run_id}-probe{number}"
        spec = self._spec_at(probe.batch, run_id, isolated(run_id, self._scratch), probing=True)
        log = ProbeLog(os.path.join(self._folder, f"probe-{number}.log"))
        trial = Trial(self._folder, spec, self._ready, self.since, log)
        with scratch_folder(self._scratch):
            trial.measure(probe, self._gauge)
        return trial

    def _after(self, trial: Trial) -> BatchPlan:
        """Return the plan after this probe. Wait first until its GPUs' memory is freed, unless the plan gives up."""
        outcome = trial.outcome(self._plan.budget_mib)
        plan = self._plan.after(outcome)
        if isinstance(plan.step, GiveUp):
            return plan
        blind = outcome if isinstance(outcome, Unmeasured) and outcome.blind else None
        failed = isinstance(outcome, Failed)
        patience_s = max(trial.patience_s - trial.unread_s, BLIND_S) if blind or failed else BLIND_S
        reading = self._settled(trial, patience_s)
        if reading is not None and not reading.back:
            return plan.unmeasured("the memory of a probe did not come back after it had ended")
        if failed and reading is None:  # whatever ended the readings may be the cause: a lost GPU, a full disk
            trouble = self._gauge.trouble() or "no reading of its GPU came any more"
            return plan.unmeasured(f"{plan.failure}, and {trouble}")
        if blind and reading is not None and not self._repeated:
            self._repeated = True
            return self._plan.repeated(blind)
        return plan

    def _settled(self, trial: Trial, blind_s: float) -> MemoryReading | None:
        """Wait up to 30 s until the GPUs hold no more than before, and return the last reading.

        Return None if no reading comes within `blind_s`. A stop request ends the wait and sets `trial.asked_to_stop`.
        """
        began = self._gauge.since = time.monotonic()
        last: MemoryReading | None = None
        while time.monotonic() < began + (blind_s if last is None else BACK_WITHIN_S):
            if self._is_asked_to_stop(LOOK_EVERY_MS):
                trial.asked_to_stop = True
                break
            last = self._gauge.read() or last
            if last is not None and last.back:
                break
        return last

    def _ended_with(self, trial: Trial, why: str | None = None) -> Trial:
        """End the attempt with this probe: what the probe printed becomes the job's output."""
        os.close(self._ready.pipe)
        self._write()
        output = OutputWriter(self._folder, self._spec.log_limit_bytes, self._spec.log_tail_bytes)
        if why is not None:
            output.append(f"[nightshift: {why.partition(chr(10))[0].rstrip(':')}]\n".encode())
        output.append(trial.printed)
        return trial

    # -- parts -----------------------------------------------------------------------------------------------------

    def spec_of_run(self) -> AttemptSpec:
        """Return the spec of the real run, with the batch that was found."""
        assert isinstance(self._plan.step, Run)
        return self._spec_at(self._plan.step.batch, self._spec.run_id, {}, probing=False)

    def _spec_at(self, batch: int, run_id: str, variables: dict[str, str], *, probing: bool) -> AttemptSpec:
        steps = str(1 if probing else self._steps)  # 1 in a probe: the optimiser takes memory at its first step
        values = {**self._order.values, "run_id": run_id, "batch_size": str(batch), "grad_accum": steps}
        added = self._order.profile.arguments(batch, run_id, probing=probing, placed=self._order.placed)
        argv, script = realised(self._order.command, self._folder, values, added)
        if script is not None:
            self._write_script(script)
        own = {"NIGHTSHIFT_BATCH_SIZE": str(batch), "NIGHTSHIFT_GRAD_ACCUM": steps, **variables}
        return replace(self._spec, argv=tuple(argv), env_over={**self._spec.env_over, **own})

    def _write_script(self, script: str) -> None:
        """Write the script to the run directory. Retry while the disk is full, until a stop or the folder is gone."""
        path = os.path.join(self._folder, rundir.SCRIPT)
        while os.path.isdir(self._folder):
            with contextlib.suppress(OSError):
                rundir.write_atomically(path, os.fsencode(script), mode=0o700)
                return
            if self._is_asked_to_stop(TRY_AGAIN_MS):
                os.kill(os.getpid(), signal.SIGTERM)  # again, for the next execution
                return

    def _is_asked_to_stop(self, within_ms: float) -> bool:
        """Wait this long for a stop, and return whether one came."""
        poll = select.poll()
        poll.register(self._ready.wake, select.POLLIN)
        return bool(poll.poll(within_ms)) and signal.SIGTERM in os.read(self._ready.wake, 256)

    def write_if_unwritten(self) -> None:
        """Write the record again, before the end is recorded, if a full disk prevented the last write."""
        if self._unwritten:
            self._write()

    def _write(self) -> None:
        """Write the progress for the runner. If that fails, the next call writes it."""
        report = ProbeReport(run_id=self._spec.run_id, plan=self._plan, version=self._version, about=self._order.about)
        self._unwritten = True
        with contextlib.suppress(OSError):
            rundir.write_atomically(os.path.join(self._folder, rundir.PROBE), json.dumps(report.to_json()).encode())
            self._unwritten = False
