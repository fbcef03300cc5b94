"""Commands that change something: kill, rerun, wait, pause, resume, drain, stay."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from runner.terminal.numbers import UNFINISHED_JOBS
from runner.terminal.session import (
    GROUP,
    JOB,
    UNFINISHED_JOB,
    counted,
    open_queue,
    print_json,
    say,
    warn_without_runner,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from runner.api import Queue
    from runner.store.groups import Member
    from runner.terminal.numbers import Spans


_STATES = {"queued": ("QUEUED",), "running": ("STARTING", "RUNNING")}
LISTED = 20
AT_ONCE = 200  # stops in one transaction: each costs a write to the disk, and others want to write as well


@click.command("kill")
@click.argument("numbers", type=UNFINISHED_JOBS, metavar="[N…]", nargs=-1)
@click.option("--state", type=click.Choice(list(_STATES)), help="Of those, the ones that wait or that run.")
@click.option("--mine", is_flag=True, help="Of those, yours.")
@click.option("--group", type=GROUP, metavar="NAME", help="Of those, the ones of this group.")
@click.option("--all", "everything", is_flag=True, help="All that wait or run, whosever they are.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Return when they have ended.")
def kill(numbers: tuple[Spans, ...], yes: bool, wait_for_end: bool, everything: bool, **filters: Any) -> int:
    """Stop jobs that run and cancel those that wait: nightshift kill 12 14-16,20

    Without numbers, those that --state, --mine and --group leave: nightshift kill --state queued --mine
    """
    from runner.errors import UserError

    if not numbers and not everything and not any(filters.values()):
        raise UserError("Which jobs? Name them like 12 14-16, or by --state, --mine, --group or --all.")
    with open_queue() as queue:
        job_ids = _chosen(queue, numbers, **filters)
        if not yes and sys.stdin.isatty() and sys.stdout.isatty() and not _confirmed(queue, job_ids):
            return 1
        unfinished = set(queue.unfinished())
        asked: list[int] = []
        for at in range(0, len(job_ids), AT_ONCE):
            asked += _stop_all(queue, job_ids[at : at + AT_ONCE], unfinished)
        if any(queue.job(job_id).state.live for job_id in asked):
            warn_without_runner(queue, "running jobs are stopped when one is")
        if wait_for_end:
            _wait_until_ended(queue, asked)
        return 0 if len(asked) == len(job_ids) else 1


def _chosen(queue: Queue, numbers: Sequence[Spans], *, state: str | None, mine: bool, group: str | None) -> list[int]:
    """Those that wait first: what comes free is not to go to one that is to be stopped as well."""
    from runner.api.groups import find
    from runner.errors import UserError
    from runner.model import State

    if group is not None:
        find(queue, group)
    waiting, running = ([State(name) for name in _STATES[which]] for which in ("queued", "running"))
    owner = queue.actor if mine else None
    found: list[int] = []
    for which, states in (("queued", waiting), ("running", running)):
        if state in (None, which):
            found += queue.unfinished(owner=owner, group=group, states=states)
    if numbers and not (state or mine or group):
        named = [number for spans in numbers for number in spans.of(found)]
        place = {number: at for at, number in enumerate(found)}
        return sorted(dict.fromkeys(named), key=lambda number: place.get(number, -1))
    if numbers:
        found = [number for number in found if any(spans.hold(number) for spans in numbers)]
    if not found:
        raise UserError("No such job waits or runs.")
    return found


def _meant(queue: Queue, job_ids: tuple[int, ...], group: str | None, which: str, none: str) -> tuple[int, ...]:
    """The jobs that are named, or those of a group; a complaint if there are none."""
    from runner.api.groups import find
    from runner.errors import UserError

    if group is None:
        if not job_ids:
            raise UserError("Which jobs? Name them by number, or a group with --group; `nightshift ls` lists them.")
        return job_ids
    if job_ids:
        raise UserError(f"Either numbers or --group {group}, not both at once.")
    find(queue, group)
    found: list[Member] = getattr(queue.groups, which)(group)
    if not found:
        raise UserError(f"{group}: {none}.")
    return tuple(member.id for member in found)


def _confirmed(queue: Queue, job_ids: Sequence[int]) -> bool:
    from runner.terminal.table import shortened
    from runner.terminal.words import state_words, title

    found = [job for job_id in job_ids if (job := queue.jobs.get(job_id)) and not job.state.final]
    for job in found[:LISTED]:
        click.echo(f"{job.id:>6}  {state_words(job)}  {shortened(title(job), 60)}")
    if len(found) > LISTED:
        click.echo(f"        … and {len(found) - LISTED:,} more")
    if not found:
        return True  # there is nothing to ask about; each of them will say why
    return click.confirm("Stop this job?" if len(found) == 1 else f"Stop these {len(found):,} jobs?")


def _stop_all(queue: Queue, job_ids: Sequence[int], unfinished: Collection[int]) -> list[int]:
    """Ask for these in one transaction, and say what came of it once that is durable; those that were asked for."""
    from runner.errors import UserError

    asked, said, refused = [], [], []
    with queue.store.transaction():
        for job_id in job_ids:
            try:
                said.append(queue.stop(job_id))
            except UserError as error:
                if job_id not in unfinished:
                    refused.append(str(error))
                    continue
                said.append(f"Job {job_id} has ended meanwhile.")  # such as one that waited for another of these
            asked.append(job_id)
    queue.ring()
    for line in said:
        print(line)
    sys.stdout.flush()
    for line in refused:
        say(line)
    return asked


def _wait_until_ended(queue: Queue, job_ids: list[int]) -> None:
    from runner.waiting import wait_for

    wait_for(queue, job_ids)


class WithChanges(click.Command):
    """A command whose options end at the first flag or setting that is none of its own; from there on, or after --, all
    is left as it is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Click would refuse those words, or take them for more job numbers."""
        at = self._own_words(ctx, args)
        if args[at:]:
            ctx.obj = args[at + (args[at] == "--") :]
        return super().parse_args(ctx, args[:at])

    def _own_words(self, ctx: click.Context, args: Sequence[str]) -> int:
        """How many words are numbers and options of the command itself."""
        own = {flag: param for param in self.get_params(ctx) for flag in param.opts if isinstance(param, click.Option)}
        at = 0
        while at < len(args) and args[at] != "--":
            flag, has_value, _ = args[at].partition("=")
            if flag in own:
                at += 1 if own[flag].is_flag or has_value else 2
            elif not has_value and not flag.startswith("-"):
                at += 1
            else:
                _refuse_misspelt(flag, own, ctx)
                break
        return min(at, len(args))

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Say so in the first line of the help."""
        return [*super().collect_usage_pieces(ctx), "[CHANGES…]"]


def _refuse_misspelt(flag: str, own: Collection[str], ctx: click.Context) -> None:
    """What is almost an option of the command is hardly meant for the job."""
    from difflib import get_close_matches

    if close := get_close_matches(flag, own, cutoff=0.8):
        meant = f"Did you mean {close[0]!r}? For the job itself: -- {flag}"
        raise click.UsageError(f"No such option {flag!r}. {meant}", ctx)


@click.command("rerun", cls=WithChanges)
@click.argument("job_ids", type=JOB, metavar="N…", nargs=-1)
@click.option("--group", type=GROUP, metavar="NAME", help="All of this group, or sweep, that have ended.")
@click.option("--failed", is_flag=True, help="Of the group only those that failed and were not run again.")
@click.option("--json", "as_json", is_flag=True, help='Print {"ids": [12]}.')
@click.pass_obj
def rerun(
    changes: Sequence[str] | None, job_ids: tuple[int, ...], group: str | None, failed: bool, as_json: bool
) -> int:
    """Queue the same again, each under a new number.

    Flags and settings that follow replace or add arguments of the job's command: nightshift rerun 12 --lr 3e-4

    After -- they may have the names of options: nightshift rerun 12 -- --group b

    A job comes after those it came after before, as far as they have not ended or are run again as well.
    """
    from runner.api.groups import in_order
    from runner.errors import UserError

    if failed and group is None:
        raise UserError("--failed of what? nightshift rerun --group NAME --failed")
    made = []
    with open_queue() as queue:
        which, none = ("failed", "none of it has failed") if failed else ("ended", "nothing of it has ended")
        job_ids = _meant(queue, job_ids, group, which, none)
        for job_id in in_order(queue, job_ids):
            try:
                made.append(queue.rerun(job_id, changes or (), in_order=group is not None))
            except UserError as error:
                say(str(error))
                continue
            if not as_json:
                print(f"Submitted job {made[-1]} ({job_id} again{_coming_after(queue, made[-1])})")
        if as_json:
            print_json({"ids": made})
        if made:
            warn_without_runner(queue, "they wait")
    return 0 if len(made) == len(job_ids) else 1


def _coming_after(queue: Queue, job_id: int) -> str:
    spec = queue.job(job_id).spec
    others = ", ".join(f"#{number}" for number in sorted({*spec.after, *spec.after_ok}))
    return f", after {others}" if others else ""


@click.command("wait")
@click.argument("job_ids", type=UNFINISHED_JOB, metavar="[N…]", nargs=-1)
@click.option("--group", type=GROUP, metavar="NAME", help="All of this group, or sweep.")
@click.option("--all", "everything", is_flag=True, help="All that wait or run now.")
def wait(job_ids: tuple[int, ...], group: str | None, everything: bool) -> int:
    """Wait until these jobs have ended: nightshift wait 12 13

    The exit code is 0 if all succeeded, otherwise that of the first that did not.
    """
    from runner.errors import UserError
    from runner.store.listing import Listing
    from runner.terminal.words import state_words
    from runner.waiting import wait_for

    if not (job_ids or group or everything):  # such as `nightshift wait $ids` where there are none
        raise UserError("Which jobs? Name them by number, or by --group or --all.")
    if everything and (job_ids or group):
        raise UserError("Either --all, or some of them, not both at once.")
    with open_queue() as queue:
        if group is not None:
            job_ids = _meant(queue, job_ids, group, "current", "it has no jobs")
        awaited = job_ids or Listing(queue.store).unfinished()
        for job_id in awaited:
            queue.job(job_id)
        if awaited:
            warn_without_runner(queue, "this waits until one is")
        else:
            say("nothing waits or runs.")
        code = wait_for(queue, awaited, say)
        for job_id in awaited:
            print(f"Job {job_id}: {state_words(queue.job(job_id))}")
    return code


@click.command("pause")
def pause() -> None:
    """Start nothing more until `nightshift resume`; running jobs go on.

    As long as it is paused, the command set for an empty queue (NIGHTSHIFT_WHEN_EMPTY) is not run either.
    """
    with open_queue() as queue:
        queue.pause()
        print(f"Paused: nothing more starts until `nightshift resume`. {_standing(queue)}")


@click.command("resume")
def resume() -> None:
    """Go on starting jobs after a pause or a drain."""
    with open_queue() as queue:
        held = queue.box.get("paused") or queue.box.get("draining")
        queue.resume()
        print(f"{'Resumed' if held else 'Nothing was paused'}. {_standing(queue)}")
        warn_without_runner(queue, "nothing starts")


@click.command("drain")
@click.option("--wait", "wait_for_end", is_flag=True, help="Return when nothing runs any more.")
def drain(wait_for_end: bool) -> None:
    """Let running jobs finish and start no more until `nightshift resume`."""
    from runner.waiting import wait_until

    with open_queue() as queue:
        queue.drain()
        print(f"Draining: running jobs finish, no more start until `nightshift resume`. {_standing(queue)}", flush=True)
        if wait_for_end:
            if queue.jobs.live():
                warn_without_runner(queue, "this waits until one is")
            wait_until(queue.home, lambda: not queue.jobs.under_way())
            print("Drained: nothing runs.")


@click.command("stay")
def stay() -> int:
    """Do not run the command set for an empty queue (NIGHTSHIFT_WHEN_EMPTY) this time.

    After the next jobs it is due again. `nightshift pause` holds it for as long as the queue is paused.
    """
    with open_queue() as queue:
        if queue.cancel_when_empty():
            print("It is not run this time.")
            return 0
        say("no command is due.")
        return 1


def _standing(queue: Queue) -> str:
    """What runs and what waits, in one sentence."""
    from runner.model import State

    live = queue.jobs.live()
    named = ", ".join(f"#{job.id}" for job in live[:10]) + (" …" if len(live) > 10 else "")
    running = f"{counted(len(live), 'job')} running ({named})" if live else "No job is running"
    return f"{running}, {queue.jobs.count(State.QUEUED):,} queued."
