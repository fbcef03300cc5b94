"""The bot's token: where it may be kept, and how it gets to the one process that uses it.

Every job of the same account can read a process' environment in /proc, so a token never stays there: a process that
finds it there runs itself again without it, and gets it handed over.
"""

from __future__ import annotations

import array
import contextlib
import os
import re
import socket
import struct
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from bot.settings import ChatSettings

VARIABLE, FILE_VARIABLE, DESCRIPTOR_VARIABLE = "NIGHTSHIFT_TOKEN", "NIGHTSHIFT_TOKEN_FILE", "NIGHTSHIFT_TOKEN_FD"
USERS = ("up", "bot", "doctor")  # commands that need it
CREDENTIALS = ("nightshift-token", "token")
SHAPE = r"\d+:[A-Za-z0-9_-]{30,}"
LONGEST = 1000
PR_SET_DUMPABLE = 4
ASKED_WITHIN_S, GIVEN_WITHIN_S = 60.0, 10.0
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
    """Take the token out of this process' environment, also as /proc shows it. Does not return if it was there."""
    global _handed  # noqa: PLW0603 - a process has one token or none
    if VARIABLE in os.environ:
        _start_anew(os.environ.pop(VARIABLE) if command in USERS else "")
    if DESCRIPTOR_VARIABLE in os.environ:
        _handed = _received(os.environ.pop(DESCRIPTOR_VARIABLE))


def _start_anew(token: str) -> NoReturn:
    """Run this command again in this process, without the token. A short-lived process hands the token over."""
    os.environ.pop(VARIABLE, None)
    if token:
        guard()
        handover = Handover(token)
        os.environ[DESCRIPTOR_VARIABLE], descriptor = handover.open()
        os.set_inheritable(descriptor, True)
        _in_grandchild(handover, descriptor, os.getpid())
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves


def _in_grandchild(handover: Handover, descriptor: int, pid: int) -> None:
    """Hand over from a grandchild: this process, once it runs the command again, would not wait for a child."""
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(descriptor)
            handover.give(pid)
        os._exit(0)
    os.wait()


class Handover:
    """Gives the token to one process, and only once no other process of this account can look into it.

    While a process starts, every process of this account can open what it inherited. So it does not inherit the token
    but a socket to ask for it. It first protects itself (`guard`), then sends one end of a new socket pair that no
    other process has ever had. The kernel says who sent it.
    """

    variable = DESCRIPTOR_VARIABLE

    def __init__(self, token: str) -> None:
        self._token = token.encode()[:LONGEST]
        self._asked: socket.socket

    def open(self) -> tuple[str, int]:
        """Return the variable's value and the descriptor to inherit."""
        self._asked, asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        descriptor = asking.detach()
        return str(descriptor), descriptor

    def started(self, pid: int) -> None:
        """Give the token to this process when it asks. Does not block."""
        import threading

        threading.Thread(target=_give, args=(self._asked, self._token, pid), daemon=True).start()

    def give(self, pid: int) -> None:
        """Give the token to this process when it asks, and return when that is done."""
        _give(self._asked, self._token, pid)


def _give(asked: socket.socket, token: bytes, pid: int) -> None:
    """Give the token to the process with this pid when it asks, and to no other."""
    with asked, contextlib.suppress(OSError):
        asked.settimeout(ASKED_WITHIN_S)
        while (request := _request(asked)) is not None:
            sender, reply = request
            with reply:
                if sender == pid:
                    reply.send(token)
                    return


def _request(asked: socket.socket) -> tuple[int, socket.socket] | None:
    """Return the pid that asks and the socket for the answer, or None if nobody is left who could ask."""
    ints = array.array("i")
    while True:
        text, passed, _, _ = asked.recvmsg(1, socket.CMSG_SPACE(12) + socket.CMSG_SPACE(ints.itemsize))
        if not text:
            return None
        found = {kind: data for _, kind, data in passed}
        if socket.SCM_RIGHTS in found and socket.SCM_CREDENTIALS in found:
            ints.frombytes(found[socket.SCM_RIGHTS])
            for surplus in ints[1:]:
                os.close(surplus)
            return struct.unpack("3i", found[socket.SCM_CREDENTIALS])[0], socket.socket(fileno=ints[0])


def _received(number: str) -> str | None:
    from runner.errors import OperatorError

    guard()
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with socket.socket(fileno=int(number)) as asking, mine:
            with theirs:
                rights = array.array("i", [theirs.fileno()])
                asking.sendmsg([b"?"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            mine.settimeout(GIVEN_WITHIN_S)
            return mine.recv(LONGEST).decode(errors="replace").strip() or None
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"{DESCRIPTOR_VARIABLE}={number} is no socket of a process that hands over the bot's token."
        ) from error


def handed() -> str | None:
    """Return the token that was handed to this process, or None. It is passed on to the bot."""
    return _handed


def guard() -> None:
    """Keep other processes of this account from reading this one's memory. Root still can."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def source(settings: ChatSettings) -> Source | None:
    """Find the token: handed over, in the environment's token file, in .env or in systemd's credentials. Else None."""
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
    """Return the token, or None if there is none. Raise OperatorError (which never shows it) if it cannot be one."""
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
    # No check of permissions: systemd puts these files into a folder that only this service can enter.
    for path in (os.path.join(folder, name) for name in CREDENTIALS if folder):
        if os.path.exists(path):
            return Source(path, lambda path=path: _content(path))  # type: ignore[misc] # one path each
    return None


def _content(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(LONGEST).strip()
