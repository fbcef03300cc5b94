"""Making jobs in tests."""

from __future__ import annotations

import os
from typing import Any

from runner.api import Queue, job_spec
from runner.batch import BatchPlan, BatchSettings
from runner.config.job_environment import captured, fingerprint
from runner.model import Exit, JobSpec
from runner.supervisor.probe_records import ProbeReport

VARIABLES = captured({"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")})
KEY = fingerprint(VARIABLES)


def a_spec(command: str = "true", **values: Any) -> JobSpec:
    argv = values.pop("argv", None)
    script = values.pop("script", False)
    folder = values.pop("folder", "/")
    kind = {"argv": argv, "script": script}
    return job_spec(values, command=command, owner="somebody", folder=folder, environment_key=KEY, umask=0o022, **kind)


def submit(queue: Queue, *commands: str, **values: Any) -> list[int]:
    return queue.submit([a_spec(command, **values) for command in commands], {KEY: VARIABLES})


def an_exit(**changes: Any) -> Exit:
    at = "2026-01-01T00:00:00.000000+00:00"
    return Exit(**{"started_at": at, "finished_at": at, "duration_s": 1.0, "exit_code": 0, **changes})


def a_probe_report(**changes: Any) -> ProbeReport:
    return ProbeReport(**{"plan": BatchPlan.start(BatchSettings(), 24_000), **changes})
