"""Jobs that wait, from the terminal and without a runner: edit, move, and stopping many at once."""

import pytest

from runner.model import State
from tests.jobs import a_spec, submit


@pytest.fixture
def waiting(box):
    """Six that wait, of somebody who is not at this terminal; the second for the first, two of a group."""
    with box.queue() as queue:
        submit(queue, "a", gpus=0)
        submit(queue, "b", gpus=0, after_ok=(1,))
        submit(queue, "c", "d", gpus=0, group="night")
        submit(queue, "e", gpus=0)
        queue.jobs.add(a_spec("f", gpus=0))
    return box


def states(box):
    with box.queue() as queue:
        return [queue.job(number).state.value[0] for number in range(1, 7)]


def test_an_edit_is_typed_like_a_submission(waiting):
    (waiting.folder / "in").mkdir()
    done = waiting.run("edit", "3", "-t", "4h", "--dir", "in", "--", "python", "a b.py", cwd=waiting.folder)
    assert (done.returncode, done.stderr) == (0, "")
    job = waiting.job(3)
    assert (job["time_limit_s"], job["dir"], job["command"]) == (14400, f"{waiting.folder}/in", "python 'a b.py'")
    assert waiting.run("edit", "3").stdout == "nightshift edit 3 --gpus 0 --time 4h --group night -- python 'a b.py'\n"
    (waiting.folder / "run.sh").write_text("echo 1\necho 2\n")
    waiting.run("edit", "3", "--script", "run.sh", "--clear", "time,group", cwd=waiting.folder)
    job = waiting.job(3)
    assert (job["time_limit_s"], job["group"], job["command"]) == (None, None, "echo 1\necho 2\n")
    assert "edited by" in waiting.run("show", "3").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["edit"], "The number comes first: nightshift edit 12 --time 4h"),
        (["edit", "--time", "4h", "3"], "The number comes first"),
        (["edit", "x", "--time", "4h"], "'x' is not a job number"),
        (["edit", "9-12", "--time", "4h"], "No job from 9 to 12 waits or runs."),
        (["edit", "3", "--tim", "4h"], "did you mean --time?"),
        (["edit", "1", "--after", "2"], "Job 2 waits for job 1"),
        (["move", "3", "after"], "After which job?"),
        (["move", "3", "up"], "'first', 'sooner', 'later', 'last', 'before', 'after'"),
        (["kill", "4-3"], "'4-3' is not a job number, nor a range like 14-16"),
        (["kill", "--state", "running"], "No such job waits or runs."),
        (["kill", "--group", "day"], "There is no group 'day'"),
    ],
)
def test_mistakes_say_what_to_type(waiting, words, said):
    done = waiting.run(*words)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert states(waiting) == ["Q"] * 6


def test_stretches_and_filters_say_which_are_stopped(waiting):
    with waiting.queue() as queue:
        queue.jobs.claim(5, [("cpu", 0)], "boot")
    assert waiting.run("kill", "2-4,9-12", "--group", "night", "--state", "queued").returncode == 0
    assert states(waiting) == ["Q", "Q", "C", "C", "S", "Q"]
    done = waiting.run("kill", "--all")
    assert done.returncode == 0  # the one that waited for another is gone with it
    assert "Job 2 has ended meanwhile." in done.stdout
    assert "Job 5 is being stopped." in done.stdout.splitlines()[-1]
    with waiting.queue() as queue:
        assert (queue.job(2).state, queue.job(6).state) == (State.CANCELLED, State.CANCELLED)


def test_mine_are_those_of_whoever_types(waiting):
    waiting.run("submit", "-g", "0", "--", "true")
    done = waiting.run("kill", "--mine")
    assert done.stdout == "Job 7 is cancelled; it had not started.\n"
    assert states(waiting) == ["Q"] * 6
