"""The command line: the list of all commands, imported only when called, with help, suggestions and completion."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from runner.errors import UserError
from runner.terminal.console import show_any_character

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
COMPLETE, PROGRAM = "_NIGHTSHIFT_COMPLETE", "nightshift"
_INSTALL = {
    "bash": '# put this into ~/.bashrc:  eval "$(nightshift completion bash)"',
    "zsh": '# put this into ~/.zshrc, after compinit:  eval "$(nightshift completion zsh)"',
    "fish": "# put this into ~/.config/fish/completions/nightshift.fish",
}


class Entry(NamedTuple):
    """Where to import a command from, and its one-line help."""

    place: str  # module:attribute
    help: str

    def load(self) -> Any:
        """Import and return it."""
        module, _, attribute = self.place.partition(":")
        return getattr(importlib.import_module(module), attribute)


class Commands(click.Group):
    """A group that knows the names of its commands and imports only the one that is called."""

    def __init__(self, sections: Mapping[str, Mapping[str, Entry]], **settings: Any) -> None:
        super().__init__(**settings)
        self._sections = sections
        self._entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return all names, in the order of the help."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command, or None if there is no such name."""
        if cmd_name not in self._entries:
            return None
        loaded = self._entries[cmd_name].load()
        return loaded if isinstance(loaded, click.Command) else PassedOn(cmd_name, loaded)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help if nothing was typed."""
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else ["--help"]))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command. If it does not exist, raise UsageError with the nearest name."""
        if args[0] not in self._entries and (meant := _meant(args)) in self._entries:
            args = [meant, *args[1:]]
        if args[0] not in self._entries and not args[0].startswith("-") and not ctx.resilient_parsing:
            from runner.text.words import did_you_mean

            raise click.UsageError(f"There is no command {args[0]!r}{did_you_mean(args[0], self._entries) or '.'}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands for --help, without importing any of them."""
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with what was typed, and the options."""
        named = [(name, entry) for name, entry in self._entries.items() if name.startswith(incomplete)]
        return [
            *(CompletionItem(name, help=entry.help) for name, entry in named),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


def _meant(args: Sequence[str]) -> str:
    """Return the command meant by the first word. `status 12` shows one job."""
    name = ALIASES.get(args[0], args[0])
    is_job = args[0] == "status" and any(not word.startswith("-") for word in args[1:])
    return "show" if is_job else name


class PassedOn(click.Command):
    """A function that parses its own words. Its module may have SECTIONS: its options, for completion."""

    def __init__(self, name: str, run: Callable[[list[str]], int]) -> None:
        super().__init__(name, add_help_option=False)
        self._run = run

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave the words unparsed."""
        ctx.args = list(args)
        return ctx.args

    def invoke(self, ctx: click.Context) -> Any:
        """Pass the words to the command."""
        return self._run(ctx.args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return matching flags after a dash, otherwise let the shell complete files."""
        if not incomplete.startswith("-"):
            return [CompletionItem(incomplete, type="file")]
        sections = getattr(importlib.import_module(self._run.__module__), "SECTIONS", {})
        flags = {flag: option.help for options in sections.values() for option in options for flag in option.flags}
        return [CompletionItem(flag, help=text) for flag, text in flags.items() if flag.startswith(incomplete)]


_T = "runner.terminal"

SECTIONS = {
    "Queue jobs": {
        "submit": Entry(f"{_T}.submit:main", "queue a job, or one per line of standard input"),
        "sweep": Entry(f"{_T}.sweep:main", "queue a command for each combination of its parameters"),
        "feed": Entry(f"{_T}.feed:main", "run one command per line of standard input; wait for all"),
        "run": Entry(f"{_T}.run:main", "wait in the queue, then use the GPUs from this terminal"),
        "rerun": Entry(f"{_T}.rerun:rerun", "run a job again, with changed arguments if you like"),
        "save": Entry(f"{_T}.presets:save", "save a job as a preset, for submit --preset NAME"),
        "preset": Entry(f"{_T}.presets:preset", "list the presets, or delete one"),
    },
    "Look": {
        "ls": Entry(f"{_T}.ls:ls", "list jobs: running, waiting, ended"),
        "show": Entry(f"{_T}.show:show", "show everything about one job"),
        "log": Entry(f"{_T}.log:log", "print the output of a job; -f follows it"),
        "group": Entry(f"{_T}.groups:group", "show the progress and best results of a sweep or group"),
        "gpus": Entry(f"{_T}.gpus:gpus", "show load, memory, state and jobs of each GPU"),
        "top": Entry(f"{_T}.top:top", "watch GPUs and jobs live; q leaves"),
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
        "setup": Entry("bot.terminal.setup:setup", "set up the chat: token, phone, workspace, a first job"),
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
        "completion": Entry(f"{_T}.cli:completion", "print the completion script for your shell"),
    },
}

# What people try, and the command they mean.
ALIASES = {
    **dict.fromkeys(("status", "jobs", "ps"), "ls"),
    **dict.fromkeys(("stop", "cancel"), "kill"),
    **dict.fromkeys(("logs", "tail"), "log"),
}

# Besides the commands above, these are the only names in `bot` that the runner knows.
BOT_IS_WANTED = Entry("bot.cli:is_wanted", "whether a bot is set up")
BOT_TOKEN = Entry("bot.cli:handed_token", "the token, for the process that runs the bot")
PAGE_SOCKET = Entry("bot.cli:handed_socket", "the socket of the chat page, for each bot process in turn")
CHAT_CHECKS = Entry("bot.terminal.doctor:examine", "what `doctor` checks about the chat")
EXIT_CODES = "Exit codes: 0 fine, 1 fix your command, 2 the box needs fixing (nightshift doctor)."
ENV_FILE = "Read settings from this file, not from .env in the state folder."
_FIRST: dict[str, Any] = {"expose_value": False, "is_eager": True}


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


@click.group("nightshift", Commands, sections=SECTIONS, context_settings=HELP_NAMES, epilog=EXIT_CODES)
@click.option("--env-file", metavar="FILE", callback=_use_env_file, help=ENV_FILE, **_FIRST)
@click.option("--version", is_flag=True, callback=_print_version, help="Show the version and exit.", **_FIRST)
def commands() -> None:
    """A queue for your GPUs: each job starts the moment its GPUs are free."""


@click.command("completion")
@click.argument("shell", type=click.Choice(sorted(_INSTALL)))
def completion(shell: str) -> None:
    """Print the script that teaches a shell to complete nightshift's commands, options and job numbers."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(_INSTALL[shell])
    click.echo(kind(commands, {}, PROGRAM, COMPLETE).source())


def main(words: Sequence[str]) -> int:
    """Run one command and return its exit code. Raise UserError if the command line is wrong."""
    if COMPLETE in os.environ:
        return shell_complete(commands, {}, PROGRAM, COMPLETE, os.environ[COMPLETE])
    show_any_character()
    try:
        with commands.make_context(PROGRAM, list(words)) as context:
            return int(commands.invoke(context) or 0)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.Abort:
        return 130
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else PROGRAM
        raise UserError(f"{error.format_message()}\nMore: {path} --help") from error
    except click.ClickException as error:
        raise UserError(error.format_message()) from error
