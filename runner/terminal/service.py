"""Commands that bring nightshift up and down: runner, up, down, demo."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import click

from runner.terminal.session import counted, open_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG, OLD_LOG = "runner.log", "runner.log.1"
LARGE_LOG = 16 << 20
DEMO_HOME = "~/.nightshift-demo"
DEMO_GPUS = "sim:2x24GiB"


@click.command("runner")
def runner() -> None:
    """Run jobs, in the foreground, until Ctrl-C; running jobs go on when it leaves."""
    from runner import daemon, settings

    daemon.main(settings.load())


@click.command("up")
@click.option("--detach", is_flag=True, help="Return when it is up; it stays after the terminal is closed.")
def up(detach: bool) -> int:
    """Run jobs, and start again whatever of nightshift dies."""
    from runner import settings
    from runner.store.connection import prepare_home

    folder = settings.load().home
    prepare_home(folder)
    if detach:
        return _detach(folder)
    from runner.terminal.keeper import Keeper

    return Keeper(folder, _command("runner")).run()


def _command(word: str) -> list[str]:
    """The argument list that runs another command of ours with the same settings."""
    from runner import home
    from runner.interpreter import python_command

    file = home.env_file()
    return python_command("nightshift", *(["--env-file", file] if file else []), word)


def _detach(folder: str) -> int:
    from runner import home
    from runner.presence import KEEPER_LOCK, holder

    already = holder(folder, home.RUNNER_LOCK) or holder(folder, KEEPER_LOCK)
    if already:
        print(f"nightshift is already up for {folder} (pid {already}).")
        return 0
    with _opened_log(folder) as log:
        begin = os.fstat(log).st_size
        keeper = subprocess.Popen(
            _command("up"), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    return _wait_until_up(folder, keeper, begin)


@contextlib.contextmanager
def _opened_log(folder: str) -> Iterator[int]:
    """The log, to append to; one that has grown large makes way for a new one."""
    path = os.path.join(folder, LOG)
    if os.path.exists(path) and os.path.getsize(path) > LARGE_LOG:
        os.replace(path, os.path.join(folder, OLD_LOG))
    log = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        yield log
    finally:
        os.close(log)


def _wait_until_up(folder: str, keeper: subprocess.Popen[bytes], begin: int) -> int:
    """Until a runner answers, or the keeper gives up: then what it said."""
    from runner import home
    from runner.presence import is_ready, written_pid
    from runner.waiting import Changes

    with contextlib.closing(Changes(folder)) as changes:
        while keeper.poll() is None:
            pid = written_pid(folder, home.RUNNER_LOCK)
            if pid and pid != keeper.pid and is_ready(folder, pid):
                print(f"nightshift is up (runner pid {pid}); its log: {os.path.join(folder, LOG)}")
                print("Stop it: nightshift down (running jobs go on)")
                _tell_if_held(folder)
                return 0
            changes.wait(0.1)
    with open(os.path.join(folder, LOG), encoding="utf-8", errors="replace") as file:
        file.seek(begin)
        sys.stderr.write(file.read())
    return keeper.returncode or 0


@click.command("down")
def down() -> None:
    """Have nightshift leave; running jobs go on, and are taken up again by the next `up`."""
    from runner import home
    from runner.presence import KEEPER_LOCK, ask_to_leave

    folder = home.state_folder()
    asked = [ask_to_leave(folder, name) for name in (KEEPER_LOCK, home.RUNNER_LOCK)]
    if not any(asked):
        print(f"Nothing was up for {folder}.")
        return
    with open_queue() as queue:
        live = len(queue.jobs.under_way())
    print(
        f"nightshift is down. {counted(live, 'job') if live else 'No job'} {'goes' if live < 2 else 'go'} on running."
    )


def _tell_if_held(folder: str) -> None:
    from runner.api import Queue

    with Queue(folder, actor="") as queue:
        if held := queue.held():
            print(f"Note: {held}.")


@click.command("demo")
def demo() -> None:
    """Try nightshift in a state folder of its own, with simulated GPUs where there are no real ones."""
    from runner import daemon, home, settings

    os.environ.setdefault("NIGHTSHIFT_HOME", os.path.expanduser(DEMO_HOME))
    if home.setting("GPUS") is None:
        os.environ["NIGHTSHIFT_GPUS"] = _demo_gpus()
    found = settings.load()
    simulated = found.gpus.startswith("sim:")
    print(f"State in {found.home}; GPUs: {found.gpus}{' – these are SIMULATED' if simulated else ''}.")
    print("In another terminal:")
    print(f"  export NIGHTSHIFT_HOME={shlex.quote(found.home)}")
    print('  export PATH="$PATH:$NIGHTSHIFT_HOME/bin"')
    print("  nightshift submit -- 'echo hello from GPU $CUDA_VISIBLE_DEVICES; nightshift gpus'")
    print("  nightshift ls", flush=True)
    daemon.main(found)


def _demo_gpus() -> str:
    """Real ones if NVML answers."""
    from runner.gpu import fresh

    return DEMO_GPUS if fresh.check() else "auto"
