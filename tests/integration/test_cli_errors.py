"""What the terminal says to mistakes, and with which exit code."""

import os
import shlex
import subprocess

import pytest

from runner.terminal.cli import main
from tests.jobs import submit

NO_JOB = "There is no job 5."
COMMANDS = (
    *("submit", "ls", "show", "log", "kill", "rerun", "wait", "shell"),
    *("gpus", "pause", "resume", "drain", "ws", "prune"),
    *("up", "down", "runner", "demo", "doctor", "sim-load", "completion"),
)
NO_NUMBER = "is not a job number"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lss"], "did you mean ls?"),
        (["frobnicate"], "There is no command 'frobnicate'."),
        (["--env-file"], "--env-file"),
        (["--env-file", "/no/such/file", "ls"], "/no/such/file"),
        (["--env-file=/no/such/file", "submit", "--", "true"], "/no/such/file"),
        (["show", "5"], NO_JOB),
        (["log", "5"], NO_JOB),
        (["log", "5", "-f"], NO_JOB),
        (["kill", "5"], NO_JOB),
        (["rerun", "5"], NO_JOB),
        (["wait", "5"], NO_JOB),
        (["shell", "5"], NO_JOB),
        (["show", "train"], NO_NUMBER),
        (["show", "0"], NO_NUMBER),
        (["kill", "-1"], "-1"),
        (["log", "9" * 5000], NO_NUMBER),
        (["show"], "Missing argument"),
        (["kill"], "Which jobs?"),
        (["wait"], "Which jobs?"),
        (["wait", "--all", "1"], "not both"),
        (["rerun", "--lr", "1"], "Which jobs?"),
        (["rerun", "1", "--faild"], "Did you mean '--failed'? For the job itself: -- --faild"),
        (["rerun", "train"], NO_NUMBER),
        (["show", "1", "2"], "unexpected extra argument"),
        (["ls", "--limit", "many"], "many"),
        (["ls", "--faild"], "--failed"),
        (["log", "1", "--tail", "-3"], "-3"),
        (["prune"], "NIGHTSHIFT_KEEP_LOGS"),
        (["prune", "--logs"], "--older-than 30d"),
        (["prune", "--older-than", "30"], "has no unit"),
        (["prune", "--disk-limit", "huge"], "is not a size"),
        (["completion", "tcsh"], "tcsh"),
        (["ws", "show", "nope"], "There is no workspace 'nope'"),
        (["ws", "rm", "nope"], "There is no workspace 'nope'"),
        (["ws", "edit", "nope", "--default"], "There is no workspace 'nope'"),
        (["ws", "add", "not a name"], "is not a name"),
        (["ws", "add", "x", "--dir", "/no/such/folder"], "there is no folder '/no/such/folder'"),
        (["ws", "add", "x", "--env", "no-equals"], "KEY=VALUE"),
        (["ws", "add", "x", "--env-file", "/no/such/file"], "/no/such/file"),
        (["ws", "frob"], "There is no command 'frob'."),
        (["sim-load", "--load", "lots"], "lots"),
        (["submit"], "There is no command."),
        (["submit", "--"], "There is no command."),
        (["submit", "--", "  "], "There is no command."),
        (["submit", "--time", "soon", "--", "true"], "--time: 'soon' is not a duration"),
        (["submit", "--time", "5", "--", "true"], "has no unit"),
        (["submit", "-g", "many", "--", "true"], "is not a count"),
        (["submit", "--gpsu", "1", "--", "true"], "did you mean --gpus?"),
        (["submit", "--script", "/no/such/script"], "/no/such/script"),
        (["submit", "--dir", "/no/such/folder", "--", "true"], "/no/such/folder"),
        (["submit", "-w", "nope", "--", "true"], "There is no workspace 'nope'"),
        (["submit", "--", "python train.py &"], "python train.py\n"),
        (["submit", "-"], "no command on standard input"),
    ],
)
def test_what_the_user_can_mend_exits_1_with_a_sentence(box, words, said):
    done = box.run(*words)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.startswith(("nightshift: ", "usage: "))
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"NIGHTSHIFT_GPUS": "977"}, "NIGHTSHIFT_GPUS"),
        ({"NIGHTSHIFT_STOP_GRACE": "soon"}, "NIGHTSHIFT_STOP_GRACE=soon"),
        ({"NIGHTSHIFT_GPUS": "sim:0x24GiB"}, "sim:0x24GiB"),
    ],
)
def test_what_the_operator_must_mend_exits_2_with_the_way_out(box, settings, said):
    done = box.run("runner", env=settings)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_folder_others_can_read_is_refused_by_every_command(box):
    box.home.mkdir()
    os.chmod(box.home, 0o755)
    for words in (["ls"], ["submit", "--", "true"], ["up", "--detach"], ["pause"]):
        done = box.run(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"chmod 700 {box.home}" in done.stderr


def test_help_alone_and_with_a_command_is_no_mistake(box, capsys):
    alone = box.run()
    assert alone.returncode == 0
    assert box.run("--help").stdout == alone.stdout
    listed = [line.split()[0] for line in alone.stdout.splitlines() if line.startswith("  ")]
    for name in COMMANDS:
        assert name in listed
        assert main([name, "--help"]) == 0
        assert f"nightshift {name}" in capsys.readouterr().out
    assert box.run("ws").stdout == box.run("ws", "-h").stdout != ""
    assert not box.home.exists()


def test_the_version_is_told(box):
    done = box.run("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "nightshift")
    assert done.stdout.split()[1][0].isdigit()


def test_settings_come_from_the_file_that_is_named(box):
    elsewhere = box.folder / "elsewhere"
    box.homes.append(elsewhere)
    file = box.folder / "settings"
    file.write_text(f"NIGHTSHIFT_HOME={elsewhere}\n")
    del box.environ["NIGHTSHIFT_HOME"]
    done = box.run("--env-file", "settings", "submit", "--", "true")
    assert done.returncode == 0
    assert str(elsewhere) in done.stderr
    assert "true" in box.run(f"--env-file={file}", "ls").stdout
    assert box.run("ls", env={"NIGHTSHIFT_HOME": str(box.home)}).stdout.startswith("There are no jobs")


def test_a_reader_that_has_seen_enough_is_no_error(box):
    with box.queue() as queue:
        submit(queue, *["echo " + "x" * 200] * 2000)
    words = " ".join(box.command("ls", "--queued"))
    script = f"{words} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env=box.environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_a_folder_that_was_removed_is_named_as_such(box):
    words = shlex.join(box.command("submit", "--", "true"))
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {words}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=box.folder, env=box.environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "removed" in done.stderr
