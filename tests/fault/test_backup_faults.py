"""The folder with the copies of the queue is full, gone, unmounted or hangs: the queue goes on."""

import contextlib
import os
import shutil
import subprocess

import pytest

from runner.errors import OperatorError
from runner.processes import process_lock
from runner.store import backup, restoring
from runner.store.backup import Backup
from runner.store.box import Box, BoxKey
from runner.store.connection import DATABASE, open_store
from runner.store.jobs import Jobs
from runner.store.notices import Notices
from runner.terminal.checks import setup
from runner.watchdogs.backup import BackupWatch
from tests.jobs import a_spec
from tests.step_context import a_context
from tests.wait import eventually

ARRIVING = DATABASE + ".arriving"


@contextlib.contextmanager
def mounted(folder, size):
    """A real filesystem of this size in place of the folder's content."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def told(box):
    return [notice.kind for notice in box.notices(None) if notice.kind.startswith("backup")]


@pytest.fixture
def volume(box):
    """A folder for copies that has worked, of a runner that was killed."""
    volume = box.folder / "volume"
    box.environ["NIGHTSHIFT_BACKUP_DIR"] = str(volume)
    box.start_runner(gpus="none")
    with box.queue() as queue:
        eventually(lambda: queue.box.get(BoxKey.BACKUP), what="that it works is written down")
    box.runner.kill()
    box.runner.wait(60)
    return volume


def runs_jobs(box):
    return box.wait_state(box.submit("exit 0", "--gpus", "0"), "SUCCEEDED")


def test_a_folder_that_worked_and_fails_keeps_nobody_from_starting(box, volume):
    shutil.rmtree(volume)
    volume.write_text("no folder")
    for _ in range(2):  # the second runner does not tell it again
        box.start_runner(gpus="none")
        runs_jobs(box)
        eventually(lambda: told(box) == ["backup failing"], what="the admins are told")
        box.runner.kill()
        box.runner.wait(60)
    box.start_runner(gpus="none")
    volume.unlink()
    eventually(lambda: told(box) == ["backup failing", "backup back"], what="the admins are told that it works again")
    assert (volume / DATABASE).exists()
    runs_jobs(box)
    assert told(box) == ["backup failing", "backup back"]


def test_a_full_disk_for_copies_keeps_nobody_from_starting(box, volume):
    with mounted(volume, "64k"):
        box.start_runner(gpus="none")
        runs_jobs(box)
        eventually(lambda: told(box) == ["backup failing"])
        [notice] = [one for one in box.notices(None) if one.kind == "backup failing"]
        assert "No space left on device" in notice.payload.why
        box.runner.kill()
        box.runner.wait(60)


def test_a_folder_that_hangs_keeps_nobody_from_starting(box, volume):
    os.mkfifo(volume / ARRIVING)  # whoever opens it to write waits for a reader, for ever
    box.start_runner(gpus="none")
    runs_jobs(box)
    box.runner.kill()
    box.runner.wait(60)


# -- the same in this process, where nobody need wait for the real limits -------------------------------


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "home"))
    Jobs(store).add(a_spec())
    yield store
    store.close()


@contextlib.contextmanager
def hanging(path):
    """A file that hangs for who writes it or, where it has no writer, for who reads it."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    try:
        yield
    finally:
        ends = [os.open(path, os.O_RDONLY | os.O_NONBLOCK), os.open(path, os.O_RDWR | os.O_NONBLOCK)]
        path.unlink()
        for end in ends:
            os.close(end)


class Watched:
    """A copier that has worked, and the watch over it."""

    def __init__(self, store, folder):
        self._store, self.box, self.notices = store, Box(store), Notices(store)
        self.copier = Backup(store, str(folder))
        self.watch = BackupWatch(a_context(store, None), self.copier)
        self.look()

    def look(self):
        with self._store.transaction():
            self.watch.tick()
        return [notice.kind for notice in self.notices.open()]

    def change(self):
        Jobs(self._store).add(a_spec())
        self.copier.changed()


def test_a_copy_that_hangs_is_told_once_and_nobody_waits_for_it_when_leaving(store, tmp_path, monkeypatch):
    monkeypatch.setattr(backup, "HANGS_AFTER_S", 0.05)
    monkeypatch.setattr(backup, "LAST_WITHIN_S", 0.05)
    watched = Watched(store, tmp_path / "volume")
    with hanging(tmp_path / "volume" / ARRIVING):
        watched.change()
        eventually(lambda: watched.look() == ["backup failing"])
        watched.copier.close()
        assert watched.look() == ["backup failing"]


def test_the_doctor_knows_that_no_copies_are_made(store):
    Box(store).set(BoxKey.BACKUP, {"folder": "/mnt", "is_apart": True, "failing_since": "2026-01-01"})
    with process_lock.held(store.home, "runner.lock"):
        found = {finding.name: (finding.level, finding.text) for finding in setup.runner(store.home)}
    assert found["copies"] == ("warn", "none since 2026-01-01")
    assert found["runner"][0] == "ok"


def test_a_folder_that_never_worked_and_hangs_is_refused(store, tmp_path, monkeypatch):
    monkeypatch.setattr(backup, "FIRST_WITHIN_S", 0.05)
    (tmp_path / "volume").mkdir()
    with hanging(tmp_path / "volume" / ARRIVING), pytest.raises(OperatorError, match="has hung for"):
        Backup(store, str(tmp_path / "volume"))


def test_one_failure_alone_is_not_told(store, tmp_path, monkeypatch):
    watched, (refused, copy) = Watched(store, tmp_path / "volume"), ([], backup.copy)

    def fails_once(home, folder):
        if not refused:
            refused.append(True)
            raise OperatorError("a hiccup")
        copy(home, folder)

    monkeypatch.setattr(backup, "copy", fails_once)
    watched.change()
    eventually(lambda: watched.look() or (refused and watched.copier.works()))
    assert watched.look() == []
    watched.copier.close()


def test_a_mount_that_is_gone_is_not_taken_for_the_folder(store, tmp_path):
    """Copies on the disk of the queue itself would be lost with it."""
    volume = tmp_path / "volume"
    with mounted(volume, "8m"):
        watched = Watched(store, volume)
    watched.change()
    eventually(lambda: watched.look() == ["backup failing"])
    [notice] = watched.notices.open()
    assert "is it mounted?" in notice.payload.why
    assert list(volume.iterdir()) == []
    watched.copier.close()


def test_a_copy_that_hangs_is_not_taken_for_none(tmp_path, monkeypatch):
    monkeypatch.setattr(restoring, "ANSWERS_WITHIN_S", 0.05)
    (tmp_path / "volume").mkdir()
    with hanging(tmp_path / "volume" / DATABASE), pytest.raises(OperatorError, match="has hung for"):
        open_store(str(tmp_path / "home"), backup_dir=str(tmp_path / "volume"))
    assert not (tmp_path / "home" / DATABASE).exists()
