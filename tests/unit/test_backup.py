import shutil

import pytest

from runner.errors import OperatorError
from runner.model import Reason, State
from runner.store import backup
from runner.store.backup import Backup
from runner.store.connection import DATABASE, open_store
from runner.store.jobs import Jobs
from runner.store.outbox import Outbox
from tests.jobs import a_spec, an_exit
from tests.wait import eventually


@pytest.fixture
def box(tmp_path):
    return str(tmp_path / "home"), str(tmp_path / "volume")


def with_jobs(home):
    store = open_store(home)
    jobs = Jobs(store)
    for _ in range(4):
        jobs.add(a_spec())
    jobs.claim(1, [("GPU-a", 0)], "boot")
    jobs.started(jobs.get(1), "2026-01-01T00:00:00.000000+00:00")
    jobs.ended(jobs.get(1), State.SUCCEEDED, Reason.EXIT, an_exit())
    jobs.claim(2, [("GPU-a", 0)], "boot")
    jobs.started(jobs.get(2), "2026-01-01T00:00:00.000000+00:00")
    jobs.claim(3, [("GPU-b", 0)], "boot")
    return store


def test_a_wiped_state_folder_comes_back(box):
    home, volume = box
    with_jobs(home).close()
    backup.copy(home, volume)
    shutil.rmtree(home)

    store = open_store(home, backup_dir=volume)
    jobs = Jobs(store)
    assert [job.state for job in jobs.find()] == [State.SUCCEEDED, State.LOST, State.LOST, State.QUEUED]
    assert jobs.get(2).reason is Reason.HOST
    assert jobs.leases() == []
    assert [notice.data["state"] for notice in Outbox(store).about(2) if notice.kind == "ended"] == ["LOST"]
    assert jobs.add(a_spec()) == 5
    store.close()


def test_state_that_is_there_is_never_replaced(box):
    home, volume = box
    with_jobs(home).close()
    backup.copy(home, volume)
    store = open_store(home)
    Jobs(store).add(a_spec("new"))
    store.close()
    store = open_store(home, backup_dir=volume)
    assert len(Jobs(store).find()) == 5
    store.close()


def test_changes_are_copied_by_themselves(box):
    home, volume = box
    store = with_jobs(home)
    copier = Backup(home, volume)
    Jobs(store).add(a_spec("late"))
    copier.changed()

    def copied():
        shutil.rmtree(home + "2", ignore_errors=True)
        other = open_store(home + "2", backup_dir=volume)
        found = len(Jobs(other).find())
        other.close()
        return found == 5

    eventually(copied, 10)
    Jobs(store).add(a_spec("last"))
    copier.close()  # leaving copies what is left
    shutil.rmtree(home + "2")
    other = open_store(home + "2", backup_dir=volume)
    assert len(Jobs(other).find()) == 6
    other.close()
    store.close()


def test_a_torn_copy_is_passed_over_for_the_one_before(box, tmp_path):
    home, volume = box
    with_jobs(home).close()
    backup.copy(home, volume)
    backup.copy(home, volume)
    newest = tmp_path / "volume" / DATABASE
    newest.write_bytes(newest.read_bytes()[:5000])
    shutil.rmtree(home)
    store = open_store(home, backup_dir=volume)
    assert len(Jobs(store).find()) == 4
    store.close()


def test_a_folder_that_cannot_be_written_is_an_error_at_once(box, tmp_path):
    home, _ = box
    with_jobs(home).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="NIGHTSHIFT_BACKUP_DIR"):
        Backup(home, str(tmp_path / "file" / "volume"))


def test_no_copy_yet_means_a_fresh_queue(box):
    home, volume = box
    store = open_store(home, backup_dir=volume)
    assert Jobs(store).find() == []
    store.close()
