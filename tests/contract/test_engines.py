"""The rules that every engine keeps, whatever it runs attempts on. A new engine is one more parameter of `engine`."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from runner import rundir
from runner.engines.base import Engine, Facts, Order
from runner.engines.local.engine import LocalEngine
from runner.model import Ref
from runner.processes import linux
from runner.processes.waiter import Waiter
from tests.slurm.cluster import INSIDE

MIB = 1 << 20
NIGHTSHIFT = Path(__file__).parents[2] / "nightshift.py"
FREE = Facts(held=False)


class Stage:
    """An engine with a loop around it, and jobs that leave a mark."""

    def __init__(self, folder: Path, make: Callable[[str], Engine]) -> None:
        self.home, self._make = str(folder / "home"), make
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.engines: list[Engine] = []
        self.run_id = secrets.token_hex(4)  # other tests run beside this one
        Path(self.home).mkdir(mode=0o700)
        self.open()

    def open(self) -> None:
        """A runner comes up."""
        self.waiter = Waiter()
        self.engine = self._make(self.home)
        self.engines.append(self.engine)
        self.engine.listen(self.waiter)

    def order(self, job_id: int, command: str, attempt: int = 1) -> Order:
        ref = Ref(job_id, attempt, self.run_id)
        variables = {"PATH": os.environ["PATH"], "NIGHTSHIFT_ATTEMPT": ref.mark}
        spec = rundir.AttemptSpec(
            job_id=job_id, attempt=attempt, run_id=ref.run_id, argv=("bash", "-c", command), env=variables,
            dir=str(self.marks), stop_grace_s=1.0, log_limit_bytes=MIB, log_tail_bytes=MIB,
        )  # fmt: skip
        return Order(ref, spec)

    def start(self, job_id: int, command: str) -> Ref:
        order = self.order(job_id, command)
        self.engine.start(order)
        return order.ref

    def look(self, ref: Ref) -> Facts:
        return self.engine.look([ref])[ref]

    def until(self, ref: Ref, fits: Callable[[Facts], object]) -> Facts:
        """Wait as the loop does: look only where the engine has news."""
        deadline, facts = time.monotonic() + 40, self.look(ref)
        while not fits(facts):
            assert time.monotonic() < deadline, facts
            self.waiter.after(1.0, lambda: None)  # so that the deadline is seen
            self.waiter.wait()
            if ref in self.engine.news():
                facts = self.look(ref)
        return facts

    def started(self, ref: Ref) -> Facts:
        return self.until(ref, lambda facts: facts.started)

    def ended(self, ref: Ref) -> Facts:
        return self.until(ref, lambda facts: facts.held is False)

    def lines(self, name: str) -> list[str]:
        path = self.marks / name
        return path.read_text().split() if path.exists() else []

    def processes(self, ref: Ref) -> list[int]:
        mark = {"NIGHTSHIFT_ATTEMPT": ref.mark}
        return [process.pid for process in psutil.process_iter() if mark.items() <= _environ(process).items()]


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def local(home: str) -> Engine:
    return LocalEngine(home, "sim:1x24GiB", 2)


def slurm(home: str) -> Engine:
    from runner.config.settings import Settings
    from runner.engines.slurm.engine import SlurmEngine

    shared = str(Path(home).parent / "shared")
    settings = Settings(
        home=home, engine="slurm", shared=shared, gpus="sim:2x24GiB", slurm_poll=0.5, slurm_forgotten_after=2.0,
        slurm_ahead=2,
    )  # fmt: skip
    return SlurmEngine(
        settings, secrets.token_hex(4) if not os.path.exists(shared) else Path(shared, "queue").read_text().strip()
    )


# in a cluster that tests/slurm has made, the same rules hold for its engine
ENGINES = {"slurm": slurm} if INSIDE in os.environ else {"local": local}


this_host = pytest.mark.skipif("local" not in ENGINES, reason="a rule for the engine of this host")


@pytest.fixture(params=ENGINES.values(), ids=list(ENGINES))
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, request.param)
    yield made
    made.engine.close()
    for engine in made.engines:
        if isinstance(engine, LocalEngine):
            engine._zygote._process.wait(40)  # it stays until its last supervisor has ended


def test_1_what_is_not_known_is_answered_at_once(stage: Stage) -> None:
    refs = [Ref(number, 1, "0000000a") for number in range(3)]
    at_once = stage.engine.look(refs)
    assert set(at_once) == set(refs)
    assert all(facts.held is None or facts == FREE for facts in at_once.values())
    for ref in refs:  # an engine that must ask first says so only when it is proved
        facts = stage.ended(ref)
        assert (facts.held, facts.exit, facts.started) == (False, None, None)
    [node] = stage.engine.nodes()
    assert (node.name, node.trouble, node.cpu_slots) == (None, None, 2)
    assert node.snapshot is not None


@this_host
def test_1_this_host_and_its_gpus_are_known_at_once(stage: Stage) -> None:
    [node] = stage.engine.nodes()
    assert node.boot_id == linux.boot_id()
    assert node.snapshot is not None
    assert len(node.snapshot.gpus) == 1


@this_host
def test_1_an_attempt_that_cannot_be_read_is_unknown(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = stage.start(1, "sleep 300")
    stage.started(ref)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_, **__: (_ for _ in ()).throw(OSError(24, "Too many open files")))
        facts = stage.look(ref)
    assert (facts.held, facts.exit, facts.started) == (None, None, None)
    assert "Too many open files" in str(facts.said)
    assert stage.look(ref).held is True  # rule 7: nothing came of it
    stage.engine.stop(ref)
    stage.ended(ref)


def test_2_one_order_given_twice_is_executed_once(stage: Stage) -> None:
    order = stage.order(1, "echo run >> runs; sleep 0.3")
    stage.engine.start(order)
    with contextlib.suppress(BlockingIOError):  # an engine may refuse it
        stage.engine.start(order)
    assert stage.ended(order.ref).exit is not None
    assert stage.lines("runs") == ["run"]


def test_3_the_start_is_durable_before_the_first_instruction_and_the_end_before_the_lock_is_free(stage: Stage) -> None:
    ref = stage.start(1, "cat ../home/runs/1/1/started.json > seen; exit 7")
    facts = stage.ended(ref)
    assert facts.exit is not None
    assert facts.exit.exit_code == 7
    assert f'"run_id": "{stage.run_id}"' in (stage.marks / "seen").read_text()
    assert facts.started is not None


def test_4_what_a_killed_supervisor_leaves_is_swept(stage: Stage) -> None:
    ref = stage.start(1, "(setsid sleep 300 &); (env -i setsid sleep 300 &); echo on > on; sleep 300")
    facts = stage.started(ref)
    while not stage.lines("on"):
        stage.waiter.after(0.05, lambda: None)
        stage.waiter.wait()
    assert facts.started is not None
    os.kill(facts.started.pid, signal.SIGKILL)
    assert stage.ended(ref).exit is None
    deadline = time.monotonic() + 20
    while not stage.engine.sweep(ref):
        assert time.monotonic() < deadline
    assert stage.processes(ref) == []


def test_5_a_stop_before_the_start_reaches_it(stage: Stage) -> None:
    order = stage.order(1, "sleep 300; echo survived >> survived")
    stage.engine.start(order)
    stage.engine.stop(order.ref)
    stage.engine.stop(order.ref)
    facts = stage.ended(order.ref)
    assert facts.exit.stopped if facts.exit is not None else facts.started is None
    assert stage.lines("survived") == []
    assert stage.processes(order.ref) == []


def test_6_the_run_directory_is_that_of_the_attempt(stage: Stage) -> None:
    ref = stage.start(1, "echo hello")
    stage.ended(ref)
    folder = Path(rundir.folder_of(stage.home, 1, 1))
    assert (folder / "output.log").read_text() == "hello\n"
    assert (folder / "exit.json").exists()


def test_7_another_runner_goes_on_with_what_runs(stage: Stage) -> None:
    ref = stage.start(1, "echo on > on; until [ -e go ]; do sleep 0.05; done; exit 5")
    stage.started(ref)
    stage.engine.close()
    stage.open()
    stage.until(ref, lambda facts: facts.held is True)
    (stage.marks / "go").touch()
    facts = stage.ended(ref)
    assert facts.exit is not None
    assert facts.exit.exit_code == 5


def test_7_another_runner_can_stop_it(stage: Stage) -> None:
    ref = stage.start(1, "sleep 300")
    stage.started(ref)
    stage.engine.close()
    stage.open()
    stage.engine.stop(ref)
    facts = stage.ended(ref)
    assert facts.exit is not None
    assert facts.exit.stopped


def test_8_records_of_another_queue_are_not_taken_for_ours(stage: Stage) -> None:
    ref = stage.start(1, "exit 0")
    stage.ended(ref)
    facts = stage.ended(Ref(1, 1, f"{int(stage.run_id, 16) ^ 1:08x}"))
    assert (facts.held, facts.exit, facts.started) == (False, None, None)


@this_host
def test_a_forgotten_attempt_leaves_nothing_open(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    # on a slow machine these jobs would be followed by a process that reads progress
    monkeypatch.setattr("runner.engines.local.progress_process.FOLLOWS_AFTER_S", 60.0)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, 6):
        ref = stage.start(number, "true")
        stage.ended(ref)
        stage.engine.forget(ref)
    two_pipes = 2  # to the process that reads progress; it may be up, for all attempts together
    assert len(os.listdir("/proc/self/fd")) <= before + two_pipes


@this_host
def test_the_processes_on_a_gpu_are_labelled_by_their_attempt(stage: Stage) -> None:
    """A process of ours that the driver lists carries the mark of its attempt; others carry none."""
    [node] = stage.engine.nodes()
    assert node.snapshot is not None
    held = f"CUDA_VISIBLE_DEVICES={node.snapshot.gpus[0].uuid} NIGHTSHIFT_HOME={stage.home}"
    ref = stage.start(1, f"{held} exec {sys.executable} {NIGHTSHIFT} sim-load --memory 1G")
    stage.started(ref)
    deadline = time.monotonic() + 30
    labels: list[str | None] = []
    while ref.mark not in labels:
        assert time.monotonic() < deadline, labels
        stage.engine.read_gpus()
        stage.waiter.after(0.1, lambda: None)
        stage.waiter.wait()
        [node] = stage.engine.nodes()
        assert node.snapshot is not None
        labels = [process.of for gpu in node.snapshot.gpus for process in gpu.processes or ()]
    stage.engine.stop(ref)
    stage.ended(ref)


def test_a_job_that_empties_its_run_directory_is_still_alive(stage: Stage) -> None:
    ref = stage.start(1, "until [ -e go ]; do sleep 0.05; done; exit 3")
    stage.started(ref)
    for file in Path(rundir.folder_of(stage.home, 1, 1)).iterdir():
        file.unlink()
    assert stage.look(ref).held is True
    (stage.marks / "go").touch()
    facts = stage.ended(ref)
    assert facts.exit is not None
    assert facts.exit.exit_code == 3
