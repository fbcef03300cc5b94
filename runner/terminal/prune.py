"""`nightshift prune`: removes old output, run directories and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from runner.terminal.session import counted, open_queue

if TYPE_CHECKING:
    from runner.store.retention import Removed, Rules

_NO_RULES = (
    "There is no rule for what to remove. Say one, like `nightshift prune --older-than 30d`, or set"
    " NIGHTSHIFT_KEEP_LOGS, NIGHTSHIFT_KEEP_RUNS, NIGHTSHIFT_KEEP_JOBS or NIGHTSHIFT_DISK_LIMIT."
)


@click.command("prune")
@click.option("--older-than", metavar="30d", help="What ended longer ago than this.")
@click.option("--logs", "kind", flag_value="keep_logs", help="Remove output only.")
@click.option("--runs", "kind", flag_value="keep_runs", help="Remove whole run directories (the default).")
@click.option("--jobs", "kind", flag_value="keep_jobs", help="Forget the jobs altogether.")
@click.option("--disk-limit", metavar="50G", help="Remove the oldest run directories until the rest fits.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
def prune(older_than: str | None, kind: str | None, disk_limit: str | None, dry_run: bool) -> None:
    """Remove output, run directories or finished jobs. Waiting and running jobs are never touched.

    Without options, the settings decide.
    """
    from runner.store import retention

    rules = _given(older_than, kind, disk_limit) or _from_settings()
    with open_queue() as queue:
        print(_told(retention.prune(queue.store, rules, dry_run=dry_run), dry_run))


def _given(older_than: str | None, kind: str | None, disk_limit: str | None) -> Rules | None:
    from runner.errors import UserError
    from runner.store.retention import Rules
    from runner.units import parse_duration, parse_size_mib

    if kind and older_than is None:
        raise UserError("Say how old: nightshift prune --older-than 30d, with --logs, --runs or --jobs.")
    if older_than is None and disk_limit is None:
        return None
    ages = {kind or "keep_runs": parse_duration(older_than)} if older_than is not None else {}
    return Rules(**ages, disk_limit=parse_size_mib(disk_limit) if disk_limit is not None else None)


def _from_settings() -> Rules:
    from runner.config import settings
    from runner.errors import UserError
    from runner.store.retention import Rules

    found = settings.load()
    rules = Rules(
        keep_logs=found.keep_logs,
        keep_runs=found.keep_runs,
        keep_jobs=found.keep_jobs,
        disk_limit=found.disk_limit,
    )
    if rules == Rules():
        raise UserError(_NO_RULES)
    return rules


def _told(removed: Removed, dry_run: bool) -> str:
    from runner.units import format_mib

    parts = [
        counted(count, noun)
        for count, noun in (
            (removed.jobs, "job"),
            (removed.runs, "run directory"),
            (removed.logs, "log"),
            (removed.snapshots, "copy of code"),
        )
        if count
    ]
    if not parts:
        return "Nothing to remove."
    said = ", ".join(parts).replace("directorys", "directories").replace("copy of codes", "copies of code")
    return f"{'Would remove' if dry_run else 'Removed'} {said}: {format_mib(removed.bytes / (1 << 20))}."
