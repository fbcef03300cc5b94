"""`nightshift prune`: removes old output, run directories and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from runner.errors import UserError
from runner.store import retention
from runner.store.retention import Rules
from runner.terminal.session import counted, open_queue
from runner.units import format_mib, parse_duration, parse_size_mib

if TYPE_CHECKING:
    from runner.store.retention import Removed

_NO_RULES = (
    "Nothing says what to remove. Say how old, like `nightshift prune --older-than 30d`, or set"
    " NIGHTSHIFT_KEEP_LOGS, NIGHTSHIFT_KEEP_RUNS, NIGHTSHIFT_KEEP_JOBS or NIGHTSHIFT_DISK_LIMIT."
)


@click.command("prune")
@click.option("--older-than", metavar="30d", help="Remove what ended longer ago than this.")
@click.option("--logs", "kind", flag_value="keep_logs", help="Remove output only.")
@click.option("--runs", "kind", flag_value="keep_runs", help="Remove whole run directories (the default).")
@click.option("--jobs", "kind", flag_value="keep_jobs", help="Remove the jobs from the record as well.")
@click.option("--disk-limit", metavar="50G", help="Remove the oldest run directories until the rest fits.")
@click.option("-n", "--dry-run", is_flag=True, help="Only print what would be removed.")
def prune(older_than: str | None, kind: str | None, disk_limit: str | None, dry_run: bool) -> None:
    """Remove output, run directories or finished jobs. Waiting and running jobs are never touched.

    Without options, the settings decide: NIGHTSHIFT_KEEP_LOGS, KEEP_RUNS, KEEP_JOBS and DISK_LIMIT.
    """
    rules = _from_options(older_than, kind, disk_limit) or _from_settings()
    with open_queue() as queue:
        print(_in_words(retention.prune(queue.store, rules, dry_run=dry_run), dry_run))


def _from_options(older_than: str | None, kind: str | None, disk_limit: str | None) -> Rules | None:
    if kind and older_than is None:
        raise UserError("Say how old, too: nightshift prune --older-than 30d, with --logs, --runs or --jobs.")
    if older_than is None and disk_limit is None:
        return None
    ages = {kind or "keep_runs": parse_duration(older_than)} if older_than is not None else {}
    return Rules(**ages, disk_limit=parse_size_mib(disk_limit) if disk_limit is not None else None)


def _from_settings() -> Rules:
    from runner.config.settings import load  # slow to import, and not needed with options

    loaded = load()
    rules = Rules(**{name: getattr(loaded, name) for name in Rules.__dataclass_fields__})
    if rules == Rules():
        raise UserError(_NO_RULES)
    return rules


def _in_words(removed: Removed, dry_run: bool) -> str:
    parts = [
        counted(count, *nouns)
        for count, *nouns in (
            (removed.jobs, "job"),
            (removed.runs, "run directory", "run directories"),
            (removed.logs, "log"),
            (removed.snapshots, "snapshot"),
        )
        if count
    ]
    if not parts:
        return "Nothing to remove."
    what = "Would remove" if dry_run else "Removed"
    return f"{what} {', '.join(parts)}: {format_mib(removed.bytes / (1 << 20))}."
