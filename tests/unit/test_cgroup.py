"""Control groups of jobs, on a folder that stands for a delegated part of the hierarchy.

A supervisor is run in a process of its own. The kernel's part is played by the folder: what is written is looked at.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.processes.interpreter import ROOT
from runner.supervisor import cgroup

CODE = f"""
import json, os, shutil, sys
sys.path.insert(0, {ROOT!r})
from pathlib import Path
from runner.supervisor import cgroup; from runner.processes import linux as kernel
from runner.rundir import AttemptSpec
from runner.supervisor.job_processes import Execution
from runner.supervisor.supervise import get_ready

folder, unit, command, events, delegated = sys.argv[1:]
kernel.host_kills = lambda: 0
seen = {{}}

def make(path, exist_ok):  # as the kernel does: a new group has its files
    os.mkdir(path)
    for name in ("cgroup.procs", "cpu.max", "memory.max", "memory.swap.max", "memory.oom.group"):
        Path(path, name).touch()
    Path(path, "cgroup.controllers").write_text("cpu memory")
    Path(path, "memory.events").write_text(events)

def remove(path):
    seen.update({{file.name: file.read_text() for file in Path(path).iterdir()}}, group=os.path.basename(path))
    shutil.rmtree(path)

class Os:
    def __getattr__(self, name):
        return getattr(os, name)
fake = Os()
fake.makedirs, fake.rmdir, fake.getxattr = make, remove, lambda *_: delegated.encode()
cgroup.os = fake
kernel.CGROUPS, kernel.cgroup_of = os.path.dirname(unit), lambda pid: f"/{{os.path.basename(unit)}}/nightshift"
spec = AttemptSpec(argv=("bash", "-c", command), dir=folder if command else "/no/such/folder", env=dict(os.environ),
            umask=0o022, job_id=7, attempt=2, run_id="abcd1234", time_limit_s=None, stop_grace_s=1.0,
            log_limit_bytes=1 << 20, log_tail_bytes=1 << 20, cpus=4, ram_mib=32 * 1024)
job = Execution(folder, spec, get_ready("boot"))
job.start()
job.watch()
print(json.dumps([job.exit().to_json(), seen]))
"""


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """What systemd gives a service with Delegate=yes and DelegateSubgroup=nightshift."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    folder = tmp_path / "unit"
    (folder / "nightshift").mkdir(parents=True)
    (folder / "cgroup.controllers").write_text("cpu memory pids")
    for name in ("cgroup.procs", "cgroup.subtree_control", "nightshift/cgroup.procs"):
        (folder / name).touch()
    return folder


def run(tmp_path: Path, unit: Path, command: str = "true", kills: int = 0, delegated: str = "1"):
    events = f"low 0\nhigh 0\nmax 3\noom 1\noom_kill {kills}\noom_group_kill 1\n"
    words = [sys.executable, "-c", CODE, str(tmp_path), str(unit), command, events, delegated]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    return json.loads(done.stdout)


def test_a_job_is_started_in_a_group_with_its_limits_which_goes_with_it(tmp_path, unit):
    record, seen = run(tmp_path, unit)
    assert (record["exit_code"], record["enforced"], record["host_kills"]) == (0, ["cpu", "memory"], 0)
    assert (seen["cpu.max"], seen["memory.max"]) == ("400000 100000", str(32 << 30))
    assert (seen["memory.swap.max"], seen["memory.oom.group"], seen["group"]) == ("0", "1", "job-7.2.abcd1234")
    assert seen["cgroup.procs"] == "0"  # its supervisor went in to start it
    assert (unit / "nightshift/cgroup.procs").read_text() == "0"  # and back
    assert (unit / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert not (unit / "job-7.2.abcd1234").exists()


def test_the_group_tells_whether_memory_was_what_it_died_of(tmp_path, unit):
    assert run(tmp_path, unit, "kill -9 $$", kills=3)[0]["host_kills"] == 3
    assert run(tmp_path, unit, "exit 1", kills=1)[0]["host_kills"] == 1  # a worker was killed, and the rest gave up
    assert run(tmp_path, unit, "kill -9 $$", kills=0)[0]["host_kills"] == 0


def test_what_cannot_be_executed_leaves_no_group(tmp_path, unit):
    record, seen = run(tmp_path, unit, "")
    assert "No such file" in record["spawn_error"]
    assert seen["cgroup.procs"] == (unit / "nightshift/cgroup.procs").read_text() == "0"
    assert sorted(os.listdir(unit)) == [
        "cgroup.controllers", "cgroup.procs", "cgroup.subtree_control", "nightshift"
    ]  # fmt: skip


@pytest.mark.parametrize("lacking", ["delegation", "hierarchy", "controllers", "emptiness", "limits"])
def test_whatever_is_missing_the_job_runs(tmp_path, unit, lacking):
    if lacking == "hierarchy":
        (tmp_path / "cgroup.controllers").unlink()
    elif lacking == "controllers":
        (unit / "cgroup.controllers").write_text("pids")
    elif lacking == "emptiness":
        (unit / "cgroup.procs").write_text("4711\n")
    elif lacking == "limits":
        (unit / "cgroup.subtree_control").unlink()
    record, seen = run(tmp_path, unit, "exit 3", delegated="" if lacking == "delegation" else "1")
    assert (record["exit_code"], record["enforced"], seen) == (3, [], {})


def test_why_nothing_is_enforced(monkeypatch, tmp_path, unit):
    monkeypatch.setattr("runner.processes.linux.CGROUPS", str(tmp_path))
    monkeypatch.setattr("runner.processes.linux.cgroup_of", lambda _: "/unit/nightshift")
    with pytest.raises(cgroup.NotEnforcedError, match="its control group is not delegated"):
        cgroup.delegated()
    monkeypatch.setattr("os.getxattr", lambda *_: b"1")
    assert cgroup.delegated() == str(unit)
