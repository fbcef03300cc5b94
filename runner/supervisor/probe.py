"""One probe: runs the job for a short time at one batch and measures its GPU memory."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

from runner.batch import Failed, Measured, OutOfMemory, Plateau, Unmeasured, oom
from runner.model import Memory
from runner.supervisor.job_processes import Execution

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runner.batch import Probe
    from runner.batch.steps import EndedBy, Outcome
    from runner.model import Exit
    from runner.rundir import AttemptSpec
    from runner.supervisor.gpu_memory import Gauge
    from runner.supervisor.job_processes import Ready, Since

LOOK_EVERY_MS = 250.0
GRACE_S = 5.0  # from SIGTERM to SIGKILL, at most; what a probe writes is thrown away anyway
STALE_S = 5.0  # if the last reading is this long before the end, the memory is unknown
PATIENCE = 0.5  # share of its time limit: without a reading for this long, the probe ends
NEARLY_FULL = 0.9  # of the budget
LOG_LIMIT = 1 << 20
TAIL = 1 << 16
REPORTED_CHARS = 1500  # characters of a failure's output to record


class ProbeLog:
    """What a probe prints: the first MiB on disk, the last 64 KiB in memory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.bytes = self.dropped_bytes = 0
        self.tail = b""

    def append(self, data: bytes) -> None:
        """Add the next part of the output."""
        self.tail = (self.tail + data)[-TAIL:]
        if self.bytes < LOG_LIMIT:
            try:
                with open(self.path, "ab") as file:
                    file.write(data)
            except OSError:
                self.dropped_bytes += len(data)
        self.bytes += len(data)


class Trial(Execution):
    """The job's processes during a probe."""

    _output: ProbeLog  # type: ignore[assignment]

    def __init__(self, folder: str, spec: AttemptSpec, ready: Ready, since: Since, log: ProbeLog) -> None:
        super().__init__(folder, spec, ready, since)
        self._output = log

    def measure(self, probe: Probe, gauge: Gauge) -> None:
        """Run the probe and return when all of its processes are gone."""
        self._probe, self._gauge = probe, gauge
        self._plateau = Plateau(least_s=probe.quiet_s, expected_s=probe.expected_s)
        self._read_at: float | None = None
        self._seen_at: float | None = None  # time of the last reading that had its own memory
        self._ended_by: EndedBy | None = None
        self._end_wanted_at: float | None = None
        self._launch()
        gauge.since = self._launched
        self._listen()
        self.watch()
        self._look_once()  # there may be a new reading since it ended

    @property
    def printed(self) -> bytes:
        """Return the end of what it printed."""
        return self._output.tail

    @property
    def is_over(self) -> bool:
        """Return whether the attempt ends here: it was stopped, timed out, or could not be executed."""
        return self.asked_to_stop or self._timed_out or self._spawn_error is not None

    @property
    def unread_s(self) -> float:
        """Return the seconds since the last reading of its GPUs, or since its start if there was none."""
        return time.monotonic() - (self._launched if self._read_at is None else self._read_at)

    @property
    def patience_s(self) -> float:
        """Return how many seconds may pass without a reading."""
        return PATIENCE * self._probe.limit_s

    def outcome(self, budget_mib: float) -> Outcome:
        """Return the result of the probe: measured, unmeasured, out of memory, or failed."""
        seconds = round(time.monotonic() - self._launched, 3)
        code = os.waitstatus_to_exitcode(self._status) if self._status is not None else 0
        if self._ended_by is None and code != 0:
            return self._failure(code, budget_mib, seconds)
        end = self._ended_at if self._end_wanted_at is None else self._end_wanted_at
        stale_s = min(STALE_S, self.patience_s)
        if self._read_at is None or end - self._read_at >= stale_s:
            return Unmeasured(self._why_blind(), seconds, blind=True)
        if self._seen_at is None or end - self._seen_at >= stale_s:
            return Unmeasured("its memory cannot be told from that of other processes on the GPU", seconds)
        seen = self._plateau
        return Measured(seen.peak_mib, 0.0, seconds, self._ended_by or "itself", round(seen.settled_s, 3))

    def _why_blind(self) -> str:
        what = "no reading of its GPU came" if self._read_at is None else "the readings of its GPU stopped"
        trouble = self._gauge.trouble()
        return f"{what} while it was probed" + (f" ({trouble})" if trouble else "")

    def _failure(self, code: int, budget_mib: float, seconds: float) -> Outcome:
        exit_code, number = (code, None) if code >= 0 else (None, -code)
        peak = self._plateau.peak_mib
        full = budget_mib > 0 and peak >= NEARLY_FULL * budget_mib
        text = self._output.tail.decode(errors="replace")
        shortage = oom.recognise(text, exit_code=exit_code, signal=number, host_kill=self.kills > 0, gpu_full=full)
        if shortage is not None and shortage.where is Memory.GPU:
            return OutOfMemory(peak or None, shortage.wanted_mib, seconds)
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        if shortage is not None:
            how = f"{shortage.where.ran_out}, {how}"
        return Failed(how, text[-REPORTED_CHARS:], seconds)

    def exit(self) -> Exit:
        """Return how an attempt ended that ends with a probe. After a stop or time-out, its signal is SIGTERM."""
        end = super().exit()
        if self.asked_to_stop or self._timed_out:
            return replace(end, exit_code=None, signal=int(signal.SIGTERM), stopped=True)
        return end

    def _wait_ms(self) -> float | None:
        wait_ms = super()._wait_ms()
        return min(LOOK_EVERY_MS, LOOK_EVERY_MS if wait_ms is None else wait_ms)

    def _keep_time(self) -> None:
        super()._keep_time()
        if self._status is not None:
            return
        self._look_once()
        if self._ended_by is not None or self._stopped:
            return
        if self._probe.ends == "at plateau" and self._plateau.done:
            self._end_as("plateau")
        elif time.monotonic() - self._launched >= self._probe.limit_s or self.unread_s >= self.patience_s:
            self._end_as("limit")

    def _end_as(self, how: EndedBy) -> None:
        self._ended_by, self._end_wanted_at = how, time.monotonic()
        self._end_within(min(GRACE_S, self._spec.stop_grace_s))

    def _look_once(self) -> None:
        reading = self._gauge.read()
        if reading is None:
            return
        self._read_at = reading.at
        if reading.mib is not None:
            self._seen_at = reading.at
        self._plateau.add(reading.at, reading.mib, reading.utilization)
