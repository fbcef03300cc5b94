"""Our process on a node: Slurm's batch job. It starts the attempt's supervisor and stays beside it.

It reads exactly the GPUs that Slurm gave, leaves readings as signs of life in the run directory, looks there for a
request to stop, and passes Slurm's own signal on. If the supervisor is killed, it ends what is left of the job.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runner import rundir
from runner.engines.slurm import shared_folder
from runner.engines.slurm.shared_folder import Beat
from runner.errors import NightshiftError
from runner.gpu import published
from runner.gpu.sampler_client import SamplerClient
from runner.model import Gpu, Ref
from runner.processes import linux
from runner.supervisor.supervise import get_ready, supervise

if TYPE_CHECKING:
    from runner.rundir import AttemptSpec

BEAT_S = 2.0
FIRST_READING_S = 30.0
SWEEP_EVERY_S = 0.02
ALREADY = 0  # the exit code if there is nothing to do: it was stopped before, or started by another launch


def main(arguments: list[str]) -> None:
    """Run the attempt in this run directory. The second argument is the setting NIGHTSHIFT_GPUS."""
    folder, setting = arguments
    sys.exit(run(folder, setting))


def run(folder: str, setting: str) -> int:
    """Supervise the attempt to its end. Return its exit code, for those who look at Slurm alone."""
    spec = rundir.read_spec(folder)
    lock = _locked(folder)
    started = os.path.exists(os.path.join(folder, rundir.STARTED))
    if spec is None or lock is None or started or shared_folder.is_asked_to_stop(folder):
        return ALREADY
    linux.become_subreaper()
    wake = linux.readable_signals((signal.SIGCHLD, signal.SIGTERM), (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE))
    scratch = tempfile.mkdtemp(prefix="nightshift-")
    readings = Readings(scratch, setting)
    try:
        spec = _for_this_node(spec, scratch, readings)
        rundir.write_atomically(os.path.join(folder, rundir.SPEC), rundir.encoded(spec))
        supervisor = _fork(folder, lock, readings.uuids)
        os.close(lock)
        _stay(folder, spec, supervisor, readings, wake)
    finally:
        readings.close()
        shutil.rmtree(scratch, ignore_errors=True)
    end = rundir.read_exit(folder)
    return 1 if end is None or end.exit_code is None else end.exit_code


def _locked(folder: str) -> int | None:
    lock = os.open(os.path.join(folder, rundir.LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError:  # a folder without locks: started.json, which exists once, is guard enough
        pass
    return lock


def _for_this_node(spec: AttemptSpec, scratch: str, readings: Readings) -> AttemptSpec:
    """Return the spec with what only the node knows: Slurm's variables, the GPUs that it gave, and their memory."""
    given = {name: value for name, value in os.environ.items() if name.startswith("SLURM")}
    given["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if readings.simulated:
        given["NIGHTSHIFT_HOME"] = scratch  # where the simulated GPUs of this node are
        given["CUDA_VISIBLE_DEVICES"] = ",".join(readings.uuids)
    probe = spec.probe
    if probe is not None:
        from runner.engines.slurm.probe_plan import planned_here  # imported late: most jobs are not probed

        probe = planned_here(probe, readings.gpus, os.path.join(scratch, published.FILE))
    return replace(spec, env_over={**spec.env_over, **given}, probe=probe)


def _fork(folder: str, lock: int, gpus: tuple[str, ...]) -> int:
    """Start the supervisor: the same as on any host, but without a runner at the other end of its leash."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        hear, leash = os.pipe2(os.O_CLOEXEC)
        os.close(hear)
        orders, _other_end = socket.socketpair()
        ready = get_ready(linux.boot_id())
        linux.set_name("ns-supervisor")
        started = replace(ready.started, node=node_name(), gpus=gpus)
        supervise(ready._replace(started=started), folder, lock, leash, orders, lambda: None)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def node_name() -> str:
    """Return the name of this host in Slurm."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]


def _stay(folder: str, spec: AttemptSpec, supervisor: int, readings: Readings, wake: int) -> None:
    """Stay until the supervisor has ended, and all that it left."""
    ref, number, stopping = Ref(spec.job_id, spec.attempt, spec.run_id), 0, False
    while not _has_ended(supervisor, readings.pid):
        number += 1
        below = linux.descendants(supervisor)
        beat = readings.beat(
            Beat(run_id=spec.run_id, number=number, moved_bytes=linux.moved_bytes(below)), ref, supervisor
        )
        with contextlib.suppress(OSError):  # it is late: the runner waits for the next
            shared_folder.write_beat(folder, beat)
            stopping |= shared_folder.is_asked_to_stop(folder)
        if stopping:
            os.kill(supervisor, signal.SIGTERM)  # again each time: it hears none before it has started the job
        if select.select([wake], [], [], BEAT_S)[0]:
            stopping |= signal.SIGTERM in os.read(wake, 256)


def _has_ended(supervisor: int, sampler: int | None) -> bool:
    """Reap ended children. Once the supervisor is among them, end what it left behind."""
    ended = False
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended |= pid == supervisor
    while ended and (orphans := [pid for pid in linux.own_children() if pid != sampler]):
        linux.kill_all([*orphans, *(below for pid in orphans for below in linux.descendants(pid))])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        time.sleep(SWEEP_EVERY_S)
    return ended


class Readings:
    """The GPUs that Slurm gave, as the sampler here reads them. Without a driver only their numbers are known."""

    def __init__(self, scratch: str, setting: str) -> None:
        self._indices = _numbers(os.environ.get("SLURM_JOB_GPUS") or os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        self._sampler: SamplerClient | None = None
        self._trouble: str | None = None
        self.simulated = setting.startswith("sim:")
        node = node_name()
        self.gpus = tuple(Gpu(index=index, uuid=f"{node}:{index}", node=node) for index in self._indices)
        if self._indices and setting != "none":
            self._open(scratch, setting if self.simulated else "auto")

    def _open(self, scratch: str, setting: str) -> None:
        try:
            self._sampler = SamplerClient(scratch, setting, stderr=sys.stderr, cwd="/", start_new_session=True)
            self._take(self._sampler.sample(FIRST_READING_S).gpus)
        except (NightshiftError, OSError) as error:
            self._trouble = str(error)
            self.close()

    @property
    def pid(self) -> int | None:
        """Return the sampler's pid; None if there is none."""
        return self._sampler.process.pid if self._sampler else None

    @property
    def uuids(self) -> tuple[str, ...]:
        """Return the names of the GPUs."""
        return tuple(gpu.uuid for gpu in self.gpus)

    def _take(self, gpus: tuple[Gpu, ...]) -> None:
        """Keep the readings of our GPUs. Behind a fence, their numbers begin at 0, and all that are seen are ours."""
        if self.simulated:
            gpus = tuple(gpu for gpu in gpus if gpu.index in self._indices)
        numbers = self._indices if len(self._indices) == len(gpus) else [gpu.index for gpu in gpus]
        node = node_name()
        self.gpus = tuple(replace(gpu, index=number, node=node) for gpu, number in zip(gpus, numbers, strict=True))

    def beat(self, beat: Beat, ref: Ref, supervisor: int) -> Beat:
        """Return the sign of life with the latest readings."""
        if self._sampler is None:
            return replace(beat, trouble=self._trouble)
        try:
            while (snapshot := self._sampler.snapshot()) is not None:
                self._take(snapshot.gpus)
        except (EOFError, NightshiftError, OSError, ValueError) as error:
            self._trouble = str(error) or "the sampler on the node died"
            self.close()
            return replace(beat, trouble=self._trouble)
        age_s = time.monotonic() - min((gpu.sampled_at for gpu in self.gpus), default=0.0)
        labelled = tuple(_labelled(gpu, ref, supervisor) for gpu in self.gpus)
        return replace(beat, gpus=labelled, age_s=max(0.0, age_s), simulated=self.simulated)

    def close(self) -> None:
        """End the sampler."""
        if self._sampler is not None:
            self._sampler.close(patience_s=0.0)
            self._sampler = None


def _labelled(gpu: Gpu, ref: Ref, supervisor: int) -> Gpu:
    processes = [
        replace(one, of=ref.mark if linux.is_below(one.pid, supervisor) else None) for one in gpu.processes or ()
    ]
    return replace(gpu, processes=tuple(processes)) if processes else gpu


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip().isdigit()]
