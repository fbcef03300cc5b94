"""The run directory when it is not as we left it."""

import json
import os
from dataclasses import replace

import pytest

from runner import rundir
from tests.jobs import an_exit

SPEC = rundir.AttemptSpec(job_id=1, attempt=1, run_id="aaaaaaaa")
STARTED = rundir.StartRecord(run_id="aaaaaaaa", pid=7, boot_id="boot", at="2026-01-01T00:00:00.000000+00:00")
END = an_exit(run_id="aaaaaaaa")


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "runs" / "1" / "1")


def test_the_lock_is_held_from_the_start_and_free_when_it_is_closed(folder):
    lock = rundir.create(folder, SPEC)
    assert rundir.records(folder, "aaaaaaaa") == (True, None, None)
    os.close(lock)
    assert rundir.records(folder, "aaaaaaaa") == (False, None, None)


def test_another_queues_end_is_not_ours(folder):
    """The database was lost and numbers are given again: what lies there is of another job."""
    os.close(rundir.create(folder, SPEC))
    rundir.write_started(folder, STARTED)
    rundir.write_exit(folder, -1, END)
    assert rundir.records(folder, "bbbbbbbb") == (False, None, None)
    lock = rundir.create(folder, replace(SPEC, run_id="bbbbbbbb"))
    assert rundir.records(folder, "bbbbbbbb") == (True, None, None)
    assert rundir.read(folder + ".old1", rundir.EXIT)["exit_code"] == 0  # put aside, not destroyed
    os.close(lock)


def test_a_folder_in_which_somebody_lives_is_not_taken(folder):
    lock = rundir.create(folder, SPEC)
    rundir.write_started(folder, STARTED)
    with pytest.raises(BlockingIOError):
        rundir.create(folder, replace(SPEC, run_id="bbbbbbbb"))
    os.close(lock)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'"text"'])
def test_a_record_that_is_not_whole_is_not_there(folder, content):
    os.close(rundir.create(folder, SPEC))
    with open(os.path.join(folder, rundir.EXIT), "wb") as file:
        file.write(content)
    assert rundir.read(folder, rundir.EXIT) is None


def test_records_that_are_folders_or_below_a_file(folder, tmp_path):
    os.close(rundir.create(folder, SPEC))
    os.mkdir(os.path.join(folder, rundir.EXIT))
    assert rundir.records(folder, "aaaaaaaa") == (False, None, None)
    (tmp_path / "file").write_text("")
    assert rundir.records(str(tmp_path / "file"), "aaaaaaaa") == (False, None, None)


def test_writing_the_end_again_and_again_costs_no_descriptors(folder, monkeypatch):
    os.close(rundir.create(folder, SPEC))
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(OSError, match="full"):
            rundir.write_exit(folder, -1, END)
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    rundir.write_exit(folder, -1, END)
    rundir.write_exit(folder, -1, END)  # as after a failure that came once the name was there
    assert rundir.read(folder, rundir.EXIT)["run_id"] == "aaaaaaaa"


def test_room_that_cannot_be_reserved_is_no_failure(tmp_path):
    reader = os.open(tmp_path, os.O_RDONLY)
    rundir.reserve_exit(reader)
    os.close(reader)


def _take_away(path):
    os.unlink(path)


def _replace(path):
    os.unlink(path)
    with open(path, "w") as file:
        file.write("something longer than any record " * 200)


def _make_link(path):
    os.unlink(path)
    os.symlink("/tmp", path)


def _make_folder(path):
    os.unlink(path)
    os.makedirs(os.path.join(path, "in", "it"))


@pytest.mark.parametrize("spoil", [_take_away, _replace, _make_folder, _make_link])
@pytest.mark.parametrize("also", [None, rundir.EXIT])
def test_the_end_is_written_though_the_room_kept_for_it_was_removed(folder, spoil, also):
    lock = rundir.create(folder, SPEC)
    rundir.reserve_exit(lock)
    spoil(os.path.join(folder, rundir.LOCK))
    if also:
        os.makedirs(os.path.join(folder, also, "in", "it"))
    rundir.write_exit(folder, lock, END)
    os.close(lock)
    assert rundir.records(folder, "aaaaaaaa").exit.exit_code == 0


def _leave(folder, name, **record):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as file:
        json.dump({"version": 1, "run_id": "aaaaaaaa", **record}, file)


def test_records_of_older_and_newer_versions_are_read(folder):
    """A job that runs across an upgrade was written down by the other version."""
    _leave(folder, rundir.SPEC, job_id=1, attempt=1, argv=["x"], dir="/", time_limit_s=60.0, colour="red")
    _leave(folder, rundir.STARTED, job_id=1, attempt=1, pid=7, boot_id="boot", at="then", colour="red")
    _leave(folder, rundir.EXIT, started_at="a", finished_at="b", duration_s=2.5, exit_code=3, colour="red")
    spec, facts = rundir.read_spec(folder), rundir.records(folder, "aaaaaaaa")
    assert (spec.argv, spec.time_limit_s, spec.cpus, spec.probe) == (("x",), 60.0, 0, None)
    assert (facts.started.pid, facts.started.pipe, facts.started.extendable) == (7, None, False)
    assert (facts.exit.exit_code, facts.exit.run_s, facts.exit.enforced) == (3, None, ())


def test_a_record_that_lacks_what_every_version_writes_is_none(folder):
    _leave(folder, rundir.STARTED, job_id=1)
    _leave(folder, rundir.LIMIT)
    assert (rundir.read_started(folder), rundir.limit_s(folder, "aaaaaaaa")) == (None, None)


def test_what_is_written_keeps_its_keys(folder):
    os.close(rundir.create(folder, SPEC))
    rundir.write_started(folder, STARTED)
    rundir.write_exit(folder, -1, END)
    rundir.write_limit(folder, "aaaaaaaa", 90.0)
    assert set(rundir.read(folder, rundir.SPEC)) == {
        *("version", "job_id", "attempt", "run_id", "argv", "env", "env_file", "env_over", "dir", "umask", "cpus"),
        *("time_limit_s", "ram_mib", "stop_grace_s", "log_limit_bytes", "log_tail_bytes", "probe"),
        *("progress", "log", "stop_on", "trial", "terminal"),
    }
    assert set(rundir.read(folder, rundir.STARTED)) == {
        *("version", "job_id", "attempt", "run_id", "pid", "start_time", "boot_id", "pipe", "extendable", "at"),
        *("node", "gpus"),
    }
    assert set(rundir.read(folder, rundir.EXIT)) == {
        *(
            "version",
            "run_id",
            "exit_code",
            "signal",
            "spawn_error",
            "stopped",
            "timed_out",
            "hung_up",
            "started_at",
            "cpu_s",
        ),
        *("finished_at", "duration_s", "run_s", "output_bytes", "dropped_bytes", "strays", "host_kills", "enforced"),
        *("max_rss_mib", "memory", "error"),
    }
    assert rundir.read(folder, rundir.LIMIT) == {"version": 1, "run_id": "aaaaaaaa", "time_limit_s": 90.0}


def test_a_trial_is_not_extended_with_its_job(tmp_path):
    folder = str(tmp_path / "run")
    os.close(rundir.create(folder, replace(SPEC, time_limit_s=30.0, trial=True)))
    rundir.raise_limit(folder, SPEC.run_id, 3600.0)
    assert rundir.limit_s(folder, SPEC.run_id) is None
