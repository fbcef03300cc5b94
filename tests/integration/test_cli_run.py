"""Jobs from the terminal to their end: submit, log, kill, wait, rerun, shell, gpus."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from datetime import datetime

import pytest

from tests.box import a_box
from tests.terminal import Terminal
from tests.wait import eventually


@pytest.fixture(scope="module")
def up():
    """A box with a runner, shared by the tests here: each looks at its own jobs only."""
    with a_box() as box:
        box.start_runner(stop_grace="2s", breaker="0", cpu_slots="8")
        yield box


def submitted(done):
    assert done.returncode == 0, done.stderr
    return int(re.search(r"Submitted job (\d+)", done.stdout)[1])


def raw_log(box, job_id, *words):
    command = box.command("log", str(job_id), *words)
    return subprocess.run(command, env=box.environ, capture_output=True, check=True).stdout


@contextlib.contextmanager
def begun(box, *words, **env):
    """A command that is still at it."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(box.command(*words), env={**box.environ, **env}, text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def held(box):
    """A job that ends when it is let go."""
    gate = box.folder / f"gate{time.monotonic_ns()}"
    job_id = box.submit(f"echo began; until [ -e {gate} ]; do sleep 0.02; done; echo ended", "--gpus", "0")
    box.wait_state(job_id, "RUNNING")
    try:
        yield job_id, gate
    finally:
        gate.touch()


# -- submit --------------------------------------------------------------------------------------------


def test_the_code_and_the_output_of_a_job(up):
    job_id = submitted(up.run("submit", "-g", "0", "--", "echo hi; echo oh >&2; exit 3"))
    assert up.run("wait", str(job_id)).returncode == 3
    told = json.loads(up.run("show", str(job_id), "--json").stdout)
    assert (told["state"], told["reason"], told["exit_code"], told["attempt"]) == ("FAILED", "EXIT", 3, 1)
    assert up.run("log", str(job_id)).stdout == "hi\noh\n"
    assert "failed, exit 3" in up.run("show", str(job_id)).stdout
    assert re.search(rf"^ *{job_id}  failed, exit 3", up.run("ls", "--failed").stdout, re.MULTILINE)


def test_waiting_at_once_gives_the_code_too(up):
    assert up.run("submit", "-g0", "--wait", "--", "exit 5").returncode == 5
    assert up.run("submit", "-g0", "--wait", "--", "true").returncode == 0


def test_an_argument_list_arrives_exactly(up):
    words = ["a b", "it's", '"', "", "new\nline", "$HOME", "*", "back\\slash", "-x", "é"]
    show = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
    job_id = submitted(up.run("submit", "-g0", "--", *show, *words))
    up.wait_state(job_id, "SUCCEEDED")
    assert json.loads(up.log(job_id)) == words


def test_shell_text_may_have_many_lines(up):
    job_id = submitted(up.run("submit", "-g0", "--", "for i in 1 2\ndo\n  echo $i\ndone\ncat <<'X'\na  b\nX\n"))
    up.wait_state(job_id, "SUCCEEDED")
    assert up.log(job_id) == "1\n2\na  b\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"#!{sys.executable}\nimport sys\nprint('python', sys.argv[1:])\n", "python []\n"),
        ("echo $((6*7))\n[[ a == a ]] && echo bash\n", "42\nbash\n"),
    ],
)
def test_a_script_is_run_by_what_it_names(up, text, said):
    script = up.folder / "script"
    script.write_text(text)
    job_id = submitted(up.run("submit", "-g0", "--script", "script"))
    script.unlink()
    up.wait_state(job_id, "SUCCEEDED")
    assert up.log(job_id) == said


def test_lines_are_queued_while_the_pipe_is_still_open(up):
    with begun(up, "submit", "-g0", "-") as following:
        for number in (1, 2):
            following.stdin.write(f"echo line {number}\n# a comment\n\n")
            following.stdin.flush()
            job_id = int(re.search(r"\d+", following.stdout.readline())[0])
            up.wait_state(job_id, "SUCCEEDED")
            assert up.log(job_id) == f"line {number}\n"
        following.stdin.write("exit 4")
        following.stdin.close()
        assert re.search(r"\d+", following.stdout.readline())
        assert following.wait(60) == 0


def test_one_bad_line_keeps_none_of_the_others_back(up):
    done = up.run("submit", "-g0", "-", input="echo a\nsleep 9 &\necho b\n")
    assert done.returncode == 1
    assert len(re.findall("Submitted", done.stdout)) == 2
    assert "not queued: sleep 9 &" in done.stderr


def test_what_never_fits_is_refused_at_once(up):
    for words, said in ((["-g", "3"], "has 2 GPUs"), (["--on", "7"], "There is no GPU 7")):
        done = up.run("submit", *words, "--", "true")
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr


def test_a_job_has_its_submitters_folder_and_environment(up):
    project = up.folder / "project"
    project.mkdir()
    (project / "runner.py").write_text("raise SystemExit('this is the users own runner.py')")
    mine = {
        "PYTHONPATH": ".",
        "MY_FLAG": "a b",
        "VIRTUAL_ENV": "/their/venv",
        "PATH": f"/their/bin:{os.environ['PATH']}",
    }
    done = up.run("submit", "-g0", "--", "pwd; echo $MY_FLAG; echo $PYTHONPATH; echo $PATH", cwd=project, env=mine)
    job_id = submitted(done)
    up.wait_state(job_id, "SUCCEEDED")
    folder, flag, pythonpath, path = up.log(job_id).splitlines()
    assert (folder, flag, pythonpath) == (str(project), "a b", ".")
    assert path.startswith("/their/bin:")
    for words in (["ls"], ["gpus"], ["show", str(job_id)], ["doctor"]):
        done = up.run(*words, cwd=project, env=mine)
        assert done.returncode == 0, done.stderr
    again = submitted(up.run("submit", "-g0", "--", "python3 runner.py", cwd=project, env=mine))
    up.wait_state(again, "FAILED")
    assert "the users own runner.py" in up.log(again)


def test_a_job_may_queue_the_next_one(up):
    job_id = submitted(up.run("submit", "-g0", "--", "nightshift submit -g0 --name child -- echo child"))
    up.wait_state(job_id, "SUCCEEDED")
    child = int(re.search(r"\d+", up.log(job_id))[0])
    assert up.wait_state(child, "SUCCEEDED")["name"] == "child"


# -- log -----------------------------------------------------------------------------------------------


def test_output_is_given_byte_for_byte(up):
    job_id = up.submit(r"printf '\000\377\r\n\033[0m no newline'", "--gpus", "0")
    up.wait_state(job_id, "SUCCEEDED")
    assert raw_log(up, job_id) == b"\0\xff\r\n\033[0m no newline"


def test_the_last_lines_and_their_times(up):
    job_id = up.submit("seq 5; printf 'last'", "--gpus", "0")
    up.wait_state(job_id, "SUCCEEDED")
    assert raw_log(up, job_id, "--tail", "2") == b"5\nlast"
    assert raw_log(up, job_id, "--tail", "0") == b""
    assert raw_log(up, job_id, "--tail", "99") == raw_log(up, job_id) == b"1\n2\n3\n4\n5\nlast"
    stamped = raw_log(up, job_id, "--times").decode().splitlines()
    assert [line.partition(" ")[2] for line in stamped] == ["1", "2", "3", "4", "5", "last"]
    assert all(datetime.fromisoformat(line.split()[0]).tzinfo for line in stamped)
    assert raw_log(up, job_id, "--times", "--tail", "2").decode().splitlines() == stamped[-2:]


@pytest.mark.parametrize("options", [(), ("--times",), ("--tail", "1")])
def test_a_log_is_followed_to_the_end_of_the_job(up, options):
    with held(up) as (job_id, gate), begun(up, "log", "-f", str(job_id), *options) as following:
        assert following.stdout.readline().endswith("began\n")
        assert following.poll() is None
        gate.touch()
        assert following.stdout.readline().endswith("ended\n")
        assert following.wait(60) == 0


def test_following_waits_for_a_job_that_has_not_started(up):
    up.run("pause")
    job_id = up.submit("echo here", "--gpus", "0")
    with begun(up, "log", "-f", str(job_id)) as following:
        assert "has not started yet: the queue is paused" in following.stderr.readline()
        up.run("resume")
        assert following.communicate(timeout=60)[0] == "here\n"
    assert following.returncode == 0


def test_why_there_is_no_output(up):
    job_id = up.submit(argv=["no-such-program"])
    up.wait_state(job_id, "FAILED")
    assert "could not be started" in up.run("log", str(job_id)).stderr
    assert "Why          command not found" in up.run("show", str(job_id)).stdout


# -- kill, rerun, wait ---------------------------------------------------------------------------------


def test_a_running_job_is_killed_and_waited_for(up):
    job_id = up.submit("trap '' TERM; echo ready; sleep 60 & wait; sleep 60", "--gpus", "0", "--grace", "0s")
    eventually(lambda: up.log(job_id))
    done = up.run("kill", "--wait", str(job_id))
    assert (done.returncode, done.stdout) == (0, f"Job {job_id} is being stopped.\n")
    job = up.job(job_id)
    assert (job["state"], job["reason"]) == ("CANCELLED", "USER")
    assert up.run("wait", str(job_id)).returncode == 128 + 9


def test_killing_asks_on_a_terminal_only(up):
    with held(up) as (job_id, _):
        for answer, code in ((b"n\n", 1), (b"\n", 1)):
            terminal = Terminal(up, "kill", str(job_id))
            terminal.until(b"Stop this job? [y/N]")
            terminal.type(answer)
            assert terminal.code() == code
            assert up.job(job_id)["stop"] is None
        terminal = Terminal(up, "kill", str(job_id))
        terminal.until(b"[y/N]")
        terminal.type(b"y\n")
        assert terminal.code() == 0
        up.wait_state(job_id, "CANCELLED")


def test_saying_yes_beforehand_is_not_asked_again(up):
    with held(up) as (job_id, _):
        terminal = Terminal(up, "kill", "--yes", str(job_id))
        assert terminal.code() == 0
        assert b"y/N" not in terminal.seen
        up.wait_state(job_id, "CANCELLED")


def test_tables_fit_the_terminal(up):
    job_id = up.submit(f"echo {'long ' * 100}", "--gpus", "0")
    up.wait_state(job_id, "SUCCEEDED")
    terminal = Terminal(up, "ls", COLUMNS="60", NO_COLOR="1")
    assert terminal.code() == 0
    lines = terminal.seen.decode().splitlines()
    assert max(map(len, lines)) <= 60
    assert any(line.endswith("…") for line in lines)


def test_the_same_again_under_a_new_number(up):
    job_id = up.submit("echo $NIGHTSHIFT_RUN_ID", "--gpus", "0", "--name", "again")
    first = up.wait_state(job_id, "SUCCEEDED")
    done = up.run("rerun", str(job_id))
    second = up.wait_state(submitted(done), "SUCCEEDED")
    assert (second["name"], second["command"]) == (first["name"], first["command"])
    assert second["run_id"] != first["run_id"]
    assert up.log(second["id"]) == second["run_id"] + "\n"
    both = up.run("rerun", "--json", str(job_id), "99999", str(job_id))
    assert both.returncode == 1
    assert len(json.loads(both.stdout)["ids"]) == 2


def test_waiting_for_several_gives_the_first_code_that_is_not_0(up):
    ids = [str(up.submit(command, "--gpus", "0")) for command in ("true", "sleep 0.3; exit 4", "exit 5")]
    done = up.run("wait", *ids)
    assert done.returncode == 4
    assert done.stdout.splitlines()[0] == f"Job {ids[0]}: succeeded"
    assert up.run("wait", "--all").returncode == 0


# -- shell ---------------------------------------------------------------------------------------------


def test_a_shell_is_where_the_job_is(up):
    project = up.folder / "at work"
    project.mkdir(exist_ok=True)
    job_id = up.submit("umask; sleep 60", "--dir", str(project), "--env", "LR=0.1", "--on", "1")
    job = up.wait_state(job_id, "RUNNING")
    done = up.run("shell", str(job_id), "--", "pwd; env; exit 7")
    assert done.returncode == 7
    folder, *variables = done.stdout.splitlines()
    said = dict(line.split("=", 1) for line in variables if "=" in line)
    assert folder == str(project)
    assert [said["CUDA_VISIBLE_DEVICES"]] == job["gpus"]
    assert (said["LR"], said["NIGHTSHIFT_JOB_ID"], said["CUDA_DEVICE_ORDER"]) == ("0.1", str(job_id), "PCI_BUS_ID")
    assert "NIGHTSHIFT_ATTEMPT" not in said
    assert "GPU 1" in done.stderr
    assert up.run("shell", str(job_id), "--", "printf", "%s|", "a b", "$HOME").stdout == "a b|$HOME|"
    up.run("kill", "--wait", str(job_id))
    done = up.run("shell", str(job_id), "echo $CUDA_VISIBLE_DEVICES")
    assert done.stdout.split() == job["gpus"]
    assert "cancelled" in done.stderr


def test_a_guest_in_a_job_is_not_swept_with_it(up):
    with held(up) as (job_id, gate):
        with begun(up, "shell", str(job_id), "--", "cat") as guest:
            guest.stdin.write("still ")
            guest.stdin.flush()
            gate.touch()
            up.wait_state(job_id, "SUCCEEDED")
            assert guest.communicate("here", timeout=60)[0] == "still here"
        assert guest.returncode == 0


def test_a_person_at_a_shell_leaves_it_with_its_code(up):
    job_id = up.submit("true", "--gpus", "0")
    up.wait_state(job_id, "SUCCEEDED")
    terminal = Terminal(up, "shell", str(job_id), SHELL="/bin/bash", PS1="> ")
    terminal.until(b"no GPU")
    terminal.type(b"echo job=$NIGHTSHIFT_JOB_ID; exit 4\n")
    assert terminal.code() == 4
    assert f"job={job_id}".encode() in terminal.seen


def test_a_shell_for_a_job_that_waits_or_whose_folder_is_gone(up):
    up.run("pause")
    gone = up.folder / "gone"
    gone.mkdir()
    job_id = up.submit("true", "--dir", str(gone))
    done = up.run("shell", str(job_id), "--", "echo [$CUDA_VISIBLE_DEVICES]")
    assert (done.returncode, done.stdout) == (0, "[]\n")
    gone.rmdir()
    done = up.run("shell", str(job_id))
    assert (done.returncode, "Cannot enter" in done.stderr) == (1, True)
    up.run("kill", str(job_id))
    up.run("resume")


# -- gpus, drain ---------------------------------------------------------------------------------------


def test_gpus_tell_who_has_them(up):
    job_id = up.submit("nightshift sim-load --memory 6G --load 80", "--on", "0")
    up.wait_state(job_id, "RUNNING")

    def loaded():
        found = json.loads(up.run("gpus", "--json").stdout)
        return found if found[0]["memory_used_mib"] else None

    first, second = eventually(loaded)
    wanted = "index uuid name memory_total_mib memory_used_mib utilization temperature_c power_w state jobs node"
    assert set(first) >= set(wanted.split())
    assert (first["state"], first["jobs"], second["state"], second["jobs"]) == ("busy", [job_id], "free", [])
    assert 6 * 1024 <= first["memory_used_mib"] <= 7 * 1024
    shown = up.run("gpus").stdout
    assert re.search(rf"^0 +Simulated 24GiB +busy .*#{job_id}$", shown, re.MULTILINE)
    assert "simulated" in shown.splitlines()[-1]
    up.run("kill", "--wait", str(job_id))


def test_a_gpu_that_others_use_is_taken(up):
    free = {gpu["index"]: gpu for gpu in json.loads(up.run("gpus", "--json").stdout)}[1]
    with begun(up, "sim-load", "--memory", "12G", "--load", "90", CUDA_VISIBLE_DEVICES=free["uuid"]):
        taken = eventually(lambda: [g for g in json.loads(up.run("gpus", "--json").stdout) if g["state"] == "taken"])
        assert (taken[0]["index"], taken[0]["jobs"]) == (1, [])
        assert "% utilisation by pid" in taken[0]["detail"]
        job_id = up.submit("true", "--on", "1")
        waits = json.loads(up.run("show", str(job_id), "--json").stdout)["waiting_for"]
        assert "0 free; GPU 1 busy" in waits
    up.wait_state(job_id, "SUCCEEDED")


def test_draining_waits_for_what_runs(up):
    with held(up) as (job_id, gate):
        with begun(up, "drain", "--wait") as draining:
            assert f"1 job running (#{job_id})" in draining.stdout.readline()
            late = up.submit("true", "--gpus", "0")
            gate.touch()
            assert draining.communicate(timeout=60)[0] == "Drained: nothing runs.\n"
        assert up.job(job_id)["state"] == "SUCCEEDED"
        assert "draining" in up.job(late)["waiting_for"]
        up.run("resume")
        up.wait_state(late, "SUCCEEDED")


# -- a log outlives what writes and reads it -----------------------------------------------------------


def test_following_goes_on_into_the_next_attempt(up):
    job_id = up.submit("echo try; exec sleep 60", "--gpus", "0", "--retries", "1")
    with begun(up, "log", "-f", str(job_id)) as following:
        assert following.stdout.readline() == "try\n"
        record = up.home / "runs" / str(job_id) / "1" / "started.json"
        os.kill(json.loads(record.read_text())["pid"], 9)
        assert following.stdout.readline() == "try\n"
        assert up.run("log", str(job_id), "--attempt", "1").stdout == "try\n"
        up.run("kill", "--wait", str(job_id))
        assert following.wait(60) == 0
        assert f"attempt 2 of job {job_id}" in following.stderr.read()
    shown = up.run("show", str(job_id)).stdout
    assert "Attempt 1    lost, supervisor killed" in shown
    assert "queued again: retry 1 of 1" in shown


def test_a_log_ends_with_its_job_even_if_no_runner_is_up(box):
    box.start_runner()
    with held(box) as (job_id, gate):
        box.stop_runner()
        with begun(box, "log", "-f", str(job_id)) as following:
            assert following.stdout.readline() == "began\n"
            gate.touch()
            assert following.stdout.readline() == "ended\n"
            assert following.wait(60) == 0
            assert "when a runner is up" in following.stderr.read()
    assert box.run("gpus").stdout.splitlines()[-1].startswith("No runner is up")
    done = box.run("kill", str(job_id))
    assert "no runner is up" in done.stderr
