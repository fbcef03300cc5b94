"""Checks of Slurm: its commands, the controller, and the shared folder, also as the nodes see it."""

from __future__ import annotations

import os
import shlex
import sys
import time
from typing import TYPE_CHECKING

from runner.engines.slurm import commands, shared_folder
from runner.engines.slurm.engine import refuse_unsuitable
from runner.errors import NightshiftError
from runner.processes.interpreter import ROOT
from runner.terminal.checks import OK, WARN, Finding, Problem, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.config.settings import Settings

SKEW_S = 5.0
SLOW_S = 1.0
ON_A_NODE_S = 60


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield everything that Slurm as an engine needs."""
    for examined in (suitable, controller, shared, from_a_node):
        yield from examined(settings)


@check("Slurm")
def suitable(settings: Settings) -> str:
    """Check settings, account and commands."""
    try:
        refuse_unsuitable(settings)
    except NightshiftError as error:
        raise Problem(str(error)) from error
    return "the commands are here, and this is an ordinary account"


@check("Slurm")
def controller(settings: Settings) -> Iterator[Finding]:
    """Check that the controller answers, and which GPUs it offers."""
    try:
        version, nodes = commands.call("sinfo", "--version").strip(), commands.nodes()
    except NightshiftError as error:
        raise Problem(f"the controller does not answer: {error}", "try `sinfo`; ask the cluster's admins") from error
    usable = [node for node in nodes if node.usable]
    gpus = sum(count for node in usable for _, count in node.gpus)
    yield Finding(OK, "Slurm", f"{version}: {len(usable)} of {len(nodes)} nodes, {gpus} GPUs")
    partition = settings.slurm_partition
    if partition and not any(partition in node.partitions for node in nodes):
        raise Problem(f"no node is in partition {partition}", "correct NIGHTSHIFT_SLURM_PARTITION; `sinfo` lists them")
    if not gpus:
        yield Finding(WARN, "Slurm", "it offers no GPUs (no gres named gpu)", "only jobs with --gpus 0 can run")


@check("shared folder")
def shared(settings: Settings) -> str:
    """Check that files can be created once and renamed in the shared folder."""
    folder = str(settings.shared)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        took_s = shared_folder.check(folder)
    except OSError as error:
        fix = "set NIGHTSHIFT_SHARED to a folder on the cluster's file system that you may write to"
        raise Problem(f"{folder}: {error.strerror or error}", fix) from error
    if took_s > SLOW_S:
        raise Problem(f"{folder} is slow: one record took {took_s:.1f} s", level=WARN)
    return f"{folder}: files can be created once and renamed"


@check("a node")
def from_a_node(settings: Settings) -> str:
    """Run a small job: a node must see the shared folder and this Python, and know the time."""
    path = os.path.join(str(settings.shared), f".node-{os.getpid()}")
    program = f"import sys, time; sys.path[0] = {ROOT!r}; import runner.rundir; print(time.time())"
    script = f"#!/bin/sh\n{shlex.join([sys.executable, '-E', '-c', program])} > {shlex.quote(path)} 2>&1\n"
    flags = [word for name, flag in (("partition", "-p"), ("account", "-A"), ("qos", "-q"), ("constraint", "-C"))
             if (value := getattr(settings, f"slurm_{name}")) for word in (flag, value)]  # fmt: skip
    name = f"nightshift-doctor-{os.getpid()}"
    try:
        commands.submit([f"--job-name={name}", "--time=1", "--output=/dev/null", "--chdir=/", *flags], script)
        seen = _wait_for(path)
    except NightshiftError as error:
        raise Problem(f"a small job was refused: {error}", "correct the settings NIGHTSHIFT_SLURM_…") from error
    finally:
        if not os.path.exists(path):
            commands.cancel(name)
    if seen is None:
        return f"none was free within {ON_A_NODE_S} s to look at the shared folder"
    os.unlink(path)
    text, skew_s = seen
    if skew_s is None:
        raise Problem(f"it cannot run nightshift: {text}", f"{sys.prefix} must be visible on all nodes")
    if skew_s > SKEW_S:
        raise Problem(f"its clock is {skew_s:.0f} s off", "shown times are wrong; ask for NTP", level=WARN)
    return "it sees the shared folder and nightshift, and its clock is right"


def _wait_for(path: str) -> tuple[str, float | None] | None:
    """Return what the node wrote and how far its clock is off; None if it wrote nothing in time."""
    deadline = time.monotonic() + ON_A_NODE_S
    while time.monotonic() < deadline:
        if os.path.exists(path) and os.path.getsize(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read().strip()
            try:
                return text, abs(time.time() - float(text))
            except ValueError:
                return text[-300:], None
        time.sleep(0.2)
    return None
