"""How far a job is: read from what it prints, kept through every restart, told where a metric goes wrong."""

import json
import os
import signal

import pytest

from tests.wait import eventually


@pytest.fixture
def printer(tmp_path):
    """A job that prints what a test tells it to."""
    return Printer(tmp_path)


class Printer:
    def __init__(self, folder):
        self.pipe = str(folder / "pipe")
        os.mkfifo(self.pipe)
        self._file = os.open(self.pipe, os.O_RDWR)

    @property
    def command(self):
        # opened for both, so that the end comes with `end` and not with the test's own descriptor
        return f'while read -r line && [ "$line" != end ]; do echo "$line"; done <> {self.pipe}'

    def say(self, *lines):
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())


def shown(box, job_id):
    return json.loads(box.run("show", str(job_id), "--json").stdout)["progress"]


def reaches(box, job_id, position):
    def look():
        progress = box.job(job_id)["progress"]
        return progress if progress and progress["position"] == position else None

    return eventually(look, what=f"job {job_id} is seen at {position}")


def reader_of(box):
    return next((pid for pid, name in box.processes().items() if name == "ns-progress"), None)


def test_a_running_job_shows_how_far_it_is(box, printer):
    box.start_runner()
    job_id = box.submit(printer.command)
    assert shown(box, job_id) is None
    printer.say("step 1/100 loss=3.5", "step 2/100 loss=3.25")
    progress = reaches(box, job_id, 2)
    assert progress == shown(box, job_id)
    assert progress.keys() >= {"position", "total", "unit", "rate", "eta_s", "metrics", "phase", "at"}
    assert (progress["total"], progress["metrics"]) == (100, {"loss": 3.25})
    listed = json.loads(box.run("ls", "--json").stdout)
    assert [job["progress"]["position"] for job in listed] == [2]
    printer.say("step 3/100 loss=3", "end")
    box.wait_state(job_id, "SUCCEEDED")
    assert reaches(box, job_id, 3)["metrics"] == {"loss": 3}


def test_a_job_shorter_than_a_moment_is_read_too(box):
    box.start_runner()
    job_id = box.submit("echo 'nightshift: progress 120/1000 loss=2.31'")
    box.wait_state(job_id, "SUCCEEDED")
    assert reaches(box, job_id, 120)["total"] == 1000
    silent = box.submit("echo hello")
    box.wait_state(silent, "SUCCEEDED")
    assert shown(box, silent) is None


@pytest.mark.parametrize("how", ["> {file}", ">> {file}", "2> {file} 1>&2"])
def test_output_that_goes_to_a_file_is_read_there(box, printer, tmp_path, how):
    own = tmp_path / "own.txt"
    own.write_text("step 77/80 loss=1\n" if ">>" in how else "")  # of an earlier run
    box.start_runner()
    job_id = box.submit(f"({printer.command}) {how.format(file=own)}")
    box.wait_state(job_id, "RUNNING")
    eventually(lambda: reader_of(box), what="the reader is up")
    said = iter(range(1, 1000))

    def moves():
        printer.say(f"step {next(said)}/2000")
        return box.job(job_id)["progress"]

    assert eventually(moves, what="its progress is seen")["total"] == 2000


def test_a_log_that_was_named_is_read(box, printer, tmp_path):
    box.start_runner()
    job_id = box.submit(f"echo starting; ({printer.command}) > {tmp_path}/train.log", "--log", f"{tmp_path}/train.log")
    box.wait_state(job_id, "RUNNING")
    printer.say("step 5/10", "step 6/10")
    assert reaches(box, job_id, 6)["total"] == 10


def test_a_pattern_of_ones_own(box, printer):
    box.start_runner()
    refused = box.run("submit", "--progress", "done (", "true")
    assert refused.returncode == 1
    assert "pattern" in refused.stderr
    box.run("ws", "add", "odd", "--progress", r"tick <(?P<n>\d+)> of <(?P<total>\d+)>")
    assert box.run("submit", "-w", "odd", printer.command).stdout == "Submitted job 1\n"
    printer.say("tick <7> of <9>")
    assert reaches(box, 1, 7)["total"] == 9


@pytest.mark.parametrize("who", ["the reader", "the runner"])
def test_it_goes_on_after_a_kill(box, printer, who):
    box.start_runner()
    job_id = box.submit(printer.command)
    printer.say("step 1/100", "step 2/100")
    reaches(box, job_id, 2)
    reader = reader_of(box)
    if who == "the runner":
        box.stop_runner(signal.SIGKILL)
        eventually(lambda: reader_of(box) is None, what="the reader leaves with its runner")
        printer.say("step 3/100")
        box.start_runner()
    else:
        os.kill(reader, signal.SIGKILL)
    printer.say("step 4/100")
    reaches(box, job_id, 4)
    assert reader_of(box) != reader
    printer.say("end")
    box.wait_state(job_id, "SUCCEEDED")


def bad_metrics(box, job_id):
    return [notice.payload for notice in box.notices(job_id) if notice.kind == "bad metric"]


def test_a_loss_that_is_not_a_number_is_told_once_and_goes_on(box, printer):
    box.start_runner()
    job_id = box.submit(printer.command)
    printer.say("step 1/100 loss=2.5", "step 2/100 loss=nan", "step 3/100 loss=nan")
    [told] = eventually(lambda: bad_metrics(box, job_id), what="it is told")
    assert (told.metric, told.stops) == ("loss=nan", False)
    box.stop_runner(signal.SIGKILL)
    box.start_runner()
    printer.say("step 4/100 loss=nan")
    reaches(box, job_id, 4)
    printer.say("end")
    box.wait_state(job_id, "SUCCEEDED")
    assert len(bad_metrics(box, job_id)) == 1


@pytest.mark.parametrize(("rule", "line"), [("nan", "step 2/100 loss=nan"), ("nan,loss>10", "step 2/100 loss=11.5")])
def test_a_job_is_stopped_where_it_asked_for_that(box, printer, rule, line):
    box.start_runner()
    job_id = box.submit(printer.command, "--stop-on", rule)
    printer.say("step 1/100 loss=2.5", line)
    job = box.wait_state(job_id, "CANCELLED")
    assert (job["reason"], job["stop"]["by"]) == ("USER", f"--stop-on {rule.split(',')[-1]}")
    [told] = bad_metrics(box, job_id)
    assert told.stops
    assert box.run("submit", "--stop-on", "loss~3", "true").returncode == 1
