"""The store by itself: opening, refusing, keys, the chain of the audit."""

import contextlib
import fcntl
import json
import os
import sqlite3 as reader  # a second copy of SQLite is fine where nothing is written
import subprocess
import sys

import pytest
import sqlite_utils

from bot.store.buttons import Buttons
from bot.store.inbox import Inbox
from bot.store.outbox import Outbox
from runner.errors import OperatorError
from runner.model import Reason, State
from runner.notices import payload_of
from runner.processes.interpreter import ROOT
from runner.store import connection, first_start, migrating
from runner.store.audit import Audit
from runner.store.connection import DATABASE, SCHEMA_VERSION, connect, open_store
from runner.store.jobs import Jobs
from runner.store.measurements import KnownBatches, Used
from runner.store.notices import Notices
from runner.store.scheduling_queries import Line
from runner.store.workspaces import Workspaces
from tests.jobs import a_spec, an_exit


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "home"))
    yield store
    store.close()


@pytest.mark.parametrize("times", [30, pytest.param(1000, marks=pytest.mark.evidence)])
def test_two_first_starts_at_once(tmp_path, times):
    """Fresh state folders opened by two processes at the same moment, over and over."""
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r})\n"
        "from runner.store.connection import open_store\n"
        "for line in sys.stdin:\n"
        "    open_store(line.strip()).close(); print('ok', flush=True)\n"
    )
    with contextlib.ExitStack() as stack:
        openers = [
            stack.enter_context(
                subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(2)
        ]
        for number in range(times):
            for opener in openers:
                opener.stdin.write(f"{tmp_path}/home{number}\n")
                opener.stdin.flush()
            assert [opener.stdout.readline() for opener in openers] == ["ok\n"] * 2
        for opener in openers:
            opener.stdin.close()
            assert opener.wait(60) == 0


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION - 1, SCHEMA_VERSION])
def test_nothing_is_opened_outside_the_opening_lock(tmp_path, monkeypatch, version):
    """A connection that another process closes at the wrong moment makes a migration fail."""
    home = str(tmp_path / "home")
    store = open_store(home)
    store.execute(f"PRAGMA user_version = {version}")
    store.close()
    locked = []

    class Watched:
        def __getattr__(self, name):
            return getattr(sqlite, name)

        def connect(self, *words, **named):
            with open(os.path.join(home, connection.OPENING_LOCK)) as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    locked.append(True)
                else:
                    locked.append(False)
            return sqlite.connect(*words, **named)

    sqlite = connection.sqlite3
    monkeypatch.setattr(connection, "sqlite3", Watched())
    with contextlib.closing(open_store(home)):
        assert locked
        assert all(locked)


def test_it_is_durable_private_and_in_wal_mode(store):
    assert store.row("PRAGMA journal_mode")[0] == "wal"
    assert store.row("PRAGMA synchronous")[0] == 2
    assert os.stat(store.home).st_mode & 0o777 == 0o700
    assert os.stat(os.path.join(store.home, DATABASE)).st_mode & 0o777 == 0o600


def test_a_newer_schema_is_refused_with_the_way_out(tmp_path):
    store = open_store(str(tmp_path / "home"))
    store.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    store.close()
    with pytest.raises(OperatorError, match=r"newer nightshift.*Upgrade nightshift") as refusal:
        open_store(str(tmp_path / "home"))
    assert refusal.value.exit_code == 2


def test_a_folder_others_can_read_is_refused_with_the_way_out(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    with pytest.raises(OperatorError, match=f"chmod 700 {home}"):
        open_store(str(home))
    home.chmod(0o700)
    open_store(str(home)).close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="NIGHTSHIFT_HOME"):
        open_store(str(tmp_path / "file" / "home"))


MOUNTS = """\
22 1 254:1 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /workspace rw - nfs4 server:/volume rw
31 22 0:41 / /runpod\\040volume rw - fuse.juicefs volume rw
32 30 254:2 / /workspace/local rw - xfs /dev/vdb rw
33 22 0:42 / /home rw - fuse.fuse-overlayfs overlay rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/x", "ext4", False),
        ("/workspace/me", "nfs4", True),
        ("/workspace/local/x", "xfs", False),
        ("/runpod volume/x", "fuse.juicefs", True),
        ("/home/me", "fuse.fuse-overlayfs", False),
        ("/workspaceful", "ext4", False),
    ],
)
def test_network_mounts_are_told_from_local_disks(tmp_path, path, kind, network):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert first_start.filesystem_of(path, str(mounts)) == kind
    assert first_start.is_network(kind) is network


def test_a_network_mount_is_refused_with_the_way_out(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    with pytest.raises(OperatorError, match=r"nfs4[\s\S]*NIGHTSHIFT_BACKUP_DIR=/workspace/me"):
        first_start.refuse_network_mount("/workspace/me", str(mounts))


def test_the_same_key_gives_the_same_job(store):
    jobs = Jobs(store)
    first = jobs.add(a_spec("a"), key="update 7")
    assert jobs.add(a_spec("b"), key="update 7") == first
    assert jobs.add(a_spec("c"), key="update 8") == first + 1
    assert jobs.get(first).spec.command == "a"


def test_ids_count_from_1_and_are_never_given_again(store):
    jobs = Jobs(store)
    assert [jobs.add(a_spec()) for _ in range(3)] == [1, 2, 3]
    store.execute("DELETE FROM jobs")
    assert jobs.add(a_spec()) == 4


def test_the_first_of_each_lane_is_found_without_reading_the_queue(store):
    jobs = Jobs(store)
    for number in range(200):
        jobs.add(a_spec(gpus=1 if number % 2 else 2))
    jobs.add(a_spec(gpus=1, priority="high"))
    found = sorted(Line(store).waiting(per_lane=2), key=lambda waiting: waiting.id)
    assert [(waiting.id, waiting.request.gpus) for waiting in found] == [(1, 2), (2, 1), (3, 2), (4, 1), (201, 1)]
    plan = " ".join(
        row["detail"]
        for row in store.rows(
            "EXPLAIN QUERY PLAN SELECT id, position, submitted_at FROM jobs"
            " WHERE state = 'QUEUED' AND ready = 1 AND lane = ? ORDER BY rank, position LIMIT ?",
            ("1:", 2),
        )
    )
    assert "jobs_waiting" in plan
    assert "TEMP B-TREE" not in plan


def test_a_gpu_slot_cannot_be_leased_twice(store):
    jobs = Jobs(store)
    one, two = jobs.add(a_spec()), jobs.add(a_spec())
    assert jobs.claim(one, [("GPU-a", 0)], "boot") == 1
    with pytest.raises(Exception, match="UNIQUE"):
        jobs.claim(two, [("GPU-a", 0)], "boot")
    assert jobs.get(two).state is State.QUEUED  # all of the claim is undone
    assert jobs.attempts(two) == []


def test_an_end_frees_the_gpu_and_is_told_once(store):
    jobs, notices = Jobs(store), Notices(store)
    job_id = jobs.add(a_spec())
    jobs.claim(job_id, [("GPU-a", 0)], "boot")
    jobs.started(jobs.get(job_id), "2026-01-01T00:00:00.000000+00:00")
    jobs.ended(jobs.get(job_id), State.FAILED, Reason.EXIT, an_exit(exit_code=3))
    assert Line(store).leases() == []
    assert [notice.kind for notice in notices.about(job_id)] == ["started", "ended"]
    assert notices.about(job_id)[1].payload.exit_code == 3
    with pytest.raises(AssertionError):
        jobs.ended(jobs.get(job_id), State.FAILED, Reason.EXIT, an_exit(exit_code=4))


def test_an_update_is_kept_once(store):
    inbox = Inbox(store)
    assert inbox.keep(5, {"text": "/submit"})
    assert not inbox.keep(5, {"text": "/submit"})
    assert inbox.open() == [(5, {"text": "/submit"})]
    inbox.handled(5)
    assert inbox.open() == []


def test_told_notices_are_no_longer_open(store):
    notices = Notices(store)
    notices.add(payload_of("paused", {"why": "x"}))
    (notice,) = notices.open()
    Outbox(store).handled(notice.id)
    assert notices.open() == []


@pytest.mark.parametrize(
    "tamper",
    [
        "UPDATE audit SET actor = 'nobody' WHERE id = 2",
        "UPDATE audit SET data = '{}' WHERE id = 3",
        "DELETE FROM audit WHERE id = 2",
        "UPDATE audit SET at = '2000-01-01' WHERE id = 1",
        "DELETE FROM audit WHERE id = 1",
        "DELETE FROM audit WHERE id > 3",
        "DELETE FROM audit",
    ],
)
def test_a_changed_audit_is_noticed(store, tamper):
    audit = Audit(store)
    for number in range(5):
        audit.add("ann", "kill", {"job": number})
    assert audit.first_broken() is None
    store.execute(tamper)
    assert audit.first_broken() is not None


def test_nothing_of_a_failed_transaction_stays(store):
    jobs = Jobs(store)

    def fail():
        with store.transaction():
            jobs.add(a_spec())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert jobs.find() == []


def test_others_read_what_is_committed(store):
    Jobs(store).add(a_spec("echo hi"))
    with reader.connect(os.path.join(store.home, DATABASE)) as other:
        assert other.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    other.close()


def test_what_an_ended_attempt_used_is_not_written_over(store):
    jobs, used = Jobs(store), Used(store)
    job_id = jobs.add(a_spec())
    attempt = jobs.claim(job_id, [("GPU-a", 0)], "boot", '{"samples": 0, "sums": {"samples": 0}}')
    assert used.of(job_id, attempt) == {"samples": 0}
    used.keep(job_id, attempt, '{"samples": 5, "sums": {"samples": 5}}')
    assert used.stored(job_id, attempt) == (("GPU-a",), {"samples": 5, "sums": {"samples": 5}})
    jobs.ended(jobs.get(job_id), State.SUCCEEDED, Reason.EXIT, an_exit(), {"samples": 6})
    used.keep(job_id, attempt, '{"samples": 5}')
    assert used.of(job_id, attempt) == {"samples": 6}


@pytest.mark.parametrize(
    ("version", "next_step"),
    [(3, "m004_probe"), (4, "m005_scheduling"), (5, "m006_places"), (6, "m007_delivery")],
)
def test_a_queue_of_an_older_release_keeps_all_it_has(tmp_path, version, next_step):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    at = "2026-01-01T00:00:00.000000+00:00"
    spec = {"command": "one", "owner": "ada", "dir": "/", "environment": "e", "gpus": 2, "priority": "normal"}
    rows = {
        "jobs": [
            {"id": 1, "spec": json.dumps(spec), "state": "STARTING", "attempt": 1, "run_id": "0a", "lane": "2:",
             "rank": 0, "position": 1, "submitted_at": at, "key": "update 7", "gpus": '["GPU-a"]'},
            {"id": 2, "spec": json.dumps(spec | {"on": ["0", "1"]}), "state": "QUEUED", "attempt": 0, "run_id": "0b",
             "lane": "2:0,1", "rank": 0, "position": 2, "submitted_at": at, "key": None, "gpus": "[]"},
        ],
        "attempts": [{"job_id": 1, "number": 1, "gpus": '["GPU-a"]', "boot_id": "boot", "claimed_at": at}],
        "leases": [{"resource": "GPU-a", "slot": 0, "job_id": 1, "attempt": 1}],
        "workspaces": [{"name": "lab", "body": json.dumps({"name": "lab", "dir": "/", "activate": "true"})}],
    }  # fmt: skip
    (home / DATABASE).touch()
    with contextlib.closing(connect(str(home / DATABASE))) as old:
        db = sqlite_utils.Database(old)
        migrating.migrations.apply(db, stop_before=next_step)
        for table, found in rows.items():
            db[table].insert_all(found)
        old.commit()
        old.execute(f"PRAGMA user_version = {version}")
        old.commit()

    with contextlib.closing(open_store(str(home))) as store:
        assert store.row("PRAGMA user_version")[0] == SCHEMA_VERSION
        for table, before in rows.items():
            now = [dict(row) for row in store.rows(f"SELECT * FROM {table}")]
            kept = [{name: row[name] for name in was if name != "lane"} for row, was in zip(now, before, strict=True)]
            assert kept == [{name: value for name, value in was.items() if name != "lane"} for was in before]
        jobs, line = Jobs(store), Line(store)
        assert (jobs.get(1).state, jobs.get(2).spec.probe) == (State.STARTING, None)
        assert jobs.probe(1, 1) is None
        assert KnownBatches(store).get("any") is None
        assert Workspaces(store).get("lab").probe == {}
        assert jobs.add(a_spec(), key="update 7") == 1
        assert [lease.memory_mib for lease in line.leases()] == [None]
        (waiting,) = line.waiting(per_lane=9)
        assert (waiting.request.owner, waiting.request.gpus, waiting.request.on) == ("ada", 2, ("0", "1"))


def test_an_upgrade_keeps_what_waits_in_the_chat_and_what_was_delivered(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    at = "2026-01-01T00:00:00.000000+00:00"
    notice = {"kind": "idle warning", "data": "{}", "created_at": at}
    message = {"chat": 7, "person": 7, "method": "sendMessage", "body": "{}", "lane": "send", "created_at": at}
    numbers = nothing_yet, nobody_to_tell, under_way, arrived, unreachable, in_private = range(1, 7)
    rows = {
        "notices": [{**notice, "id": one, "told_at": None if one == nothing_yet else at} for one in numbers],
        "messages": [
            {**message, "id": 1, "notice_id": under_way, "told_at": None, "message": None, "parked": None},
            {**message, "id": 2, "notice_id": arrived, "told_at": at, "message": 40, "parked": None},
            {
                **message,
                "id": 3,
                "notice_id": unreachable,
                "told_at": None,
                "message": None,
                "parked": "unreachable: x",
            },
            {**message, "id": 4, "notice_id": in_private, "told_at": None, "message": None, "parked": "refused"},
            {**message, "id": 5, "notice_id": in_private, "told_at": at, "message": 41, "parked": None},
        ],
        "buttons": [{"nonce": "n", "person": 7, "action": "kill", "job_id": 1, "created_at": at, "once": 0}],
    }
    (home / DATABASE).touch()
    with contextlib.closing(connect(str(home / DATABASE))) as old:
        db = sqlite_utils.Database(old)
        migrating.migrations.apply(db, stop_before="m007_delivery")
        for table, stored in rows.items():
            db[table].insert_all(stored)
        old.commit()
        old.execute("PRAGMA user_version = 6")
        old.commit()

    with contextlib.closing(open_store(str(home))) as store:
        notices, outbox = Notices(store), Outbox(store)
        assert [notice.id for notice in notices.open()] == [nothing_yet]
        assert [one for one in numbers if notices.has_arrived(one)] == [nobody_to_tell, arrived, in_private]
        assert [message.id for message in outbox.due()] == [1]
        assert sorted(outbox.undeliverable("")) == [("refused", 1), ("unreachable: x", 1)]
        assert outbox.retry_unreachable(7, 7, "") == 1
        assert Buttons(store).find("n").action == "kill"
        outbox.done(1, 42)
        assert notices.has_arrived(under_way)
