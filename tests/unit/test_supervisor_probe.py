"""What a probe's own end says, in a process of its own: it waits for all children there are."""

import json
import subprocess
import sys

import pytest

from runner.processes.interpreter import ROOT

CODE = f"""
import json, os, sys, time
sys.path.insert(0, {ROOT!r})
from runner.batch import BatchPlan, BatchSettings
from runner.processes import linux as kernel
from runner.rundir import AttemptSpec
from runner.supervisor.gpu_memory import Gauge, MemoryReading
from runner.supervisor.job_processes import Since
from runner.supervisor.supervise import get_ready
from runner.supervisor import probe as trial_module
from runner.supervisor.probe import ProbeLog, Trial

folder, command, patience, *counts = sys.argv[1:]
kernel.host_kills = map(int, counts).__next__
spec = AttemptSpec(argv=("bash", "-c", command), dir=folder, env=dict(os.environ), umask=0o022,
            time_limit_s=None, stop_grace_s=1.0, job_id=1, attempt=1, run_id="0a1b2c3d")
trial = Trial(folder, spec, get_ready("boot"), Since("now", 0.0), ProbeLog(folder + "/probe-1.log"))
if patience:
    trial_module.PATIENCE = float(patience)
probe = BatchPlan.start(BatchSettings(limit_s=3600.0), 24000).step
gauge = Gauge(folder + "/gpus.json", {{"GPU-0": 0}})
if os.path.exists(folder + "/once"):
    readings = [MemoryReading(time.monotonic(), 500.0, 90, False)]
    gauge.read = lambda: readings.pop() if readings else None
trial.measure(probe, gauge)
outcome = trial.outcome(24000)
print(json.dumps([type(outcome).__name__, getattr(outcome, "exit", getattr(outcome, "why", None))]))
"""


def outcome(folder, command, *counts, patience=""):
    words = [sys.executable, "-c", CODE, str(folder), command, patience, *map(str, counts)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("command", "counts", "expected"),
    [
        ("kill -9 $$", (4, 5), ["Failed", "the machine ran out of memory, signal 9"]),
        ("bash -c 'kill -9 $$'; exit 137", (4, 5), ["Failed", "the machine ran out of memory, exit code 137"]),
        ("kill -9 $$", (4, 4), ["Failed", "signal 9"]),
        ("exit 3", (4, 5), ["Failed", "exit code 3"]),
        ("echo CUDA out of memory; kill -9 $$", (4, 5), ["OutOfMemory", None]),
    ],
)
def test_a_kill_for_want_of_host_memory_is_told_from_others(tmp_path, command, counts, expected):
    assert outcome(tmp_path, command, *counts) == expected


def test_one_that_nobody_saw_ends_long_before_its_limit(tmp_path):
    ill = {"uuid": "GPU-0", "index": 0, "health": "lost", "detail": "fell off the bus", "sampled_at": 1}
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": [ill]}))
    said = outcome(tmp_path, "sleep 1000", 0, patience="0.0001")
    assert said == ["Unmeasured", "no reading of its GPU came while it was probed (GPU 0 fell off the bus)"]


def test_what_was_read_before_the_readings_stopped_is_not_believed(tmp_path):
    (tmp_path / "once").touch()
    said = outcome(tmp_path, "sleep 1000", 0, patience="0.0001")
    assert said == ["Unmeasured", "the readings of its GPU stopped while it was probed"]
