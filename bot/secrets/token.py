"""The bot's token: where it may lie, and how it gets to the one process that uses it.

An environment is readable in /proc by every job of the same account, so a token never stays in one: a process that
finds it there passes it to itself through a pipe and starts anew without it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from bot.settings import ChatSettings

VARIABLE, FILE_VARIABLE, DESCRIPTOR_VARIABLE = "NIGHTSHIFT_TOKEN", "NIGHTSHIFT_TOKEN_FILE", "NIGHTSHIFT_TOKEN_FD"
USERS = ("up", "bot", "doctor")  # commands that have a use for it
CREDENTIALS = ("nightshift-token", "token")
SHAPE = r"\d+:[A-Za-z0-9_-]{30,}"
LONGEST = 1000
PR_SET_DUMPABLE = 4
HOW_TO_GET_ONE = (
    "There is no token for the bot. @BotFather in Telegram gives one (/newbot); put it into {home}/.env as"
    " NIGHTSHIFT_TOKEN=… (chmod 600), or try the chat without Telegram: NIGHTSHIFT_CHAT=page"
)

_handed: str | None = None


class Source(NamedTuple):
    """Where the token was found, in words, and how to read it."""

    place: str
    read: Callable[[], str]


def out_of_sight(command: str) -> None:
    """Take the token out of this process' environment, as /proc shows it; does not return if it was there."""
    global _handed  # noqa: PLW0603 - a process has one token or none
    if VARIABLE in os.environ:
        _start_anew(os.environ.pop(VARIABLE) if command in USERS else "")
    if DESCRIPTOR_VARIABLE in os.environ:
        _handed = _received(os.environ.pop(DESCRIPTOR_VARIABLE))


def _start_anew(token: str) -> NoReturn:
    """This very command again, in this very process, with the token in a pipe."""
    os.environ.pop(VARIABLE, None)
    if token:
        os.environ[DESCRIPTOR_VARIABLE] = str(pipe_with(token))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


def pipe_with(text: str) -> int:
    """A descriptor for a child to read this text from, once."""
    read, write = os.pipe()
    os.write(write, text.encode()[:LONGEST])
    os.close(write)
    os.set_inheritable(read, True)
    return read


def _received(number: str) -> str | None:
    from runner.errors import OperatorError

    guard()
    try:
        with open(int(number), encoding="utf-8", errors="replace") as pipe:
            return pipe.read(LONGEST).strip() or None
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"{DESCRIPTOR_VARIABLE}={number} is no open file: the bot's token was to come by it."
        ) from error


def handed() -> str | None:
    """The token this process was started with, if it was: to be handed on to the bot."""
    return _handed


def guard() -> None:
    """From now on no other process of this account can look into this one's memory; root still can."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def source(settings: ChatSettings) -> Source | None:
    """Where the token is: what this process was given, then the environment's file, .env, and systemd's credentials."""
    if given := _handed:
        return Source(VARIABLE, lambda: given)
    in_env_file = settings.token.get_secret_value() if settings.token else ""
    if in_env_file and FILE_VARIABLE not in os.environ:
        return Source(_env_file(settings.home), lambda: _checked_env_file(settings.home, in_env_file))
    if path := settings.token_file:
        from bot.settings import read_token_file

        return Source(os.path.expanduser(path), lambda: read_token_file(path))
    return _credential(os.environ.get("CREDENTIALS_DIRECTORY", ""))


def find(settings: ChatSettings) -> str | None:
    """The token itself; None if there is none. OperatorError, which never repeats it, if it cannot be one."""
    from runner.errors import OperatorError

    found = source(settings)
    if found is None:
        return None
    guard()
    token = found.read()
    if not re.fullmatch(SHAPE, token):
        raise OperatorError(
            f"What {found.place} holds is not a bot's token: digits, a colon, then some 35 letters and digits."
            " @BotFather shows it again: /mybots, API Token."
        )
    return token


def _env_file(home: str) -> str:
    from runner.api.chat import env_file

    return env_file() or os.path.join(home, ".env")


def _checked_env_file(home: str, token: str) -> str:
    from runner.errors import OperatorError

    path = _env_file(home)
    if os.path.isfile(path) and os.stat(path).st_mode & 0o077:
        raise OperatorError(f"Others can open {path}, which holds the bot's token.\n  chmod 600 {path}")
    return token


def _credential(folder: str) -> Source | None:
    # Their rights are systemd's doing: the files are in a folder that only this service can enter.
    for path in (os.path.join(folder, name) for name in CREDENTIALS if folder):
        if os.path.exists(path):
            return Source(path, lambda path=path: _content(path))  # type: ignore[misc] # one path each
    return None


def _content(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(LONGEST).strip()
