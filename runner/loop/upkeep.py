"""Keeps the disk from filling up: runs the retention rules from time to time, in a separate process."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

from runner.processes.interpreter import python_command
from runner.step import Step

if TYPE_CHECKING:
    from runner.step import Context

FIRST_AFTER_S, EVERY_S, SELDOM_S = 60.0, 3600.0, 24 * 3600.0


class Upkeep(Step):
    """Starts retention once an hour if a rule is set, otherwise once a day: old messages are always removed."""

    def __init__(self, context: Context) -> None:
        self._settings, self._waiter = settings, waiter = context.settings, context.waiter
        self._process: subprocess.Popen[bytes] | None = None
        rules = (settings.keep_logs, settings.keep_runs, settings.keep_jobs, settings.disk_limit)
        self._every_s = EVERY_S if any(rules) else SELDOM_S
        waiter.after(FIRST_AFTER_S, self._run)

    def _run(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            rules = self._settings.model_dump_json(include={"keep_logs", "keep_runs", "keep_jobs", "disk_limit"})
            command = python_command("runner.store.retention", self._settings.home, rules)
            with contextlib.suppress(OSError):  # no process can be started now; try again next time
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd="/")
        self._waiter.after(self._every_s, self._run)
        return False
