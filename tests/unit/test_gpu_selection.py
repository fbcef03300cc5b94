"""Which GPUs are nightshift's."""

from __future__ import annotations

import pytest

from runner.errors import OperatorError
from runner.gpu.inventory import parse_selection, unidentified
from runner.model import Gpu

A, B, C = "GPU-aaaa1111", "GPU-bbbb2222", "GPU-bbbb3333"
GPUS = [Gpu(index=i, uuid=uuid) for i, uuid in enumerate((A, B, C))]


def _chosen(setting: str, visible: str | None = None) -> list[int]:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return [gpu.index for gpu in parse_selection(setting, environ).choose(GPUS)]


@pytest.mark.parametrize(
    ("setting", "visible", "expected"),
    [
        ("auto", None, [0, 1, 2]),
        ("auto", "1", [1]),
        ("auto", f"{C},0", [0, 2]),
        ("auto", "GPU-aa", [0]),
        ("auto", "0,9,1", [0]),
        ("auto", "0,-1,1", [0]),
        ("0,2", "1", [0, 2]),
        (f"{B}, 0", None, [0, 1]),
        ("gpu-bbbb3", None, [2]),
        ("sim:2x24GiB", "1", [0, 1, 2]),
    ],
)
def test_chosen(setting: str, visible: str | None, expected: list[int]) -> None:
    assert _chosen(setting, visible) == expected


@pytest.mark.parametrize(
    ("setting", "visible", "said"),
    [
        ("auto", "", "CUDA_VISIBLE_DEVICES= leaves no GPU"),
        ("auto", "7", "CUDA_VISIBLE_DEVICES=7 leaves no GPU"),
        ("0,3", None, "'3' names no GPU of this box. There are: 0 "),
        ("all", None, "'all' names no GPU"),
        ("GPU-", None, "'GPU-' names no GPU"),
        ("GPU-bbbb", None, "'GPU-bbbb' names more than one GPU"),
        (",", None, "NIGHTSHIFT_GPUS= leaves no GPU"),
    ],
)
def test_nothing_is_guessed(setting: str, visible: str | None, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        _chosen(setting, visible)


def test_a_gpu_that_has_not_told_its_uuid_goes_by_index_only() -> None:
    silent = unidentified(1)
    assert parse_selection("1", {}).allows(silent)
    assert parse_selection("auto", {}).allows(silent)
    assert not parse_selection(B, {}).allows(silent)
    assert not parse_selection("unknown-1", {}).allows(silent)
