"""What people do without thinking: close terminals, have a runner.py of their own, start twice."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios

from tests.wait import eventually


def take_terminal():
    """Make standard input the controlling terminal of a session of our own."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_closing_the_terminal_stops_nothing(box, tmp_path):
    """The runner's terminal is closed: SIGHUP to all in it. The job goes on, and a new runner takes it up."""
    master, slave = pty.openpty()
    runner = subprocess.Popen(
        box.command("runner"), env={**box.environ, "NIGHTSHIFT_GPUS": "sim:1x24GiB"}, stdin=slave, stdout=slave,
        stderr=slave, preexec_fn=take_terminal,
    )  # fmt: skip
    os.close(slave)
    job_id = box.submit(f"echo $$; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 6")
    pid = int(eventually(lambda: box.log(job_id).split())[0])
    os.close(master)
    assert runner.wait(60) == 0
    os.kill(pid, 0)
    box.start_runner(gpus="sim:1x24GiB")
    os.kill(pid, 0)
    (tmp_path / "go").touch()
    assert box.wait_state(job_id, "FAILED")["exit_code"] == 6


def test_up_detached_outlives_its_terminal(box):
    box.environ["NIGHTSHIFT_GPUS"] = "sim:1x24GiB"
    assert box.run("up", "--detach").returncode == 0
    assert box.wait_state(box.submit("echo hi"), "SUCCEEDED")
    assert box.run("down").returncode == 0
    eventually(lambda: not box.processes())


def test_a_project_with_a_runner_of_its_own_breaks_nothing(box, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    for name in ("runner.py", "bot.py", "nightshift_helper.py"):
        (project / name).write_text(f"print('imported {name}')\n")
    (project / "train.py").write_text("import runner, nightshift_helper\nprint('trained')\n")
    env = {"PYTHONPATH": "."}
    box.environ["PYTHONPATH"] = str(project)
    box.start_runner()
    done = box.run("submit", "--wait", "--", f"{sys.executable} train.py", env=env, cwd=project)
    assert done.returncode == 0, done.stderr
    assert "imported" not in done.stdout + done.stderr
    assert box.log(1) == "imported runner.py\nimported nightshift_helper.py\ntrained\n"
    listed = box.run("ls", env=env, cwd=project)
    assert listed.returncode == 0
    assert "imported" not in listed.stdout


def test_a_job_uses_a_package_only_its_own_venv_has(box, tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next(venv.glob("lib/python*/site-packages"))
    (site / "only_here.py").write_text("print('found me')\n")
    box.start_runner()
    activated = {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{box.environ['PATH']}"}
    done = box.run("submit", "--wait", "--", "python -c 'import only_here'", env=activated)
    assert done.returncode == 0, box.log(1)
    assert box.log(1) == "found me\n"

    box.run("ws", "add", "mine", "--dir", str(tmp_path), "--activate", f"source {venv}/bin/activate")
    done = box.run("submit", "-w", "mine", "--wait", "--", "pwd; python -c 'import only_here'")
    assert done.returncode == 0, box.log(2)
    assert box.log(2) == f"{tmp_path}\nfound me\n"


def test_nightshifts_own_environment_is_not_the_jobs(box, tmp_path):
    box.start_runner()
    own = {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:/usr/bin:/bin"}
    done = box.run("submit", "--wait", "--", "echo $PATH; echo venv=$VIRTUAL_ENV", env=own)
    assert "not passed on" in done.stderr
    path, venv = box.log(1).splitlines()
    assert sys.prefix not in path
    assert venv == "venv="


def test_submitting_without_a_runner_queues_and_says_so(box):
    done = box.run("submit", "--", "true")
    assert done.returncode == 0
    assert "no runner is up" in done.stderr
    assert str(box.home) in done.stderr
    box.start_runner()
    box.wait_state(1, "SUCCEEDED")


def test_submitting_to_a_held_queue_says_so(box):
    box.start_runner()
    for hold in ("pause", "drain"):
        box.run(hold)
        done = box.run("submit", "--", "true")
        assert done.returncode == 0
        assert "`nightshift resume` goes on" in done.stderr
        box.run("resume")
    assert box.run("submit", "--wait", "--", "true").stderr == "nightshift: job 3: succeeded\n"


def test_a_reader_that_has_seen_enough_disturbs_nobody(box):
    lines = "\n".join("true" for _ in range(50))
    for command in ("ls --json", "gpus --json", "submit --help", "ls"):
        piped = f"{' '.join(box.command())} {command} | true"
        done = subprocess.run(["bash", "-c", piped], env=box.environ, capture_output=True, text=True, check=False)
        assert done.stderr == ""
    slowly = f"(for i in 1 2 3 4 5 6; do echo true; sleep 0.1; done) | {' '.join(box.command())} submit - | head -1"
    subprocess.run(["bash", "-c", slowly], env=box.environ, capture_output=True, text=True, check=False)
    with box.queue() as queue:
        assert len(queue.jobs.find()) == 6
    box.run("submit", "-", input=lines)
    with box.queue() as queue:
        assert len(queue.jobs.find()) == 56


def test_a_state_folder_that_depends_on_where_one_stands_is_refused(box):
    refused = box.run("ls", env={"NIGHTSHIFT_HOME": "relative/state"})
    assert refused.returncode == 2
    assert f"write {box.folder}/relative/state" in refused.stderr


def test_a_full_disk_behind_the_output_is_told(box):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            box.command("ls"), env=box.environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "nightshift: No space left on device\n"


def test_interrupting_submit_wait_leaves_the_job_alone(box, tmp_path):
    box.start_runner()
    waiting = subprocess.Popen(
        box.command("submit", "--wait", "--", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"), env=box.environ,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: box.run("ls", "--json").stdout != "[]\n")
    box.wait_state(1, "RUNNING")
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(60) == 130
    (tmp_path / "go").touch()
    box.wait_state(1, "SUCCEEDED")
