"""What the doctor finds out, on simulated GPUs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from runner.gpu import load_check, sampler_client
from runner.gpu.load_check import ERROR, OK, WARNING, check
from runner.gpu.sim import state
from tests.fakes.faulty_driver import faulty_command

if TYPE_CHECKING:
    from pathlib import Path

TO_BE_SEEN_S = 2.0  # a load that is looked at every tenth of a second, by a sampler that may have to wait for its turn


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_client, "python_command", faulty_command)


def _check(home: Path, faults: str = "", seconds: float = 0.1) -> list[tuple[str, str]]:
    folder = home / "sim"
    folder.mkdir(exist_ok=True)
    (folder / "faults.conf").write_text(faults)
    return [tuple(finding) for finding in check(str(home), "sim:1x24GiB", seconds=seconds)]  # type: ignore[misc]


def test_a_well_gpu(tmp_path: Path) -> None:
    findings = _check(tmp_path, seconds=TO_BE_SEEN_S)
    assert [level for level, _ in findings] == [OK] * 5
    for (_, sentence), part in zip(
        findings,
        ["simulated: this proves nothing", "rose by 512 MiB", "rose to 90 %", "by their PIDs", "memory was back"],
        strict=True,
    ):
        assert part in sentence


def test_what_cannot_be_seen_is_said(tmp_path: Path) -> None:
    findings = _check(tmp_path, "0 utilization na\n0 processes na\n0 power na\n")
    warnings = " ".join(sentence for level, sentence in findings if level == WARNING)
    for part in ("its utilisation", "who uses it", "its power", "load does not show", "does not list our process"):
        assert part in warnings


def test_memory_that_is_unknown_is_not_called_free_again(tmp_path: Path) -> None:
    """A GPU without memory of its own reports none, neither before the load nor after it."""
    findings = _check(tmp_path, "0 memory na\n0 addressing_mode is 2\n")
    assert not any("memory was back" in sentence for _, sentence in findings)
    assert any(level == WARNING and "memory is free after its end is unknown" in text for level, text in findings)


def test_foreign_pids_are_noticed(tmp_path: Path) -> None:
    findings = _check(tmp_path, "0 processes foreign\n", seconds=TO_BE_SEEN_S)
    assert any("PIDs of another namespace" in sentence for _, sentence in findings)


def test_a_gpu_that_is_not_free_is_left_alone(tmp_path: Path) -> None:
    (_, (level, sentence)) = _check(tmp_path, "0 lost\n")
    assert level == WARNING
    assert "was not tested: lost" in sentence


def test_no_driver_is_the_only_finding(tmp_path: Path) -> None:
    ((level, sentence),) = _check(tmp_path, "all init 9\n")
    assert level == ERROR
    assert "modprobe" in sentence


def test_an_interpreter_without_pytorch_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real load's script runs, and ends where PyTorch is missing."""
    real = [sys.executable, "-c", "import sys; sys.modules['torch'] = None\n" + load_check._TORCH, "1", "1"]
    monkeypatch.setattr(load_check._Trial, "_command", lambda _: real)
    (_, (level, sentence)) = _check(tmp_path)
    assert level == WARNING
    assert "has no PyTorch" in sentence


def test_a_load_that_fails_shows_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('no kernel image is available')"]
    monkeypatch.setattr(load_check._Trial, "_command", lambda _: failing)
    (_, (level, sentence)) = _check(tmp_path)
    assert level == ERROR
    assert sentence.endswith("could not be loaded: no kernel image is available")
    assert state.Claims(state.folder_of(str(tmp_path))).on(0) == []
