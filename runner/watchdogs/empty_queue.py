"""When the last job has ended: send one notice, and run the command that is set for it.

The plan is in the database, so that it survives the runner. First the command is marked as begun. Then the queue's
backup is brought up to date, because the box may be gone a moment later. Only then is the command run. It runs once,
or not at all if the runner dies in between.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.config import home, job_environment
from runner.notices import QueueEmpty, WhenEmptyRan
from runner.processes import doorbell, linux
from runner.step import Step
from runner.store.box import BoxKey
from runner.store.connection import StoreError

if TYPE_CHECKING:
    from runner.step import Context
    from runner.store.backup import Backup

log = logging.getLogger(__name__)

TRY_AGAIN_S = 1.0
LOG = "when-empty.log"


class WhenEmpty(Step):
    """Waits until no job is left, then sends the notice and runs the command."""

    def __init__(self, context: Context, backup: Backup) -> None:
        self._context = context
        self._settings, self._store, self._jobs = context.settings, context.store, context.jobs
        self._line, self._notices, self._box = context.line, context.notices, context.box
        self._waiter, self._backup = context.waiter, backup
        self._boot_id = linux.boot_id()
        self._begun, self._may_be_due = False, True  # whether the box has a plan
        self._flush_from: float | None = None  # the backup must be newer than this (monotonic clock)
        with context.store.transaction():
            self._come_up()

    def _come_up(self) -> None:
        if self._box.get(BoxKey.TOLD_EMPTY_UP_TO) is None:  # jobs that ended before the first count are not reported
            self._box.set(BoxKey.TOLD_EMPTY_UP_TO, self._line.last_event())
        due = self._box.get(BoxKey.WHEN_EMPTY)
        if due is None or due["ran_at"] or due["cancelled_by"]:
            return
        if due["boot"] != self._boot_id:
            self._box.set(BoxKey.WHEN_EMPTY, None)  # it belonged to an earlier boot of this box
        elif due["begun"]:
            self._begun = True
        elif due["due_at"] and due["due_at"] <= clock.text(clock.now()):
            self._box.set(BoxKey.WHEN_EMPTY, {**due, "due_at": None})  # we have just started: allow the whole grace

    # -- in the transaction of a tick --------------------------------------------------------------

    def tick(self) -> None:
        """Check whether the queue is now empty and whether the command is due."""
        if self._context.live() or self._line.any_to_do():
            if self._may_be_due:
                self._box.set(BoxKey.WHEN_EMPTY, None)
                self._may_be_due = False
            return
        self._may_be_due = True
        self._tell_if_emptied()
        due = self._box.get(BoxKey.WHEN_EMPTY)
        if due is not None and not due["cancelled_by"] and not due["ran_at"] and not due["begun"]:
            self._consider(due)

    def _tell_if_emptied(self) -> None:
        ended = self._line.done_since(int(self._box.get(BoxKey.TOLD_EMPTY_UP_TO)))
        if not ended.attempts:
            return
        summary: dict[str, Any] = {
            "jobs": sum(ended.states.values()),
            "failed": sum(count for state, count in ended.states.items() if state != "SUCCEEDED"),
            "states": ended.states,
            "since": ended.since,
            "held": self._line.count_not_ready(),
        }
        self._box.set(BoxKey.TOLD_EMPTY_UP_TO, ended.last_event)
        if self._settings.when_empty is None or self._is_held():
            self._notices.add(QueueEmpty(**summary))
        if self._settings.when_empty is not None:
            due = {"due_at": None, "cancelled_by": None, "begun": False, "ran_at": None, "boot": self._boot_id}
            self._box.set(BoxKey.WHEN_EMPTY, {**due, "told": summary})

    def _consider(self, due: dict[str, Any]) -> None:
        now, command = clock.now(), self._settings.when_empty
        is_past = due["due_at"] is not None and due["due_at"] <= clock.text(now)
        if command is None:
            self._box.set(BoxKey.WHEN_EMPTY, None)
        elif self._is_held():
            if is_past:
                self._box.set(BoxKey.WHEN_EMPTY, {**due, "due_at": None})
        elif due["due_at"] is None:
            self._promise(due, command, clock.text(now + timedelta(seconds=self._settings.when_empty_grace)))
        elif is_past:
            self._box.set(BoxKey.WHEN_EMPTY, {**due, "begun": True})
            self._begun = True
        else:
            self._wake_at(due["due_at"])

    def _promise(self, due: dict[str, Any], command: str, due_at: str) -> None:
        """Announce what will run and when. Repeat it after a pause, because somebody may want to prevent it."""
        self._box.set(BoxKey.WHEN_EMPTY, {**due, "due_at": due_at, "command": command})
        self._notices.add(QueueEmpty.from_json({**due["told"], "command": command, "due_at": due_at}))
        self._wake_at(due_at)

    def _is_held(self) -> bool:
        """Return whether a person paused or drained the queue. The breaker's pause does not count: no job waits."""
        pause = self._box.pause()
        return (pause is not None and pause.by_person) or self._box.any(BoxKey.DRAINING)

    def _wake_at(self, due_at: str) -> None:
        at = clock.moment(due_at)
        assert at is not None
        self._waiter.tick_within(max(0.0, (at - clock.now()).total_seconds()))

    def rolled_back(self) -> None:
        """Look again whether the box has a plan."""
        self._may_be_due = True

    # -- after the commit --------------------------------------------------------------------------

    def committed(self) -> None:
        """Run the command once the backup contains that it was begun."""
        if not self._begun:
            return
        self._flush_from = self._flush_from or time.monotonic()
        if not self._backup.covers(self._flush_from, self._wake_runner):
            return
        try:
            command = self._take()
        except StoreError as error:
            log.error("%s", error)
            self._waiter.tick_in(TRY_AGAIN_S)
            return
        self._begun, self._flush_from = False, None
        if command is not None:
            self._run(command)

    def _take(self) -> str | None:
        """Mark the command as run and return it. Return None if it was cancelled or delayed, or if a job came."""
        with self._store.transaction():
            due = self._box.get(BoxKey.WHEN_EMPTY)
            if due is None or not due["begun"] or due["cancelled_by"] or due["ran_at"] or self._line.any_to_do():
                return None
            if self._is_held():
                self._box.set(BoxKey.WHEN_EMPTY, {**due, "begun": False, "due_at": None})
                return None
            self._box.set(BoxKey.WHEN_EMPTY, {**due, "ran_at": clock.text(clock.now())})
            self._jobs.note(None, None, "when empty", {"command": due["command"]})
            return str(due["command"])

    def _wake_runner(self) -> None:
        doorbell.ring(self._settings.home, home.RUNNER_BELL)

    def _run(self, command: str) -> None:
        log.warning("the queue is empty: running %s", command)
        try:
            process = start(command, self._settings.home)
        except OSError as error:
            log.error("it cannot be run: %s", error)
            self._tell(command, None)
            return
        handle = os.pidfd_open(process.pid)

        def ended() -> None:
            self._waiter.remove(handle)
            os.close(handle)
            self._tell(command, process.wait())

        self._waiter.add(handle, ended)

    def _tell(self, command: str, exit_code: int | None) -> None:
        log.warning("the command for an empty queue has ended with %s", exit_code)
        with contextlib.suppress(StoreError):  # the disk may be full; the log has it anyway
            self._notices.add(WhenEmptyRan(command=command, exit_code=exit_code))


def start(command: str, folder: str) -> subprocess.Popen[bytes]:
    """Run shell text in a new session, without nightshift's own environment variables. Append its output to LOG."""
    environ = job_environment.captured(os.environ)
    with open(os.open(os.path.join(folder, LOG), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), "wb") as output:
        output.write(f"[{clock.text(clock.now())}] {command}\n".encode(errors="replace"))
        output.flush()
        return subprocess.Popen(
            ["bash", "-c", command], env=environ, cwd=os.path.expanduser("~"), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
