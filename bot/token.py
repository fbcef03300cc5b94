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
import stat
import struct
import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from runner.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from bot.settings import ChatSettings

VARIABLE, FILE_VARIABLE, DESCRIPTOR_VARIABLE = "NIGHTSHIFT_TOKEN", "NIGHTSHIFT_TOKEN_FILE", "NIGHTSHIFT_TOKEN_FD"
USERS = ("up", "bot", "doctor", "setup")  # commands that need it
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
        _start_without_token(os.environ.pop(VARIABLE) if command in USERS else "")
    if DESCRIPTOR_VARIABLE in os.environ:
        _handed = _received(os.environ.pop(DESCRIPTOR_VARIABLE))


def _start_without_token(token: str) -> NoReturn:
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
        self._requests: socket.socket

    def open(self) -> tuple[str, int]:
        """Return the variable's value and the descriptor to inherit."""
        self._requests, asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        descriptor = asking.detach()
        return str(descriptor), descriptor

    def started(self, pid: int) -> None:
        """Give the token to this process when it asks. Does not block."""
        import threading

        threading.Thread(target=self.give, args=(pid,), daemon=True).start()

    def give(self, pid: int) -> None:
        """Give the token to the process with this pid when it asks, and to no other. Return when that is done."""
        with self._requests, contextlib.suppress(OSError):
            self._requests.settimeout(ASKED_WITHIN_S)
            while (request := _request(self._requests)) is not None:
                sender, reply = request
                with reply:
                    if sender == pid:
                        reply.send(self._token)
                        return


def _request(requests: socket.socket) -> tuple[int, socket.socket] | None:
    """Return the pid that asks and the socket for the answer, or None if nobody is left who could ask."""
    ints = array.array("i")
    while True:
        text, passed, _, _ = requests.recvmsg(1, socket.CMSG_SPACE(12) + socket.CMSG_SPACE(ints.itemsize))
        if not text:
            return None
        by_kind = {kind: data for _, kind, data in passed}
        if socket.SCM_RIGHTS in by_kind and socket.SCM_CREDENTIALS in by_kind:
            ints.frombytes(by_kind[socket.SCM_RIGHTS])
            for surplus in ints[1:]:
                os.close(surplus)
            return struct.unpack("3i", by_kind[socket.SCM_CREDENTIALS])[0], socket.socket(fileno=ints[0])


def _received(number: str) -> str | None:
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
    if handed_token := _handed:
        return Source(VARIABLE, lambda: handed_token)
    if settings.token and FILE_VARIABLE not in os.environ:
        path, in_env_file = _env_file(settings.home), settings.token.get_secret_value()
        if in_env_file:
            return Source(path, partial(_from_env_file, path, in_env_file))
    if settings.token_file:
        token_file = os.path.expanduser(settings.token_file)
        return Source(token_file, partial(_content, token_file, private=True))
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    for credential in (os.path.join(folder, name) for name in CREDENTIALS if folder):
        if os.path.exists(credential):  # in a folder that only this service can enter, so it need not be private
            return Source(credential, partial(_content, credential, private=False))
    return None


def find(settings: ChatSettings) -> str | None:
    """Return the token, or None if there is none. Raise OperatorError (which never shows it) if it cannot be one."""
    place = source(settings)
    if place is None:
        return None
    guard()
    token = place.read()
    if not re.fullmatch(SHAPE, token):
        raise OperatorError(
            f"What {place.place} holds is not a bot's token: digits, a colon, then some 35 letters and digits."
            " @BotFather shows it again: /mybots, API Token."
        )
    return token


def _env_file(home: str) -> str:
    from runner.api.chat import env_file

    return env_file() or os.path.join(home, ".env")


def _refuse_open_to_others(path: str, mode: int) -> None:
    if stat.S_ISREG(mode) and mode & 0o077:
        raise OperatorError(f"Others can open {path}, which holds the bot's token.\n  chmod 600 {path}")


def _from_env_file(path: str, token: str) -> str:
    if os.path.isfile(path):
        _refuse_open_to_others(path, os.stat(path).st_mode)
    return token


def _content(path: str, *, private: bool) -> str:
    """Return the token in a file. Raise OperatorError if it cannot be read, or is to be private and is not."""
    try:
        with open(path, encoding="ascii") as file:
            if private:
                _refuse_open_to_others(path, os.fstat(file.fileno()).st_mode)
            return file.read(LONGEST).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds more than a token"
        raise OperatorError(f"The token file {path} cannot be read: {why}.") from error
