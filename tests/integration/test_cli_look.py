"""Looking at jobs without a runner: ls, show, gpus, completion; and the words for a held queue."""

import json
import os
import stat
import subprocess

import pytest

from runner.model import Reason, State
from runner.store.box import BoxKey
from tests.jobs import a_spec, an_exit, submit

KEYS = {"id", "name", "command", "owner", "workspace", "state", "reason", "exit_code", "signal", "phase"} | (
    {"attempt", "gpus", "batch_size", "run_id", "submitted_at", "started_at", "finished_at", "waiting_for", "node"}
)


def end(queue, job_id, **exit_record):
    """Have a job run and end, as a runner would record it."""
    queue.jobs.claim(job_id, [("GPU-x", 0)], "boot")
    queue.jobs.started(queue.job(job_id), "2026-01-01T00:00:00.000000+00:00")
    record = an_exit(**exit_record)
    failed = record.exit_code != 0
    queue.jobs.ended(queue.job(job_id), State.FAILED if failed else State.SUCCEEDED, Reason.EXIT, record)


@pytest.fixture
def past(box):
    """Two that succeeded, one that failed, one that waits."""
    with box.queue() as queue:
        submit(queue, "echo one", "echo 'two'\necho 2", "exit 3", "echo four")
        end(queue, 1)
        end(queue, 2)
        end(queue, 3, exit_code=3)
    return box


def rows(done):
    """The table as lists of words, without its head."""
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split() for line in done.stdout.split("\n\n")[0].splitlines()[1:]]


def test_what_is_not_listed_is_counted(box):
    with box.queue() as queue:
        for _ in range(13):
            (job_id,) = queue.submit([a_spec()], {})
            queue.stop(job_id)
    assert "… and 3 that ended before" in box.run("ls").stdout
    assert "ended before" not in box.run("ls", "--all").stdout


def test_a_fresh_state_folder_is_made_and_empty(box):
    assert json.loads(box.run("ls", "--json").stdout) == []
    assert json.loads(box.run("gpus", "--json").stdout) == []
    assert stat.S_IMODE(box.home.stat().st_mode) == 0o700
    assert "There are no jobs" in box.run("ls").stdout
    assert "no runner is up" in box.run("gpus").stdout


def test_ls_tells_what_was_and_what_comes_in_the_order_of_time(past):
    found = rows(past.run("ls"))
    assert [row[0] for row in found] == ["1", "2", "3", "4"]
    assert [row[1].strip(",") for row in found] == ["succeeded", "succeeded", "failed", "queued"]
    assert "failed, exit 3" in past.run("ls").stdout
    assert "Waiting: no runner is up." in past.run("ls").stdout
    assert "echo 'two'⏎echo 2" in past.run("ls").stdout


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--failed"], ["3"]),
        (["--succeeded"], ["1", "2"]),
        (["--succeeded", "--limit", "1"], ["2"]),
        (["--queued"], ["4"]),
        (["--running"], []),
        (["--failed", "--queued"], ["3", "4"]),
        (["--all"], ["1", "2", "3", "4"]),
        (["--limit", "1"], ["3", "4"]),
    ],
)
def test_ls_lists_those_asked_for(past, words, ids):
    done = past.run("ls", *words)
    assert [row[0] for row in rows(done) if row[0] != "…"] == ids
    listed = json.loads(past.run("ls", "--json", *words).stdout)
    assert [str(job["id"]) for job in listed] == ids


def test_ls_with_a_limit_of_none_still_counts_what_there_is(past):
    done = past.run("ls", "--limit", "0")
    assert done.stdout == "… and 1 more queued\n… and 3 that ended before: nightshift ls --all\n"
    assert json.loads(past.run("ls", "--json", "--limit", "0").stdout) == []


def test_ls_json_of_many_jobs_is_one_list(box):
    with box.queue() as queue:
        numbers = submit(queue, *(f"echo {number}" for number in range(120)))
    printed = box.run("ls", "--json").stdout
    assert [job["id"] for job in json.loads(printed)] == numbers
    assert len(printed.splitlines()) == len(numbers) + 2


def test_ls_json_has_all_jobs_with_the_keys_programs_rely_on(past):
    listed = json.loads(past.run("ls", "--json").stdout)
    assert [job["id"] for job in listed] == [1, 2, 3, 4]
    assert all(set(job) >= KEYS for job in listed)
    assert (listed[2]["state"], listed[2]["reason"], listed[2]["exit_code"]) == ("FAILED", "EXIT", 3)
    assert listed[3]["waiting_for"] == "no runner is up"


def test_the_commands_of_those_that_failed_can_be_submitted_again(past):
    commands = past.run("ls", "--failed", "--commands").stdout
    assert commands == "exit 3\n"
    assert past.run("submit", "-", input=commands).stdout == "Submitted job 5\n"
    assert past.job(5)["command"] == "exit 3"


def test_commands_of_several_lines_stay_one_line_and_mean_the_same(past):
    lines = past.run("ls", "--succeeded", "--commands").stdout.splitlines()
    assert len(lines) == 2
    said = [subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout for line in lines]
    assert said == ["one\n", "two\n2\n"]


def test_a_command_is_given_back_byte_for_byte(box):
    strange = b"printf '\xff\xc3\xa4\t%s' \"it's\" \\\\ | od"
    box.run("submit", "--", os.fsdecode(strange))
    raw = subprocess.run(box.command("ls", "--commands"), env=box.environ, capture_output=True, check=True).stdout
    assert raw == strange + b"\n"


def test_a_terminal_is_not_steered_by_a_command(box):
    box.run("submit", "--name", "plain", "--", "echo '\x1b[2J\a'")
    for words in (["ls"], ["show", "1"]):
        shown = box.run(*words).stdout
        assert "\x1b" not in shown
        assert "\\x1b[2J\\x07" in shown


def test_a_long_queue_is_counted_not_listed(box):
    with box.queue() as queue:
        submit(queue, *["true"] * 3000)
    shown = box.run("ls").stdout
    assert shown.count("queued") == 21
    assert "… and 2,980 more queued" in shown
    assert "2,999 jobs before it" in box.run("show", "3000").stdout


def test_a_high_priority_is_listed_where_it_will_start(box):
    box.run("submit", "--", "echo second")
    box.run("submit", "-p", "high", "--", "echo first")
    assert [row[0] for row in rows(box.run("ls"))] == ["2", "1"]


def test_show_tells_everything_but_values_of_variables(box):
    box.run(
        "submit", "--env", "API_KEY=hush", "--name", "mine", "-t", "2h", "--", "echo $API_KEY", env={"OTHER": "hush"}
    )
    shown = box.run("show", "1").stdout
    for part in ("mine", "echo $API_KEY", "API_KEY (values not shown)", "2h 00m", "no runner is up", "submitted by"):
        assert part in shown
    told = json.loads(box.run("show", "1", "--json").stdout)
    assert set(told) >= KEYS
    assert told["env_names"] == ["API_KEY"]
    assert told["events"][0]["kind"] == "submitted"
    assert "hush" not in shown + json.dumps(told)


def test_a_named_attempt_that_never_was_is_refused(past):
    done = past.run("log", "1", "--attempt", "2")
    assert (done.returncode, "has no attempt 2" in done.stderr) == (1, True)
    done = past.run("log", "4")
    assert (done.returncode, "has not started yet" in done.stderr) == (1, True)


def test_pause_drain_and_resume_say_what_they_did(past):
    assert past.run("pause").stdout.startswith("Paused: nothing more starts")
    with past.queue() as queue:
        assert queue.box.get(BoxKey.PAUSED)
    assert past.run("resume").stdout.startswith("Resumed. No job is running, 1 queued.")
    assert past.run("resume").stdout.startswith("Nothing was paused.")
    assert past.run("drain", "--wait").stdout.endswith("Drained: nothing runs.\n")
    with past.queue() as queue:
        assert queue.box.get(BoxKey.DRAINING)


def test_a_waiting_job_is_killed_and_others_too_when_one_is_unknown(past):
    done = past.run("kill", "77", "4", "1")
    assert done.returncode == 1
    assert done.stdout == "Job 4 is cancelled; it had not started.\n"
    assert "There is no job 77." in done.stderr
    assert "Job 1 has already ended" in done.stderr
    assert past.job(4)["state"] == "CANCELLED"


def test_old_runs_are_pruned_when_asked(past):
    folder = past.home / "runs" / "1" / "1"
    folder.mkdir(parents=True)
    (folder / "output.log").write_text("x" * 5000)
    (past.home / "runs" / "4").mkdir()
    would = past.run("prune", "--older-than", "1s", "--dry-run").stdout
    assert would.startswith("Would remove 1 run directory:")
    assert folder.exists()
    assert past.run("prune", "--older-than", "1s").stdout == would.replace("Would remove", "Removed")
    assert not folder.exists()
    assert (past.home / "runs" / "4").exists()
    assert past.run("prune", "--older-than", "1s").stdout == "Nothing to remove.\n"
    assert past.run("prune", env={"NIGHTSHIFT_KEEP_JOBS": "1h"}).stdout == "Removed 3 jobs: 0 MiB.\n"
    assert [job["id"] for job in json.loads(past.run("ls", "--json").stdout)] == [4]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_back(box, shell):
    done = box.run("completion", shell)
    assert done.returncode == 0
    assert f"_NIGHTSHIFT_COMPLETE={shell}_complete" in done.stdout


def complete(box, *words):
    asked = {"_NIGHTSHIFT_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    return [line.partition(",")[2] for line in box.run(env=asked).stdout.split()]


def test_commands_options_and_job_numbers_are_completed(past):
    assert complete(past, "nightshift", "sh") == ["show", "shell"]
    assert complete(past, "nightshift", "ls", "--fai") == ["--failed"]
    assert complete(past, "nightshift", "submit", "--pri") == ["--priority"]
    assert complete(past, "nightshift", "ws", "a") == ["add"]
    assert complete(past, "nightshift", "show", "") == ["4", "3", "2", "1"]
    assert complete(past, "nightshift", "log", "3") == ["3"]
    assert complete(past, "nightshift", "kill", "") == ["4"]
    assert complete(past, "nightshift", "rerun", "2", "") == ["4", "3", "1"]


def test_the_number_of_any_job_can_be_completed(box):
    with box.queue() as queue:
        numbers = submit(queue, *(f"echo {number}" for number in range(130)))
        for number in numbers:
            if number not in {2, 27, 105}:
                queue.stop(number)
    assert complete(box, "nightshift", "show", "1") == [
        *map(str, range(130, 99, -1)), *map(str, range(19, 9, -1)), "1"
    ]  # fmt: skip
    assert complete(box, "nightshift", "log", "12") == [*map(str, range(129, 119, -1)), "12"]
    assert complete(box, "nightshift", "show", "3") == [*map(str, range(39, 29, -1)), "3"]
    assert len(complete(box, "nightshift", "show", "")) == 50
    assert complete(box, "nightshift", "kill", "") == ["105", "27", "2"]
    assert complete(box, "nightshift", "kill", "2") == ["27", "2"]
    assert [complete(box, "nightshift", "show", odd) for odd in ("0", "200", "9" * 30, "x")] == [[]] * 4


def test_completing_makes_no_state_folder(box):
    assert complete(box, "nightshift", "show", "") == []
    assert not box.home.exists()


def test_rows_that_would_read_the_same_begin_with_what_differs(box):
    command = "python -m training.of.something --lr 1 --seed"
    with box.queue() as queue:
        submit(queue, f"{command} 1", f"{command} 2", "true")
    shown = box.run("ls").stdout
    assert f" --seed 1: {command} 1" in shown
    assert f" --seed 2: {command} 2" in shown
    assert " true" in shown
    assert ": true" not in shown


def test_the_names_that_people_try_work(past):
    assert past.run("status").stdout == past.run("jobs").stdout == past.run("ls").stdout
    assert past.run("status", "1").stdout == past.run("show", "1").stdout
    assert "Job 4 is cancelled" in past.run("stop", "4").stdout
    assert past.run("log", "-n", "1", "3").returncode == 0
