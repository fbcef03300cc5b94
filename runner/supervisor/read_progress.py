"""The process that reads how far jobs are from what they print.

It stands beside the supervisors: if it is slow or dies, neither output nor jobs notice. It is told run directories on
its standard input, one a line, and follows the output of each until the attempt's exit record is there. What it finds
goes to `progress.json` in the run directory, and to its standard output, one line of JSON each. It leaves when its
input is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from runner import clock, rundir
from runner.errors import UserError
from runner.processes import linux
from runner.processes.file_changes import Changes
from runner.progress.reader import ProgressReader
from runner.progress.stop_rules import StopRule, parse_rules
from runner.supervisor.output_follower import OutputFollower, redirected_to

PAUSE_S = 0.2  # between two looks at all outputs
SAVE_EVERY_S = 1.0
STATE_EVERY_S = 10.0
FIRST_LOOK_S, LAST_LOOK_S, LOOK_FOR_LOG_S = 1.0, 60.0, 5.0  # how often to look for a file that the job writes itself


class FollowedAttempt:
    """One attempt whose output is read."""

    def __init__(self, folder: str, spec: rundir.AttemptSpec, boot_id: str) -> None:
        self._folder, self._spec, self._boot_id = folder, spec, boot_id
        self._supervisor = 0
        self._stop_rules = _rules(spec.stop_on)
        state = rundir.read(folder, rundir.PROGRESS_STATE) or {}
        known = rundir.read_progress(folder)
        self._known = known if known and known.run_id == spec.run_id and state else None
        self._broken = dict(self._known.broken) if self._known else {}
        self._follower, self._reader = self._readers(state if self._known else {})
        self._saved_at = self._state_at = 0.0
        self._look_in_s, self._look_at = FIRST_LOOK_S, time.monotonic()
        self._dirty = False
        self.ended = bool(self._known and self._known.final)
        if spec.log and self._follower.own_path is None:
            self._follower.follow_file(os.path.join(spec.dir, os.path.expanduser(spec.log)))

    def _readers(self, state: dict[str, Any]) -> tuple[OutputFollower, ProgressReader]:
        rules = self._rules_left()
        if state:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # written by another version: read it all again
                reader = ProgressReader.from_state(state["reader"], self._pattern(), rules)
                return OutputFollower(self._folder, state["output"]), reader
        return OutputFollower(self._folder), ProgressReader(self._pattern(), rules)

    def _pattern(self) -> str | None:
        return self._spec.progress

    def _rules_left(self) -> tuple[StopRule, ...]:
        """Return the rules that are not broken yet. A loss that is not a number is always told."""
        return tuple(rule for rule in dict.fromkeys((*self._stop_rules, StopRule())) if str(rule) not in self._broken)

    @property
    def own_path(self) -> str | None:
        """Return the file that the job writes itself, as far as it is known."""
        return self._follower.own_path

    @property
    def has_more(self) -> bool:
        """Return whether there is more to read at once."""
        return self._follower.has_more

    def wakes_in_s(self, now: float) -> float | None:
        """Return when to look at this attempt even if nothing changes; None: never."""
        due = [self._saved_at + SAVE_EVERY_S] if self._dirty else []
        due += [self._look_at] if self._seeks_file else []
        return max(min(due) - now, 0.0) if due else None

    def read(self) -> rundir.ProgressRecord | None:
        """Read what is new. Return what is now known if it is to be told."""
        ended = rundir.read_exit(self._folder) is not None or not os.path.isdir(self._folder)
        self._look_for_file()
        for block, at in self._follower.blocks():
            self._dirty = True
            self._reader.feed_block(block, at)
            while self._reader.broken is not None:
                rule, metric = self._reader.broken
                self._broken[str(rule)] = metric
                self._saved_at = 0.0
                self._reader.go_on(self._rules_left())
        self.ended = ended and not self.has_more
        now = time.monotonic()
        if not self.ended and not (self._dirty and now >= self._saved_at + SAVE_EVERY_S):
            return None
        return self._save(now)

    @property
    def _seeks_file(self) -> bool:
        """Return whether to look for a file: the log that was named, or one that a silent job prints to."""
        return not self._follower.has_own if self._spec.log else self._follower.is_silent

    def _look_for_file(self) -> None:
        now = time.monotonic()
        if not self._seeks_file or now < self._look_at:
            return
        self._look_in_s = min(2 * self._look_in_s, LOOK_FOR_LOG_S if self._spec.log else LAST_LOOK_S)
        self._look_at = now + self._look_in_s
        if self._spec.log:
            return  # it is opened as soon as it is there
        if not self._supervisor and (started := rundir.read_started(self._folder)):
            self._supervisor = started.pid
        found = redirected_to(self._supervisor, self._folder) if self._supervisor else None
        if found and found[0] != self._follower.own_path:
            path, begins = found
            self._follower.follow_file(path, os.stat(path).st_ino, begins)

    def _save(self, now: float) -> rundir.ProgressRecord:
        progress = self._reader.progress(now)
        record = rundir.ProgressRecord(
            job_id=self._spec.job_id, attempt=self._spec.attempt, run_id=self._spec.run_id, boot_id=self._boot_id,
            at=clock.text(clock.now()), progress=progress.to_json() if progress else None, broken=self._broken,
            final=self.ended,
        )  # fmt: skip
        with contextlib.suppress(OSError):  # a full disk, or a folder that is gone: the runner hears of it anyway
            if record.progress or record.broken:
                rundir.write_progress(self._folder, record)
            if now >= self._state_at + STATE_EVERY_S or self.ended:
                self._state_at = now
                state = {"output": self._follower.to_state(), "reader": self._reader.to_state()}
                path = os.path.join(self._folder, rundir.PROGRESS_STATE)
                rundir.write_atomically(path, json.dumps(state).encode())
        self._saved_at, self._dirty = now, False
        return record

    def close(self) -> None:
        """Close its files."""
        self._follower.close()


def _rules(text: str | None) -> tuple[StopRule, ...]:
    try:
        return parse_rules(text) if text else ()
    except UserError:  # checked at submission, maybe by another version
        return ()


class ProgressProcess:
    """Follows all attempts that it is told of."""

    def __init__(self) -> None:
        self._changes = Changes()
        self._boot_id = linux.boot_id()
        self._followed: dict[str, FollowedAttempt] = {}
        self._watches: dict[int, str] = {}  # number of a watch -> run directory
        self._own_paths: dict[str, str] = {}  # run directory -> the job's own file that is watched
        self._orders = b""

    def serve(self) -> None:
        """Read until the input is closed."""
        linux.set_name("ns-progress")
        due: set[str] = set()
        while True:
            now = time.monotonic()
            waits = [wait for one in self._followed.values() if (wait := one.wakes_in_s(now)) is not None]
            timeout_s = 0.0 if due else min([5.0 if waits or not self._can_wait() else 3600.0, *waits])
            ready = self._changes.wait(timeout_s, (0,))
            due |= {folder for watch in self._changes.changed if (folder := self._watches.get(watch))}
            if ready:
                data = os.read(0, 1 << 16)
                if not data:
                    return
                due |= self._take_orders(data)
            now = time.monotonic()
            due |= {folder for folder, one in self._followed.items() if one.wakes_in_s(now) == 0.0}
            due |= set() if self._can_wait() else set(self._followed)
            due = {folder for folder in due if self._read(folder)}
            time.sleep(PAUSE_S if not ready else 0.0)

    def _can_wait(self) -> bool:
        """Return whether this host tells of all changes."""
        return len(set(self._watches.values())) >= len(self._followed)

    def _take_orders(self, data: bytes) -> set[str]:
        *lines, self._orders = (self._orders + data).split(b"\n")
        return {folder for line in lines if (folder := os.fsdecode(line)) and self._follow(folder)}

    def _follow(self, folder: str) -> bool:
        spec = rundir.read_spec(folder)
        if spec is None:
            return False
        if folder not in self._followed:
            self._watch(folder, folder)
            self._followed[folder] = FollowedAttempt(folder, spec, self._boot_id)
        return True

    def _watch(self, path: str, folder: str) -> None:
        if (watch := self._changes.add(path)) >= 0:
            self._watches[watch] = folder

    def _read(self, folder: str) -> bool:
        """Read on in one output. Return whether there is more."""
        one = self._followed.get(folder)
        if one is None:
            return False
        record = one.read()
        if one.own_path and self._own_paths.get(folder) != one.own_path and os.path.exists(one.own_path):
            self._own_paths[folder] = one.own_path
            self._watch(one.own_path, folder)
        if record is not None:
            os.write(1, json.dumps(record.to_json()).encode() + b"\n")
        if one.ended:
            self._drop(folder)
        return not one.ended and one.has_more

    def _drop(self, folder: str) -> None:
        self._followed.pop(folder).close()
        self._own_paths.pop(folder, None)
        for watch in [watch for watch, of in self._watches.items() if of == folder]:
            self._changes.drop(watch)
            del self._watches[watch]


def main(arguments: list[str]) -> None:
    """Serve until the runner is gone."""
    del arguments
    with contextlib.suppress(BrokenPipeError):
        ProgressProcess().serve()
