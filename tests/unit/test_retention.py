import os
from datetime import timedelta

import pytest

from bot.store.buttons import Buttons
from bot.store.inbox import Inbox
from bot.store.outbox import Outbox
from runner import clock, rundir
from runner.model import Reason, State
from runner.notices import Started
from runner.store.box import Box, BoxKey
from runner.store.connection import open_store
from runner.store.jobs import Jobs
from runner.store.notices import Notices
from runner.store.retention import Rules, main, prune, tidy
from runner.store.series import NewPoint, SeriesFile, Span, job_subject, points_of
from tests.jobs import a_spec, an_exit

DAY = 86400.0


@pytest.fixture
def store(tmp_path):
    """Jobs 1 to 3 ended 30, 20 and 10 days ago; 4 runs; 5 waits. Each run directory holds a log of 100 kB."""
    store = open_store(str(tmp_path / "home"))
    jobs = Jobs(store)
    for _ in range(5):
        jobs.add(a_spec())
    for job_id, days in ((1, 30), (2, 20), (3, 10), (4, None)):
        jobs.claim(job_id, [("cpu", job_id)], "boot")
        folder = rundir.folder_of(store.home, job_id, 1)
        os.makedirs(folder)
        with open(os.path.join(folder, rundir.OUTPUT), "wb") as file:
            file.write(b"x" * 100_000)
        with open(os.path.join(folder, rundir.EXIT), "w") as file:
            file.write("{}")
        if days:
            at = clock.text(clock.now() - timedelta(days=days))
            jobs.ended(jobs.get(job_id), State.SUCCEEDED, Reason.EXIT, an_exit(finished_at=at))
    yield store
    store.close()


def logs(store):
    return [n for n in range(1, 6) if os.path.exists(os.path.join(rundir.folder_of(store.home, n, 1), rundir.OUTPUT))]


def runs(store):
    return sorted(int(name) for name in os.listdir(os.path.join(store.home, "runs")))


def test_old_logs(store):
    removed = prune(store, Rules(keep_logs=15 * DAY))
    assert (removed.logs, logs(store), runs(store)) == (2, [3, 4], [1, 2, 3, 4])


def test_series_go_with_their_jobs(store):
    subjects = [job_subject(job.id, job.run_id) for job in sorted(Jobs(store).find(), key=lambda job: job.id)]
    file = SeriesFile(store.home)
    file.write([NewPoint(subject, 10, {"loss": Span(1, 1, 1)}) for subject in subjects], lambda _: True)
    file.close()
    prune(store, Rules(keep_jobs=15 * DAY), dry_run=True)
    assert all(points_of(store.home, subject, "loss") for subject in subjects)
    prune(store, Rules(keep_jobs=15 * DAY))
    assert [bool(points_of(store.home, subject, "loss")) for subject in subjects] == [False, False, True, True, True]


def test_old_runs(store):
    removed = prune(store, Rules(keep_runs=15 * DAY))
    assert (removed.runs, runs(store)) == (2, [3, 4])
    assert len(Jobs(store).find()) == 5


def test_old_jobs_go_with_all_that_is_theirs(store):
    removed = prune(store, Rules(keep_jobs=15 * DAY))
    assert removed.jobs == 2
    assert [job.id for job in Jobs(store).find()] == [3, 4, 5]
    assert runs(store) == [3, 4]
    for table in ("events", "attempts"):
        assert store.row(f"SELECT count(*) FROM {table} WHERE job_id < 3")[0] == 0


def test_what_was_never_told_outlives_its_job(store):
    store.execute("UPDATE notices SET handled_at = '2026-01-01' WHERE job_id = 1")
    prune(store, Rules(keep_jobs=15 * DAY))
    assert [row["job_id"] for row in store.rows("SELECT DISTINCT job_id FROM notices WHERE job_id < 3")] == [2]


def test_a_disk_limit_takes_the_oldest_and_never_what_runs(store):
    prune(store, Rules(disk_limit=0))
    assert runs(store) == [4]


def test_a_disk_limit_that_is_kept_takes_nothing(store):
    assert prune(store, Rules(disk_limit=1)).runs == 0


def test_no_rules_no_removal(store):
    removed = prune(store, Rules())
    assert (removed.jobs, removed.runs, removed.logs) == (0, 0, 0)


def test_environments_nobody_needs_any_more_go_too(store):
    jobs = Jobs(store)
    jobs.keep_environment("unused", {"A": "1"})
    jobs.keep_environment(jobs.get(4).spec.environment, {"B": "2"})
    prune(store, Rules(keep_jobs=15 * DAY))
    assert jobs.environment("unused") == {}
    assert jobs.environment(jobs.get(4).spec.environment) == {"B": "2"}


def talk(store, days):
    """One notice, update, button and message of so many days ago, all done with."""
    at = clock.text(clock.now() - timedelta(days=days))
    Notices(store).add(Started(attempt=days))
    store.execute(
        "UPDATE notices SET created_at = ?, handled_at = ? WHERE json_extract(data, '$.attempt') = ?", (at, at, days)
    )
    Inbox(store).keep(days, {})
    store.execute("UPDATE inbox SET received_at = ?, handled_at = ? WHERE update_id = ?", (at, at, days))
    nonce = Buttons(store).make(7, "log", days)
    store.execute("UPDATE buttons SET created_at = ? WHERE nonce = ?", (at, nonce))
    number = Outbox(store).add(7, "sendMessage", {"days": days}, job_id=days)
    Outbox(store).done(number, days)
    store.execute("UPDATE messages SET created_at = ? WHERE id = ?", (at, number))


def left(store):
    """How old what is left is: notices, updates, buttons, messages."""
    asked = (
        "SELECT json_extract(data, '$.attempt') FROM notices WHERE kind = 'started'",
        "SELECT update_id FROM inbox",
        "SELECT job_id FROM buttons",
        "SELECT job_id FROM messages",
    )
    return [sorted(row[0] for row in store.rows(sql)) for sql in asked]


def test_what_was_said_long_ago_is_forgotten_once_a_day(store):
    for days in (1, 6, 8, 29, 31):
        talk(store, days)
    Inbox(store).keep(99, {})  # not handled yet, however old
    store.execute("UPDATE inbox SET received_at = '2020-01-01' WHERE update_id = 99")
    Outbox(store).add(7, "sendMessage", {}, job_id=99)
    store.execute("UPDATE messages SET created_at = '2020-01-01' WHERE job_id = 99")
    assert tidy(store) is True
    assert left(store) == [[1, 6, 8, 29], [1, 6, 99], [1, 6, 8, 29], [1, 6, 8, 29, 99]]

    talk(store, 40)
    assert tidy(store) is False
    assert left(store)[0] == [1, 6, 8, 29, 40]
    Box(store).set(BoxKey.TIDIED_AT, clock.text(clock.now() - timedelta(hours=25)))
    assert tidy(store) is True
    assert left(store)[0] == [1, 6, 8, 29]


def test_many_notices_go_in_small_steps(store):
    store.execute("DELETE FROM notices")
    for _ in range(1200):
        Notices(store).add(Started())
    store.execute("UPDATE notices SET created_at = '2020-01-01'")
    assert tidy(store)
    assert Notices(store).open() == []


def test_the_process_of_its_own_tidies_without_any_rule(store):
    talk(store, 40)
    main([store.home, "{}"])
    assert left(store) == [[], [], [], []]
    assert runs(store) == [1, 2, 3, 4]
