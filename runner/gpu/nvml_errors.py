"""For each way NVML can fail, one sentence that says how to fix it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.model import Gpu

SUCCESS = 0
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
UNKNOWN = 999

_WITHOUT = "To go on without them set NIGHTSHIFT_GPUS=none, or NIGHTSHIFT_GPUS=sim:2x24GiB to simulate two."

WRONG_BINDING = (
    "The Python module pynvml is not NVIDIA's own nvidia-ml-py, or is too old: run "
    "`pip uninstall -y pynvml nvidia-ml-py3` and then "
    "`pip install --force-reinstall 'nvidia-ml-py>=12.535.108'`."
)
NO_GPUS = f"The NVIDIA driver is loaded but lists no GPU: see `nvidia-smi -L` and `dmesg`. {_WITHOUT}"
DRIVER_REPLACED = (
    "The NVIDIA driver was upgraded on disk while the old one is still loaded: reboot needed; "
    "running jobs go on, new starts are held."
)

_OPENING = {
    LIBRARY_NOT_FOUND: (
        "The NVIDIA driver library libnvidia-ml.so.1 was not found: install the driver, or start the "
        f"container with its GPUs (--gpus all). {_WITHOUT}"
    ),
    DRIVER_NOT_LOADED: (
        "The NVIDIA kernel driver is not loaded: run `sudo modprobe nvidia`, or reboot after installing it. " + _WITHOUT
    ),
    LIB_RM_VERSION_MISMATCH: (
        "The NVIDIA library and the loaded kernel driver are of different versions, as after an upgrade: reboot needed."
    ),
    NO_PERMISSION: (
        "This user may not talk to the NVIDIA driver: check the permissions of /dev/nvidia*, "
        "often the group `video` or `render`."
    ),
    OPERATING_SYSTEM: (
        "The operating system keeps this process from the NVIDIA driver: check /dev/nvidia* and the "
        "container's device rules."
    ),
    UNKNOWN: (
        "NVML fails with an unknown error. In a container this mostly means that the host ran "
        "`systemctl daemon-reload`: the container must be recreated. On a host, see `dmesg`."
    ),
}

_DEVICE = {
    GPU_IS_LOST: "fell off the bus; a GPU reset or a reboot may bring it back",
    RESET_REQUIRED: "needs a GPU reset or a reboot",
    NO_PERMISSION: "may not be read by this user",
}


class NvmlUnavailableError(OperatorError):
    """NVML does not work at all, for any GPU."""

    def __init__(self, sentence: str, code: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code


def cannot_open(code: int, text: str) -> NvmlUnavailableError:
    """Return the error that says why NVML could not be opened and how to fix it."""
    sentence = _OPENING.get(code, f"NVML could not be opened ({text}): see `nvidia-smi` and `dmesg`.")
    return NvmlUnavailableError(sentence, code)


def all_silent(gpus: Sequence[Gpu]) -> str:
    """Return a sentence for a driver that lists GPUs but can read none of them."""
    which = "a GPU that" if len(gpus) == 1 else f"{len(gpus)} GPUs, none of which can be read: GPU {gpus[0].index}"
    return f"The NVIDIA driver lists {which} {gpus[0].detail}."


def about_device(code: int | None, text: str) -> str:
    """Say what is wrong with one GPU."""
    return _DEVICE.get(code or 0, f"does not answer ({text})")
