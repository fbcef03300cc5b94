"""`nightshift rerun`: queues a job again, with changed arguments if you like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from runner.api.groups import in_order
from runner.errors import UserError
from runner.terminal.session import JOB, group_option, jobs_meant, open_queue, print_json, say, warn_without_runner

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from runner.api import Queue


class WithChanges(click.Command):
    """A command whose own words end at `--`, or at the first flag or setting that it does not know.

    The words from there on are passed to the job unparsed.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the words for the job aside: click would refuse them, or take them for more job numbers."""
        at = self._own_words(ctx, args)
        if args[at:]:
            ctx.obj = args[at + (args[at] == "--") :]
        return super().parse_args(ctx, args[:at])

    def _own_words(self, ctx: click.Context, args: Sequence[str]) -> int:
        """Return how many words are job numbers and options of the command itself."""
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
        """Add [CHANGES…] to the first line of the help."""
        return [*super().collect_usage_pieces(ctx), "[CHANGES…]"]


def _refuse_misspelt(flag: str, own: Collection[str], ctx: click.Context) -> None:
    """Raise UsageError if a flag is almost an option of the command: it is hardly meant for the job."""
    from difflib import get_close_matches

    if close := get_close_matches(flag, own, cutoff=0.8):
        meant = f"Did you mean {close[0]!r}? For the job itself: -- {flag}"
        raise click.UsageError(f"No such option {flag!r}. {meant}", ctx)


@click.command("rerun", cls=WithChanges)
@click.argument("job_ids", type=JOB, metavar="N…", nargs=-1)
@group_option("All jobs of this group or sweep that have ended.")
@click.option("--failed", is_flag=True, help="With --group: only those that failed and were not run again.")
@click.option("--json", "as_json", is_flag=True, help='Print {"ids": [12]}.')
@click.pass_obj
def rerun(
    changes: Sequence[str] | None, job_ids: tuple[int, ...], group: str | None, failed: bool, as_json: bool
) -> int:
    """Queue jobs again, each under a new number.

    CHANGES replace arguments of the job's command, or add to them. Write -- before those that have the name of an
    option of rerun. A job keeps its --after and --after-ok for jobs that have not ended, or that are run again too.

    \b
    Examples:
      nightshift rerun 12 --lr 3e-4
      nightshift rerun 12 -- --group b
      nightshift rerun --group sweep-1 --failed
    """
    if failed and group is None:
        raise UserError("--failed needs a group: nightshift rerun --group NAME --failed")
    new_ids = []
    with open_queue() as queue:
        which, none = ("failed", "none of it has failed") if failed else ("ended", "nothing of it has ended")
        job_ids = jobs_meant(queue, job_ids, group, which, none)
        for job_id in in_order(queue, job_ids):
            try:
                new_ids.append(queue.rerun(job_id, changes or (), in_order=group is not None))
            except UserError as error:
                say(str(error))
                continue
            if not as_json:
                print(f"Submitted job {new_ids[-1]} ({job_id} again{_coming_after(queue, new_ids[-1])})")
        if as_json:
            print_json({"ids": new_ids})
        if new_ids:
            warn_without_runner(queue, "they wait")
    return 0 if len(new_ids) == len(job_ids) else 1


def _coming_after(queue: Queue, job_id: int) -> str:
    spec = queue.job(job_id).spec
    others = ", ".join(f"#{number}" for number in sorted({*spec.after, *spec.after_ok}))
    return f", after {others}" if others else ""
