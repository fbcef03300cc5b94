"""What a supervisor reads of its GPUs from the sampler's file."""

import json
import os
from pathlib import Path

import pytest

from runner.supervisor.gpu_memory import Gauge


@pytest.fixture
def readings(tmp_path):
    return Readings(tmp_path / "gpus.json")


class Readings:
    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0

    def leave(self, *gpus, at=None):
        self.count += 1
        found = [
            {"index": n, "uuid": f"GPU-{n}", "health": "ok", "sampled_at": at or self.count, "utilization": 90, **gpu}
            for n, gpu in enumerate(gpus)
        ]
        self.path.write_text(json.dumps({"gpus": found}))
        os.utime(self.path, ns=(self.count, self.count))


def a_gauge(readings, *base):
    return Gauge(str(readings.path), {f"GPU-{n}": mib for n, mib in enumerate(base)})


def process(mib, pid=None):
    return {"pid": pid or os.getpid(), "memory_mib": mib}


def test_each_reading_is_read_once(readings):
    gauge = a_gauge(readings, 100)
    assert gauge.read() is None
    readings.leave({"memory_used_mib": 600})
    assert gauge.read() == (1, 500.0, 90, False)
    assert gauge.read() is None
    readings.leave({"memory_used_mib": 700}, at=1)
    assert gauge.read() is None


def test_own_processes_are_surer_than_the_device(readings):
    gauge = a_gauge(readings, None)
    readings.leave({"memory_used_mib": 9000, "processes": [process(500), process(7000, pid=1)]})
    assert gauge.read().mib == 500


def test_on_a_shared_gpu_without_own_processes_nothing_is_known(readings):
    gauge = a_gauge(readings, None)
    readings.leave({"memory_used_mib": 9000, "processes": [process(7000, pid=1)]})
    assert gauge.read().mib is None


def test_a_pid_that_is_ours_by_chance_is_given_away_by_its_size(readings):
    gauge = a_gauge(readings, 100)
    readings.leave({"memory_used_mib": 600, "processes": [process(7000)]})
    assert gauge.read().mib == 500


def test_of_several_gpus_the_fullest_counts_and_all_must_answer(readings):
    gauge = a_gauge(readings, 0, 0)
    readings.leave({"memory_used_mib": 600}, {"memory_used_mib": 900, "utilization": None})
    assert gauge.read()[1:] == (900.0, 90, False)
    readings.leave({"memory_used_mib": 600}, {"memory_used_mib": 900, "health": "lost"})
    assert gauge.read() is None
    readings.leave({"memory_used_mib": 60}, {"memory_used_mib": 10})
    assert gauge.read().back


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gpus": 3}', '{"gpus": [{"uuid": "GPU-7"}]}'])
def test_a_file_that_makes_no_sense_is_no_reading(readings, text):
    readings.path.write_text(text)
    assert a_gauge(readings, 0).read() is None
