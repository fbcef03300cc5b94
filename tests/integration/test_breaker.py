"""Jobs that fail one after the other: whose fault it is, and how the queue goes on by itself."""

from __future__ import annotations

import shlex
import signal

from tests.wait import eventually

BROKEN = "no-such-venv-python train.py --lr 0.{}"
WORKS = "sleep 300"


def states(box, ids):
    return [box.job(job_id)["state"] for job_id in ids]


def told(box):
    return [notice for notice in box.notices(None) if notice.kind != "queue empty"]


def held_by(box, job_id):
    return box.job(job_id)["held_by"]


def test_where_another_job_runs_those_like_the_failed_ones_are_held_and_the_others_go_on(box):
    box.start_runner(gpus="sim:2x24GiB", breaker_within="3s")
    box.run("pause")
    bad = [box.submit(BROKEN.format(number)) for number in range(40)]
    good = [box.submit(WORKS) for _ in range(2)]
    later = box.submit(f"{BROKEN.format(1)}; {WORKS}")  # another program, so not alike
    box.run("resume")
    eventually(lambda: states(box, good) == ["RUNNING"] * 2)
    failed = states(box, bad).count("FAILED")  # two run at a time
    assert states(box, bad) == ["FAILED"] * failed + ["QUEUED"] * (40 - failed)
    assert failed in (3, 4)
    assert {held_by(box, job_id) for job_id in bad[failed:]} == {"the breaker, since jobs like it failed at once"}
    assert held_by(box, later) is None
    (notice,) = told(box)
    assert (notice.kind, sorted(notice.payload.jobs)[:2], notice.payload.trial) == (
        "goes on",
        bad[:2],
        good[0],
    )
    assert list(notice.payload.held) == bad[failed:]
    assert f"release {bad[5]}` lets it start" in box.job(bad[5])["waiting_for"]
    fresh = box.submit(BROKEN.format(9))  # somebody has mended something, or thinks so
    assert held_by(box, fresh) is None


def test_a_box_on_which_everything_fails_is_paused_and_tried_again(box, tmp_path):
    """A mount that comes back: nobody has to get up."""
    mended = tmp_path / "mended"
    box.start_runner(gpus="sim:1x24GiB", breaker_within="3s", breaker_again="1s")
    bad = [box.submit(f"test -e {mended} && sleep 300 || exit {3 + 0 * number}") for number in range(4)]
    others = [box.submit(f"cat {mended} && sleep 300") for _ in range(3)]
    eventually(lambda: states(box, [*bad[:3]]) == ["FAILED"] * 3)
    eventually(lambda: told(box))
    mended.touch()
    eventually(lambda: "RUNNING" in states(box, [*bad, *others]))
    eventually(lambda: [notice.kind for notice in told(box)] == ["paused", "goes on"])
    assert told(box)[0].payload.try_at
    assert {held_by(box, job_id) for job_id in others} == {None}
    assert "QUEUED" in states(box, others)


def test_a_runner_killed_while_a_job_is_tried_goes_on_with_it(box):
    settings = {"gpus": "sim:1x24GiB", "breaker_within": "3s"}
    box.start_runner(**settings)
    box.run("pause")
    bad = [box.submit(BROKEN.format(number)) for number in range(5)]
    good = box.submit(WORKS)
    box.run("resume")
    box.wait_state(good, "RUNNING")
    box.stop_runner(signal.SIGKILL)
    box.start_runner(**settings)
    eventually(lambda: held_by(box, bad[4]))
    assert states(box, bad) == ["FAILED"] * 3 + ["QUEUED"] * 2
    assert [notice.kind for notice in told(box)] == ["goes on"]


def test_where_it_is_not_to_be_tried_somebody_has_to_resume_it(box):
    box.start_runner(gpus="sim:1x24GiB", breaker_again="0s")
    box.run("pause")
    bad = [box.submit(BROKEN.format(number)) for number in range(3)]
    good = box.submit(WORKS)
    box.run("resume")
    eventually(lambda: states(box, bad) == ["FAILED"] * 3)
    assert "tried" not in box.job(good)["waiting_for"]
    (notice,) = eventually(lambda: told(box))
    assert (notice.kind, notice.payload.try_at) == ("paused", None)
    assert box.job(good)["state"] == "QUEUED"
    box.run("resume")
    box.wait_state(good, "RUNNING")


def test_who_submits_the_job_that_is_tried_is_told_that_it_starts(box):
    box.start_runner(gpus="sim:1x24GiB", breaker_within="60s")
    bad = [box.submit(BROKEN.format(number)) for number in range(4)]
    eventually(lambda: told(box))
    assert states(box, bad)[3] == "QUEUED"
    with box.queue() as queue:
        eventually(lambda: queue.view.gpus()[0]["state"] == "free", what="the GPU is read after the last job's end")
    done = box.run("submit", "--", WORKS)
    assert done.stderr.startswith("nightshift: job 5 starts now, though the queue is paused, because 3 jobs in a row")
    box.wait_state(5, "RUNNING")
    again = box.run("submit", "--", WORKS)
    assert "queued, but the queue is paused" in again.stderr
    assert "#5 shows whether it may go on" in again.stderr


def test_jobs_that_fail_with_different_errors_do_not_pause_the_queue(box):
    """Three wrong scripts are not a broken box, though Python exits with 1 after each."""
    box.start_runner(gpus="sim:1x24GiB")
    errors = ["KeyError: 'lr'", "NameError: name 'x' is not defined", "ValueError: no such split", "TypeError: f()"]
    bad = [box.submit(f"echo {shlex.quote(error)} >&2; exit 1") for error in errors]
    good = box.submit("true")
    box.wait_state(good, "SUCCEEDED")
    assert states(box, bad) == ["FAILED"] * 4
    assert told(box) == []


def test_the_notice_names_the_error_line_that_the_failed_jobs_share(box):
    box.start_runner(gpus="sim:1x24GiB")
    command = "echo RuntimeError: CUDA error 3 at 0x7f$RANDOM in /tmp/$NIGHTSHIFT_JOB_ID >&2; exit $NIGHTSHIFT_JOB_ID"
    bad = [box.submit(command) for _ in range(4)]
    (notice,) = eventually(lambda: told(box))
    assert (notice.kind, list(notice.payload.jobs)) == ("paused", bad[:3])
    assert notice.payload.error.startswith("RuntimeError: CUDA error 3 at 0x7f")


def test_a_runner_killed_between_two_failures_goes_on_counting(box):
    box.start_runner(gpus="sim:1x24GiB")
    command = "echo 'OSError: [Errno 5] Input/output error' >&2; exit 1"
    bad = [box.submit(command), box.submit(command)]
    eventually(lambda: states(box, bad) == ["FAILED"] * 2)
    box.stop_runner(signal.SIGKILL)
    box.start_runner(gpus="sim:1x24GiB")
    box.submit(command)
    (notice,) = eventually(lambda: told(box))
    assert (list(notice.payload.jobs), notice.payload.error) == ([1, 2, 3], "OSError: [Errno 5] Input/output error")
