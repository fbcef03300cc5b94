"""Jobs as JSON: the keys of `ls --json`."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.model import JobSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from runner.model import Job, Stop

NO_ESTIMATE = dict.fromkeys(("estimated_start", "estimated_start_not_before", "estimated_start_not_after"))


def described(job: Job, waiting_for: str | None, starts: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """Return everything that `ls --json` says about a job."""
    spec = job.spec
    return {
        "id": job.id,
        "name": spec.name,
        "command": spec.command,
        "owner": spec.owner,
        "workspace": spec.workspace,
        "dir": spec.dir,
        "snapshot": spec.snapshot,
        "priority": spec.priority.value,
        "gpus_wanted": spec.gpus,
        "on": list(spec.on),
        "gpu_type": spec.gpu_type,
        "gpu_mem_mib": spec.gpu_mem_mib,
        "cpus": spec.cpus,
        "ram_mib": spec.ram_mib,
        "time_limit_s": spec.time_limit_s,
        "begin_at": spec.begin_at,
        "after_ok": list(spec.after_ok),
        "after": list(spec.after),
        "preemptible": spec.preemptible,
        "group": spec.group,
        "parameters": spec.parameters,
        "again_of": spec.again_of,
        "state": job.state.value,
        "reason": job.reason.value if job.reason else None,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "phase": job.phase.value if job.phase else None,
        "attempt": job.attempt,
        "gpus": list(job.gpus),
        "batch_size": job.batch_size,
        "run_id": job.run_id,
        "submitted_at": clock.text(job.submitted_at),
        "started_at": _text(job.started_at),
        "finished_at": _text(job.finished_at),
        "stop": _stop(job.stop),
        "held_by": job.held_by,
        "waiting_for": waiting_for,
        **(starts or NO_ESTIMATE),
    }


def described_row(row: Any, waiting_for: str | None, starts: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """Return the same from a job's row. Making a Job of each row would take most of the time of a long list."""
    spec = json.loads(row["spec"])
    told = {key: spec.get(name, usual) for key, name, usual in _OF_SPEC}
    stop = {"reason": row["stop_reason"], "by": row["stop_by"], "at": row["stop_at"]} if row["stop_reason"] else None
    return {
        "id": row["id"],
        **told,
        **{name: row[name] for name in ("state", "reason", "exit_code", "signal", "phase", "attempt")},
        "gpus": json.loads(row["gpus"]),
        **{name: row[name] for name in ("batch_size", "run_id", "submitted_at", "started_at", "finished_at")},
        "stop": stop,
        "held_by": row["held_by"],
        "waiting_for": waiting_for,
        **(starts or NO_ESTIMATE),
    }


_USUAL: dict[str, Any] = {
    one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(JobSpec)
}
_OF_SPEC = [
    (key, name, list(_USUAL[name]) if isinstance(_USUAL[name], tuple) else _USUAL[name])
    for key, name in (
        ("name", "name"), ("command", "command"), ("owner", "owner"), ("workspace", "workspace"), ("dir", "dir"),
        ("snapshot", "snapshot"), ("priority", "priority"), ("gpus_wanted", "gpus"), ("on", "on"),
        ("gpu_type", "gpu_type"), ("gpu_mem_mib", "gpu_mem_mib"), ("cpus", "cpus"), ("ram_mib", "ram_mib"),
        ("time_limit_s", "time_limit_s"), ("begin_at", "begin_at"), ("after_ok", "after_ok"), ("after", "after"),
        ("preemptible", "preemptible"), ("group", "group"), ("parameters", "parameters"), ("again_of", "again_of"),
    )
]  # fmt: skip


def _text(moment: datetime | None) -> str | None:
    return clock.text(moment) if moment else None


def _stop(stop: Stop | None) -> dict[str, Any] | None:
    return {"reason": stop.reason.value, "by": stop.by, "at": clock.text(stop.at)} if stop else None
