"""What sbatch gets for an attempt: options and a script."""

from __future__ import annotations

import math
import os
import shlex
from typing import TYPE_CHECKING

from runner.processes.interpreter import python_command
from runner.schedule.room import is_of_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.engines.base import Order
    from runner.engines.slurm.commands import SlurmNode

OUTPUT = "slurm.out"  # what Slurm itself and our own process on the node print
FENCE_S = 300.0  # Slurm's time limit is this much longer than ours, which is exact
WARNED_S = 60  # before its own limit Slurm asks the supervisor to stop the job
FLAGS = {"partition": "-p", "account": "-A", "qos": "-q", "constraint": "-C"}


def options_of(
    order: Order, name: str, folder: str, usual: Mapping[str, str | None], nodes: Sequence[SlurmNode]
) -> list[str]:
    """Return the options of sbatch. `usual`: the operator's partition, account, QOS and constraint."""
    spec, asks = order.spec, order.asks
    options = [
        f"--job-name={name}", f"--comment={order.ref.mark}", "--no-requeue", "--open-mode=append", "--nodes=1",
        "--ntasks=1", f"--signal=B:TERM@{WARNED_S}", f"--output={os.path.join(folder, OUTPUT)}", "--chdir=/",
    ]  # fmt: skip
    if asks is not None and asks.gpus:
        kind = gpu_type(asks.gpu_type, asks.gpus, nodes)
        options.append(f"--gres=gpu:{kind}:{asks.gpus}" if kind else f"--gres=gpu:{asks.gpus}")
    if spec.cpus:
        options.append(f"--cpus-per-task={spec.cpus}")
    if spec.ram_mib:
        options.append(f"--mem={spec.ram_mib}M")
    if spec.time_limit_s is not None:
        options.append(f"--time={math.ceil((spec.time_limit_s + spec.stop_grace_s + FENCE_S) / 60)}")
    chosen = {**{key: value for key, value in usual.items() if value}, **order.options}
    return options + [word for key, flag in FLAGS.items() if key in chosen for word in (flag, chosen[key])]


def gpu_type(wanted: str | None, count: int, nodes: Sequence[SlurmNode]) -> str | None:
    """Return Slurm's name for the type of GPU that a job names in part; None if it names none."""
    if wanted is None:
        return None
    kinds = [kind for node in nodes for kind, number in node.gpus if number >= count and is_of_type(kind, wanted)]
    return kinds[0] if kinds else wanted


def script_of(folder: str, gpus: str) -> str:
    """Return the batch script: our process on the node. `gpus`: the setting NIGHTSHIFT_GPUS."""
    return f"#!/bin/sh\nexec {shlex.join(python_command('runner.engines.slurm.on_node', folder, gpus))}\n"
