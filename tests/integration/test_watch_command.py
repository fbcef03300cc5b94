"""`nightshift watch` beside gpu_idle_timeout: its two examples on GPUs simulated in C, and what it did not do."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runner.gpu.sim.state import start_time
from runner.processes.linux import Family
from tests.box import COMMAND
from tests.fakes.nvml import FakeNvml
from tests.idle_traces import PRINTED
from tests.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[..., "Watched"]

UUIDS = ("GPU-a5b02c30-9c95-cb81-e41e-ca204d57aa3b", "GPU-b805d632-775b-c673-fe68-26b26996cd09")
LINE = re.compile(
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: (?P<said>(?P<level>\w+): gpu_idle_timeout: .*)$", re.MULTILINE
)
USAGE = re.compile(r"DEBUG: gpu_idle_timeout: (\S+) usage (\S+)")
WAITER = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.02)\nsys.exit(7)"

# Two ranks as torchrun starts them, in sessions of their own and deaf to SIGTERM; they hang at step 700, the second
# waiting for the first.
TRAINING = """
import os, signal, sys, time
from runner.gpu.sim import state as sim_state

def rank(number, step_s):
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pid = os.getpid()
    def load(percent):
        claim = sim_state.Claim(pid, sim_state.start_time(pid), 4000, percent)
        sim_state.write_claim(os.environ["FAKE_NVML_DIR"], f"{number}.{pid}", claim)
    load(55)
    print(f"rank {number} is {pid}", flush=True)
    for step in range(100, 800, 100):
        time.sleep(step_s)
        if number == 0:
            print(f"report_training_metrics(steps_completed={step})", flush=True)
    while number == 1 and not os.path.exists("hung"):
        time.sleep(0.01)
    load(number)
    open("hung", "a").close()
    print(f"[rank={number}] batch limit hit, simulating hang", flush=True)
    time.sleep(300)

for number in (0, 1):
    if os.fork() == 0:
        if os.fork() == 0:  # and away from its parent
            rank(number, float(sys.argv[1]))
        os._exit(0)
time.sleep(300)
"""


class Watched:
    """A `nightshift watch` with its lines and its command's."""

    def __init__(self, folder: Path, words: tuple[str, ...], env: dict[str, str]) -> None:
        self.output = folder / "output"
        read_end, self.stdin = os.pipe()
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*COMMAND, "watch", *words], env=env, stdin=read_end, stdout=output, stderr=output, cwd=folder
            )
        os.close(read_end)

    def said(self) -> list[str]:
        return [found["said"] for found in LINE.finditer(self.output.read_text())]

    def said_in_time(self) -> list[str]:
        """Without what it says of a busy machine, where a reading takes longer than these short periods."""
        return [line for line in self.said() if "the driver has not answered" not in line]

    def usages(self) -> list[tuple[str, ...]]:
        """The readings, sample by sample."""
        found = [usage for line in self.said() for _, usage in USAGE.findall(line)]
        return [tuple(found[at : at + 2]) for at in range(0, len(found) - 1, 2)]

    def wait_samples(self, count: int) -> None:
        eventually(lambda: len(self.usages()) >= count, 40, f"{count} samples")

    def wait(self) -> int:
        return self.process.wait(timeout=50)

    def sampler(self) -> int:
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in Family().children(self.process.pid)}
        return next(pid for pid, name in names.items() if name == "ns-sampler")

    def close(self) -> None:
        os.close(self.stdin)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    fake = FakeNvml(tmp_path)
    for uuid in UUIDS:
        fake.add_gpu(gpu_uuid=uuid)
    return fake


@pytest.fixture
def env(tmp_path: Path, nvml: FakeNvml) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    return {**kept, **nvml.env, "HOME": str(tmp_path), "NIGHTSHIFT_HOME": str(tmp_path / "home"), "PYTHONPATH": root}


@pytest.fixture
def start(tmp_path: Path, env: dict[str, str]) -> Iterator[Start]:
    started: list[Watched] = []

    def begin(*words: str) -> Watched:
        started.append(Watched(tmp_path, words, env))
        return started[-1]

    yield begin
    for watched in started:
        watched.close()


def original(name: str, *scaled: tuple[str, str]) -> list[str]:
    """The lines that gpu_idle_timeout prints, with other seconds in them."""
    lines: list[str] = json.loads(PRINTED.read_text())[name]["lines"]
    for before, after in scaled:
        assert any(before in line for line in lines), before
        lines = [line.replace(before, after) for line in lines]
    return lines


def gone(pid: int) -> bool:
    return start_time(pid) is None


# -- the examples of gpu_idle_timeout ------------------------------------------------------------------------------

GREP = (
    ("sample_freq=6", "sample_freq=0.3"),
    ("window_size=30", "window_size=1.5"),
    (" 12 seconds", " 0.6 seconds"),
    (" 6 seconds", " 0.3 seconds"),
    (" 30 seconds", " 1.5 seconds"),
)


@pytest.mark.parametrize("dashes", [("--",), ()])
def test_grep_foo_says_what_the_original_says(start: Start, dashes: tuple[str, ...]) -> None:
    watched = start("-t", "50", "-s", "0.3", "-n", "5", "-d", "3", "-x", *dashes, "grep", "foo")
    assert watched.wait() == 1
    assert watched.said_in_time() == original("grep", *GREP)


def test_a_training_of_two_gpus_that_hangs_at_step_700(start: Start) -> None:
    watched = start("-t", "20", "-s", "0.5", "-n", "7", "-d", "1", "-x", sys.executable, "-c", TRAINING, "0.3")
    assert watched.wait() == 1
    text, lines = watched.output.read_text(), watched.said_in_time()
    printed = original(
        "training", ("sample_freq=3", "sample_freq=0.5"), ("=21", "=3.5"), (" 21 seconds", " 3.5 seconds")
    )
    assert (lines[0], lines[-2:]) == (printed[0], printed[-2:])
    usages = watched.usages()
    assert len(lines) == 1 + 2 * len(usages) + 2
    assert ("55%", "55%") in usages
    assert usages[-7:] == [("0%", "1%")] * 7
    assert usages[-8] != ("0%", "1%")
    assert text.index("steps_completed=700") < text.index("usage 1%")
    ranks = [int(pid) for pid in re.findall(r"rank \d is (\d+)", text)]
    assert len(ranks) == 2
    assert all(map(gone, ranks))


@pytest.mark.evidence
def test_grep_foo_in_real_time(start: Start) -> None:
    began = time.monotonic()
    watched = start("-t", "50", "-s", "6", "-n", "5", "-d", "3", "-x", "grep", "foo")
    assert watched.wait() == 1
    took_s = time.monotonic() - began
    print(watched.output.read_text())
    assert watched.said() == original("grep")
    assert 42 <= took_s < 45


@pytest.mark.evidence
def test_the_training_in_real_time(start: Start) -> None:
    watched = start("-t", "20", "-s", "3", "-n", "7", "-d", "1", "-x", sys.executable, "-c", TRAINING, "2.3")
    assert watched.wait() == 1
    print(watched.output.read_text())
    printed = original("training")
    assert [line for line in watched.said() if "usage" not in line] == [line for line in printed if "usage" not in line]
    assert [both == ("0%", "1%") for both in watched.usages()] == 5 * [False] + 7 * [True]


# -- what is not idle ----------------------------------------------------------------------------------------------

QUICK = ("-s", "0.1", "-n", "3", "-d", "0", "-x")


def test_a_gpu_at_the_threshold_is_not_below_it(start: Start, nvml: FakeNvml) -> None:
    """The original's default: 1 %, and strictly below."""
    nvml.hold(os.getpid(), 1, 100, util=1)
    watched = start(*QUICK, "sleep", "300")
    watched.wait_samples(8)
    nvml.hold(os.getpid(), 1, 100, util=0)
    assert watched.wait() == 1
    assert watched.usages()[-4:] == [("0%", "1%"), *[("0%", "0%")] * 3]


@pytest.mark.parametrize(
    ("fault", "value", "reason"),
    [("lost", "", "GPU 1 fell off the bus"), ("utilization", "na", "GPU 1 does not tell"), ("handle", 999, "GPU 1 ")],
)
def test_what_is_unknown_is_not_killed_and_it_says_so(
    start: Start, nvml: FakeNvml, tmp_path: Path, fault: str, value: object, reason: str
) -> None:
    nvml.fault(1, fault, value)
    watched = start("-t", "50", *QUICK, sys.executable, "-c", WAITER, str(tmp_path / "end"))
    eventually(lambda: [both for both in watched.usages() if both == ("0%", "unknown")][7:], 40)
    (tmp_path / "end").touch()
    assert watched.wait() == 7
    warnings = [line for line in watched.said() if line.startswith("WARNING")]
    assert [one for one, before in zip(warnings, ["", *warnings], strict=False) if one == before] == []
    (said,) = {line for line in warnings if reason in line}
    assert "Nothing is killed" in said


@pytest.mark.parametrize(("fault", "value"), [("utilization", "na"), ("handle", 999)])
def test_after_an_unknown_reading_a_whole_window_is_wanted(
    start: Start, nvml: FakeNvml, fault: str, value: object
) -> None:
    nvml.fault(0, fault, value)
    watched = start("-t", "50", *QUICK, "sleep", "300")
    watched.wait_samples(5)
    nvml.clear()
    assert watched.wait() == 1
    assert watched.usages()[-4:] == [("unknown", "0%"), *[("0%", "0%")] * 3]


def test_a_sampler_that_dies_is_replaced(start: Start, nvml: FakeNvml) -> None:
    nvml.hold(os.getpid(), 0, 100, util=90)
    watched = start(*QUICK, "sleep", "300")
    watched.wait_samples(2)
    first = watched.sampler()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: gone(first))
    seen = len(watched.usages())
    watched.wait_samples(seen + 2)
    nvml.hold(os.getpid(), 0, 100, util=0)
    assert watched.wait() == 1


def test_without_a_driver_nothing_is_started(start: Start, nvml: FakeNvml, tmp_path: Path) -> None:
    nvml.fault("all", "init", 9)
    watched = start("touch", str(tmp_path / "started"))
    assert watched.wait() == 2
    assert "kernel driver is not loaded" in watched.output.read_text()
    assert not (tmp_path / "started").exists()


# -- as if it were not there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("--", "exit 3 | exit 4"), 4),
        (("no-such-program", "at", "all"), 127),
        (("/", "is", "no program"), 126),
    ],
)
def test_the_exit_code_is_the_commands(start: Start, words: tuple[str, ...], code: int) -> None:
    assert start("-s", "3600", *words).wait() == code


@pytest.mark.parametrize(
    "words", [(), ("-t", "0", "true"), ("-t", "nan", "true"), ("-n", "0", "true"), ("-d", "-1", "true")]
)
def test_what_makes_no_sense_is_refused(start: Start, words: tuple[str, ...]) -> None:
    watched = start(*words)
    assert watched.wait() == 1
    assert "nightshift watch --help" in watched.output.read_text()


def test_both_spellings(start: Start) -> None:
    for name in ("--threshhold-percentage", "--threshold-percentage"):
        watched = start(
            name, "30", "--sample-freq", "9", "--num-samples", "2", "--delay-samples", "1", "--debug", "true"
        )
        assert watched.wait() == 0
        assert (
            "threshhold_percentage=30%, sample_freq=9, num_samples=2, delay_samples=1, window_size=18"
            in watched.said()[0]
        )


COUNTING = """
import os, signal, sys
heard = []
def say(*words):  # print() may not be interrupted by a handler that prints
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def hear(number, _):
    heard.append(int(number))
    say("got", int(number))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, hear)
say("ready", sys.stdin.isatty(), sys.stdout.isatty())
line = sys.stdin.readline()
say("heard", heard, repr(line))
"""


def test_signals_and_input_are_passed_on_once(start: Start, nvml: FakeNvml) -> None:
    nvml.hold(os.getpid(), 0, 100, util=90)
    watched = start(*QUICK, sys.executable, "-c", COUNTING)
    eventually(lambda: "ready False False" in watched.output.read_text())
    sampler = watched.sampler()
    for number in (signal.SIGINT, signal.SIGTERM):  # they are passed on in order: a second one would be between them
        watched.process.send_signal(number)
        eventually(lambda said=f"got {int(number)}\n": said in watched.output.read_text())  # type: ignore[misc]
    watched.wait_samples(len(watched.usages()) + 2)
    assert watched.sampler() == sampler  # they are for the command alone
    os.write(watched.stdin, b"a line\n")
    assert watched.wait() == 0
    assert "heard [2, 15] 'a line\\n'" in watched.output.read_text()


def test_the_terminal_is_the_commands_and_ctrl_c_reaches_it_once(env: dict[str, str]) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(COMMAND[0], [*COMMAND, "watch", "-s", "3600", sys.executable, "-c", COUNTING], env)
    try:
        _read_until(terminal, "ready True True")
        os.write(terminal, b"\x03")
        _read_until(terminal, "got 2")
        os.kill(pid, signal.SIGTERM)
        _read_until(terminal, "got 15")
        os.write(terminal, b"a line\n")
        text = _read_until(terminal, "line\\n'")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(terminal)
    assert "heard [2, 15] 'a line\\n'" in text


def _read_until(terminal: int, wanted: str) -> str:
    text = ""
    while wanted not in text:
        text += os.read(terminal, 1 << 12).decode()
    return text


def test_what_the_command_leaves_behind_in_peace_is_left_in_peace(start: Start) -> None:
    """As with the original: only an idle command is ended with all that is its own."""
    watched = start("-s", "3600", "sh", "-c", "setsid sleep 300 & echo left $!")
    assert watched.wait() == 0
    left = int(re.findall(r"left (\d+)", watched.output.read_text())[0])
    assert not gone(left)
    os.kill(left, signal.SIGKILL)
