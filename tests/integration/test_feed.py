"""`nightshift feed`: its lines become jobs at once, and what happens to it happens to none of them."""

import contextlib
import json
import os
import re
import signal
import subprocess

import pytest

from runner.errors import UserError
from runner.rundir import STARTED, folder_of, read
from runner.terminal import feed
from tests.box import a_box
from tests.wait import eventually


@pytest.fixture(scope="module")
def up():
    """A box with a runner, shared by the tests here: each looks at its own jobs only."""
    with a_box() as box:
        box.start_runner("sim:3x24GiB", stop_grace="2s", breaker="0")
        yield box


class Fed:
    """A feed that is at it, and a gate that its jobs wait at."""

    def __init__(self, box, process):
        self.box, self.process = box, process
        self.gate = box.folder / f"gate{process.pid}"
        self.waits = f"until [ -e {self.gate} ]; do sleep 0.02; done"

    def give(self, *lines):
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def jobs(self):
        with self.box.queue() as queue:
            found = queue.jobs.find()
            return {job.spec.command: job for job in found if str(self.gate) in job.spec.command}

    def says(self, text):
        """The next line on stderr, which has this in it."""
        line = self.process.stderr.readline()
        assert text in line, line


@contextlib.contextmanager
def fed(box, *words):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(
        box.command("feed", *words), env={**box.environ, "FLAG": "a b"}, cwd=box.folder, text=True, bufsize=1, **pipes
    )
    found = Fed(box, process)
    try:
        yield found
    finally:
        found.gate.touch()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def test_lines_are_jobs_while_the_pipe_is_open_and_it_stays_until_the_last_is_done(up):
    with fed(up, "--gpus", "1", "2") as one:
        for number in (1, 2):
            line = f"echo {number} $FLAG; {one.waits}; printf end{number}"
            one.give(f"  {line}  ", "# a comment", "")
            assert re.fullmatch(rf"Processing command `{re.escape(line)}` on gpu [12]\n", one.process.stdout.readline())
            assert one.process.stdout.readline() == f"{number} a b\n"
        assert [job.state.value for job in one.jobs().values()] == ["RUNNING", "RUNNING"]
        assert {job.spec.on for job in one.jobs().values()} == {("1", "2")}
        assert {job.spec.dir for job in one.jobs().values()} == {str(up.folder)}
        one.process.stdin.write("echo unended")
        one.process.stdin.close()
        one.gate.touch()
        rest = one.process.stdout.read().splitlines()
        assert one.process.wait(60) == 0
        assert {"end1", "end2", "unended"} < set(rest)
        assert any(line.startswith("Processing command `echo unended` on gpu ") for line in rest)
        assert [job.state.value for job in one.jobs().values()] == ["SUCCEEDED", "SUCCEEDED"]


def test_what_failed_is_said_and_the_code_is_the_originals(up):
    done = up.run("feed", "--gpus=0,1", input="echo out; echo err >&2; exit 3\n")
    assert done.returncode == 0
    assert re.fullmatch(r"Processing command `.*` on gpu [01]\nout\nerr\n", done.stdout)
    assert re.search(r"nightshift: job \d+: failed, exit 3\n", done.stderr)


def test_a_line_that_cannot_be_keeps_none_of_the_others_back(up):
    done = up.run("feed", "-q", "--gpus", "0", input="echo a\nsleep 9 &\necho b\n")
    assert done.returncode == 1
    assert done.stdout == "Processing command `echo a` on gpu 0\nProcessing command `echo b` on gpu 0\n"
    assert "not queued: sleep 9 &" in done.stderr


def test_a_gpu_that_is_not_there_is_said_before_anything_is_read(up):
    done = up.run("feed", "--gpus", "0", "9", input="echo a\necho b\n")
    assert (done.returncode, done.stdout, done.stderr.count("There is no GPU 9")) == (1, "", 1)
    assert "not queued" not in done.stderr


def test_nothing_to_do_is_nothing_done(up):
    done = up.run("feed", "--gpus", "0", input="\n# nothing\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no command on standard input" in done.stderr


def test_the_first_signal_stops_the_reading_and_lets_the_jobs_finish(up):
    with fed(up, "--gpus", "0") as one:
        one.give(one.waits, f"{one.waits}; true")
        assert "Processing" in one.process.stdout.readline()
        one.process.send_signal(signal.SIGTERM)
        one.says("no more lines are read. 2 jobs go on")
        one.give(f"echo never {one.gate}")
        one.gate.touch()
        assert one.process.wait(60) == 0
        assert [job.state.value for job in one.jobs().values()] == ["SUCCEEDED", "SUCCEEDED"]


def test_the_second_signal_leaves_at_once_and_the_jobs_go_on(up):
    with fed(up, "--gpus", "0") as one:
        one.give(one.waits, f"{one.waits}; true")
        assert "Processing" in one.process.stdout.readline()
        one.process.send_signal(signal.SIGINT)
        one.says("no more lines are read")
        one.process.send_signal(signal.SIGINT)
        assert one.process.wait(60) == 128 + signal.SIGINT
        assert "2 jobs go on without this command" in one.process.stderr.read()
        assert sorted(job.state.value for job in one.jobs().values()) == ["QUEUED", "RUNNING"]
        one.gate.touch()
        for job in one.jobs().values():
            up.wait_state(job.id, "SUCCEEDED")


def test_a_feed_that_is_killed_leaves_its_jobs_queued_and_running(up):
    with fed(up, "--gpus", "0") as one:
        one.give(one.waits, f"{one.waits}; true")
        assert "Processing" in one.process.stdout.readline()
        eventually(lambda: len(one.jobs()) == 2, what="both lines are jobs")
        one.process.kill()
        one.process.wait()
        assert sorted(job.state.value for job in one.jobs().values()) == ["QUEUED", "RUNNING"]
        one.gate.touch()
        for job in one.jobs().values():
            up.wait_state(job.id, "SUCCEEDED")


def test_a_reader_that_has_seen_enough_loses_no_line(up):
    with fed(up, "--gpus", "0,1,2") as one:
        one.give(f"true {one.gate}")
        assert "Processing" in one.process.stdout.readline()
        one.process.stdout.close()
        for number in range(3):
            line = f"echo {number} {one.gate}"
            one.give(line)
            eventually(
                lambda line=line: line in one.jobs() and one.jobs()[line].state.final, 20, "it was queued and run"
            )
        one.process.stdin.close()
        assert one.process.wait(60) == 0


def test_an_attempt_that_is_lost_and_made_again_is_waited_for(up):
    with fed(up, "--gpus", "0", "--retries", "1") as one:
        one.give(f"echo here; printf half; {one.waits}")
        assert "Processing" in one.process.stdout.readline()
        assert one.process.stdout.readline() == "here\n"
        (job,) = one.jobs().values()
        eventually(lambda: up.log(job.id) == "here\nhalf", what="all it prints is kept")
        os.kill(read(folder_of(str(up.home), job.id, 1), STARTED)["pid"], signal.SIGKILL)
        one.says("attempt 2, on gpu 0")
        one.process.stdin.close()
        one.gate.touch()
        assert one.process.stdout.read() == "half\nhere\nhalf\n"
        assert one.process.wait(60) == 0


def test_gpus_are_called_as_they_were_named(up):
    uuid = json.loads(up.run("gpus", "--json").stdout)[1]["uuid"]
    done = up.run("feed", "-q", "--gpus", uuid, input="true\n")
    assert done.stdout == f"Processing command `true` on gpu {uuid}\n"


def test_a_gpu_that_is_not_there_is_refused(up):
    done = up.run("feed", "--gpus", "0", "7", input="true\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no GPU 7" in done.stderr


def test_without_a_runner_it_says_so_and_goes_on_when_there_is_one():
    with a_box() as box, fed(box, "--gpus", "0") as one:
        one.give("echo hello")
        one.says("no runner is up")
        eventually(lambda: '"QUEUED"' in box.run("ls", "--json").stdout, what="it is queued")
        one.process.stdin.close()
        box.start_runner("sim:1x24GiB")
        assert one.process.stdout.read() == "Processing command `echo hello` on gpu 0\nhello\n"
        assert one.process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpus"], "--gpus needs GPUs"),
        (["--gpus", ","], "--gpus needs GPUs"),
        (["--gpus", "0", "0"], "twice.*NIGHTSHIFT_SLOTS_PER_GPU"),
        (["--gpus", "cuda:0"], "--gpus: 'cuda:0' is not a GPU"),
        (["echo", "hello"], "'echo' is one word too many"),
        (["--gpu", "0"], "no option --gpu; did you mean --gpus"),
        (["--gpus", "0", "-g", "2"], r"^-g 2 asks for more GPUs than --gpus names \(0\)"),
    ],
)
def test_slips_are_refused_with_what_to_type(words, said):
    with pytest.raises(UserError, match=said):
        feed.main(words)


def test_a_job_that_is_held_is_said_to_be_what_it_waits_for(up):
    with fed(up, "--gpus", "0") as feed, up.queue() as queue:
        feed.give(feed.waits, f"{feed.waits} ; true")
        eventually(lambda: len(feed.jobs()) == 2)
        _, held = sorted(job.id for job in feed.jobs().values())
        queue.order.hold(held)
        feed.says(
            f"held until somebody releases them: job {held}; `nightshift release {held}` or `nightshift kill {held}`"
        )
        queue.stop(held)
        feed.says(f"job {held}: cancelled")
