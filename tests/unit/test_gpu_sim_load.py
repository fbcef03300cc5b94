"""Load on simulated GPUs: out of memory, exact fit, and claims that never overlap."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, TimeoutError  # noqa: A004 - not the built-in one before 3.11
from typing import TYPE_CHECKING

import pytest

from runner.errors import UserError
from runner.gpu.sim import state
from runner.gpu.sim.load import SimulatedOutOfMemoryError, hold, main
from tests.wait import eventually

if TYPE_CHECKING:
    from pathlib import Path

ROOM_MIB = 24576 - state.RESERVED_MIB


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path))
    state.build(state.folder_of(str(tmp_path)), "sim:2x24GiB")
    return str(tmp_path)


def _start(*options: str) -> subprocess.Popen[bytes]:
    start = "import sys; from runner.gpu.sim.load import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", start, *options]
    return subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)


def _used(home: str, index: int) -> int:
    return sum(claim.memory_mib for claim in state.Claims(state.folder_of(home)).on(index))


def test_exact_fit_and_not_one_more(home: str) -> None:
    with hold(memory_mib=ROOM_MIB, gpu=0) as held:
        assert _used(home, 0) == ROOM_MIB
        with pytest.raises(SimulatedOutOfMemoryError, match=r"CUDA out of memory. Tried to allocate 0.00 GiB. GPU 0"):
            held.resize(ROOM_MIB + 1)
        assert _used(home, 0) == ROOM_MIB
        with pytest.raises(SimulatedOutOfMemoryError):
            hold(memory_mib=1, gpu=0)
        with hold(memory_mib=1, gpu=1):
            assert _used(home, 1) == 1
    assert _used(home, 0) == 0


def test_too_much_prints_what_a_trainer_prints(home: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--memory", "25G", "--time", "1s"]) == 1
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 25.00 GiB." in capfd.readouterr().err


def test_growth_ends_in_out_of_memory(home: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--memory", "20G", "--grow", "2G/10ms", "--time", "20s", "--gpu", "1"]) == 1
    assert "Tried to allocate 2.00 GiB" in capfd.readouterr().err
    assert _used(home, 1) == 0


def test_it_ends_by_itself(home: str) -> None:
    assert main(["--memory", "1G", "--time", "50ms"]) == 0
    assert _used(home, 0) == 0


@pytest.mark.parametrize("options", [["--load", "101"], ["--memory", "much"], ["--gpu", "2"], ["--time", "5"]])
def test_bad_options_are_the_users_to_mend(home: str, options: list[str]) -> None:
    assert main(options) == 1


def test_claims_made_at_once_never_overlap(home: str) -> None:
    loads = [_start("--memory", "5000M", "--gpu", "0") for _ in range(8)]
    try:
        eventually(lambda: sum(load.poll() is not None for load in loads) + _used(home, 0) // 5000 == 8)
        assert sorted(load.poll() or 0 for load in loads) == [0] * 4 + [1] * 4
    finally:
        for load in loads:
            load.kill()
            load.wait()
    assert _used(home, 0) == 0


def test_a_claim_waits_for_the_one_before_it(home: str) -> None:
    folder = state.folder_of(home)
    with ThreadPoolExecutor(1) as pool:
        with state.locked(folder):
            claim = pool.submit(hold, memory_mib=20000, gpu=0)
            with pytest.raises(TimeoutError):
                claim.result(timeout=0.2)
            state.write_claim(folder, "0.4711", state.Claim(4711, state.ELSEWHERE, 20000, 0))
        with pytest.raises(SimulatedOutOfMemoryError):
            claim.result(timeout=10)


def test_the_dead_make_room_and_are_swept(home: str) -> None:
    load = _start("--memory", "20G")
    eventually(lambda: _used(home, 0) == _used(home, 1) == 20480)
    load.kill()
    load.wait()
    with hold(memory_mib=ROOM_MIB, gpu=0):
        (name,) = os.listdir(os.path.join(state.folder_of(home), state.PROCS))
        assert name.startswith(f"0.{os.getpid()}")


def test_one_gpu_without_room_leaves_the_other_alone(home: str) -> None:
    with hold(memory_mib=20000, gpu=1):
        with pytest.raises(SimulatedOutOfMemoryError, match="GPU 1"):
            hold(memory_mib=5000)
        assert _used(home, 0) == 0


def test_visible_devices_are_obeyed(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (card.uuid for card in state.cards(state.folder_of(home)))
    for value, expected in {
        second: [1],
        second[:12]: [1],
        f"{second},{first}": [1, 0],
        "1": [1],
        "0,1": [0, 1],
        "0,7,1": [0],
    }.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        with hold(memory_mib=1) as held:
            assert [card.index for card in held.cards] == expected, value


@pytest.mark.parametrize("value", ["", "-1", "GPU-", "NoDevFiles"])
def test_nothing_visible_is_said_so(home: str, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    with pytest.raises(UserError, match="No simulated GPU is visible"):
        hold(memory_mib=1)


def test_a_forked_child_does_not_let_go_of_its_parents_memory(home: str) -> None:
    with hold(memory_mib=1000, gpu=0) as held:
        child = os.fork()
        if child == 0:
            held.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert _used(home, 0) == 1000


GREEDY = """
import sys, time
held = bytearray(int(sys.argv[1]) << 20)
for at in range(0, len(held), 4096): held[at] = 1
print("holds it", flush=True)
while time.sleep(0.05) is None and len(sys.argv) > 2: pass
"""


def test_a_program_holds_of_the_gpu_what_it_holds_of_the_machine(home: str) -> None:
    words = ("--mirror", "16", "--gpu", "1", "--", sys.executable, "-c", GREEDY)
    around = _start(*words, "64", "forever")
    try:
        used = eventually(lambda: _used(home, 1) if _used(home, 1) >= 16 * 64 else None, what="its memory is seen")
        assert used < 16 * 200  # the interpreter's own included
        assert _used(home, 0) == 0
    finally:
        os.killpg(around.pid, signal.SIGKILL)  # the program too
        around.wait()


def test_a_program_that_takes_more_than_the_gpu_has_is_out_of_memory(
    home: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--mirror", "1000", "--", sys.executable, "-c", GREEDY, "64", "forever"]) == 1
    assert "torch.OutOfMemoryError: CUDA out of memory." in capfd.readouterr().err
    assert _used(home, 0) == 0


@pytest.mark.parametrize(("ends", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_a_program_ends_as_it_does_by_itself(home: str, ends: str, code: int) -> None:
    assert main(["--mirror", "1", "--", sys.executable, "-c", ends]) == code


@pytest.mark.parametrize("words", [["--mirror", "2"], ["--", "true"], ["--mirror", "2", "--", "/no/such/program"]])
def test_a_mirror_needs_a_program_to_look_at(home: str, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert capfd.readouterr().err
