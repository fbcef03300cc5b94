"""Bringing nightshift up and down; workspaces; the doctor."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys

import pytest

from runner.processes.process_lock import KEEPER_LOCK, written_pid
from tests.jobs import submit
from tests.wait import eventually

SIMULATED = {"NIGHTSHIFT_GPUS": "sim:1x24GiB"}


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- up and down ---------------------------------------------------------------------------------------


def test_up_stays_and_down_leaves_jobs_running(box):
    done = box.run("up", "--detach", env=SIMULATED)
    assert done.returncode == 0, done.stderr
    assert "nightshift is up (runner pid" in done.stdout
    job_id = box.submit("sleep 30 & echo $!; wait")
    box.wait_state(job_id, "RUNNING")
    pid = int(eventually(lambda: box.log(job_id)))
    again = box.run("up", "--detach", env=SIMULATED)
    assert (again.returncode, "already up" in again.stdout) == (0, True)
    done = box.run("down")
    assert (done.returncode, done.stdout) == (0, "nightshift is down. 1 job is still running.\n")
    assert alive(pid)
    assert written_pid(box.home, KEEPER_LOCK) not in box.processes()
    assert box.run("up", "--detach", env=SIMULATED).returncode == 0
    assert box.job(job_id)["state"] == "RUNNING"
    box.run("kill", "--wait", str(job_id))
    assert not alive(pid)
    assert box.run("down").stdout == "nightshift is down. No job is running.\n"
    assert box.run("down").stdout == f"Nothing was up for {box.home}.\n"


def test_up_says_why_it_cannot_be(box):
    done = box.run("up", "--detach", env={"NIGHTSHIFT_GPUS": "977"})
    assert done.returncode == 2
    assert "NIGHTSHIFT_GPUS" in done.stderr
    done = box.run("up", env={"NIGHTSHIFT_GPUS": "977"})
    assert done.returncode == 2
    assert "NIGHTSHIFT_GPUS" in done.stderr
    assert box.processes() == {}


def test_a_runner_that_dies_is_started_again(box):
    box.run("up", "--detach", env=SIMULATED)
    first = written_pid(box.home, "runner.lock")
    os.kill(first, signal.SIGKILL)
    job_id = box.submit("true")
    box.wait_state(job_id, "SUCCEEDED")
    assert written_pid(box.home, "runner.lock") != first
    assert "the runner died (signal 9)" in (box.home / "nightshift.log").read_text()
    box.run("down")


def test_a_closed_terminal_stops_nothing_and_the_log_goes_on(box):
    ours, theirs = pty.openpty()
    keeper = subprocess.Popen(
        box.command("up"), env={**box.environ, **SIMULATED}, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    for said in (b"nightshift is up (runner pid", b"up: state in", b"the bot stays off"):  # what is logged is shown
        while said not in shown:
            shown += os.read(ours, 4096)
    runner = written_pid(box.home, "runner.lock")
    os.close(ours)
    os.killpg(keeper.pid, signal.SIGHUP)
    box.wait_state(box.submit("true"), "SUCCEEDED")
    assert keeper.poll() is None
    os.kill(runner, signal.SIGKILL)
    eventually(lambda: written_pid(box.home, "runner.lock") != runner)
    assert "the runner died (signal 9)" in (box.home / "nightshift.log").read_text()
    keeper.terminate()
    assert keeper.wait(60) == 0
    assert not alive(written_pid(box.home, "runner.lock"))


def test_the_settings_file_is_passed_on(box):
    file = box.folder / "settings"
    file.write_text("NIGHTSHIFT_GPUS=sim:3x24GiB\n")
    assert box.run("--env-file", "settings", "up", "--detach").returncode == 0
    assert len(json.loads(box.run("gpus", "--json").stdout)) == 3
    box.run("down")


@pytest.fixture
def taken_port():
    """The page's usual port, in use by somebody else."""
    try:
        server = socket.create_server(("127.0.0.1", 8642))
    except OSError:  # by another test, perhaps
        server = None
    yield
    if server:
        server.close()


def test_the_demo_says_that_its_gpus_are_simulated(box, taken_port):
    del box.environ["NIGHTSHIFT_HOME"]
    home = box.folder / "person" / ".nightshift-demo"
    box.use_home(home)
    environ = {**box.environ, "NIGHTSHIFT_GPUS": "sim:1x24GiB"}
    del environ["NIGHTSHIFT_HOME"]
    demo = subprocess.Popen(
        box.command("demo"),
        env=environ,
        cwd=box.folder / "person",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = []
        while not said or "The chat, in your browser:" not in said[-1]:  # the link comes last
            said.append(demo.stdout.readline())
        assert "SIMULATED" in said[0]
        assert str(home) in said[0]
        [link] = [line.split()[-1] for line in said if "The chat, in your browser:" in line]
        assert link == (home / "page.url").read_text().strip()
        assert link.startswith("http://127.0.0.1:")
        assert ":8642/" not in link  # which was taken
        assert any("nightshift submit" in line for line in said)
        at = said.index("In another terminal:\n")
        typed = "".join(line for line in said[at:] if line.startswith("  "))  # exactly what it tells one to type
        other = {key: value for key, value in box.environ.items() if key != "NIGHTSHIFT_HOME"}
        done = subprocess.run(["bash", "-e", "-c", typed], env=other, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Submitted job 1" in done.stdout
        job_id = box.submit("sleep 30")
        box.wait_state(job_id, "RUNNING")
        assert [(w.name, w.dir, w.default) for w in workspaces(box)] == [("demo", str(box.folder / "person"), True)]
        again = subprocess.run(box.command("demo"), env=environ, capture_output=True, text=True, check=True)
        assert "The demo is already running." in again.stdout
        assert (home / "page.url").read_text().strip() in again.stdout
    finally:
        demo.send_signal(signal.SIGINT)
        said = demo.communicate(timeout=60)[0]
    assert demo.returncode == 0
    assert f"Still running: #{job_id}." in said


def workspaces(box):
    with box.queue() as queue:
        return queue.workspaces.all()


def test_the_demo_says_why_it_cannot_be(box):
    done = box.run("demo", env={"NIGHTSHIFT_GPUS": "977"})
    assert done.returncode == 2
    assert "NIGHTSHIFT_GPUS" in done.stderr
    box.start_runner()
    done = box.run("demo")
    assert done.returncode == 2
    assert "already up" in done.stderr


# -- workspaces ----------------------------------------------------------------------------------------


@pytest.fixture
def project(box):
    """A folder with a virtual environment that alone has a certain module."""
    folder = box.folder / "project"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (site / "only_here.py").write_text("print('imported')")
    secret = folder / ".env"
    secret.write_text("WANDB_API_KEY=hush\n")
    secret.chmod(0o600)
    return folder


def test_a_workspace_is_made_changed_shown_and_forgotten(box, project):
    words = ["--activate", ". venv/bin/activate", "--env", "SEED=hush", "--env-file", ".env"]
    done = box.run("ws", "add", "vision", *words, cwd=project)
    assert (done.returncode, done.stdout) == (0, f"Workspace vision: {project} (default)\n"), done.stderr
    assert box.run("ws", "add", "vision").returncode == 1
    shown = box.run("ws", "show", "vision").stdout
    told = json.loads(box.run("ws", "show", "vision", "--json").stdout)
    assert told["variables"] == ["SEED"]
    assert told["env_file_variables"] == ["WANDB_API_KEY"]
    assert "SEED" in shown
    assert "WANDB_API_KEY" in shown
    assert "hush" not in shown + json.dumps(told) + box.run("ws", "ls").stdout
    assert box.run("ws", "edit", "vision", "--unset", "SEED", "--env-file", "", "--env", "X=1").returncode == 0
    [told] = json.loads(box.run("ws", "ls", "--json").stdout)
    assert (told["variables"], told["env_file"], told["activate"]) == (["X"], None, ". venv/bin/activate")
    assert told["probe"] == {}
    assert box.run("ws", "edit", "vision", "--profile", "nanogpt", "--probe-with", "margin=85%,cap=64").returncode == 0
    assert box.run("ws", "edit", "vision", "--probe-with", "cap=32").returncode == 0
    assert "profile=nanogpt, margin=0.85, cap=32" in box.run("ws", "show", "vision").stdout
    assert "there is no profile 'audio'" in box.run("ws", "edit", "vision", "--profile", "audio").stderr
    job_id = json.loads(box.run("submit", "--json", "-w", "vision", "--probe", "--", "true").stdout)["ids"][0]
    with box.queue() as queue:
        asked = queue.job(job_id).spec.probe
    assert (asked["profile"], asked["batch_arg"]) == ("nanogpt", "--batch_size")
    assert (asked["margin"], asked["cap"]) == (0.85, 32)
    assert box.run("ws", "edit", "vision", "--profile", "", "--probe-with", "").returncode == 0
    assert json.loads(box.run("ws", "show", "vision", "--json").stdout)["probe"] == {}
    assert box.run("ws", "rm", "vision").returncode == 0
    assert json.loads(box.run("ws", "ls", "--json").stdout) == []


def test_a_workspace_that_does_not_work_is_not_kept(box):
    done = box.run("ws", "add", "broken", "--activate", "echo oh no; false")
    assert done.returncode == 1
    assert "oh no" in done.stderr
    assert json.loads(box.run("ws", "ls", "--json").stdout) == []


def test_a_package_only_its_own_environment_has(box, project):
    box.start_runner()
    box.run(
        "ws",
        "add",
        "vision",
        "--dir",
        str(project),
        "--activate",
        ". venv/bin/activate",
        "--env-file",
        ".env",
        cwd=project,
    )
    command = "python -c 'import only_here' && pwd && echo $WANDB_API_KEY"
    done = box.run("submit", "-w", "vision", "--", command)
    assert done.returncode == 0, done.stderr
    box.wait_state(1, "SUCCEEDED")
    assert box.log(1) == f"imported\n{project}\nhush\n"
    activated = {"PATH": f"{project}/venv/bin:{os.environ['PATH']}", "VIRTUAL_ENV": str(project / "venv")}
    box.run("submit", "--", "python", "-c", "import only_here", env=activated)
    box.wait_state(2, "SUCCEEDED")
    box.run("submit", "--", "python3 -c 'import only_here'")
    box.wait_state(3, "FAILED")
    assert "hush" not in (box.home / "runs/1/1/spec.json").read_text()
    assert box.run("shell", "1", "--", "python -c 'import only_here'; echo $WANDB_API_KEY").stdout == "imported\nhush\n"


# -- doctor --------------------------------------------------------------------------------------------


def findings(box, *words, **env):
    done = box.run("doctor", "--json", *words, env={**SIMULATED, **env})
    return done.returncode, {finding["name"]: finding for finding in json.loads(done.stdout)}


def test_a_healthy_box(box):
    box.start_runner(gpus="sim:1x24GiB")
    box.run("pause")
    code, found = findings(box)
    assert code == 0
    assert {name for name, finding in found.items() if finding["level"] == "fail"} == set()
    for name in (
        "python",
        "pidfd",
        "subreaper",
        "inotify",
        "sockets",
        "sqlite",
        "database",
        "journal",
        "its rights",
        "runner",
    ):
        assert found[name]["level"] in ("ok", "warn"), found[name]
    assert "SIMULATED" in found["GPUs"]["text"]
    assert "GPUS=sim:1x24GiB" in found["settings"]["text"]
    assert (found["queue"]["level"], found["queue"]["fix"]) == ("warn", "nightshift resume")
    shown = box.run("doctor", env=SIMULATED)
    assert shown.returncode == 0
    assert "→ nightshift resume" in shown.stdout


def test_a_doctor_works_before_anything_else_does(box):
    long = box.folder / ("deep" * 40) / ("folder" * 10)
    box.use_home(long)
    code, found = findings(box)
    assert code == 0
    assert found["sockets"]["level"] == "ok"
    assert (found["runner"]["level"], found["runner"]["fix"]) == ("warn", "nightshift up --detach")
    assert found["GPUs"]["level"] == "ok"


def test_what_must_be_mended_is_told_with_the_way(box):
    box.home.mkdir(mode=0o755)
    code, found = findings(box)
    assert code == 2
    assert (found["its rights"]["level"], found["its rights"]["fix"]) == ("fail", f"chmod 700 {box.home}")
    box.home.chmod(0o700)
    code, found = findings(box, NIGHTSHIFT_BACKUP_DIR="/dev/null/backup")
    assert (code, found["backup"]["level"]) == (2, "fail")
    code, found = findings(box, NIGHTSHIFT_STOP_GRACE="soon")
    assert (code, found["settings"]["level"]) == (2, "fail")
    assert "NIGHTSHIFT_STOP_GRACE" in found["settings"]["text"]
    code, found = findings(box, NIGHTSHIFT_GPUS="977")
    assert (code, found["GPUs"]["level"]) == (2, "fail")


def test_misspelt_settings_and_hidden_secrets(box):
    code, found = findings(box, NIGHTSHIFT_STOPGRACE="1s", NIGHTSHIFT_TOKEN="123:canary", NIGHTSHIFT_JOB_ID="4")
    assert (code, found["token"]["level"]) == (2, "fail")
    assert found["variables"]["text"] == "NIGHTSHIFT_STOPGRACE is not a setting; did you mean NIGHTSHIFT_STOP_GRACE?"
    assert "canary" not in json.dumps(found)


def test_a_damaged_database_is_told(box):
    with box.queue() as queue:
        submit(queue, *["true"] * 300)
    database = box.home / "nightshift.db"
    body = bytearray(database.read_bytes())
    body[8192:20480] = b"\xff" * 12288
    database.write_bytes(body)
    code, found = findings(box)
    assert (code, found["database"]["level"]) == (2, "fail")


def test_a_gpu_is_watched_under_load(box):
    done = box.run("doctor", "--gpu", env=SIMULATED)
    assert done.returncode == 0
    assert "memory in use rose by 512 MiB under load" in done.stdout
    assert "utilisation rose to 90 %" in done.stdout


def test_a_box_set_up_without_gpus_forgets_those_it_had(box):
    box.start_runner()
    box.stop_runner()
    box.start_runner(gpus="none")
    assert json.loads(box.run("gpus", "--json").stdout) == []
    assert "uses no GPUs" in box.run("gpus").stdout
    done = box.run("submit", "--", "true")
    assert (done.returncode, "--gpus 0" in done.stderr) == (1, True)
    assert box.run("submit", "--gpus", "0", "--wait", "--", "true").returncode == 0


def test_a_runner_that_somebody_started_by_hand_is_not_taken_over(box):
    box.run("up", "--detach", env=SIMULATED)
    box.run("down")
    box.start_runner()
    by_hand = written_pid(box.home, "runner.lock")
    said = box.run("up", "--detach", env=SIMULATED).stdout
    assert "is already up" in said
    assert "It would not be restarted if it died. To change that: nightshift down && nightshift up --detach" in said
    assert written_pid(box.home, "runner.lock") == by_hand
    assert alive(by_hand)
