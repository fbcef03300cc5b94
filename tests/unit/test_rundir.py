"""The run directory when it is not as we left it."""

import os

import pytest

from runner import rundir

SPEC = {"job_id": 1, "attempt": 1, "run_id": "aaaaaaaa"}


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "runs" / "1" / "1")


def test_the_lock_is_held_from_the_start_and_free_when_it_is_closed(folder):
    lock = rundir.create(folder, SPEC)
    assert rundir.facts(folder, "aaaaaaaa") == (True, None, None)
    os.close(lock)
    assert rundir.facts(folder, "aaaaaaaa") == (False, None, None)


def test_another_queues_end_is_not_ours(folder):
    """The database was lost and numbers are given again: what lies there is of another job."""
    os.close(rundir.create(folder, SPEC))
    rundir.write_started(folder, SPEC)
    rundir.write_exit(folder, None, {**SPEC, "exit_code": 0})
    assert rundir.facts(folder, "bbbbbbbb") == (False, None, None)
    lock = rundir.create(folder, {**SPEC, "run_id": "bbbbbbbb"})
    assert rundir.facts(folder, "bbbbbbbb") == (True, None, None)
    assert rundir.read(folder + ".old1", rundir.EXIT)["exit_code"] == 0  # put aside, not destroyed
    os.close(lock)


def test_a_folder_in_which_somebody_lives_is_not_taken(folder):
    lock = rundir.create(folder, SPEC)
    rundir.write_started(folder, SPEC)
    with pytest.raises(BlockingIOError):
        rundir.create(folder, {**SPEC, "run_id": "bbbbbbbb"})
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
    assert rundir.facts(folder, "aaaaaaaa") == (False, None, None)
    (tmp_path / "file").write_text("")
    assert rundir.facts(str(tmp_path / "file"), "aaaaaaaa") == (False, None, None)


def test_writing_the_end_again_and_again_costs_no_descriptors(folder, monkeypatch):
    os.close(rundir.create(folder, SPEC))
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(OSError, match="full"):
            rundir.write_exit(folder, None, SPEC)
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    rundir.write_exit(folder, None, SPEC)
    rundir.write_exit(folder, None, SPEC)  # as after a failure that came once the name was there
    assert rundir.read(folder, rundir.EXIT)["run_id"] == "aaaaaaaa"


def test_room_that_cannot_be_reserved_is_no_failure(tmp_path):
    assert rundir.reserve_exit(str(tmp_path / "gone")) is None


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
    os.close(rundir.create(folder, SPEC))
    reserved = rundir.reserve_exit(folder)
    spoil(os.path.join(folder, rundir.RESERVED))
    if also:
        os.makedirs(os.path.join(folder, also, "in", "it"))
    rundir.write_exit(folder, reserved, {**SPEC, "exit_code": 0})
    os.close(reserved)
    assert rundir.facts(folder, "aaaaaaaa").exit["exit_code"] == 0
