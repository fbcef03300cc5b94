"""The nightshift command without the cost of its imports: each call is a fork of a process that has done them.

What is tested is the same program in a process of its own, with its own environment, folder, standard streams and
signals; the half second that every interpreter takes to load it is paid once for all tests. One request comes over
a Unix socket with the three streams; the answer is the pid, and later the exit status.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
LARGEST = 1 << 20


# -- in the test process -----------------------------------------------------------------------------


class Process:
    """One call of the command, with what the tests use of subprocess.Popen."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(connection.recv(64))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["nightshift"], timeout or 0.0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._connection.settimeout(timeout if timeout is None or timeout > 0 else 1e-6)
            with contextlib.suppress(TimeoutError, BlockingIOError):
                self.returncode = int(self._connection.recv(64))
                self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        self._connection.close()


def start(
    words: Sequence[str], env: Mapping[str, str], cwd: str, stdin: int | IO[Any], stdout: int | IO[Any],
    stderr: int | IO[Any],
) -> Process:  # fmt: skip
    """Call the command."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(_address())
    request = json.dumps({"words": list(words), "env": dict(env), "cwd": cwd}).encode()
    assert len(request) < LARGEST
    streams = [one if isinstance(one, int) else one.fileno() for one in (stdin, stdout, stderr)]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST)
    socket.send_fds(connection, [request], streams)
    return Process(connection)


_nursery: list[str] = []
pids: set[int] = set()  # of the nursery, which is there for all tests


def _address() -> str:
    if not _nursery:
        folder = tempfile.mkdtemp(prefix="ns-nursery")
        address = os.path.join(folder, "socket")
        process = subprocess.Popen(
            [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
            env={key: value for key, value in os.environ.items() if not key.startswith(("NIGHTSHIFT_", "PYTEST_"))},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        _nursery.append(address)
        pids.add(process.pid)
        atexit.register(_close, process, folder)
    return _nursery[0]


def _close(process: subprocess.Popen[bytes], folder: str) -> None:
    process.kill()
    process.communicate()
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, "socket"))
        os.rmdir(folder)


# -- in the nursery ----------------------------------------------------------------------------------


def _load() -> None:
    """What the commands load when they are called."""
    sys.path[0] = str(ROOT)  # in place of the folder of this script, whose `telegram` is not the library
    import importlib

    for name in (
        "nightshift", "runner.terminal.cli", "runner.terminal.submit", "runner.loop.main_loop",
        "runner.config.settings", "runner.api",
        "runner.store.migrating", "runner.terminal.doctor", "logging", "shlex", "difflib", "zoneinfo", "bot.cli",
        "bot.terminal.doctor",
        "httpx",
        *(f"runner.terminal.{path.stem}" for path in (ROOT / "runner" / "terminal").glob("*.py")),
    ):  # fmt: skip
        importlib.import_module(name)
    from tests.fakes.faulty_driver import with_faults

    with_faults()


def _serve(address: str) -> None:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(address)
    listening.listen(64)
    print("ready", flush=True)
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(0, selectors.EVENT_READ)  # closed when the tests are over
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listening:
                connection, _ = listening.accept()
                pid = _fork(connection, listening)
                connection.send(str(pid).encode())
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
            elif key.fileobj == 0:
                return
            else:
                pid, connection = key.data
                _, status = os.waitpid(pid, 0)
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                with contextlib.suppress(OSError):
                    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                connection.close()


def _fork(connection: socket.socket, listening: socket.socket) -> int:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * LARGEST)
    body, streams, _, _ = socket.recv_fds(connection, LARGEST, 3)
    pid = os.fork()
    if pid:
        for stream in streams:
            os.close(stream)
        return pid
    listening.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 10_000 else 10_000)
    _become(json.loads(body))
    return 0


def _become(request: dict[str, Any]) -> None:
    """Be that call of the command, to its end."""
    command = [sys.executable, str(ROOT / "nightshift.py"), *request["words"]]
    if "PYTHONPATH" in request["env"]:  # what is found there counts before anything is loaded
        os.chdir(request["cwd"])
        os.execve(command[0], command, request["env"])
    os.environ.clear()
    os.environ.update(request["env"])
    code = 70
    try:
        os.chdir(request["cwd"])
        sys.orig_argv, sys.argv = command, command[1:]
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", errors=errors, buffering=1 if number == 2 else -1, closefd=False)
            for number, mode, errors in (
                (0, "r", "surrogateescape"),
                (1, "w", "surrogateescape"),
                (2, "w", "backslashreplace"),
            )
        )
        import nightshift

        nightshift.main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    _load()
    _serve(sys.argv[1])
