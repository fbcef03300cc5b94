"""The file the sampler leaves its newest snapshot in."""

from __future__ import annotations

import json
import math
import stat
import time
from typing import TYPE_CHECKING, Any

import pytest

from runner.api import Queue
from runner.errors import UserError
from runner.gpu.inventory import KnownGpus, Selection
from runner.gpu.published import FILE, publish, read_published
from runner.model import Gpu, GpuHealth, GpuProcess, Snapshot
from runner.processes import linux
from runner.terminal import gpus
from tests.jobs import submit

if TYPE_CHECKING:
    from pathlib import Path


def _snapshot(**changes: Any) -> Snapshot:
    gpu = Gpu(
        index=0,
        uuid="GPU-a",
        memory_used_mib=5,
        processes=(GpuProcess(pid=1, memory_mib=5),),
        sampled_at=time.monotonic() - 30,
    )
    usual: dict[str, Any] = {"at": "2026-01-01T00:00:00.000000+00:00", "boot_id": linux.boot_id(), "simulated": False}
    return Snapshot(**{**usual, "gpus": (gpu,), **changes})


def _publish(home: Path, snapshot: Snapshot) -> None:
    publish(str(home), json.dumps(snapshot.to_json()))


def test_what_was_published_is_read_with_its_age(tmp_path: Path) -> None:
    snapshot = _snapshot()
    _publish(tmp_path, snapshot)
    read = read_published(str(tmp_path))
    assert read is not None
    assert read[0] == snapshot
    assert read[1] == pytest.approx(30, abs=5)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("changes", [{"boot_id": "another"}, {"gpus": ()}])
def test_readings_of_another_boot_are_infinitely_old(tmp_path: Path, changes: dict[str, Any]) -> None:
    _publish(tmp_path, _snapshot(**changes))
    read = read_published(str(tmp_path))
    assert read is not None
    assert read[1] == math.inf


@pytest.mark.parametrize("text", [None, "", "{", "[]", "null", "3", '{"gpus": []}', '{"gpus": [{"index": 0}]}'])
def test_a_missing_or_torn_file_is_no_snapshot(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / FILE).write_text(text)
    assert read_published(str(tmp_path)) is None


def test_a_folder_that_cannot_be_written_does_not_stop_the_sampler(tmp_path: Path) -> None:
    publish(str(tmp_path / "missing"), "{}")
    assert not (tmp_path / "missing").exists()


def test_gpus_of_last_time_are_unknown_until_read(tmp_path: Path) -> None:
    _publish(tmp_path, _snapshot())
    known = KnownGpus.from_last_time(str(tmp_path), simulated=False)
    (gpu,) = known.merged([], "no NVML")
    assert (gpu.uuid, gpu.health, gpu.detail) == ("GPU-a", GpuHealth.UNKNOWN, "no NVML")
    assert (gpu.memory_used_mib, gpu.processes) == (None, None)
    assert list(known.by_index()) == [0]


def test_gpus_of_another_boot_have_no_index_and_go_when_not_found(tmp_path: Path) -> None:
    _publish(tmp_path, _snapshot(boot_id="another"))
    known = KnownGpus.from_last_time(str(tmp_path), simulated=False)
    assert known.by_index() == {}
    assert [gpu.sampled_at for gpu in known.merged([], "no NVML")] == [0.0]
    known.forget_others(Selection(None))
    assert known.merged([], "no NVML") == ()


def test_real_gpus_of_last_time_are_none_of_the_simulated(tmp_path: Path) -> None:
    _publish(tmp_path, _snapshot())
    assert KnownGpus.from_last_time(str(tmp_path), simulated=True).merged([], "") == ()


def test_where_no_gpu_is_listed_the_drivers_word_is_what_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    says = "The NVIDIA driver lists 2 GPUs, none of which can be read: GPU 0 does not answer (Unknown Error)."
    monkeypatch.setattr("runner.processes.process_lock.runner_is_up", lambda _: True)
    with Queue(str(tmp_path), actor="somebody") as queue:
        _publish(tmp_path, _snapshot(gpus=(), trouble=says))
        (job_id,) = submit(queue, "true", gpus=1)  # they may come back
        assert queue.reasons.of([queue.job(job_id)]) == {job_id: says}
        assert gpus.why_none(queue) == f"No GPU can be read. {says}"
        _publish(tmp_path, _snapshot(gpus=()))
        assert "NIGHTSHIFT_GPUS=none" in gpus.why_none(queue)
        with pytest.raises(UserError, match="This box has no GPUs"):
            submit(queue, "true", gpus=1)
