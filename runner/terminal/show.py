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
from runner.store.gpu_usage import usage_of
from runner.store.listing import Listing
from runner.terminal.ls import gpu_indices
from runner.terminal.session import AS_JSON, JOB, counted, open_queue, print_json
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
    from runner.model import Job, JobSpec

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
        click.echo(_headline(job))
        if fit:
            _draw_fit(queue, job)
            return
        for label, text in _lines(queue, job):
            click.echo(f"{label:<{LABEL}} {printable(text)}".rstrip())


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
    told = {"gpus": json.loads(row["gpus"]), **{name: _json(row[name]) for name in ("exit", "probe")}}
    return {**row, **told, "usage": usage_of(row)}


def _json(text: str | None) -> Any:
    return json.loads(text) if text else None


def _run_dir(queue: Queue, job: Job) -> str | None:
    folder = rundir.folder_of(queue.home, job.id, job.attempt)
    return folder if os.path.isdir(folder) else None


def _headline(job: Job) -> str:
    return f"{f'Job {job.id}':<{LABEL}} {paint(state_words(job), colour(job.state))}"


def _lines(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield the lines to print, as label and text."""
    indices = gpu_indices(queue)
    yield from _what(job)
    yield from _where(job, queue.home)
    yield "GPUs", _gpus(job, indices)
    yield from _limits(job)
    yield from _waiting(queue, job)
    yield from _takes(queue, job)
    yield "Submitted", long_time(job.submitted_at)
    if job.started_at:
        yield "Started", long_time(job.started_at)
    if job.finished_at:
        yield "Ended", long_time(job.finished_at)
    if took := duration_words(job, clock.now()):
        yield ("Took" if job.finished_at else "Runs for"), took
    yield from _batch(queue, job)
    yield from _usage(queue, job)
    yield from _watch(queue, job)
    yield from _end(queue, job)
    yield "Run id", job.run_id
    if folder := _run_dir(queue, job):
        yield "Run dir", folder
    yield from _attempts(queue, job)
    yield from _events(queue, job, indices)


def _what(job: Job) -> Iterator[tuple[str, str]]:
    if job.spec.name:
        yield "Name", job.spec.name
    lines = job.spec.command.rstrip("\n").split("\n")
    yield ("Script" if job.spec.script else "Command"), lines[0]
    for line in lines[1:]:
        yield "", line
    if job.spec.group:
        yield "Group", job.spec.group
    if job.spec.parameters:
        yield "Parameters", ", ".join(f"{name} = {value}" for name, value in job.spec.parameters.items())
    if job.spec.again_of:
        yield "Again", f"the same as job {job.spec.again_of}"


def _where(job: Job, home: str) -> Iterator[tuple[str, str]]:
    spec = job.spec
    yield "Owner", spec.owner
    if spec.workspace:
        yield "Workspace", spec.workspace
    yield "Folder", spec.dir
    if spec.snapshot:
        yield from _copy_of_code(spec, home)
    if spec.env:
        yield "Variables", ", ".join(sorted(spec.env)) + " (values not shown)"
    if spec.env_file:
        yield "Env file", spec.env_file


def _copy_of_code(spec: JobSpec, home: str) -> Iterator[tuple[str, str]]:
    yield "Code", f"as submitted: {code_copy.words(spec)}"
    if not code_copy.is_taken(spec):
        return
    folder = code_copy.tree_folder(home, spec)
    yield "", folder if os.path.isdir(folder) else "(the copy has been removed)"


def _gpus(job: Job, indices: Mapping[str, int]) -> str:
    if job.gpus:
        return ", ".join(f"{indices.get(uuid, '?')} ({uuid})" for uuid in job.gpus)
    if job.spec.gpus == 0:
        return "none wanted"
    of = f" of {','.join(job.spec.on)}" if job.spec.on else ""
    return f"{job.spec.gpus} wanted{of}"


def _limits(job: Job) -> Iterator[tuple[str, str]]:
    if job.spec.priority.rank:
        yield "Priority", job.spec.priority.value
    if job.spec.time_limit_s is not None:
        yield "Time limit", format_duration(job.spec.time_limit_s)
    if resources := _host_room(job.spec):
        yield "Asks for", resources
    if job.spec.retries:
        yield "Retries", str(job.spec.retries)
    if job.stop:
        yield "Stop", f"asked for by {job.stop.by}"


def _host_room(spec: JobSpec) -> str:
    cores = counted(spec.cpus, "CPU core") if spec.cpus else ""
    return ", ".join(part for part in (cores, f"{format_mib(spec.ram_mib)} of memory" if spec.ram_mib else "") if part)


def _waiting(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    if job.state is State.QUEUED:
        ahead = Listing(queue.store).ahead_of(job.id)
        before = f"; {counted(ahead, 'job')} before it" if ahead else ""
        yield "Waits for", queue.reasons.of([job])[job.id] + before
        yield "Starts", queue.view.outlook().start_words(job.id) or "at a time unknown"


def _takes(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
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


def _end(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield what the supervisor recorded at the end of the last attempt."""
    made = queue.jobs.attempts(job.id)
    end = _attempt(made[-1])["exit"] if made else None
    if not end:
        return
    if end.get("spawn_error"):
        yield "Why", end["spawn_error"]
    if end.get("host_kills") and "memory" in end.get("enforced", ()):
        yield "Why", f"it used more memory than it had asked for ({format_mib(job.spec.ram_mib)}): submit it with more"
    yield "Used", f"{format_duration(end['cpu_s'])} of CPU, {format_mib(end['max_rss_mib'])} of memory at most"
    if end.get("dropped_bytes"):
        yield "Output", f"{end['dropped_bytes']:,} bytes of it found no room on the disk"
    if end.get("strays"):
        yield "Left behind", f"{counted(end['strays'], 'process', 'processes')}, ended"


def _usage(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
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


def _watch(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield what the watchdogs found about the job, and who asked to keep it."""
    watched = queue.view.watched(job.id) or {}
    if watched.get("idle") and not job.state.final:
        yield "Idle watch", watched["idle"]
    if job.reason in {Reason.IDLE, Reason.HUNG} and watched.get("evidence"):
        for number, line in enumerate(watched["evidence"]["text"].splitlines()):
            yield ("" if number else "Why"), line
    if kept := watched.get("kept"):
        yield "Kept", kept_words(kept)


def _batch(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield the batch the job runs with, and how it was found."""
    probe = queue.view.probe(job.id)
    if probe is not None:
        yield "Batch", probe["said"]
        for line in probe["detail"]:
            yield "", line
    elif job.spec.probe is not None:
        yield "Batch", "is found when it starts"


def _draw_fit(queue: Queue, job: Job) -> None:
    for label, text in _batch(queue, job):
        click.echo(f"{label:<{LABEL}} {printable(text)}".rstrip())
    probe = queue.view.probe(job.id)
    for line in probe["bars"] if probe else ():
        click.echo(line)


def _attempts(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield a line per attempt if there were several; a single one is described by the lines above."""
    attempts = [_attempt(row) for row in queue.jobs.attempts(job.id)]
    if len(attempts) < 2:
        return
    for attempt in attempts:
        end = attempt["exit"] or {}
        state, reason = attempt["state"], attempt["reason"]
        outcome = "under way" if attempt["finished_at"] is None else "never ran"
        if state:
            outcome = outcome_words(
                State(state), Reason(reason) if reason else None, end.get("exit_code"), end.get("signal")
            )
        yield f"Attempt {attempt['number']}", outcome


def _events(queue: Queue, job: Job, indices: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    yield "", ""
    before = None
    for event in queue.jobs.events(job.id):
        at = clock.moment(event["at"])
        assert at is not None
        after = f"  (+{format_duration((at - before).total_seconds())})" if before else ""
        yield long_time(at), f"{event_words(event, indices)}{after}"
        before = at
