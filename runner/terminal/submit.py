"""`nightshift submit`: people type this command all day, so it imports only what it needs."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.api import Queue, job_spec
from runner.config import job_environment, options
from runner.config.option_reader import read_words
from runner.errors import UserError
from runner.terminal.console import user

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runner.model import JobSpec
    from runner.store.groups import Template

USAGE = """\
Usage: nightshift submit [options] -- COMMAND…
       nightshift submit [options] --script FILE
       nightshift submit [options] -     (one command per line of stdin)
       nightshift submit [options] --preset NAME [-- CHANGES]

Queue a job. One argument after -- is shell text; several are an exact list of
arguments.

  nightshift submit -g 2 -t 6h -- python train.py --lr 3e-4
  nightshift submit --wait -- 'python prepare.py && python train.py'
  nightshift submit -- python train.py --batch-size {batch_size}
"""
SCRIPT = options.Option(("--script",), "FILE", "script", "run this file; its #! line may name an interpreter", str)
HELP = options.Option(("-h", "--help"), "", "help", "show this help", bool)
WAIT = options.Option(("--wait",), "", "wait", "wait until it has ended and exit with its code", bool)
JSON = options.Option(("--json",), "", "json", 'print {"ids": [12]}', bool)
OWN = (SCRIPT, options.PRESET, WAIT, JSON, HELP)
SECTIONS = {**options.SECTIONS, "This command": OWN}
REMOVED = "(removed)"


def of_each_job(change: Callable[[options.Option], options.Option]) -> dict[str, tuple[options.Option, ...]]:
    """Return the options of a job for the help of a command that queues several. One without flags is left out."""
    return {
        f"{title} (each job)": tuple(new for option in section if (new := change(option)).flags)
        for title, section in options.SECTIONS.items()
    }


def print_help(usage: str, sections: Mapping[str, Sequence[options.Option]]) -> int:
    """Print the text of --help, and return the exit code."""
    print(usage + options.help_text(sections), end="")
    return 0


def main(words: Sequence[str]) -> int:
    """Queue the jobs that the words describe. Return the exit code."""
    values, rest, _ = read_words(words, OWN)
    if values.get("help"):
        return print_help(USAGE, SECTIONS)
    with Queue(actor=user()) as queue:
        submission = Submission(queue, values)
        if "preset" in values:
            submission.submit_preset(values["preset"], rest)
        elif rest == ["-"] and "script" not in values:
            submission.follow(Lines(sys.stdin))
        else:
            submission.submit(*command_of(values, rest))
        return submission.finish()


def _wait(queue: Queue, job_ids: list[int]) -> int:
    """Wait for the jobs and print their outcomes to stderr. Return the code of the first that did not succeed, or 0."""
    from runner.terminal.wait import wait_for
    from runner.text.words import state_words

    code = wait_for(queue, job_ids)
    for job_id in job_ids:
        _say(f"job {job_id}: {state_words(queue.job(job_id))}")
    return code


def command_of(values: dict[str, Any], rest: list[str]) -> tuple[str, list[str] | None, bool]:
    """Return the command as text, its argument list or None, and whether it is a whole script."""
    if "script" in values:
        if rest:
            raise UserError(
                f"--script runs the file without arguments. To pass {rest[0]!r}: nightshift submit -- bash "
                f"{values['script']} {rest[0]} …"
            )
        try:
            with open(values["script"], encoding="utf-8") as file:
                return file.read(), None, True
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UserError(f"The script {values['script']} cannot be read: {why}.") from error
    if not rest:
        raise UserError("There is no command. Try: nightshift submit -- python train.py")
    return (rest[0], None, False) if len(rest) == 1 else ("", rest, False)


class Submission:
    """Queues jobs from one terminal. They share its folder, environment and options."""

    def __init__(self, queue: Queue, values: dict[str, Any], *, silent: bool = False) -> None:
        self._queue, self._values, self._as_json = queue, values, bool(values.get("json"))
        self._silent = silent or self._as_json
        self._workspace = queue.workspaces.get(values["workspace"]) if values.get("workspace") else None
        if self._workspace:
            key, variables = queue.workspaces.environment(self._workspace)
        else:
            variables = job_environment.captured(os.environ)
            key = job_environment.fingerprint(variables)
            if job_environment.carries_own_venv(os.environ):
                _say("nightshift's own virtual environment is not passed on to the job; activate your project's.")
        self._key, self._variables = key, variables
        self._folder = self._workspace.dir if self._workspace else _current_folder()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self.ids: list[int] = []
        self.group: str | None = None  # of a sweep
        self.refused = False
        self._announced: set[str] = set()

    def submit(self, command: str, argv: list[str] | None = None, script: bool = False) -> None:
        """Queue one job."""
        self._add([self._spec(command, argv, script)])

    def submit_preset(self, name: str, changes: list[str]) -> None:
        """Queue a job that was saved as a preset, with these arguments and options changed."""
        from runner.api import presets

        values, queue = dict(self._values), self._queue
        if "script" in values:
            raise UserError("--preset has a command already: leave out --script.")
        if "dir" in values:
            values["dir"] = os.path.abspath(os.path.expanduser(values["dir"]))
        preset = presets.find(queue, name)
        workspace = presets.workspace_of(queue, preset, values)
        place = None
        if workspace is not None:
            place = (queue.workspaces.get(workspace), *queue.workspaces.environment(queue.workspaces.get(workspace)))
            self._key, self._variables = place[1:]
        self._add([presets.spec_of(preset, queue.actor, changes, values, place)])

    def follow(self, lines: Lines) -> None:
        """Queue one job per line, as soon as each line comes: the input may be `tail -f`."""
        self.refuse_hopeless()
        while lines.are_open:
            if batch := lines.read():
                self.submit_lines(batch)
        if not self.ids and not self.refused:
            raise UserError("There was no command on standard input: it takes one per line.")

    def refuse_hopeless(self) -> None:
        """Raise UserError if no line could be queued with these options: better now than for each line."""
        if "probe" not in self._values:  # the command itself may say how to probe it
            self._queue.checks.check(self._queue.checks.with_time_limit(self._spec("true")))

    def submit_lines(self, lines: list[str]) -> dict[int, str]:
        """Queue one job per line. Return the lines that could be queued, by job number."""
        try:
            return dict(zip(self._add([self._spec(line) for line in lines]), lines, strict=True))
        except UserError:
            return self._add_one_by_one(lines)

    def submit_sweep(self, commands: Sequence[tuple[str | list[str], dict[str, str]]], sweep: Template) -> None:
        """Queue all combinations of a sweep as one group, or none of them. Each job records its values."""
        specs = [
            replace(self._spec(command) if isinstance(command, str) else self._spec("", command), parameters=values)
            for command, values in commands
        ]
        self._add(specs, sweep)

    def _add_one_by_one(self, lines: list[str]) -> dict[int, str]:
        """Queue each line alone: a bad line must not keep back the others, nor end a pipe that is followed for days."""
        queued = {}
        for line in lines:
            try:
                queued[self._add([self._spec(line)])[0]] = line
            except UserError as error:
                self.refused = True
                _say(f"not queued: {line}\n{error}")
        return queued

    def _spec(self, command: str, argv: list[str] | None = None, script: bool = False) -> JobSpec:
        return job_spec(
            self._values, command=command, argv=argv, script=script, owner=self._queue.actor, workspace=self._workspace,
            folder=self._folder, environment_key=self._key, umask=self._umask,
        )  # fmt: skip

    def _add(self, specs: list[JobSpec], sweep: Template | None = None) -> list[int]:
        if self._values.get("snapshot"):
            specs = self._with_snapshots(specs)
        ids = self._queue.submit(specs, {self._key: self._variables}, sweep=sweep)
        self.ids += ids
        lines = "".join(f"Submitted job {job_id}\n" for job_id in ids)
        if sweep:
            self.group = self._queue.job(ids[0]).spec.group
            numbers = f"1 job, {ids[0]}" if len(ids) == 1 else f"{len(ids):,} jobs, {ids[0]}–{ids[-1]}"
            lines = f"{self.group}: {numbers}\n"
        if not self._silent:
            write_or_discard(lines.encode())
        return ids

    def _with_snapshots(self, specs: list[JobSpec]) -> list[JobSpec]:
        """Take a snapshot of the code for these jobs and say what was copied, so that missing files are no surprise."""
        from runner.snapshot import code_copy

        for spec in specs:
            self._queue.checks.check(self._queue.checks.with_time_limit(spec))
        taken = self._queue.with_snapshots(specs)
        for spec in taken:
            if (notice := code_copy.announcement(spec, self._queue.home)) not in self._announced:
                self._announced.add(notice)
                _say(notice)
        return taken

    def finish(self) -> int:
        """Print the ids for --json and why jobs may not start, wait if asked to, and return the exit code."""
        if self._as_json:
            print(json.dumps({"ids": self.ids} | ({"group": self.group} if self.group else {})))
        if not self._queue.runner_is_up():
            _say(f"queued in {self._queue.home}, but no runner is up there. Start one: nightshift up --detach")
        elif why := self._queue.why_paused():
            tried = self._queue.reasons.trial_job()
            _say(f"job {tried} starts now, though {why}" if tried in self.ids else f"queued, but {why}")
        code = _wait(self._queue, self.ids) if self._values.get("wait") else 0
        return code or int(self.refused)


def write_or_discard(output: bytes) -> None:
    """Write to stdout. If its reader has closed the pipe, discard output from now on: jobs must still be queued."""
    try:
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return REMOVED  # the job is refused because of it, unless --dir names another folder


class Lines:
    """Reads commands from a file or a pipe, one per line. Blank lines and comments are skipped."""

    def __init__(self, file: Any) -> None:
        if file is None:
            raise UserError("Standard input is closed: it takes one command per line.")
        self.descriptor: int = file.fileno()
        self.are_open = True
        self._pending: list[bytes] = []

    def read(self) -> list[str]:
        """Wait for input and return the whole lines; at its end also a last line without a newline."""
        data = os.read(self.descriptor, 1 << 16)
        self.are_open = bool(data)
        self._pending.append(data)
        if data and b"\n" not in data:
            return []
        *lines, rest = b"".join(self._pending).split(b"\n")
        self._pending = [rest] if data else []
        texts = [line.decode("utf-8", "surrogateescape").strip() for line in (lines if data else [*lines, rest])]
        return [text for text in texts if text and not text.startswith("#")]


def _say(text: str) -> None:
    print(f"nightshift: {text}", file=sys.stderr)
