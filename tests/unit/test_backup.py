import shutil

import pytest

from runner.errors import OperatorError
from runner.model import Reason, State
from runner.store import backup
from runner.store.backup import Backup
from runner.store.connection import DATABASE, open_store
from runner.store.jobs import Jobs
from runner.store.scheduling_queries import Line
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
    # what was on its way to its start may have run since the copy: it must not be taken for never executed
    assert [job.state for job in jobs.find()] == [State.SUCCEEDED, State.RUNNING, State.RUNNING, State.QUEUED]
    assert {lease.job_id for lease in Line(store).leases()} == {2, 3}
    assert jobs.add(a_spec()) == 5
    store.close()


def test_a_log_of_changes_that_was_left_behind_is_not_read_into_the_copy(box, tmp_path):
    home, volume = box
    with_jobs(home).close()
    backup.copy(home, volume)
    database = tmp_path / "home" / DATABASE
    store = open_store(home)
    for _ in range(50):
        Jobs(store).add(a_spec())
    left = (tmp_path / "home" / f"{DATABASE}-wal").read_bytes()
    store.close()
    database.unlink()
    (tmp_path / "home" / f"{DATABASE}-wal").write_bytes(left)
    store = open_store(home, backup_dir=volume)
    assert store.row("PRAGMA integrity_check")[0] == "ok"
    assert len(Jobs(store).find()) == 4
    store.close()


def test_another_folder_does_not_take_over_the_queue(box, tmp_path):
    home, volume = box
    with_jobs(home).close()
    backup.copy(home, volume)
    with pytest.raises(OperatorError, match=f"the copy of the queue in {home}"):
        open_store(str(tmp_path / "other"), backup_dir=volume)


def test_the_copy_of_another_queue_is_never_written_over(box, tmp_path):
    """As when the volume was not mounted yet when the runner came up."""
    home, volume = box
    with_jobs(home).close()
    backup.copy(home, volume)
    shutil.rmtree(home)
    store = open_store(home)
    store.close()
    for _ in range(3):
        backup.copy(home, volume)
    kept = list((tmp_path / "volume").glob(f"{DATABASE}.{'[0-9a-f]' * 8}"))
    assert len(kept) == 1
    assert count_in(kept[0]) == 4
    assert count_in(tmp_path / "volume" / DATABASE) == 0


def test_copies_that_cannot_be_read_are_not_taken_for_none(box, tmp_path):
    home, volume = box
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / DATABASE).write_bytes(b"not a database")
    with pytest.raises(OperatorError, match="cannot be read"):
        open_store(home, backup_dir=volume)


def count_in(path):
    import sqlite3

    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return connection.execute("SELECT count(*) FROM jobs").fetchone()[0]
    finally:
        connection.close()


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


def test_changes_are_copied_by_themselves(box, tmp_path):
    home, volume = box
    store = with_jobs(home)
    copier = Backup(store, volume)
    Jobs(store).add(a_spec("late"))
    copier.changed()

    copy = tmp_path / "volume" / DATABASE
    eventually(lambda: count_in(copy) == 5)
    Jobs(store).add(a_spec("last"))
    copier.close()  # leaving copies what is left
    assert count_in(copy) == 6
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
    store = with_jobs(home)
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="NIGHTSHIFT_BACKUP_DIR"):
        Backup(store, str(tmp_path / "file" / "volume"))
    store.close()


def test_no_copy_yet_means_a_fresh_queue(box):
    home, volume = box
    store = open_store(home, backup_dir=volume)
    assert Jobs(store).find() == []
    store.close()
