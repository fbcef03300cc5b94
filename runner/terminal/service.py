"""Commands that start and stop nightshift: runner, up, down, demo."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import click

from runner.terminal.session import counted, open_queue, say

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from runner.terminal.keeper import Part
    from runner.terminal.spawn import Handed

DEMO_HOME = "~/.nightshift-demo"
DEMO_GPUS = "sim:2x24GiB"
BOT_STARTS_WITHIN_S = 60.0
NETWORK_WAIT_S = 6.0  # for a bot that is up to connect; it keeps trying. Longer than the keeper's SETTLED_AFTER_S
WITHOUT_BOT = (
    "no NIGHTSHIFT_TOKEN: the bot stays off. To get it: docs/telegram.md, "
    "or NIGHTSHIFT_CHAT=page for a page on this machine."
)


@click.command("runner")
def runner() -> None:
    """Run jobs in the foreground until Ctrl-C. Running jobs go on after that."""
    from runner.config import settings
    from runner.loop import main_loop

    main_loop.main(settings.load())


@click.command("up")
@click.option("--detach", is_flag=True, help="Return when it is up; it stays after the terminal is closed.")
def up(detach: bool) -> int:
    """Run jobs and the bot, and restart any part of nightshift that dies."""
    from runner.config import settings
    from runner.store.connection import prepare_home

    folder = settings.load().home
    parts = _parts(folder)
    prepare_home(folder)
    _take_over(folder)
    if len(parts) == 1:
        say(WITHOUT_BOT)
    if detach:
        return _detach(folder, parts)
    return _keep(folder, parts, partial(_tell_up, folder))


def _take_over(folder: str) -> None:
    """Stop the runner and the bot that an earlier `up` left running when it was killed."""
    from runner.terminal.takeover import take_over

    if names := take_over(folder):
        who = " and ".join(reversed(names))
        say(f"an earlier `nightshift up` was killed, and its {who} went on: taken over and restarted; jobs go on")


# -- what is kept up -----------------------------------------------------------------------------------


def _parts(folder: str, *, any_port: bool = False) -> list[Part]:
    """Return the runner, and the bot if it is set up. `any_port`: its page may use another port if its own is taken."""
    from runner.config import home
    from runner.processes.process_lock import is_ready
    from runner.terminal.cli import BOT_IS_WANTED, PAGE_SOCKET
    from runner.terminal.keeper import Part
    from runner.terminal.spawn import command

    found = [
        Part(
            name="runner",
            command=command("runner"),
            is_ready=partial(is_ready, folder),
            meanwhile="running jobs go on",
        )
    ]
    if BOT_IS_WANTED.load()():
        ready = partial(is_ready, folder, lock=home.BOT_LOCK, bell=home.BOT_BELL)
        found.append(
            Part(
                name="bot",
                command=command("bot"),
                is_ready=ready,
                meanwhile="the runner goes on",
                handed=[*_token(), *PAGE_SOCKET.load()(any_port)],
                worked_before=_bot_was_up_before(folder),
            )
        )
    return found


def _bot_was_up_before(folder: str) -> bool:
    """Return whether the bot ever worked: a token revoked one night must not stop the queue when the box restarts."""
    from runner.api import Queue
    from runner.errors import OperatorError

    try:
        with Queue(folder, actor="") as queue:
            return queue.box.get("bot id") is not None
    except OperatorError:  # the runner reports what is wrong, and may repair it
        return True


def _token() -> list[Handed]:
    """Return the bot's token to pass on, if this process was given it."""
    from runner.terminal.cli import BOT_TOKEN

    found: list[Handed] = BOT_TOKEN.load()()
    return found


def _keep(folder: str, parts: list[Part], on_ready: Callable[[], None]) -> int:
    """Keep the parts up in this process, and show their log while there is a terminal. Return the exit code."""
    from runner.terminal.keeper import Keeper
    from runner.terminal.service_log import Shown, opened_log

    with opened_log(folder) as output, Shown(folder, output) as shown:

        def tell() -> None:
            shown.catch_up()
            with contextlib.suppress(OSError):  # the terminal is gone
                on_ready()
                sys.stdout.flush()

        with open(output, "a", encoding="utf-8", closefd=False) as words:
            logging.basicConfig(
                level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=words
            )
            logging.raiseExceptions = False
            return Keeper(folder, parts, output, tell).run()


def _tell_up(folder: str) -> None:
    """Print which processes are up, where their log is, and the link to the chat."""
    from runner.config import home
    from runner.processes.process_lock import written_pid
    from runner.terminal.service_log import log_path

    bot = written_pid(folder, home.BOT_LOCK) if _bot_is_ready(folder) else None
    whose = f"runner pid {written_pid(folder, home.RUNNER_LOCK)}" + (f", bot pid {bot}" if bot else "")
    print(f"nightshift is up ({whose}); its log: {log_path(folder)}")
    _tell_link(folder)


def _bot_is_ready(folder: str) -> bool:
    from runner.config import home
    from runner.processes.process_lock import is_ready, written_pid

    pid = written_pid(folder, home.BOT_LOCK)
    return pid is not None and is_ready(folder, pid, home.BOT_LOCK, home.BOT_BELL)


def _link(folder: str) -> str | None:
    from runner.config import home

    if home.setting("CHAT") != "page" or not _bot_is_ready(folder):
        return None
    with contextlib.suppress(OSError), open(os.path.join(folder, home.PAGE_LINK), encoding="utf-8") as file:
        return file.read().strip() or None
    return None


def _tell_link(folder: str) -> None:
    """Print the link to a terminal, but only its file into a log: anyone with the link may do everything."""
    from runner.config import home

    if link := _link(folder):
        print(f"The chat: {link}" if sys.stdout.isatty() else f"The chat's link is in {folder}/{home.PAGE_LINK}")


# -- in the background ---------------------------------------------------------------------------------


def _detach(folder: str, parts: list[Part]) -> int:
    from runner.config import home
    from runner.processes.process_lock import KEEPER_LOCK, holder
    from runner.terminal.service_log import log_path, opened_log
    from runner.terminal.spawn import command, start

    already = holder(folder, home.RUNNER_LOCK) or holder(folder, KEEPER_LOCK)
    if already:
        print(f"nightshift is already up for {folder} (pid {already}).")
        _tell_link(folder)
        if holder(folder, KEEPER_LOCK) is None:
            print("Nobody would start it again if it died. For that: nightshift down && nightshift up --detach")
        if len(parts) > 1 and not _bot_is_ready(folder):
            print(f"Its bot is not up; {log_path(folder)} says why. Restart: nightshift down && nightshift up --detach")
        return 0
    with opened_log(folder) as log:
        begin = os.fstat(log).st_size
        keeper = start(command("up"), log, _token())
    return _wait_until_up(folder, keeper, begin, with_bot=len(parts) > 1)


def _wait_until_up(folder: str, keeper: subprocess.Popen[bytes], begin: int, *, with_bot: bool) -> int:
    """Wait for the runner and, up to a time-out, the bot. Return the exit code; print the log if one fails."""
    from runner.terminal.keeper import IS_OFF
    from runner.terminal.service_log import said_since
    from runner.terminal.wait_for_jobs import Changes

    waited = _Waited()
    with contextlib.closing(Changes(folder)) as changes:
        while keeper.poll() is None:
            if _runner_is_ready(folder, keeper.pid):
                if with_bot and IS_OFF.format("BOT") in (said := said_since(folder, begin)):
                    sys.stderr.write(said)
                    print("The runner is up, and jobs run; the bot is not. Why, is said above.")
                    return 2
                connected = not with_bot or _bot_is_connected(folder, begin)
                if connected or waited.long_enough(_bot_is_ready(folder)):
                    _tell_detached(folder, connected)
                    return 0
            changes.wait(0.1)
    sys.stderr.write(said_since(folder, begin))
    return keeper.returncode or 0


def _runner_is_ready(folder: str, keeper: int) -> bool:
    from runner.config import home
    from runner.processes.process_lock import is_ready, written_pid

    pid = written_pid(folder, home.RUNNER_LOCK)
    return pid is not None and pid != keeper and is_ready(folder, pid)


class _Waited:
    """Measures how long we have waited for the bot: to come up, and then to reach Telegram."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._up_since: float | None = None

    def long_enough(self, is_up: bool) -> bool:
        now = time.monotonic()
        self._up_since = (self._up_since or now) if is_up else None
        return now - self._began > BOT_STARTS_WITHIN_S or (is_up and now - (self._up_since or now) > NETWORK_WAIT_S)


def _bot_is_connected(folder: str, begin: int) -> bool:
    """Return whether the bot has logged that it is up: before that, Telegram may still refuse its token."""
    from runner.config import home
    from runner.processes.process_lock import written_pid
    from runner.terminal.service_log import said_since

    return _bot_is_ready(folder) and f"bot pid {written_pid(folder, home.BOT_LOCK)} up" in said_since(folder, begin)


def _tell_detached(folder: str, connected: bool) -> None:
    _tell_up(folder)
    if not connected:
        print("The bot has not reached Telegram yet and keeps trying; `nightshift doctor` tells how it stands.")
    print("Stop it: nightshift down (running jobs go on)")
    _tell_if_held(folder)


def _tell_if_held(folder: str) -> None:
    from runner.api import Queue

    with Queue(folder, actor="") as queue:
        if held := queue.held():
            print(f"Note: {held}.")


@click.command("down")
def down() -> None:
    """Stop nightshift. Running jobs go on, and the next `up` follows them again."""
    from runner.config import home
    from runner.processes.process_lock import KEEPER_LOCK, ask_to_leave
    from runner.terminal.takeover import take_over

    folder = home.state_folder()
    asked = [ask_to_leave(folder, name) for name in (KEEPER_LOCK, home.BOT_LOCK, home.RUNNER_LOCK)]
    if not any([*asked, *take_over(folder, insist=False)]):
        print(f"Nothing was up for {folder}.")
        return
    print(f"nightshift is down. {_still_running()}")


def _still_running() -> str:
    from runner.errors import OperatorError

    try:
        with open_queue() as queue:
            live = len(queue.jobs.under_way())
    except OperatorError as error:
        return str(error)
    return f"{counted(live, 'job') if live else 'No job'} {'goes' if live < 2 else 'go'} on running."


# -- trying it out -------------------------------------------------------------------------------------


@click.command("demo")
def demo() -> int:
    """Try nightshift with a chat page, in a state folder of its own. GPUs are simulated if there are none."""
    from runner.config import home, settings
    from runner.processes.process_lock import KEEPER_LOCK, holder
    from runner.store.connection import prepare_home

    os.environ.setdefault("NIGHTSHIFT_HOME", os.path.expanduser(DEMO_HOME))
    os.environ["NIGHTSHIFT_CHAT"] = "page"
    if home.setting("GPUS") is None:
        os.environ["NIGHTSHIFT_GPUS"] = _demo_gpus()
    found = settings.load()
    prepare_home(found.home)
    if holder(found.home, KEEPER_LOCK) is not None and (link := _link(found.home)):
        print(f"The demo runs already.\n\n  The chat, in your browser:  {link}\n")
        return 0
    _take_over(found.home)
    _make_workspace(found.home)
    simulated = found.gpus.startswith("sim:")
    print(f"State in {found.home}; GPUs: {found.gpus}{' – these are SIMULATED' if simulated else ''}.", flush=True)
    code = _keep(found.home, _parts(found.home, any_port=True), partial(_tell_demo, found.home))
    with contextlib.suppress(OSError):
        _tell_demo_end(found.home, code)
    return code


def _demo_gpus() -> str:
    """Return the setting for real GPUs if NVML answers, else for simulated ones."""
    from runner.gpu import driver_check

    return DEMO_GPUS if driver_check.check() else "auto"


def _make_workspace(folder: str) -> None:
    """Add a workspace for chat jobs if there is none: the current folder, or the state folder if it is not writable."""
    from runner.api import Queue
    from runner.config.workspace import Workspace, validate

    here = os.getcwd()
    usual = here != "/" and os.access(here, os.W_OK | os.X_OK)
    with Queue(folder, actor="demo", begin=True) as queue:
        if not queue.workspaces.all():
            queue.workspaces.put(validate(Workspace(name="demo", dir=here if usual else folder, default=True)))


def _tell_demo(folder: str) -> None:
    link = _link(folder)
    print(f"\n  The chat, in your browser:  {link}\n")
    print("Send it /submit echo hello from GPU $CUDA_VISIBLE_DEVICES")
    print("In another terminal:")
    print(f"  export NIGHTSHIFT_HOME={shlex.quote(folder)}")
    print('  export PATH="$PATH:$NIGHTSHIFT_HOME/bin"')
    print("  nightshift submit -- 'echo hello from GPU $CUDA_VISIBLE_DEVICES; nightshift gpus'")
    print("  nightshift ls")
    print("Ctrl-C ends the demo.\n")


def _tell_demo_end(folder: str, code: int) -> None:
    from runner.api import Queue

    if code:
        return
    with Queue(folder, actor="demo") as queue:
        live = [f"#{job.id}" for job in queue.jobs.under_way()]
    print("The demo has ended.")
    if live:
        one = len(live) == 1
        print(
            f"{counted(len(live), 'job')} {'goes' if one else 'go'} on running: {', '.join(live)}."
            f" Start the demo again to watch {'it' if one else 'them'}, or to kill {'it' if one else 'them'}."
        )
