"""The bot as a command, and what `up`, `demo` and `doctor` ask about it before it runs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from bot import settings
from bot.secrets import token
from runner.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable


@click.command("bot")
@click.option("--take-over", is_flag=True, help="Remove a webhook by which another program gets this bot's messages.")
def bot(take_over: bool) -> None:
    """Run the bot alone, in the foreground, until Ctrl-C; it works without a runner too, and says so."""
    found = settings.load()
    secret = None if found.chat == "page" else token.find(found)
    if secret is None and found.chat != "page":
        raise OperatorError(token.HOW_TO_GET_ONE.format(home=found.home))
    from bot import app

    if sys.stdout.isatty():
        _greet(found)
    app.main(found, secret, take_over=take_over)


def _greet(found: settings.ChatSettings) -> None:
    """For whoever started it by hand; one that is kept up by `up` speaks through its log."""
    from runner.api.chat import PAGE_LINK, open_queue, warn_without_runner

    with open_queue() as queue:
        warn_without_runner(queue, "what is submitted waits")
    if found.chat == "page":
        print(f"The page's link is in {os.path.join(found.home, PAGE_LINK)} once it is up.")
    print("The bot runs until Ctrl-C.", flush=True)


def is_wanted() -> bool:
    """Whether a bot is set up: it has a token, or a page to talk through."""
    found = settings.load()
    return found.chat == "page" or token.source(found) is not None


def secret() -> tuple[str, Callable[[], int]] | None:
    """How a process of ours that runs the bot gets the token: a pipe for each, and the variable that names it."""
    given = token.handed()
    return None if given is None else (token.DESCRIPTOR_VARIABLE, lambda: token.pipe_with(given))


def page_port() -> int:
    """Where the chat page is to listen."""
    return settings.load().page_port
