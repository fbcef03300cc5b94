"""`nightshift doctor`: checks everything nightshift depends on, and says how to fix what is wrong."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from runner.terminal.checks import FAIL, INFO, OK, WARN, Finding, check
from runner.terminal.session import AS_JSON, print_json
from runner.text.table import paint

if TYPE_CHECKING:
    from collections.abc import Iterator

NEEDS_FIXING = 2
_COLOURS = {OK: "green", INFO: "bright_black", WARN: "yellow", FAIL: "red"}


@click.command("doctor")
@click.option("--gpu", "load", is_flag=True, help="Also put load on each free GPU for some seconds and watch it.")
@AS_JSON
def doctor(load: bool, as_json: bool) -> int:
    """Check this box: driver, database, disk, rights, clock, sockets, settings and chat. Say how to fix what is wrong.

    The exit code is 2 if something must be fixed.
    """
    findings = []
    for finding in examine(load):
        findings.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        print_json([finding._asdict() for finding in findings])
    return NEEDS_FIXING if any(finding.level == FAIL for finding in findings) else 0


def _print(finding: Finding) -> None:
    click.echo(f"{paint(f'{finding.level:<4}', _COLOURS[finding.level])}  {finding.name:<13} {finding.text}")
    if finding.fix:
        click.echo(f"{'':<20} → {finding.fix}")


def examine(load: bool = False) -> Iterator[Finding]:
    """Yield all findings: first the host, then settings, state folder, runner, GPUs and chat."""
    from runner.terminal.checks import host, setup

    for examined in (host.python, host.pidfd, host.subreaper, host.proc, host.bash, host.clock, host.clock_steps):
        yield from examined()
    yield from setup.variables(os.environ)
    yield from host.binding()
    yield from _examine_state(load)


def _examine_state(load: bool) -> Iterator[Finding]:
    from runner.config import home, settings
    from runner.errors import NightshiftError
    from runner.terminal.checks import host, setup

    try:
        loaded = settings.load()
    except NightshiftError as error:
        yield Finding(FAIL, "settings", str(error), "correct it in the environment or in .env of the state folder")
        return
    yield from setup.settings(loaded)
    yield from setup.env_file_rights(home.env_file() or os.path.join(loaded.home, ".env"))
    usable = True
    for finding in _examine_folder(loaded.home, loaded.backup_dir):
        usable = usable and finding.level != FAIL
        yield finding
    if not usable:
        return  # the other checks need the folder and would fail for the same reason
    yield from setup.runner(loaded.home)
    yield from host.limits(loaded.home)
    if loaded.engine == "slurm":
        from runner.terminal.checks import slurm

        yield from slurm.examine(loaded)
    else:
        yield from host.driver(loaded.home, loaded.gpus)
    if load and loaded.engine == "local":
        yield from host.under_load(loaded.home, loaded.gpus)
    yield from _chat()


@check("chat")
def _chat() -> Iterator[Finding]:
    from runner.terminal.cli import CHAT_CHECKS

    yield from CHAT_CHECKS.load()()


def _examine_folder(folder: str, backup_dir: str | None) -> Iterator[Finding]:
    from runner.terminal.checks import host, setup

    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        fix = "set NIGHTSHIFT_HOME to a folder you may write to"
        yield Finding(FAIL, "state folder", f"{folder} cannot be made: {error.strerror}", fix)
        return
    for examined in (setup.owner, setup.rights, setup.disk, setup.free_space, setup.sockets, host.inotify):
        yield from examined(folder)
    yield from setup.sqlite()
    yield from setup.database(folder)
    yield from setup.audit(folder)
    yield from setup.backup(backup_dir)
