"""Completion in the shell: commands, options, job numbers and group names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runner.config.options import Option
    from runner.model import Job
    from runner.store.connection import Store

T = TypeVar("T")

VARIABLE = "_NIGHTSHIFT_COMPLETE"
PROGRAM = "nightshift"
OFFERED = 50
WIDEST = 60

_INSTALL = {
    "bash": '# put this into ~/.bashrc:  eval "$(nightshift completion bash)"',
    "zsh": '# put this into ~/.zshrc, after compinit:  eval "$(nightshift completion zsh)"',
    "fish": "# put this into ~/.config/fish/completions/nightshift.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(sorted(_INSTALL)))
def completion(shell: str) -> None:
    """Print the script that teaches a shell to complete nightshift's commands, options and job numbers."""
    from runner.terminal.cli import commands

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(_INSTALL[shell])
    click.echo(kind(commands, {}, PROGRAM, VARIABLE).source())


def complete(group: click.Command, instruction: str) -> int:
    """Answer a shell that asks for completions."""
    from click.shell_completion import shell_complete

    return shell_complete(group, {}, PROGRAM, VARIABLE, instruction)


def job_numbers(incomplete: str, *, unfinished: bool) -> list[CompletionItem]:
    """Return the live jobs and the newest others, if their numbers begin with what was typed."""
    from runner.store.listing import Listing

    typed = incomplete.removeprefix("#")

    def find(store: Store) -> list[Job]:
        listing = Listing(store)
        live = [job for job in listing.live() if str(job.id).startswith(typed)]
        newest = listing.numbered(typed, OFFERED, unfinished=unfinished)
        return list({job.id: job for job in (*live, *newest)}.values())

    return [_item(job) for job in _looked_up(find)]


def group_names(incomplete: str) -> list[CompletionItem]:
    """Return those of the latest groups whose names begin with what was typed."""
    from runner.store.groups import Groups

    found = _looked_up(lambda store: Groups(store).latest(OFFERED))
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _looked_up(look: Callable[[Store], list[T]]) -> list[T]:
    """Return what `look` finds, or nothing if the queue cannot be opened: no errors while somebody types."""
    from runner.config import home
    from runner.errors import NightshiftError
    from runner.store.connection import DATABASE, open_store

    try:
        folder = home.state_folder()
        if not os.path.exists(os.path.join(folder, DATABASE)):
            return []
        store = open_store(folder, begin=False)
        try:
            return look(store)
        finally:
            store.close()
    except (NightshiftError, OSError):
        return []


def _item(job: Job) -> CompletionItem:
    from runner.text.table import shortened
    from runner.text.words import state_words, title

    return CompletionItem(str(job.id), help=shortened(f"{state_words(job)}: {title(job)}", WIDEST))


def submit_flags() -> list[tuple[str, str]]:
    """Return every flag of `submit` and what it does."""
    from runner.config.options import OPTIONS
    from runner.terminal.submit import OWN

    return _flags((*OPTIONS, *OWN))


def feed_flags() -> list[tuple[str, str]]:
    """The same for `feed`."""
    from runner.terminal.feed import SHOWN

    return _flags(SHOWN)


def sweep_flags() -> list[tuple[str, str]]:
    """The same for `sweep`."""
    from runner.terminal.sweep import SHOWN

    return _flags(SHOWN)


def edit_flags() -> list[tuple[str, str]]:
    """The same for `edit`."""
    from runner.terminal.edit import SHOWN

    return _flags(SHOWN)


def _flags(options: Iterable[Option]) -> list[tuple[str, str]]:
    return [(flag, option.help) for option in options for flag in option.flags]
