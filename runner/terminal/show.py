"""`nightshift show`: everything about one job, except the values in its environment."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from runner import clock, rundir
from runner.errors import UserError
from runner.model import Reason, State
from runner.snapshot import code_copy
from runner.store.listing import Listing
from runner.store.measurements import usage_of
from runner.terminal.job_table import gpu_indices
from runner.terminal.session import AS_JSON, JOB, counted, open_queue, print_json
from runner.text.progress_words import progress_words
from runner.text.table import paint
from runner.text.words import (
    colour,
    duration_words,
    event_words,
    kept_words,
    long_time,
    outcome_words,
    printable,
    state_words,
)
from runner.units import format_duration, format_mib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runner.api import Queue
    from runner.model import Job

    Lines = Iterator[tuple[str, str | None]]  # labels and texts; a line without a text is left out

LABEL = 12


@click.command("show")
@click.argument("job_id", type=JOB, metavar="N")
@AS_JSON
@click.option("--fit", is_flag=True, help="Only how its batch size was found, as a drawing.")
def show(job_id: int, as_json: bool, fit: bool) -> None:
    """Show everything about job N."""
    with open_queue() as queue:
        job = queue.job(job_id)
        if as_json:
            print_json(_described(queue, job))
            return
        if fit and job.spec.probe is None:
            raise UserError(f"Job {job.id} was submitted without --probe, so no batch size was measured.")
        click.echo(f"{f'Job {job.id}':<{LABEL}} {paint(state_words(job), colour(job.state))}")
        for label, text in _batch(queue, job) if fit else _lines(queue, job):
            if text is not None:
                click.echo(f"{label:<{LABEL}} {printable(text)}".rstrip())
        probe = queue.view.probe(job.id) if fit else None
        for line in probe["bars"] if probe else ():
            click.echo(line)


def _described(queue: Queue, job: Job) -> dict[str, Any]:
    return {
        **queue.view.describe([job])[0],
        "snapshot": _snapshot(queue, job),
        "usage": queue.view.usage(job.id),
        "watch": queue.view.watched(job.id),
        "probe": queue.view.probe(job.id),
        "argv": list(job.spec.argv) if job.spec.argv is not None else None,
        "script": job.spec.script,
        "retries": job.spec.retries,
        "env_names": sorted(job.spec.env),
        "env_file": job.spec.env_file,
        "run_dir": _run_dir(queue, job),
        "attempts": [_attempt(attempt) for attempt in queue.jobs.attempts(job.id)],
        "events": queue.jobs.events(job.id),
    }


def _snapshot(queue: Queue, job: Job) -> dict[str, Any] | None:
    if not job.spec.snapshot:
        return None
    if not code_copy.is_taken(job.spec):
        return {"folder": None}
    folder = code_copy.tree_folder(queue.home, job.spec)
    return {**job.spec.snapshot, "folder": folder if os.path.isdir(folder) else None}


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    parsed = {name: json.loads(row[name]) if row[name] else None for name in ("gpus", "exit", "probe")}
    return {**row, **parsed, "usage": usage_of(row)}


def _run_dir(queue: Queue, job: Job) -> str | None:
    folder = rundir.folder_of(queue.home, job.id, job.attempt)
    return folder if os.path.isdir(folder) else None


def _lines(queue: Queue, job: Job) -> Lines:
    indices = gpu_indices(queue)
    yield from _what(job)
    yield from _where(job, queue.home)
    yield "GPUs", _gpus(job, indices)
    yield from _limits(job)
    yield from _waiting(queue, job)
    yield from _takes(queue, job)
    yield "Submitted", long_time(job.submitted_at)
    yield "Started", long_time(job.started_at) if job.started_at else None
    yield "Ended", long_time(job.finished_at) if job.finished_at else None
    yield "Took" if job.finished_at else "Runs for", duration_words(job, clock.now()) or None
    yield "Progress", progress_words(queue.view.progress(job), clock.now(), ended=job.state.final) or None
    yield from _batch(queue, job)
    yield from _usage(queue, job)
    yield from _watch(queue, job)
    yield from _end(queue, job)
    yield "Run id", job.run_id
    yield "Run dir", _run_dir(queue, job)
    yield from _attempts(queue, job)
    yield from _events(queue, job, indices)


def _what(job: Job) -> Lines:
    spec = job.spec
    first, *more = spec.command.rstrip("\n").split("\n")
    yield "Name", spec.name
    yield "Script" if spec.script else "Command", first
    for line in more:
        yield "", line
    yield "Group", spec.group
    yield "Parameters", ", ".join(f"{name} = {value}" for name, value in spec.parameters.items()) or None
    yield "Again", f"the same as job {spec.again_of}" if spec.again_of else None


def _where(job: Job, home: str) -> Lines:
    spec = job.spec
    yield "Owner", spec.owner
    yield "Workspace", spec.workspace
    yield "Folder", spec.dir
    yield "Code", f"as submitted: {code_copy.words(spec)}" if spec.snapshot else None
    if spec.snapshot and code_copy.is_taken(spec):
        folder = code_copy.tree_folder(home, spec)
        yield "", folder if os.path.isdir(folder) else "(the copy has been removed)"
    yield "Variables", f"{', '.join(sorted(spec.env))} (values not shown)" if spec.env else None
    yield "Env file", spec.env_file or None


def _gpus(job: Job, indices: Mapping[str, int | str]) -> str:
    if job.gpus:
        return ", ".join(f"{indices.get(uuid, '?')} ({uuid})" for uuid in job.gpus)
    if job.spec.gpus == 0:
        return "none wanted"
    of = f" of {','.join(job.spec.on)}" if job.spec.on else ""
    return f"{job.spec.gpus} wanted{of}"


def _limits(job: Job) -> Lines:
    spec = job.spec
    cores = counted(spec.cpus, "CPU core") if spec.cpus else ""
    memory = f"{format_mib(spec.ram_mib)} of memory" if spec.ram_mib else ""
    yield "Priority", spec.priority.value if spec.priority.rank else None
    yield "Time limit", format_duration(spec.time_limit_s) if spec.time_limit_s is not None else None
    yield "Asks for", ", ".join(part for part in (cores, memory) if part) or None
    yield "Retries", str(spec.retries) if spec.retries else None
    yield "Stop", f"asked for by {job.stop.by}" if job.stop else None


def _waiting(queue: Queue, job: Job) -> Lines:
    if job.state is State.QUEUED:
        ahead = Listing(queue.store).ahead_of(job.id)
        before = f"; {counted(ahead, 'job')} before it" if ahead else ""
        yield "Waits for", queue.reasons.of([job])[job.id] + before
        yield "Starts", queue.view.outlook().start_words(job.id) or "at a time unknown"
    elif job.state is State.STARTING:
        yield "Waits for", queue.reasons.of([job]).get(job.id)


def _takes(queue: Queue, job: Job) -> Lines:
    """Yield how long the job is expected to take or, once it runs, when it should end, and from which runs."""
    if job.state.final:
        return
    expected = queue.view.takes(job.id)
    length, runs = expected.length, f"by {counted(len(expected.past_s), 'run')} {expected.like}"
    if not length.known:
        yield "Takes", f"unknown{f', longer than usual {runs}' if expected.past_s else ''}"
    elif job.started_at is None:
        yield "Takes", f"about {format_duration(length.least_s)} {runs}"
    else:
        yield "Ends", f"about {long_time(clock.now() + timedelta(seconds=length.least_s))} {runs}"


def _end(queue: Queue, job: Job) -> Lines:
    """Yield what the supervisor recorded at the end of the last attempt."""
    attempts = queue.jobs.attempts(job.id)
    end = _attempt(attempts[-1])["exit"] if attempts else None
    if not end:
        return
    yield "Why", end.get("spawn_error") or None
    if end.get("host_kills") and "memory" in end.get("enforced", ()):
        yield "Why", f"it used more memory than it had asked for ({format_mib(job.spec.ram_mib)}): submit it with more"
    yield "Used", f"{format_duration(end['cpu_s'])} of CPU, {format_mib(end['max_rss_mib'])} of memory at most"
    dropped, strays = end.get("dropped_bytes"), end.get("strays")
    yield "Output", f"{dropped:,} bytes of it found no room on the disk" if dropped else None
    yield "Left behind", f"{counted(strays, 'process', 'processes')}, ended" if strays else None


def _usage(queue: Queue, job: Job) -> Lines:
    """Yield how the job has used its GPUs, as far as that is known."""
    used = queue.view.usage(job.id) if job.gpus else None
    if not used or not used["samples"]:
        return
    parts = []
    if used["peak_memory_mib"] is not None:
        of = f" of {format_mib(used['memory_total_mib'])}" if used["memory_total_mib"] else ""
        all_of_it = " by whatever used the GPU then" if used["attributed_by"] == "device" else ""
        parts.append(f"{format_mib(used['peak_memory_mib'])}{of} at most{all_of_it}")
    if used["mean_utilization"] is not None:
        parts.append(f"{used['mean_utilization']:.0f} % busy on average")
    yield "GPU use", ", ".join(parts) or "unknown"


def _watch(queue: Queue, job: Job) -> Lines:
    """Yield what the watchdogs found about the job, and who asked to keep it."""
    watched = queue.view.watched(job.id) or {}
    if watched.get("idle") and not job.state.final:
        yield "Idle watch", watched["idle"]
    if job.reason in {Reason.IDLE, Reason.HUNG} and watched.get("evidence"):
        for number, line in enumerate(watched["evidence"]["text"].splitlines()):
            yield ("" if number else "Why"), line
    if keep := watched.get("kept"):
        yield "Kept", kept_words(keep)


def _batch(queue: Queue, job: Job) -> Lines:
    """Yield the batch the job runs with, and how it was found."""
    probe = queue.view.probe(job.id)
    if probe is not None:
        yield "Batch", probe["said"]
        for line in probe["detail"]:
            yield "", line
    elif job.spec.probe is not None:
        yield "Batch", "is found when it starts"


def _attempts(queue: Queue, job: Job) -> Lines:
    """Yield a line per attempt if there were several; a single one is described by the lines above."""
    attempts = [_attempt(row) for row in queue.jobs.attempts(job.id)]
    if len(attempts) < 2:
        return
    for attempt in attempts:
        end = attempt["exit"] or {}
        state, reason = attempt["state"], attempt["reason"]
        outcome = "under way" if attempt["finished_at"] is None else "trial passed" if end else "never ran"
        if state:
            how = State(state), Reason(reason) if reason else None
            outcome = outcome_words(*how, end.get("exit_code"), end.get("signal"), end.get("memory"))
        yield f"Attempt {attempt['number']}", outcome


def _events(queue: Queue, job: Job, indices: Mapping[str, int | str]) -> Lines:
    yield "", ""
    before = None
    for event in queue.jobs.events(job.id):
        at = clock.moment(event["at"])
        assert at is not None
        after = f"  (+{format_duration((at - before).total_seconds())})" if before else ""
        yield long_time(at), f"{event_words(event, indices)}{after}"
        before = at
