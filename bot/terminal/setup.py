"""`nightshift setup`: from an empty home to a job on the phone, step by step. What is already there is left alone."""

from __future__ import annotations

import os
import re
import sys
import time
from getpass import getpass
from typing import TYPE_CHECKING, Any

import click

from bot import settings, token
from bot.store.people import PAIRING_S, People
from bot.terminal.doctor import ask_telegram
from bot.terminal.people import has_admin, invitation, link_of
from runner.api import Queue
from runner.api.chat import (
    BOT_LOCK,
    KEEPER_LOCK,
    Workspace,
    env_file,
    holder,
    prepare_home,
    printable,
    write_variable,
)
from runner.errors import NightshiftError, OperatorError, UserError
from runner.terminal import service
from runner.terminal.checks import FAIL, Finding
from runner.terminal.console import user
from runner.terminal.submit import Submission
from runner.terminal.wait import wait_for, wait_until
from runner.terminal.workspaces import put
from runner.text.words import state_words

if TYPE_CHECKING:
    from bot.settings import ChatSettings

TRIES = 3
VENV = ". .venv/bin/activate"
FIRST_JOB = 'echo "nightshift works on $(hostname). GPU: ${CUDA_VISIBLE_DEVICES:-none}"'


@click.command("setup")
def setup() -> int:
    """Set up the chat: checks the bot's token, lets your phone in, makes a workspace and runs a first job.

    Run it again at any time: it does only what is missing.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("`nightshift setup` asks questions, so it needs a terminal. docs/telegram.md has the steps.")
    config = settings.load()
    if config.chat == "page":
        raise UserError("The chat is a page on this machine (NIGHTSHIFT_CHAT=page) and needs no set-up: nightshift up")
    prepare_home(config.home)
    username, is_new = _set_up_token(config)
    with Queue(config.home, actor=user(), begin=True) as queue:
        people = People(queue.store)
        # before the bot starts: it refuses to start if nobody could ever use it
        code = None if has_admin(config, people) else invitation(queue, people, "admin")
        _start(config, again=is_new)
        _let_phone_in(config, queue, username, code)
        _make_workspace(queue)
        return _run_first_job(queue)


# -- the token ---------------------------------------------------------------------------------------------------------


def _set_up_token(config: ChatSettings) -> tuple[str, bool]:
    """Make sure that there is a token that Telegram knows. Return the bot's user name, and whether the token is new."""
    known = token.find(config)
    if known and (username := _username(config, known)):
        return username, False
    if known:
        print("Telegram does not know the token that is set up here.")
    return _ask_for_token(config), True


def _start(config: ChatSettings, *, again: bool) -> None:
    """Start the runner and the bot, unless they are up; `again`: also if they are, because they have another token."""
    if holder(config.home, BOT_LOCK) and not again:
        return
    if holder(config.home, KEEPER_LOCK) or holder(config.home, BOT_LOCK):
        _call(service.down)
    if code := _call(service.up, detach=True):
        raise OperatorError(f"nightshift did not start (exit code {code}). Ask: nightshift doctor")


def _ask_for_token(config: ChatSettings) -> str:
    """Ask until Telegram knows the token, and write it into .env. Return the bot's user name."""
    print("1. The bot. In Telegram, send /newbot to @BotFather and choose a name. It answers with a token.\n")
    token.guard()
    for _ in range(TRIES):
        secret = getpass("Token (it is not shown): ").strip()
        if not secret:
            break
        if not re.fullmatch(token.SHAPE, secret):
            print("That is not a token: digits, a colon, then some 35 letters and digits. Copy it from @BotFather.")
        elif username := _username(config, secret):
            path = env_file() or os.path.join(config.home, ".env")
            write_variable(path, token.VARIABLE, secret)
            print(f"Telegram knows it: @{username}. The token is in {path}, which only you can read.\n")
            return username
        else:
            print("Telegram does not know this token. @BotFather shows the right one: /mybots, API Token.")
    raise UserError("There is no token, so there is no chat. Without Telegram, try: NIGHTSHIFT_CHAT=page nightshift up")


def _username(config: ChatSettings, secret: str) -> str | None:
    """Return the user name of the bot with this token; None if Telegram does not know it."""
    me = ask_telegram(config, secret, "getMe")
    if not isinstance(me, Finding):
        return printable(str(me.get("username", "")))
    if me.level == FAIL:
        return None
    raise OperatorError(f"{me.name} {me.text}: {me.fix}")


def _call(command: click.Command, **options: Any) -> int:
    """Call another command of nightshift, and return its exit code."""
    assert command.callback is not None
    return int(command.callback(**options) or 0)


# -- the phone ---------------------------------------------------------------------------------------------------------


def _let_phone_in(config: ChatSettings, queue: Queue, username: str, code: str | None) -> None:
    """Show a link as a QR code until somebody has opened it and is admin."""
    people = People(queue.store)
    while not has_admin(config, people):
        link, until = link_of(username, code or ""), time.monotonic() + PAIRING_S
        print("2. Your phone. Scan this with its camera, or open the link, and press Start:\n")
        _print_code(link)
        print(f"\n  {link}\n\nIt works once, within {PAIRING_S / 60:.0f} minutes. Waiting for Start …", flush=True)
        wait_until(queue.home, lambda: has_admin(config, people) or time.monotonic() > until)  # noqa: B023
        code = invitation(queue, people, "admin") if not has_admin(config, people) else None
    admin = next((printable(person.name or str(person.id)) for person in people.paired() if person.role == "admin"), "")
    print(f"Your phone is in: {admin or 'NIGHTSHIFT_ADMINS'} may do everything.\n")


def _print_code(link: str) -> None:
    import segno

    segno.make(link, error="l", micro=False).terminal(compact=True)


# -- the first job -----------------------------------------------------------------------------------------------------


def _make_workspace(queue: Queue) -> None:
    """Ask where jobs from the phone run, unless there is a default workspace."""
    if queue.workspaces.default() is not None:
        return
    print("3. A workspace: where jobs from the phone run.\n")
    while True:
        folder = os.path.abspath(os.path.expanduser(click.prompt("Folder", default=os.getcwd())))
        has_venv = os.path.exists(os.path.join(folder, ".venv/bin/activate"))
        activate = click.prompt(
            "Line that activates its environment", default=VENV if has_venv else "", show_default=has_venv
        )
        name = re.sub(r"[^\w.-]+", "-", os.path.basename(folder)).strip("-")[:64] or "home"
        try:
            put(queue, Workspace(name=name, dir=folder, activate=activate or None, default=True))
            print()
            return
        except NightshiftError as error:
            print(f"That does not work: {error}\n")


def _run_first_job(queue: Queue) -> int:
    """Run a job in the workspace, print what it prints, and return its exit code."""
    print("4. A first job. Your phone hears about it, too.\n")
    workspace = queue.workspaces.default()
    assert workspace is not None
    free = any(gpu["state"] == "free" for gpu in queue.view.gpus())
    values = {"workspace": workspace.name, "gpus": int(free), "name": "first", "time_limit_s": 600.0}
    submission = Submission(queue, values)
    submission.submit(FIRST_JOB)
    code = wait_for(queue, submission.ids, print)
    job = queue.job(submission.ids[0])
    sys.stdout.buffer.write(queue.view.log(job.id).read() if job.attempt else b"")
    print(f"Job {job.id}: {state_words(job)}.")
    if not code:
        print("Next: send /submit to your bot, or type: nightshift submit -- python train.py")
    return code
