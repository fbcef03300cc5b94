"""`nightshift bot`, and what `up` and `demo` need to know about the bot before they start it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from bot import settings, token
from runner.errors import OperatorError

if TYPE_CHECKING:
    from bot.local_chat.page.listening_socket import Held


@click.command("bot")
@click.option("--take-over", is_flag=True, help="Remove a webhook by which another program gets this bot's messages.")
def bot(take_over: bool) -> None:
    """Run only the bot, in the foreground, until Ctrl-C. It also works without a runner, and says so."""
    found = settings.load()
    secret = None if found.chat == "page" else token.find(found)
    if secret is None and found.chat != "page":
        raise OperatorError(token.HOW_TO_GET_ONE.format(home=found.home))
    from bot import app

    if sys.stdout.isatty():
        _greet(found)
    app.main(found, secret, take_over=take_over)


def _greet(found: settings.ChatSettings) -> None:
    """Print what to do next, for somebody who started the bot by hand. Under `up` the bot writes to its log instead."""
    from runner.terminal.session import open_queue, warn_without_runner

    with open_queue() as queue:
        warn_without_runner(queue, "what is submitted waits")
    if found.chat == "page":
        print("Once it is up, `nightshift page` prints the link.")
    print("The bot runs until Ctrl-C.", flush=True)


def is_wanted() -> bool:
    """Return whether a bot is set up: it has a token, or the chat is the page."""
    found = settings.load()
    return found.chat == "page" or token.source(found) is not None


def handed_token() -> list[token.Handover]:
    """Return what passes this process' token on to the process that runs the bot. Empty if it was given none."""
    given = token.handed()
    return [] if given is None else [token.Handover(given)]


def handed_socket(any_port: bool) -> list[Held]:
    """Return what passes the page's socket on to each bot in turn. Empty if the chat is not the page."""
    from bot.local_chat.page.listening_socket import Held

    found = settings.load()
    return [Held(found.page_port, or_any=any_port)] if found.chat == "page" else []
