"""Commands that are loaded only when they are called, and a hint for those that do not exist."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


class Entry(NamedTuple):
    """Where a command is to be found, and what it does."""

    place: str  # module:attribute
    help: str

    def load(self) -> Any:
        """The thing itself."""
        module, _, attribute = self.place.partition(":")
        return getattr(importlib.import_module(module), attribute)


class Commands(click.Group):
    """A group that knows its commands by name and loads the one that is called."""

    def __init__(self, sections: Mapping[str, Mapping[str, Entry]], **settings: Any) -> None:
        super().__init__(**settings)
        self._sections = sections
        self._entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All names, in the order of the help."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, loaded now."""
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        loaded: click.Command = entry.load()
        return loaded

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Nothing typed means help."""
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else ["--help"]))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command meant; one that is not there is answered with the nearest that is."""
        if args[0] not in self._entries and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(
                f"There is no command {args[0]!r}{nearest(args[0], list(self._entries)) or '.'}", ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The help's list, without loading a single command."""
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names that begin so, and options."""
        named = [(name, entry) for name, entry in self._entries.items() if name.startswith(incomplete)]
        return [
            *(CompletionItem(name, help=entry.help) for name, entry in named),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


class PassedOn(click.Command):
    """A command that reads its own words; here it only has a name, and flags to complete."""

    def __init__(self, name: str, run: Entry, flags: Entry | None = None) -> None:
        super().__init__(name, help=run.help, add_help_option=False)
        self._run, self._flags = run, flags

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave them as they are."""
        ctx.args = list(args)
        return ctx.args

    def invoke(self, ctx: click.Context) -> Any:
        """Hand them over."""
        return self._run.load()(ctx.args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Flags before anything else, files otherwise."""
        if not incomplete.startswith("-"):
            return [CompletionItem(incomplete, type="file")]
        flags: Sequence[tuple[str, str]] = self._flags.load()() if self._flags else ()
        return [CompletionItem(flag, help=text) for flag, text in flags if flag.startswith(incomplete)]


def nearest(word: str, known: Sequence[str]) -> str:
    """A question to end a sentence with, if something like the word is known."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
