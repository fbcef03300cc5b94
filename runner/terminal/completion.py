"""Completion in the shell: commands, options, job numbers and group names."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from collections.abc import Callable

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


def group_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return those of the latest groups whose names begin with what was typed."""
    from runner.store.groups import Groups

    names = _looked_up(lambda store: Groups(store).latest(OFFERED))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _looked_up(look: Callable[[Store], list[T]]) -> list[T]:
    """Return what `look` finds, or nothing if the queue cannot be opened: no errors while somebody types."""
    from runner.config import home
    from runner.errors import NightshiftError
    from runner.store.connection import DATABASE, open_store

    try:
        folder = home.state_folder()
        if not os.path.exists(os.path.join(folder, DATABASE)):
            return []
        with closing(open_store(folder, begin=False)) as store:
            return look(store)
    except (NightshiftError, OSError):
        return []


def _item(job: Job) -> CompletionItem:
    from runner.text.table import shortened
    from runner.text.words import state_words, title

    return CompletionItem(str(job.id), help=shortened(f"{state_words(job)}: {title(job)}", WIDEST))
