"""The link to the chat page: its secret, where it is kept, and `nightshift page`, which prints or replaces it."""

from __future__ import annotations

import os
import secrets
import time

import click

from bot import settings
from bot.terminal.people import is_page
from runner.api.chat import BOT_BELL, BOT_LOCK, PAGE_LINK, holder, ring
from runner.errors import OperatorError, UserError
from runner.terminal.session import open_queue, say

SECRET = "page.secret"  # noqa: S105 - a file's name
SHORTEST = 20
TAKEN_WITHIN_S, LOOK_EVERY_S = 10.0, 0.02


@click.command("page")
@click.option("--new-link", is_flag=True, help="Make a new link. The old one, and pages opened with it, stop working.")
def page(new_link: bool) -> None:
    """Print the link to the chat page. Anyone who has it may do everything, with the rights of your account."""
    config = settings.load()
    with open_queue() as queue:
        if not is_page(config, queue):
            raise UserError(
                "The chat is not a page on this machine. For that: NIGHTSHIFT_CHAT=page, then nightshift up."
            )
        if new_link:
            queue.audit.add(queue.actor, "new link", {})
    # a bot with its lock but no doorbell does not listen yet: another program could answer in its place
    is_up = holder(config.home, BOT_LOCK) is not None and ring(config.home, BOT_BELL)
    secret = new_secret(config.home) if new_link else None
    if secret and is_up:
        _wait_until_taken(config.home, secret)
    if is_up:
        print(link(config.home))
    elif new_link:
        say("the old link no longer works. The bot is not up: nightshift up --detach, then nightshift page")
    else:
        raise UserError(
            "The page is not up, and another program could answer in its place. Start it: nightshift up --detach"
        )


def secret_of(home: str) -> str:
    """Return the link's secret. Make one if there is none, or if it is too short."""
    try:
        with open(os.path.join(home, SECRET), encoding="ascii", errors="replace") as file:
            secret = file.read().strip()
    except FileNotFoundError:
        secret = ""
    return secret if len(secret) >= SHORTEST else new_secret(home)


def new_secret(home: str) -> str:
    """Write and return a new secret. A running bot uses it as soon as its doorbell rings."""
    made = secrets.token_urlsafe(24)
    _write(os.path.join(home, SECRET), made)
    return made


def keep_link(home: str, url: str) -> None:
    """Write the link into the state folder."""
    _write(os.path.join(home, PAGE_LINK), url + "\n")


def link(home: str) -> str:
    """Return the link of the running page."""
    with open(os.path.join(home, PAGE_LINK), encoding="ascii") as file:
        return file.read().strip()


def _wait_until_taken(home: str, secret: str) -> None:
    ring(home, BOT_BELL)
    deadline = time.monotonic() + TAKEN_WITHIN_S
    while not link(home).endswith(f"#{secret}"):
        if time.monotonic() > deadline:
            raise OperatorError("The bot does not take the new link. Start it again: nightshift down, nightshift up")
        time.sleep(LOOK_EVERY_S)


def _write(path: str, text: str) -> None:
    draft = f"{path}.tmp"
    descriptor = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    os.replace(draft, path)
