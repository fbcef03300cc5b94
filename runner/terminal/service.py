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

from runner.api import Queue
from runner.config import home
from runner.config.workspace import Workspace, validate
from runner.errors import OperatorError
from runner.processes.file_changes import Changes
from runner.processes.process_lock import KEEPER_LOCK, ask_to_leave, holder, is_ready, written_pid
from runner.store.box import BoxKey
from runner.store.connection import prepare_home
from runner.terminal.cli import BOT_IS_WANTED, BOT_TOKEN, PAGE_SOCKET
from runner.terminal.keeper import IS_OFF, Keeper, Part, command, start, take_over
from runner.terminal.service_log import LogOnTerminal, log_path, opened_log, said_since
from runner.terminal.session import counted, open_queue, say

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

DEMO_HOME = "~/.nightshift-demo"
DEMO_GPUS = "sim:2x24GiB"
BOT_STARTS_WITHIN_S = 60.0
NETWORK_WAIT_S = 6.0  # for a bot that is up to connect; it keeps trying. Longer than the keeper's SETTLED_AFTER_S
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
WITHOUT_BOT = (
    "no NIGHTSHIFT_TOKEN is set, so the bot stays off. docs/telegram.md says how to get one. "
    "Or set NIGHTSHIFT_CHAT=page for a chat page on this machine."
)


@click.command("runner")
def runner() -> None:
    """Run jobs in the foreground until Ctrl-C. Running jobs go on after that."""
    from runner.config import settings
    from runner.loop import main_loop

    main_loop.main(settings.load())


@click.command("up")
@click.option("--detach", is_flag=True, help="Return when it is up. It keeps running after the terminal closes.")
def up(detach: bool) -> int:
    """Run the runner and the bot, and restart each if it dies. Ctrl-C or `nightshift down` stops them."""
    from runner.config import settings

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
    if names := take_over(folder):
        who = " and ".join(reversed(names))
        say(f"an earlier `nightshift up` was killed and left its {who} running. Restarted; jobs go on.")


# -- what is kept up -----------------------------------------------------------------------------------


def _parts(folder: str, *, any_port: bool = False) -> list[Part]:
    """Return the runner, and the bot if it is set up. `any_port`: its page may use another port if its own is taken."""
    runner_up = partial(is_ready, folder)
    parts = [Part(name="runner", command=command("runner"), is_ready=runner_up, meanwhile="running jobs go on")]
    if BOT_IS_WANTED.load()():
        bot = Part(
            name="bot",
            command=command("bot"),
            is_ready=partial(is_ready, folder, lock=home.BOT_LOCK, bell=home.BOT_BELL),
            meanwhile="the runner goes on",
            handed=[*BOT_TOKEN.load()(), *PAGE_SOCKET.load()(any_port)],
            worked_before=_bot_was_up_before(folder),
        )
        parts.append(bot)
    return parts


def _bot_was_up_before(folder: str) -> bool:
    """Return whether the bot ever worked: a token revoked one night must not stop the queue when the box restarts."""
    try:
        with Queue(folder, actor="") as queue:
            return queue.box.get(BoxKey.BOT_ID) is not None
    except OperatorError:  # the runner reports what is wrong, and may repair it
        return True


def _keep(folder: str, parts: list[Part], on_ready: Callable[[], None]) -> int:
    """Keep the parts up in this process, and show their log while there is a terminal. Return the exit code."""
    with opened_log(folder) as output, LogOnTerminal(folder, output) as terminal:

        def tell() -> None:
            terminal.catch_up()
            with contextlib.suppress(OSError):  # the terminal is gone
                on_ready()
                sys.stdout.flush()

        with open(output, "a", encoding="utf-8", closefd=False) as lines:
            logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=lines)
            logging.raiseExceptions = False
            return Keeper(folder, parts, output, tell).run()


def _tell_up(folder: str) -> None:
    """Print which processes are up, where their log is, and the link to the chat."""
    bot = written_pid(folder, home.BOT_LOCK) if _bot_is_ready(folder) else None
    pids = f"runner pid {written_pid(folder, home.RUNNER_LOCK)}" + (f", bot pid {bot}" if bot else "")
    print(f"nightshift is up ({pids}); its log: {log_path(folder)}")
    _tell_link(folder)


def _bot_is_ready(folder: str) -> bool:
    pid = written_pid(folder, home.BOT_LOCK)
    return pid is not None and is_ready(folder, pid, home.BOT_LOCK, home.BOT_BELL)


def _link(folder: str) -> str | None:
    if home.setting("CHAT") != "page" or not _bot_is_ready(folder):
        return None
    with contextlib.suppress(OSError), open(os.path.join(folder, home.PAGE_LINK), encoding="utf-8") as file:
        return file.read().strip() or None
    return None


def _tell_link(folder: str) -> None:
    """Print the link to a terminal, but only its file into a log: anyone with the link may do everything."""
    if link := _link(folder):
        print(f"The chat: {link}" if sys.stdout.isatty() else f"The chat's link is in {folder}/{home.PAGE_LINK}")


# -- in the background ---------------------------------------------------------------------------------


def _detach(folder: str, parts: list[Part]) -> int:
    already = holder(folder, home.RUNNER_LOCK) or holder(folder, KEEPER_LOCK)
    if already:
        print(f"nightshift is already up for {folder} (pid {already}).")
        _tell_link(folder)
        if holder(folder, KEEPER_LOCK) is None:
            print("It would not be restarted if it died. To change that: nightshift down && nightshift up --detach")
        if len(parts) > 1 and not _bot_is_ready(folder):
            print(f"Its bot is not up; {log_path(folder)} says why. Restart: nightshift down && nightshift up --detach")
        return 0
    with opened_log(folder) as log:
        begin = os.fstat(log).st_size
        keeper = start(command("up"), log, BOT_TOKEN.load()())
    return _wait_until_up(folder, keeper, begin, with_bot=len(parts) > 1)


def _wait_until_up(folder: str, keeper: subprocess.Popen[bytes], begin: int, *, with_bot: bool) -> int:
    """Wait for the runner and, up to a time-out, the bot. Return the exit code; print the log if one fails."""
    waited = _Waited()
    with contextlib.closing(Changes(folder)) as changes:
        while keeper.poll() is None:
            pid = written_pid(folder, home.RUNNER_LOCK)
            if pid and pid != keeper.pid and is_ready(folder, pid):
                if with_bot and IS_OFF.format("BOT") in (lines := said_since(folder, begin)):
                    sys.stderr.write(lines)
                    print("The runner is up and jobs run, but the bot is not up. The lines above say why.")
                    return 2
                connected = not with_bot or _bot_is_connected(folder, begin)
                if connected or waited.long_enough(_bot_is_ready(folder)):
                    _tell_detached(folder, connected)
                    return 0
            changes.wait(0.1)
    sys.stderr.write(said_since(folder, begin))
    return keeper.returncode or 0


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
    return _bot_is_ready(folder) and f"bot pid {written_pid(folder, home.BOT_LOCK)} up" in said_since(folder, begin)


def _tell_detached(folder: str, connected: bool) -> None:
    _tell_up(folder)
    if not connected:
        print("The bot has not reached Telegram yet and keeps trying. `nightshift doctor` shows whether it has.")
    print("Stop it: nightshift down (running jobs go on)")
    with Queue(folder, actor="") as queue:
        if why := queue.reasons.why_paused():
            print(f"Note: {why}.")


@click.command("down")
def down() -> None:
    """Stop nightshift. Running jobs go on, and the next `up` follows them again."""
    folder = home.state_folder()
    stopped = [ask_to_leave(folder, name) for name in (KEEPER_LOCK, home.BOT_LOCK, home.RUNNER_LOCK)]
    if not any([*stopped, *take_over(folder, insist=False)]):
        print(f"Nothing was up for {folder}.")
        return
    print(f"nightshift is down. {_still_running()}")


def _still_running() -> str:
    try:
        with open_queue() as queue:
            live = len(queue.jobs.under_way())
    except OperatorError as error:
        return str(error)
    return f"{counted(live, 'job')} {'is' if live == 1 else 'are'} still running." if live else "No job is running."


# -- trying it out -------------------------------------------------------------------------------------


@click.command("demo")
def demo() -> int:
    """Try nightshift with a chat page, in a state folder of its own. GPUs are simulated if there are none."""
    from runner.config import settings
    from runner.gpu import driver_check

    os.environ.setdefault("NIGHTSHIFT_HOME", os.path.expanduser(DEMO_HOME))
    os.environ["NIGHTSHIFT_CHAT"] = "page"
    if home.setting("GPUS") is None:
        os.environ["NIGHTSHIFT_GPUS"] = DEMO_GPUS if driver_check.check() else "auto"
    loaded = settings.load()
    folder = loaded.home
    prepare_home(folder)
    if holder(folder, KEEPER_LOCK) is not None and (link := _link(folder)):
        print(f"The demo is already running.\n\n  The chat, in your browser:  {link}\n")
        return 0
    _take_over(folder)
    _make_workspace(folder)
    simulated = loaded.gpus.startswith("sim:")
    print(f"State in {folder}; GPUs: {loaded.gpus}{' – these are SIMULATED' if simulated else ''}.", flush=True)
    code = _keep(folder, _parts(folder, any_port=True), partial(_tell_demo, folder))
    with contextlib.suppress(OSError):
        _tell_demo_end(folder, code)
    return code


def _make_workspace(folder: str) -> None:
    """Add a workspace for chat jobs if there is none: the current folder, or the state folder if it is not writable."""
    here = os.getcwd()
    usual = here != "/" and os.access(here, os.W_OK | os.X_OK)
    with Queue(folder, actor="demo", begin=True) as queue:
        if not queue.workspaces.all():
            queue.workspaces.put(validate(Workspace(name="demo", dir=here if usual else folder, default=True)))


def _tell_demo(folder: str) -> None:
    print(f"""
In another terminal:
  export NIGHTSHIFT_HOME={shlex.quote(folder)}
  export PATH="$PATH:$NIGHTSHIFT_HOME/bin"
  nightshift submit -- 'echo hello from GPU $CUDA_VISIBLE_DEVICES; nightshift gpus'
  nightshift ls
Ctrl-C ends the demo.

Send it /submit echo hello from GPU $CUDA_VISIBLE_DEVICES
The chat, in your browser:  {_link(folder)}
""")


def _tell_demo_end(folder: str, code: int) -> None:
    if code:
        return
    with Queue(folder, actor="demo") as queue:
        live = [f"#{job.id}" for job in queue.jobs.under_way()]
    print("The demo has ended.")
    if live:
        it = "it" if len(live) == 1 else "them"
        print(f"Still running: {', '.join(live)}. Start the demo again to watch or kill {it}.")
