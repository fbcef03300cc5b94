"""`nightshift show`: everything about one job, except the values in its environment."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from runner.errors import UserError
from runner.terminal.session import JOB, counted, open_queue, print_json
from runner.text.words import colour, duration_words, event_words, long_time, outcome_words, printable, state_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runner.api import Queue
    from runner.model import Job, JobSpec

LABEL = 12


@click.command("show")
@click.argument("job_id", type=JOB, metavar="N")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--fit", is_flag=True, help="Only how its batch was found, drawn.")
def show(job_id: int, as_json: bool, fit: bool) -> None:
    """Show everything about job N."""
    with open_queue() as queue:
        job = queue.job(job_id)
        if as_json:
            print_json(_described(queue, job))
            return
        if fit and job.spec.probe is None:
            raise UserError(f"job {job.id} was submitted without --probe: nothing was measured")
        click.echo(_headline(job))
        if fit:
            _draw_fit(queue, job)
            return
        for label, text in _lines(queue, job):
            click.echo(f"{label:<{LABEL}} {printable(text)}".rstrip())


def _described(queue: Queue, job: Job) -> dict[str, Any]:
    return {
        **queue.describe([job])[0],
        "snapshot": _snapshot(queue, job),
        "usage": queue.usage(job.id),
        "watch": queue.watched(job.id),
        "probe": queue.probe(job.id),
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
    from runner.snapshot import code_copy

    if not code_copy.is_taken(job.spec):
        return {"folder": None}
    folder = code_copy.tree_folder(queue.home, job.spec)
    return {**job.spec.snapshot, "folder": folder if os.path.isdir(folder) else None}


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    from runner.store.gpu_usage import usage_of

    told = {"gpus": json.loads(row["gpus"]), **{name: _json(row[name]) for name in ("exit", "probe")}}
    return {**row, **told, "usage": usage_of(row)}


def _json(text: str | None) -> Any:
    return json.loads(text) if text else None


def _run_dir(queue: Queue, job: Job) -> str | None:
    from runner import rundir

    folder = rundir.folder_of(queue.home, job.id, job.attempt)
    return folder if os.path.isdir(folder) else None


def _headline(job: Job) -> str:
    from runner.text.table import paint

    return f"{f'Job {job.id}':<{LABEL}} {paint(state_words(job), colour(job.state))}"


def _lines(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield the lines to print, as label and text."""
    from runner import clock
    from runner.terminal.ls import gpu_indices

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
    from runner.snapshot import code_copy

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
    from runner.units import format_duration

    if job.spec.priority.rank:
        yield "Priority", job.spec.priority.value
    if job.spec.time_limit_s is not None:
        yield "Time limit", format_duration(job.spec.time_limit_s)
    if asked := _host_room(job.spec):
        yield "Asks for", asked
    if job.spec.retries:
        yield "Retries", str(job.spec.retries)
    if job.stop:
        yield "Stop", f"asked for by {job.stop.by}"


def _host_room(spec: JobSpec) -> str:
    from runner.units import format_mib

    cores = counted(spec.cpus, "CPU core") if spec.cpus else ""
    return ", ".join(part for part in (cores, f"{format_mib(spec.ram_mib)} of memory" if spec.ram_mib else "") if part)


def _waiting(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    from runner.model import State
    from runner.store.listing import Listing

    if job.state is State.QUEUED:
        ahead = Listing(queue.store).ahead_of(job.id)
        before = f"; {counted(ahead, 'job')} before it" if ahead else ""
        yield "Waits for", queue.waiting_reasons([job])[job.id] + before
        yield "Starts", queue.outlook().start_words(job.id) or "at a time unknown"


def _takes(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield how long the job is expected to take or, once it runs, when it should end, and from which runs."""
    from datetime import timedelta

    from runner import clock
    from runner.units import format_duration

    if job.state.final:
        return
    known = queue.takes(job.id)
    length, runs = known.length, f"by {counted(len(known.past_s), 'run')} {known.like}"
    if not length.known:
        yield "Takes", f"unknown{f', longer than usual {runs}' if known.past_s else ''}"
    elif job.started_at is None:
        yield "Takes", f"about {format_duration(length.least_s)} {runs}"
    else:
        yield "Ends", f"about {long_time(clock.now() + timedelta(seconds=length.least_s))} {runs}"


def _end(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield what the supervisor recorded at the end of the last attempt."""
    from runner.units import format_duration, format_mib

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
        yield "Left behind", f"{counted(end['strays'], 'process').replace('processs', 'processes')}, ended"


def _usage(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield how the job has used its GPUs, as far as that is known."""
    from runner.units import format_mib

    used = queue.usage(job.id) if job.gpus else None
    if not used or not used["samples"]:
        return
    said = []
    if used["peak_memory_mib"] is not None:
        of = f" of {format_mib(used['memory_total_mib'])}" if used["memory_total_mib"] else ""
        all_of_it = " by whatever used the GPU then" if used["attributed_by"] == "device" else ""
        said.append(f"{format_mib(used['peak_memory_mib'])}{of} at most{all_of_it}")
    if used["mean_utilization"] is not None:
        said.append(f"{used['mean_utilization']:.0f} % busy on average")
    yield "GPU use", ", ".join(said) or "unknown"


def _watch(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield what the watchdogs found about the job, and who asked to keep it."""
    from runner import clock
    from runner.model import Reason

    found = queue.watched(job.id) or {}
    if found.get("idle") and not job.state.final:
        yield "Idle watch", found["idle"]
    if job.reason in {Reason.IDLE, Reason.HUNG} and found.get("evidence"):
        for number, line in enumerate(found["evidence"]["text"].splitlines()):
            yield ("" if number else "Why"), line
    if kept := found.get("kept"):
        until = clock.moment(kept["until"])
        yield "Kept", f"by {kept['by']} {f'until {long_time(until)}' if until else 'for good'}"


def _batch(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield the batch the job runs with, and how it was found."""
    found = queue.probe(job.id)
    if found is not None:
        yield "Batch", found["said"]
        for line in found["detail"]:
            yield "", line
    elif job.spec.probe is not None:
        yield "Batch", "is found when it starts"


def _draw_fit(queue: Queue, job: Job) -> None:
    for label, text in _batch(queue, job):
        click.echo(f"{label:<{LABEL}} {printable(text)}".rstrip())
    found = queue.probe(job.id)
    for line in found["bars"] if found else ():
        click.echo(line)


def _attempts(queue: Queue, job: Job) -> Iterator[tuple[str, str]]:
    """Yield a line per attempt if there were several; a single one is described by the lines above."""
    from runner.model import Reason, State

    found = [_attempt(row) for row in queue.jobs.attempts(job.id)]
    if len(found) < 2:
        return
    for attempt in found:
        end = attempt["exit"] or {}
        state, reason = attempt["state"], attempt["reason"]
        said = "under way" if attempt["finished_at"] is None else "never ran"
        if state:
            said = outcome_words(
                State(state), Reason(reason) if reason else None, end.get("exit_code"), end.get("signal")
            )
        yield f"Attempt {attempt['number']}", said


def _events(queue: Queue, job: Job, indices: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    from runner import clock
    from runner.units import format_duration

    yield "", ""
    before = None
    for event in queue.jobs.events(job.id):
        at = clock.moment(event["at"])
        assert at is not None
        after = f"  (+{format_duration((at - before).total_seconds())})" if before else ""
        yield long_time(at), f"{event_words(event, indices)}{after}"
        before = at
