"""Jobs as JSON: the keys of `ls --json`."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from runner.model import JobSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_ESTIMATE = dict.fromkeys(("estimated_start", "estimated_start_not_before", "estimated_start_not_after"))


def described(row: Any, waiting_for: str | None, starts: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """Return everything that `ls --json` says about a job, from its row. Making a Job of it would take much longer."""
    spec = json.loads(row["spec"])
    stop = {"reason": row["stop_reason"], "by": row["stop_by"], "at": row["stop_at"]} if row["stop_reason"] else None
    return {
        "id": row["id"],
        **{key: spec.get(name, default) for key, name, default in _OF_SPEC},
        **{name: row[name] for name in ("state", "reason", "exit_code", "signal", "phase", "attempt")},
        "gpus": json.loads(row["gpus"]),
        **{name: row[name] for name in ("batch_size", "run_id", "submitted_at", "started_at", "finished_at")},
        "stop": stop,
        "held_by": row["held_by"],
        "waiting_for": waiting_for,
        **(starts or NO_ESTIMATE),
    }


_NAMES = (
    "name", "command", "owner", "workspace", "dir", "snapshot", "priority", "gpus", "on", "gpu_type", "gpu_mem_mib",
    "cpus", "ram_mib", "time_limit_s", "begin_at", "after_ok", "after", "preemptible", "group", "parameters",
    "again_of",
)  # fmt: skip
_DEFAULTS: dict[str, Any] = {
    one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(JobSpec)
}
_OF_SPEC = [  # the key in the JSON, the field of the spec, its default
    (
        "gpus_wanted" if name == "gpus" else name,
        name,
        list(_DEFAULTS[name]) if isinstance(_DEFAULTS[name], tuple) else _DEFAULTS[name],
    )
    for name in _NAMES
]
