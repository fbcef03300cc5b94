"""Run the table of docs/coming-from.md line by line: each command of the other tools, beside the one to type here."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from runner.errors import UserError
from tests.box import COMMAND, Box, a_box
from tests.other_tools import FILES, GPU_COMMANDS
from tests.terminal import Terminal
from tests.wait import eventually

ROOT = Path(__file__).parents[2]
PROCESSING = re.compile(r"Processing command `(.*)` on gpu (\d)")
TOOLS = ("simple_gpu_scheduler", "DSMLP", "gpu_idle_timeout")
SAME = "the same"  # the command of the row above
GRID = {f"{lr}_{bs}" for lr in ("0.001", "0.0005", "0.0001") for bs in ("32", "64", "128")}

# The examples' seconds would be a minute of every test run; `make evidence` has them at full length.
COMPRESSED = {"-t 50 -s 6 ": "-t 50 -s 0.1 ", "-t 20 -s 3 ": "-t 20 -s 0.2 ", "20%:3s:7:1": "20%:1s:2:1"}


class Pair(NamedTuple):
    """A row of the table."""

    tool: str
    there: str
    here: str


def rows() -> list[Pair]:
    found: list[Pair] = []
    for line in (ROOT / "docs" / "coming-from.md").read_text().splitlines():
        if re.match(rf"\| (?:{'|'.join(TOOLS)}) \|", line):
            tool, there, here, _ = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            there = found[-1].there if there == SAME else code(there) or there
            found.append(Pair(tool, there, code(here)))
    return found


def code(cell: str) -> str:
    found = re.match(r"`(.*?)`", cell)
    return found[1].replace(r"\|", "|") if found else ""


class Stage:
    """A project folder with the other tools' programs in it, and a shell there."""

    def __init__(self, box: Box, folder: Path, bin_folder: Path) -> None:
        self.box, self.folder = box, folder
        path = f"{bin_folder}:{box.environ['PATH']}"
        self.env = {**box.environ, "NIGHTSHIFT_GPUS": "sim:3x24GiB", "PATH": path, "SHELL": "/bin/sh"}
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def shell(self, line: str, *, input: str | None = "", code: int = 0) -> str:
        """Type the line, and then the input, or leave the terminal alone; what it printed."""
        for long, short in COMPRESSED.items():
            line = line.replace(long, short)
        read_end, write_end = os.pipe()
        with open(read_end) as stdin, open(write_end, "w") as typing:
            if input is not None:
                typing.write(input)
                typing.close()
            done = subprocess.run(
                ["bash", "-c", line], env=self.env, cwd=self.folder, stdin=stdin, capture_output=True, text=True,
                timeout=50, check=False,
            )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if "watch" in line else "")

    def submitted(self, line: str, *states: str) -> int:
        """Type a line that queues one job; its number, once it is in one of these states."""
        (job_id,) = re.findall(r"Submitted job (\d+)", self.shell(line))
        self.box.wait_state(int(job_id), *states or ("SUCCEEDED",), timeout=30)
        return int(job_id)

    def a_running_job(self) -> int:
        return self.submitted("nightshift submit -- sleep 300", "RUNNING")

    def attempts(self, job_id: int) -> list[dict[str, Any]]:
        with self.box.queue() as queue:
            return queue.jobs.attempts(job_id)

    @contextlib.contextmanager
    def begun(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Type a line that stays."""
        process = subprocess.Popen(
            ["bash", "-c", line], env=self.env, cwd=self.folder, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout
            process.stdout.close()

    def tail_is_at_the_end(self) -> bool:
        """Whether some process follows gpu.queue from its end."""
        queue = self.folder / "gpu.queue"
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError, ValueError):
                if os.readlink(link) == str(queue):
                    position = (link.parents[1] / "fdinfo" / link.name).read_text().split()[1]
                    if int(position) == queue.stat().st_size:
                        return True
        return False


# The cluster of DSMLP: two types of GPUs, one for each person unless at low priority, hosts with many cores.
CLUSTER = {"gpus_each": "1", "gpus_each_low": "8", "cpus": "16", "ram": "64G", "time": "6h", "time_max": "12h"}


@pytest.fixture(scope="module")
def up() -> Iterator[tuple[Box, Path]]:
    with a_box_with_programs("sim:3x24GiB") as found:
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Box, Path]]:
    with a_box_with_programs("sim:2x24GiB+2x11GiB:GTX 1080 Ti", **CLUSTER) as found:
        yield found


@contextlib.contextmanager
def a_box_with_programs(gpus: str, **settings: str) -> Iterator[tuple[Box, Path]]:
    with a_box() as box:
        box.start_runner(gpus, stop_grace="2s", breaker="0", **settings)
        bin_folder = box.folder / "bin"
        bin_folder.mkdir()
        for name, words in {
            "nightshift": [*COMMAND, '"$@"'],
            "python": [sys.executable, '"$@"'],
            "python3": [sys.executable, '"$@"'],
            "simple_gpu_scheduler": [str(Path(sys.executable).parent / "simple_gpu_scheduler"), '"$@"'],
            "simple_hypersearch": [str(Path(sys.executable).parent / "simple_hypersearch"), '"$@"'],
            "my_command_with": ["echo", "made on", "$CUDA_VISIBLE_DEVICES"],
            "and": ["sed", '"s/^/$1: /"'],
        }.items():
            (bin_folder / name).write_text(f"#!/bin/sh\nexec {' '.join(words)}\n")
            (bin_folder / name).chmod(0o755)
        yield box, bin_folder


@pytest.fixture
def stage(request: pytest.FixtureRequest, pair: Pair) -> Iterator[Stage]:
    box, bin_folder = request.getfixturevalue("cluster" if act_of(pair) in OF_A_CLUSTER else "up")
    folder = box.folder / f"project{len(list(box.folder.glob('project*')))}"
    yield Stage(box, folder.resolve(), bin_folder)
    with box.queue() as queue:
        for job in queue.jobs.live():
            with contextlib.suppress(Exception):
                queue.stop(job.id)
    eventually(lambda: not _live(box), what="nothing is left for the next row")
    shutil.rmtree(folder)


def _live(box: Box) -> bool:
    with box.queue() as queue:
        return bool(queue.jobs.live())


# -- what each row does ----------------------------------------------------------------------------------------------


def a_file_of_commands(stage: Stage, pair: Pair) -> None:
    def outcome(line: str) -> tuple[list[str], dict[str, str]]:
        printed = PROCESSING.findall(stage.shell(line))
        made = {path.name: path.read_text().split() for path in stage.folder.glob("run_[123]")}
        assert {gpu for _, gpu in printed} == {"0", "1", "2"}
        assert len({gpu for _, gpu, _ in made.values()}) == 3  # each saw one of its own
        assert {in_time for *_, in_time in made.values()} == {"True"}  # all three at once
        for path in stage.folder.glob("run_*"):
            path.unlink()
        return sorted(command for command, _ in printed), {name: lr for name, (lr, *_) in made.items()}

    made = {"run_1": "0.001", "run_2": "0.0005", "run_3": "0.0001"}
    assert outcome(pair.here) == outcome(pair.there) == (sorted(GPU_COMMANDS.splitlines()), made)


def trained(stage: Stage) -> set[str]:
    """The combinations that were run, each once: the program refuses a second time."""
    folder = stage.folder / "done"
    found = {path.name for path in folder.iterdir()}
    assert {path.read_text()[:4] for path in folder.iterdir()} <= {"GPU-", "0", "1", "2"}
    shutil.rmtree(folder)
    return found


def a_grid_through_a_pipe(stage: Stage, pair: Pair) -> None:
    for line in (pair.there, pair.here):
        printed = PROCESSING.findall(stage.shell(line))
        assert len(printed) == 9
        assert {f"{command.split()[3]}_{command.split()[5]}" for command, _ in printed} == trained(stage) == GRID


def a_sample_through_a_pipe(stage: Stage, pair: Pair) -> None:
    for line in (pair.there, pair.here):
        printed = PROCESSING.findall(stage.shell(line))
        found = trained(stage)
        assert {f"{command.split()[3]}_{command.split()[5]}" for command, _ in printed} == found < GRID
        assert len(printed) == len(found) == 5


def a_grid_in_the_queue(stage: Stage, pair: Pair) -> None:
    assert _queued_and_trained(stage, pair) == GRID


def a_sample_in_the_queue(stage: Stage, pair: Pair) -> None:
    found = _queued_and_trained(stage, pair)
    assert found < GRID
    assert len(found) == 5


def _queued_and_trained(stage: Stage, pair: Pair) -> set[str]:
    first, last = re.findall(r"^sweep-\d+: \d jobs, (\d+)–(\d+)$", stage.shell(pair.here), re.MULTILINE)[0]
    ids = list(range(int(first), int(last) + 1))
    for job_id in ids:
        stage.box.wait_state(job_id, "SUCCEEDED", timeout=30)
    found = trained(stage)
    assert len(ids) == len(found)
    return found


APPEND = 'echo "my_command_with | and stuff > logfile" >> gpu.queue'


def a_file_that_is_followed(stage: Stage, pair: Pair) -> None:
    for line in (pair.there, pair.here):
        logfile = stage.folder / "logfile"
        with stage.begun(line) as process:
            eventually(stage.tail_is_at_the_end, what="tail waits for more")
            stage.shell(APPEND)
            eventually(lambda path=logfile: path.exists() and path.read_text(), what="what was appended is run")
            assert logfile.read_text().startswith("stuff: made on ")
            if "nightshift" in line:  # "stop, but let commands finish when receiving a defined signal"
                begun, ended = stage.folder / "begun", stage.folder / "ended"
                stage.shell(f"echo 'touch {begun}; sleep 0.3; touch {ended}' >> gpu.queue")
                eventually(begun.exists, what="the last command runs")
                os.killpg(process.pid, signal.SIGINT)
                assert process.stdout
                assert process.stdout.read().count("Processing command") == 2
                assert ended.exists()
        logfile.unlink()
    assert not (stage.folder / "too_old").exists()


def appended(stage: Stage, pair: Pair) -> None:
    assert pair.there == pair.here == APPEND  # and run by the row above
    stage.shell(pair.here)
    assert (stage.folder / "gpu.queue").read_text().endswith("my_command_with | and stuff > logfile\n")


def a_pipe_and_a_file(stage: Stage, pair: Pair) -> None:
    stage.submitted(pair.here)
    assert (stage.folder / "logfile").read_text().startswith("stuff: made on GPU-")


def several_lines(stage: Stage, pair: Pair) -> None:
    assert stage.box.log(stage.submitted(pair.here)) == "line 1\nline 2\n"


def helps(stage: Stage, pair: Pair) -> None:
    shown = stage.shell(pair.here)
    assert shown.startswith("Usage: nightshift")
    flags = {
        "nightshift feed -h": ["--gpus"],
        "nightshift sweep -h": ["--sampling-mode", "--n-samples", "--seed", "-p, --parameter"],
        "nightshift submit -h": ["-g, --gpus", "-p, --priority"],
        "nightshift watch --help": ["-t, --threshhold-percentage", "-s, --sample-freq", "-n, --num-samples",
                                    "-d, --delay-samples", "-x, --debug"],
    }  # fmt: skip
    assert all(flag in shown for flag in flags[pair.here])


def one_gpu(stage: Stage, pair: Pair) -> None:
    told = stage.box.log(stage.submitted(pair.here))
    assert re.fullmatch(r"targets test data on GPU-[^,\s]+\n", told)


def cores_and_memory(stage: Stage, pair: Pair) -> None:
    job_id = stage.submitted(pair.here)
    assert stage.box.log(job_id) == "targets test data on \n"
    assert [stage.box.job(job_id)[key] for key in ("cpus", "ram_mib")] == [8, 32 * 1024]
    told = stage.box.submit("echo $NIGHTSHIFT_JOB_CPUS $NIGHTSHIFT_JOB_RAM_MIB", *["-g", "0", "-c", "8", "-m", "32"])
    stage.box.wait_state(told, "SUCCEEDED", timeout=30)
    assert stage.box.log(told) == "8 32768\n"
    with pytest.raises(UserError, match="wants 17 CPU cores; this box has 16"):
        stage.box.submit("true", *["-g", "0", "-c", "17", "-m", "32"])


def a_gpu_and_cores(stage: Stage, pair: Pair) -> None:
    job = stage.box.job(stage.submitted(pair.here))
    assert (job["gpus_wanted"], len(job["gpus"]), job["cpus"]) == (1, 1, 4)


def many_at_low_priority(stage: Stage, pair: Pair) -> None:
    with pytest.raises(UserError, match="At low priority it may: -p low"):
        stage.box.submit("true", *["-g", "4", "--preemptible"])
    low = stage.submitted(pair.here, "RUNNING")
    assert len(stage.box.job(low)["gpus"]) == 4
    stage.box.wait_state(stage.box.submit("true", "-g", "1"), "SUCCEEDED", timeout=30)  # somebody else's
    eventually(lambda: stage.box.job(low)["attempt"] == 2, 30, "what was pushed aside goes on")
    assert stage.attempts(low)[0]["reason"] == "PREEMPTED"


def of_a_type(stage: Stage, pair: Pair) -> None:
    (uuid,) = stage.box.job(stage.submitted(pair.here))["gpus"]
    with stage.box.queue() as queue:
        snapshot, _ = queue.view.snapshot() or pytest.fail("no GPUs are known")
    assert {gpu.uuid: gpu.name for gpu in snapshot.gpus}[uuid] == "Simulated GTX 1080 Ti"


def time_limits(stage: Stage, pair: Pair) -> None:
    assert stage.box.job(stage.submitted(pair.here))["time_limit_s"] == 12 * 3600
    assert stage.box.job(stage.box.submit("true"))["time_limit_s"] == 6 * 3600
    with pytest.raises(UserError, match="Jobs may run for 12h 00m here"):
        stage.box.submit("true", *["-t", "13h"])


def in_the_background(stage: Stage, pair: Pair) -> None:
    # the shell that submitted it has ended when it is looked for
    assert stage.box.log(stage.submitted(pair.here)).startswith("targets test data on GPU-")


def shows_gpus(stage: Stage, pair: Pair) -> None:
    job_id = stage.a_running_job()
    shown = stage.shell(pair.here)
    told = json.loads(stage.shell(f"{pair.here} --json"))
    assert len(told) == 3
    assert all(gpu["name"] in shown and gpu["memory_total_mib"] == 24 * 1024 for gpu in told)
    assert [job_id] in [gpu["jobs"] for gpu in told]


def output_to_a_file(stage: Stage, pair: Pair) -> None:
    job_id = stage.submitted(pair.here)
    assert (stage.folder / "log.txt").read_text().startswith("targets all on GPU-")
    assert stage.box.log(job_id) == ""


def logs(stage: Stage, pair: Pair) -> None:
    job_id = stage.submitted(pair.here)
    assert (stage.folder / "log.txt").read_text() == "root INFO zerodivisionerror preempted\n"
    assert stage.shell(f"nightshift log {job_id}") == "[1.0, None]\n"


def goes_inside(stage: Stage, pair: Pair) -> None:
    job_id = stage.a_running_job()
    inside = stage.shell(of_job(pair.here, job_id), input="pwd; echo $CUDA_VISIBLE_DEVICES; echo $NIGHTSHIFT_JOB_ID")
    assert inside.splitlines() == [str(stage.folder), *stage.box.job(job_id)["gpus"], str(job_id)]
    assert stage.box.job(job_id)["state"] == "RUNNING"  # leaving ends nothing


def a_terminal(stage: Stage, pair: Pair) -> None:
    terminal = Terminal(
        stage.box, shell=pair.here.replace("nightshift", shlex.join(stage.box.command())), SHELL="/bin/sh"
    )
    terminal.until(b"# " if os.geteuid() == 0 else b"$ ")
    terminal.type(b"echo its=$CUDA_VISIBLE_DEVICES\n")
    terminal.until(b"its=GPU-")
    terminal.type(b"exit\n")
    assert terminal.code() == 0


def lists(stage: Stage, pair: Pair) -> None:
    job_id = stage.a_running_job()
    assert re.search(rf"^ *{job_id}  running .*sleep 300", stage.shell(pair.here), re.MULTILINE)


def kills(stage: Stage, pair: Pair) -> None:
    job_id = stage.a_running_job()
    stage.shell(of_job(pair.here, job_id))
    assert stage.box.wait_state(job_id, "CANCELLED")["reason"] == "USER"


def of_job(line: str, job_id: int) -> str:
    return re.sub(r"\bN\b", str(job_id), line)


def watched(stage: Stage, pair: Pair) -> None:
    options = re.search(r"-t \d+ -s \d+ -n \d+ -d \d+", pair.there)
    assert options
    assert options[0] in pair.here
    printed = stage.shell(pair.here, input=None, code=1)
    assert "gpu_idle_timeout: Starting GPU idle watcher: threshhold_percentage=" in printed
    assert printed.rstrip().endswith("ERROR: gpu_idle_timeout: process still alive, maybe hung, killing.")


def stopped_when_idle(stage: Stage, pair: Pair) -> None:
    job_id = stage.submitted(pair.here, "CANCELLED")
    job = stage.box.job(job_id)
    assert (job["reason"], job["attempt"], len(job["gpus"])) == ("IDLE", 1, 2)
    assert [notice.kind for notice in stage.box.notices(job_id)][-1] == "ended"


def shows_output(stage: Stage, pair: Pair) -> None:
    job_id = stage.submitted("nightshift submit -- python3 train.py", "RUNNING")
    eventually(lambda: "hang" in stage.box.log(job_id), what="it has printed all it will")
    shown = stage.shell(of_job(pair.here, job_id)).splitlines()
    assert len(shown) == 8
    assert shown[-1] == "batch limit hit, simulating hang"


ACTS: dict[str, Callable[[Stage, Pair], None]] = {
    r"nightshift feed --gpus 0 1 2 < gpu_commands.txt": a_file_of_commands,
    r"nightshift sweep --print .* --n-samples 5 .*": a_sample_through_a_pipe,
    r"nightshift sweep --print .*": a_grid_through_a_pipe,
    r"nightshift sweep -g 1 --on 0,1,2 .* -n 5 .*": a_sample_in_the_queue,
    r"nightshift sweep -g 1 --on 0,1,2 .*": a_grid_in_the_queue,
    r"tail -f .*": a_file_that_is_followed,
    r"echo .*": appended,
    r'nightshift submit -- "my_command_with .*': a_pipe_and_a_file,
    r"nightshift submit --script job.sh": several_lines,
    r"nightshift \w+ (-h|--help)": helps,
    r"nightshift submit -g 0 -c 8 -m 32 -- .*": cores_and_memory,
    r"nightshift submit -g 1 -c 4 -- .*": a_gpu_and_cores,
    r"nightshift submit -g 4 -p low --preemptible -- .*": many_at_low_priority,
    r"nightshift submit -v 1080ti -- .*": of_a_type,
    r"nightshift submit -t 12h -- .*": time_limits,
    r"nightshift submit -g 1 -- python run.py test data": one_gpu,
    r"nightshift submit -- python run.py test data": in_the_background,
    r"nightshift gpus": shows_gpus,
    r"nightshift submit -- 'python run.py all > log.txt'": output_to_a_file,
    r"nightshift submit -- python randdiv.py": logs,
    r"nightshift run -g 1": a_terminal,
    r"nightshift shell N": goes_inside,
    r"nightshift ls": lists,
    r"nightshift kill N": kills,
    r"nightshift watch -t .*": watched,
    r"nightshift submit -g 2 --retries 0 --idle .*": stopped_when_idle,
    r"nightshift log N .*": shows_output,
}


OF_A_CLUSTER = (cores_and_memory, a_gpu_and_cores, many_at_low_priority, of_a_type, time_limits)


def act_of(pair: Pair) -> Callable[[Stage, Pair], None] | None:
    return next((act for pattern, act in ACTS.items() if re.fullmatch(pattern, pair.here)), None)


@pytest.mark.parametrize("pair", dict.fromkeys(rows()), ids=lambda pair: f"{pair.tool} {pair.there[:40]}")
def test_the_line_on_the_right_does_what_the_line_on_the_left_does(stage: Stage, pair: Pair) -> None:
    act = act_of(pair)
    assert act, f"docs/coming-from.md has a line that nothing here runs: {pair.here}"
    act(stage, pair)


def test_every_act_has_its_line_in_the_table() -> None:
    lines = [pair.here for pair in rows()]
    assert [pattern for pattern in ACTS if not any(re.fullmatch(pattern, line) for line in lines)] == []
