"""The queue's file is deleted, emptied, replaced, moved or damaged, with and without nightshift up."""

import asyncio
import contextlib
import json
import os
import shutil
import signal

import pytest

from runner.store.backup import Backup
from runner.store.connection import DATABASE, QueueLostError, StoreError, connect, open_store
from runner.store.jobs import Jobs
from tests.jobs import a_spec
from tests.room import Room


def zero(path):
    path.write_bytes(bytes(path.stat().st_size))


def halve(path):
    os.truncate(path, path.stat().st_size // 2)


def replace(path):
    """By another queue, as a restore by hand under a live runner does."""
    other = path.parent.parent / "other"
    open_store(str(other)).close()
    os.replace(other / DATABASE, path)


def wal(path):
    return path.with_name(DATABASE + "-wal")


def shm(path):
    return path.with_name(DATABASE + "-shm")


UNDER_ITS_HOLDER = {
    "deleted": lambda path: path.unlink(),
    "emptied": lambda path: os.truncate(path, 0),
    "cut in half": halve,
    "moved": lambda path: path.rename(path.with_name("elsewhere.db")),
    "replaced": replace,
    "without its WAL": lambda path: wal(path).unlink(),
    "with its WAL emptied": lambda path: os.truncate(wal(path), 0),
    "without the index of its WAL": lambda path: shm(path).unlink(),
}


@pytest.fixture
def held(tmp_path):
    """A queue with jobs that this process has open."""
    store = open_store(str(tmp_path / "home"))
    jobs = Jobs(store)
    for _ in range(200):
        jobs.add(a_spec())
    yield store, jobs, tmp_path / "home" / DATABASE
    store.close()


@pytest.mark.parametrize("attack", UNDER_ITS_HOLDER)
def test_nothing_is_acknowledged_into_a_file_that_is_gone(held, attack):
    _, jobs, path = held
    UNDER_ITS_HOLDER[attack](path)
    with pytest.raises(QueueLostError, match=str(path)):
        jobs.add(a_spec())
    with pytest.raises(QueueLostError, match=str(path)):
        jobs.find()


def test_a_commit_into_a_file_that_went_meanwhile_is_not_acknowledged(held):
    store, jobs, path = held

    def submit():
        with store.transaction():
            jobs.add(a_spec())
            path.unlink()

    with pytest.raises(QueueLostError, match="was removed"):
        submit()


@pytest.mark.parametrize("attack", ["deleted", "emptied", "replaced", "without its WAL"])
def test_the_runner_leaves_loudly(box, attack):
    runner = box.start_runner(gpus="none")  # nothing happens by itself
    box.submit("true", "--gpus", "0")
    box._look_away()
    UNDER_ITS_HOLDER[attack](box.home / DATABASE)
    assert runner.wait(60) == 2
    said = (box.folder / "runner.out").read_text()
    assert f"The queue's file {box.home / DATABASE} " in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("names", "restored"), [(f"{DATABASE}*", 1), (DATABASE, 1), (f"{DATABASE}-wal", 0)])
def test_what_the_runner_still_has_open_is_not_lost(box, names, restored):
    """Without any copy: the runner itself has all of what was deleted."""
    runner = box.start_runner(gpus="none")
    box.run("pause")
    jobs = [box.submit("exit 0", "--gpus", "0") for _ in range(5)]
    box._look_away()
    for path in list(box.home.glob(names)):
        path.unlink()
    assert runner.wait(60) == 2
    box.start_runner(gpus="none")
    assert [notice.kind for notice in box.notices(None)].count("queue restored") == restored
    assert list(box.home.glob(f"{DATABASE}.rescued*")) == []
    box.run("resume")
    for job_id in jobs:
        box.wait_state(job_id, "SUCCEEDED")


def test_the_bot_leaves_and_says_nothing_that_is_not_so(tmp_path, caplog):
    async def check():
        room = Room(tmp_path)
        room.people.start(room.uma)
        await room.open()
        await room.settle()
        before = len(room.said(room.uma))
        os.unlink(os.path.join(room.settings.home, DATABASE))
        room.people.send_text(room.uma, None, "/submit -g 0 true")
        with pytest.raises(QueueLostError, match="was removed"):
            await asyncio.wait_for(room._serving, 60)
        assert len(room.said(room.uma)) == before
        room.chat.close()

    asyncio.run(check())
    assert "Traceback" not in caplog.text


def test_the_bot_leaves_while_nobody_writes(tmp_path):
    async def check():
        room = Room(tmp_path)
        await room.open()
        await room.settle()
        os.truncate(os.path.join(room.settings.home, DATABASE), 0)
        with pytest.raises(QueueLostError, match="was removed"):
            await asyncio.wait_for(room._serving, 60)
        room.chat.close()

    asyncio.run(check())


# -- while a runner has not noticed yet ----------------------------------------------------------------


@pytest.fixture
def stopped_runner(box):
    """One that notices nothing any more."""
    runner = box.start_runner(gpus="none")
    box._look_away()
    os.kill(runner.pid, signal.SIGSTOP)
    yield box
    os.kill(runner.pid, signal.SIGKILL)


def test_terminal_commands_do_not_begin_another_queue(stopped_runner):
    box = stopped_runner
    for path in box.home.glob(f"{DATABASE}*"):
        path.unlink()
    for words in (["ls"], ["ls", "--json"], ["submit", "--", "true"], ["pause"], ["doctor"]):
        done = box.run(*words)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), words
        assert f"{box.home / DATABASE} is gone" in done.stderr + done.stdout
    assert not (box.home / DATABASE).exists()


def test_the_doctor_sees_that_the_runner_holds_another_file(stopped_runner):
    box = stopped_runner
    replace(box.home / DATABASE)
    done = box.run("doctor", "--json", env={"NIGHTSHIFT_GPUS": "none"})
    [found] = [one for one in json.loads(done.stdout) if one["name"] == "runner"]
    assert (done.returncode, found["level"]) == (2, "fail")
    assert "the queue on the disk is another one: the file was replaced" in found["text"]


# -- while nightshift is down --------------------------------------------------------------------------


def with_jobs(box, count=5):
    box.start_runner(gpus="none")
    box.run("pause")
    jobs = [box.submit("true", "--gpus", "0") for _ in range(count)]
    box.stop_runner()
    box._look_away()
    return jobs


def jobs_in(box):
    return [job["id"] for job in json.loads(box.run("ls", "--json").stdout)]


@pytest.fixture
def copied(box, tmp_path):
    """Five jobs in a queue that has a copy."""
    box.environ["NIGHTSHIFT_BACKUP_DIR"] = str(tmp_path / "volume")
    with_jobs(box)
    return box


def all_come_back(box):
    box.start_runner(gpus="none")
    assert sorted(jobs_in(box)) == [1, 2, 3, 4, 5]
    assert [notice.kind for notice in box.notices(None)].count("queue restored") == 1


def test_a_wiped_disk_and_a_look_without_the_setting_lose_nothing(copied):
    shutil.rmtree(copied.home)
    setting = copied.environ.pop("NIGHTSHIFT_BACKUP_DIR")
    assert jobs_in(copied) == []
    assert list(copied.home.glob(f"{DATABASE}*")) == []
    copied.environ["NIGHTSHIFT_BACKUP_DIR"] = setting
    all_come_back(copied)


def test_nor_does_a_change_without_the_setting(copied):
    shutil.rmtree(copied.home)
    setting = copied.environ.pop("NIGHTSHIFT_BACKUP_DIR")
    assert copied.run("pause").returncode == 0
    assert (copied.home / DATABASE).exists()
    copied.environ["NIGHTSHIFT_BACKUP_DIR"] = setting
    all_come_back(copied)


def test_an_empty_file_beside_a_copy_is_restored(copied):
    os.truncate(copied.home / DATABASE, 0)
    all_come_back(copied)


def test_a_file_without_tables_beside_a_copy_is_restored(copied):
    (copied.home / DATABASE).unlink()
    (copied.home / DATABASE).touch()
    with contextlib.closing(connect(str(copied.home / DATABASE))) as connection:
        connection.execute("CREATE TABLE something (value)")
        connection.commit()
    all_come_back(copied)


def test_a_copy_is_never_made_of_a_file_that_is_gone(tmp_path):
    home, volume = tmp_path / "home", tmp_path / "volume"
    store = open_store(str(home))
    Jobs(store).add(a_spec())
    copier = Backup(store, str(volume))
    copy = (volume / DATABASE).read_bytes()
    for path in home.glob(f"{DATABASE}*"):
        path.unlink()
    copier.changed()
    copier.close()
    store.close()
    assert list(home.glob(f"{DATABASE}*")) == []
    assert (volume / DATABASE).read_bytes() == copy


def test_a_new_queue_where_jobs_were_is_told(box):
    box.start_runner(gpus="none")
    box.wait_state(box.submit("true", "--gpus", "0"), "SUCCEEDED")
    box.stop_runner()
    box._look_away()
    (box.home / DATABASE).unlink()
    refused = box.run("submit", "--", "true")
    assert (refused.returncode, "runs/ has the folders of 1 job." in refused.stderr) == (2, True)
    box.start_runner(gpus="none")
    [told] = [notice.payload.to_json() for notice in box.notices(None) if notice.kind == "new queue"]
    assert told == {"jobs": 1, "folder": str(box.home / "runs")}


def test_jobs_that_only_waited_are_not_taken_for_none(box):
    with_jobs(box)
    (box.home / DATABASE).unlink()
    done = box.run("ls")
    assert (done.returncode, "is gone, and a runner has been at work on it" in done.stderr) == (2, True)
    box.start_runner(gpus="none")
    assert [notice.payload.jobs for notice in box.notices(None) if notice.kind == "new queue"] == [0]


def test_a_wal_that_is_left_alone_is_kept(box):
    """Its file may be put back, and then it is needed."""
    with_jobs(box)
    left = box.home / f"{DATABASE}-wal"
    (box.home / DATABASE).unlink()
    left.write_bytes(b"what was not copied into the file yet")
    box.start_runner(gpus="none")
    assert (box.home / f"{DATABASE}.aside1-wal").read_bytes() == b"what was not copied into the file yet"


def test_looking_at_a_fresh_folder_creates_no_queue(box):
    assert box.run("ls", "--json").stdout.strip() == "[]"
    assert box.run("show", "1").returncode == 1
    assert not (box.home / DATABASE).exists()
    assert box.run("submit", "--", "true").returncode == 0
    assert jobs_in(box) == [1]


def test_a_view_from_before_the_first_job_sees_it(tmp_path):
    home = str(tmp_path / "home")
    early = open_store(home, begin=False)
    assert Jobs(early).find() == []
    assert not early.exists
    other = open_store(home)
    Jobs(other).add(a_spec())
    assert len(Jobs(early).find()) == 1
    early.close(), other.close()


DAMAGED = {
    "garbage": lambda path: path.write_bytes(b"x" * 50_000),
    "half a file": halve,
    "a zeroed WAL": lambda path: zero(wal(path)),
}
COMMANDS = [
    ["ls"],
    ["ls", "--json"],
    ["show", "1"],
    ["log", "1"],
    ["submit", "--", "true"],
    ["kill", "1"],
    ["pause"],
    ["audit"],
    ["gpus"],
    ["pair", "--list"],
    ["doctor"],
    ["prune", "--older-than", "1d"],
    ["runner"],
    ["bot"],
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_told_by_every_command(box, damage):
    """A zeroed WAL is only read while somebody has the queue open; nothing is cached in a connection of its own."""
    with box.queue() as queue:
        path = box.home / DATABASE
        for _ in range(30):
            queue.submit([a_spec("x" * 5000)], {})
        if "WAL" not in damage:
            box._look_away()
        DAMAGED[damage](path)
        for words in COMMANDS:
            done = box.run(*words, env={"NIGHTSHIFT_CHAT": "page", "NIGHTSHIFT_GPUS": "none"})
            said = done.stderr + done.stdout
            assert (done.returncode, "Traceback" in said) == (2, False), (words, said)
            assert str(path) in said, words


def test_a_runner_whose_file_is_damaged_leaves_without_a_traceback(box):
    runner = box.start_runner(gpus="none")
    box.submit("true", "--gpus", "0")
    box._look_away()
    halve(box.home / DATABASE)
    assert runner.wait(60) == 2
    assert "Traceback" not in (box.folder / "runner.out").read_text()


def test_what_cannot_be_read_is_a_store_error(tmp_path):
    home = tmp_path / "home"
    store = open_store(str(home))
    for _ in range(30):
        Jobs(store).add(a_spec("x" * 5000))
    store.close()
    size = (home / DATABASE).stat().st_size
    with (home / DATABASE).open("r+b") as file:
        file.seek(size - 100_000)
        file.write(b"\xff" * 100_000)
    with (
        contextlib.closing(open_store(str(home))) as store,
        pytest.raises(StoreError, match=str(home)),
    ):
        Jobs(store).find()


def test_a_full_disk_is_not_taken_for_damage(held, monkeypatch):
    from runner.store import connection

    store, jobs, _ = held
    monkeypatch.setattr(connection, "_is_full", lambda home: True)
    with pytest.raises(StoreError, match="is full") as refused:
        connection.fail(store.home, connection.sqlite3.OperationalError("disk I/O error"))
    assert not isinstance(refused.value, QueueLostError)
    assert jobs.add(a_spec()) == 201
