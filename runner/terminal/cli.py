"""The list of all terminal commands: name, one-line help, and where to import each from."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from runner.errors import UserError
from runner.terminal.command_group import HELP_NAMES, Commands, Entry
from runner.terminal.completion import VARIABLE, complete

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = "runner.terminal"

SECTIONS = {
    "Queue jobs": {
        "submit": Entry(f"{_T}.submit:main", "queue a job, or one per line of standard input"),
        "sweep": Entry(f"{_T}.sweep:main", "queue a command for each combination of its parameters"),
        "feed": Entry(f"{_T}.feed:main", "run one command per line of standard input; wait for all"),
        "rerun": Entry(f"{_T}.rerun:rerun", "run a job again, with changed arguments if you like"),
    },
    "Look": {
        "ls": Entry(f"{_T}.ls:ls", "list jobs: running, waiting, ended"),
        "show": Entry(f"{_T}.show:show", "show everything about one job"),
        "log": Entry(f"{_T}.log:log", "print the output of a job; -f follows it"),
        "group": Entry(f"{_T}.groups:group", "show the progress and best results of a sweep or group"),
        "gpus": Entry(f"{_T}.gpus:gpus", "show load, memory, state and jobs of each GPU"),
        "wait": Entry(f"{_T}.wait:wait", "wait until jobs end"),
        "shell": Entry(f"{_T}.shell:shell", "open a shell with a job's folder, environment and GPUs"),
    },
    "Change jobs": {
        "kill": Entry(f"{_T}.kill:kill", "stop running jobs, cancel waiting ones"),
        "edit": Entry(f"{_T}.edit:main", "change a waiting job: its options or its command"),
        "hold": Entry(f"{_T}.queue_order:hold", "keep waiting jobs from starting"),
        "release": Entry(f"{_T}.queue_order:release", "let held jobs start"),
        "first": Entry(f"{_T}.queue_order:first", "move waiting jobs to the front"),
        "sooner": Entry(f"{_T}.queue_order:sooner", "move a waiting job one position forward"),
        "later": Entry(f"{_T}.queue_order:later", "move a waiting job one position back"),
        "move": Entry(f"{_T}.queue_order:move", "move a waiting job before or after another"),
        "keep": Entry(f"{_T}.limits:keep", "do not stop these jobs for being idle"),
        "extend": Entry(f"{_T}.limits:extend", "extend the time limit of a job"),
    },
    "The box": {
        "pause": Entry(f"{_T}.control:pause", "start no more jobs"),
        "resume": Entry(f"{_T}.control:resume", "start jobs again after a pause or a drain"),
        "drain": Entry(f"{_T}.control:drain", "let running jobs finish and start no more"),
        "stay": Entry(f"{_T}.control:stay", "cancel the command that runs when the queue is empty"),
        "ws": Entry(f"{_T}.workspaces:workspaces", "manage workspaces: folders and environments for jobs"),
        "prune": Entry(f"{_T}.prune:prune", "remove old output, run directories and jobs"),
        "watch": Entry(f"{_T}.watch:watch", "run a command without the queue; stop it if GPUs are idle"),
    },
    "Run nightshift": {
        "up": Entry(f"{_T}.service:up", "start the runner and the bot; --detach: in the background"),
        "down": Entry(f"{_T}.service:down", "stop the runner and the bot; running jobs go on"),
        "runner": Entry(f"{_T}.service:runner", "run only the runner, in the foreground"),
        "bot": Entry("bot.cli:bot", "run only the bot, in the foreground"),
        "page": Entry("bot.terminal.page_link:page", "print the link to the chat page, or make a new one"),
        "pair": Entry("bot.terminal.people:pair", "let a person use the bot: prints a link that works once"),
        "audit": Entry(f"{_T}.audit:audit", "show who did what; --verify checks that nobody changed it"),
        "demo": Entry(f"{_T}.service:demo", "try it: a chat page, and simulated GPUs if there are none"),
        "doctor": Entry(f"{_T}.doctor:doctor", "check this box and say how to fix it"),
        "sim-load": Entry("runner.gpu.sim.load:main", "put load on simulated GPUs"),
        "completion": Entry(f"{_T}.completion:completion", "print the completion script for your shell"),
    },
}

# Besides the commands above, these are the only names in `bot` that the runner knows.
BOT_IS_WANTED = Entry("bot.cli:is_wanted", "whether a bot is set up")
BOT_TOKEN = Entry("bot.cli:handed_token", "the token, for the process that runs the bot")
PAGE_SOCKET = Entry("bot.cli:handed_socket", "the socket of the chat page, for each bot process in turn")
CHAT_CHECKS = Entry("bot.terminal.doctor:examine", "what `doctor` checks about the chat")


def _print_version(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
    if not is_set or ctx.resilient_parsing:
        return
    from importlib import metadata

    try:
        version = metadata.version("nightshift-gpu")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    click.echo(f"nightshift {version}")
    ctx.exit()


def _use_env_file(_: click.Context, __: click.Parameter, path: str | None) -> None:
    from runner.config import home

    if path is not None:
        home.use_env_file(path)


commands = Commands(
    SECTIONS,
    name="nightshift",
    help="A queue for your GPUs: each job starts the moment its GPUs are free.",
    context_settings=HELP_NAMES,
    epilog="Exit codes: 0 fine, 1 fix your command, 2 ask whoever runs the box.",
    params=[
        click.Option(
            ["--env-file"],
            metavar="FILE",
            expose_value=False,
            is_eager=True,
            callback=_use_env_file,
            help="Read settings from this file, not from .env in the state folder.",
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        ),
    ],
)


def main(words: Sequence[str]) -> int:
    """Run one command and return its exit code. Raise UserError if the command line is wrong."""
    if VARIABLE in os.environ:
        return complete(commands, os.environ[VARIABLE])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a terminal without … gets \u2026
    try:
        with commands.make_context("nightshift", list(words)) as context:
            return int(commands.invoke(context) or 0)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.Abort:
        return 130
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "nightshift"
        raise UserError(f"{error.format_message()}\nMore: {path} --help") from error
    except click.ClickException as error:
        raise UserError(error.format_message()) from error
