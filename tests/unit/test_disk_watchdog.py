"""A disk that fills is told of once, and so is that it has room again."""

import contextlib

import pytest

from runner.config.settings import Settings
from runner.store.box import Box, BoxKey
from runner.store.connection import StoreError, open_store
from runner.store.notices import Notices
from runner.watchdogs import disk as disk_watch
from runner.watchdogs.disk import DiskWatch
from tests.step_context import a_context


class Disk:
    """A watch over a disk whose room the test sets, and whose moments come when the test says."""

    def __init__(self, folder, **settings):
        self.free_mib, self.files = 50_000, 1_000_000
        self.home = str(folder / "home")
        self.settings = Settings(home=self.home, **settings)
        self.store = open_store(self.home)
        self.notices, self.box = Notices(self.store), Box(self.store)
        self.restart()

    def restart(self):
        self.watch = DiskWatch(a_context(self.store, self.settings), lambda _: (self.free_mib, self.files))

    def look(self, free_mib, files=1_000_000):
        self.free_mib, self.files = free_mib, files
        self.watch._looks_at = 0.0
        with self.store.transaction():
            self.watch.tick()

    def told(self):
        return [(notice.kind, notice.payload.free_mib) for notice in self.notices.open()]


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path)
    yield made
    made.store.close()


def test_each_change_is_told_once_whatever_happens_in_between(disk):
    for free_mib in (50_000, 900, 800, 20, 1_030, 1_100):
        disk.look(free_mib)
    assert disk.told() == [("disk low", 900)]  # just above the limit is not over it
    disk.restart()
    disk.look(1_100)
    assert disk.told() == [("disk low", 900)]
    disk.look(1_200)
    disk.look(1_300)
    assert disk.told() == [("disk low", 900), ("disk back", 1_200)]
    disk.look(1_000)
    assert disk.told()[2:] == [("disk low", 1_000)]


def test_how_little_there_is_now_is_there_to_be_looked_at(disk):
    disk.look(900)
    disk.look(300)
    assert disk.box.get(BoxKey.DISK_LOW)["free_mib"] == 300
    disk.look(5_000)
    assert disk.box.get(BoxKey.DISK_LOW) is None


def test_a_disk_that_was_too_full_even_for_that_is_told_of_when_it_has_room(disk):
    disk.free_mib = 0
    with contextlib.suppress(StoreError), disk.store.transaction():
        disk.watch.tick()
        raise StoreError("full")
    assert disk.told() == []
    disk.look(5_000)
    assert disk.told() == [("disk back", 5_000)]


def test_files_can_run_out_as_well(disk):
    disk.look(50_000, files=12)
    assert disk.told() == [("disk low", 50_000)]
    disk.look(50_000, files=None)
    assert len(disk.told()) == 2


def test_it_can_be_switched_off(tmp_path):
    disk = Disk(tmp_path, disk_warning=0)
    disk.look(1)
    assert disk.told() == []
    disk.store.close()


def test_it_looks_now_and_then_only(disk, monkeypatch):
    looks = []
    monkeypatch.setattr(disk.watch, "_room", lambda folder: looks.append(folder) or (50_000, None))
    for _ in range(100):
        disk.watch.tick()
    assert len(looks) == 1


def test_the_real_disk_can_be_read(tmp_path):
    free_mib, files = disk_watch.room_on(str(tmp_path))
    assert free_mib > 0
    assert files is None or files > 0
