"""A click group that imports a command only when it is called, and suggests a name if there is no such command."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


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
