"""`nightshift bot`, and what `up` and `demo` need to know about the bot before they start it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from bot import settings, token
from runner.errors import OperatorError

if TYPE_CHECKING:
    from bot.local_chat.page.listening_socket import HeldSocket


@click.command("bot")
@click.option("--take-over", is_flag=True, help="Remove a webhook by which another program gets this bot's messages.")
def bot(take_over: bool) -> None:
    """Run only the bot, in the foreground, until Ctrl-C. It also works without a runner, and says so."""
    config = settings.load()
    secret = None if config.chat == "page" else token.find(config)
    if secret is None and config.chat != "page":
        raise OperatorError(token.HOW_TO_GET_ONE.format(home=config.home))
    from bot import app

    if sys.stdout.isatty():
        _greet(config)
    app.main(config, secret, take_over=take_over)


def _greet(config: settings.ChatSettings) -> None:
    """Print what to do next, for somebody who started the bot by hand. Under `up` the bot writes to its log instead."""
    from runner.terminal.session import open_queue, warn_without_runner

    with open_queue() as queue:
        warn_without_runner(queue, "what is submitted waits")
    if config.chat == "page":
        print("Once it is up, `nightshift page` prints the link.")
    print("The bot runs until Ctrl-C.", flush=True)


def is_wanted() -> bool:
    """Return whether a bot is set up: it has a token, or the chat is the page."""
    config = settings.load()
    return config.chat == "page" or token.source(config) is not None


def handed_token() -> list[token.Handover]:
    """Return what passes this process' token on to the process that runs the bot. Empty if it was given none."""
    handed = token.handed()
    return [] if handed is None else [token.Handover(handed)]


def handed_socket(any_port: bool) -> list[HeldSocket]:
    """Return what passes the page's socket on to each bot in turn. Empty if the chat is not the page."""
    from bot.local_chat.page.listening_socket import HeldSocket

    config = settings.load()
    return [HeldSocket(config.page_port, or_any=any_port)] if config.chat == "page" else []
