"""Terminal commands about jobs: their names, what each does, and where it is."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from runner.errors import UserError
from runner.terminal.command_group import HELP_NAMES, Commands, Entry, PassedOn
from runner.terminal.completion import VARIABLE, complete

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = "runner.terminal"

SECTIONS = {
    "Jobs": {
        "submit": Entry(f"{_T}.cli:submit", "queue a job, or one per line from standard input"),
        "feed": Entry(f"{_T}.cli:feed", "run one command per line from standard input, and stay until all is done"),
        "sweep": Entry(f"{_T}.cli:sweep", "queue a command for each combination of its parameters"),
        "ls": Entry(f"{_T}.ls:ls", "what runs, what waits, what ended last"),
        "group": Entry(f"{_T}.groups:group", "a sweep or another group of jobs: how far it is, the best of them"),
        "show": Entry(f"{_T}.show:show", "all about one job"),
        "log": Entry(f"{_T}.log:log", "the output of a job; -f follows it"),
        "kill": Entry(f"{_T}.kill:kill", "stop jobs that run, cancel those that wait"),
        "rerun": Entry(f"{_T}.rerun:rerun", "the same job again, perhaps with changed arguments"),
        "edit": Entry(f"{_T}.cli:edit", "change jobs that wait: any option, and the command"),
        "hold": Entry(f"{_T}.queue_order:hold", "keep jobs that wait from starting"),
        "release": Entry(f"{_T}.queue_order:release", "let held jobs start"),
        "first": Entry(f"{_T}.queue_order:first", "put jobs that wait before the others"),
        "sooner": Entry(f"{_T}.queue_order:sooner", "put a job that waits one place further to the front"),
        "later": Entry(f"{_T}.queue_order:later", "put a job that waits one place further to the back"),
        "move": Entry(f"{_T}.queue_order:move", "put a job that waits before or after another, first or last"),
        "keep": Entry(f"{_T}.limits:keep", "leave jobs alone whose GPUs are idle"),
        "extend": Entry(f"{_T}.limits:extend", "give a job more time than its limit"),
        "wait": Entry(f"{_T}.wait:wait", "wait until jobs have ended"),
        "shell": Entry(f"{_T}.shell:shell", "a shell in a job's folder, with its environment and GPUs"),
        "watch": Entry(f"{_T}.watch:watch", "run a command here and now, and end it when the GPUs are idle"),
    },
    "The box": {
        "gpus": Entry(f"{_T}.gpus:gpus", "load, memory, state and jobs of each GPU"),
        "pause": Entry(f"{_T}.control:pause", "start nothing more"),
        "resume": Entry(f"{_T}.control:resume", "go on after a pause or a drain"),
        "drain": Entry(f"{_T}.control:drain", "let running jobs finish, start no more"),
        "stay": Entry(f"{_T}.control:stay", "do not run the command for an empty queue this time"),
        "ws": Entry(f"{_T}.workspaces:workspaces", "workspaces: where and as what jobs run"),
        "prune": Entry(f"{_T}.prune:prune", "remove old output, run directories, jobs"),
    },
    "Running nightshift": {
        "up": Entry(f"{_T}.service:up", "runner and bot; --detach stays after the terminal is closed"),
        "down": Entry(f"{_T}.service:down", "stop that; running jobs go on"),
        "runner": Entry(f"{_T}.service:runner", "the runner alone, in the foreground"),
        "bot": Entry("bot.cli:bot", "the bot alone, in the foreground"),
        "page": Entry("bot.terminal.page_link:page", "the link to the chat page; --new-link makes the old one useless"),
        "pair": Entry("bot.terminal.people:pair", "let somebody use the bot: a link that works once"),
        "audit": Entry(f"{_T}.audit:audit", "who did what; --verify that nobody changed it"),
        "demo": Entry(f"{_T}.service:demo", "try it: a chat page, and simulated GPUs where there are none"),
        "doctor": Entry(f"{_T}.doctor:doctor", "check this box, and how to mend it"),
        "sim-load": Entry(f"{_T}.cli:sim_load", "put load on simulated GPUs"),
        "completion": Entry(f"{_T}.completion:completion", "the script for your shell's Tab key"),
    },
}

# Of the chat face the runner knows these names and nothing else.
BOT_IS_WANTED = Entry("bot.cli:is_wanted", "whether a bot is set up")
BOT_TOKEN = Entry("bot.cli:handed_token", "the token, for a process that runs the bot")
PAGE_SOCKET = Entry("bot.cli:handed_socket", "where the chat page listens, for one bot after the other")
CHAT_CHECKS = Entry("bot.terminal.doctor:examine", "what the doctor looks at")

submit = PassedOn(
    "submit",
    Entry(f"{_T}.submit:main", "Queue a job."),
    Entry(f"{_T}.completion:submit_flags", ""),
)
feed = PassedOn(
    "feed",
    Entry(f"{_T}.feed:main", "Run commands from standard input."),
    Entry(f"{_T}.completion:feed_flags", ""),
)
sweep = PassedOn(
    "sweep",
    Entry(f"{_T}.sweep:main", "Queue a command for each combination of its parameters."),
    Entry(f"{_T}.completion:sweep_flags", ""),
)
edit = PassedOn(
    "edit",
    Entry(f"{_T}.edit:main", "Change jobs that wait."),
    Entry(f"{_T}.completion:edit_flags", ""),
)
sim_load = PassedOn("sim-load", Entry("runner.gpu.sim.load:main", "Hold memory of simulated GPUs."))


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
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
    help="A queue for your GPUs: submit jobs, and each starts the moment a GPU is free.",
    context_settings=HELP_NAMES,
    epilog="Exit codes: 0; 1 for what you can mend; 2 for what whoever runs the box must mend.",
    params=[
        click.Option(
            ["--env-file"],
            metavar="FILE",
            expose_value=False,
            is_eager=True,
            callback=_use_env_file,
            help="Settings from this file instead of .env in the state folder.",
        ),
        click.Option(
            ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="The version."
        ),
    ],
)


def main(words: Sequence[str]) -> int:
    """Run one command; its exit code. What the user got wrong is raised as UserError."""
    if VARIABLE in os.environ:
        return complete(commands, os.environ[VARIABLE])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a terminal that knows no … gets \u2026
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
