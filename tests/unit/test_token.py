"""The bot's token: where it may lie, and who can see it."""

import contextlib
import ctypes
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bot import settings, token
from runner.config import home
from runner.errors import OperatorError
from runner.terminal import keeper
from tests.wait import eventually

PIDFD_GETFD = 438
ROOT = Path(__file__).parents[2]
GOOD = "4242:AAnightshift-local-chat-token-000000"
OTHER = "77:" + "B" * 35


@pytest.fixture
def environ(monkeypatch, tmp_path):
    for key in [key for key in os.environ if key.startswith("NIGHTSHIFT_") or key == "CREDENTIALS_DIRECTORY"]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path))
    monkeypatch.setattr(token, "guard", lambda: None)
    monkeypatch.setattr(token, "_handed", None)
    home.use_env_file(None)
    return monkeypatch


def a_file(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def found():
    return token.find(settings.load())


def test_where_it_may_lie(environ, tmp_path):
    assert found() is None
    assert token.source(settings.load()) is None
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    environ.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert found() is None
    a_file(credentials / "token", f"{GOOD}\n", 0o440)  # the mode is systemd's doing
    assert found() == GOOD
    a_file(tmp_path / "secret", f" {OTHER}\n")
    environ.setenv("NIGHTSHIFT_TOKEN_FILE", str(tmp_path / "secret"))
    assert found() == OTHER


def test_the_env_file_and_what_wins_over_it(environ, tmp_path):
    a_file(tmp_path / ".env", f"NIGHTSHIFT_TOKEN={GOOD}\n")
    assert found() == GOOD
    assert token.source(settings.load()).place == f"{tmp_path}/.env"
    a_file(tmp_path / "secret", OTHER)
    environ.setenv("NIGHTSHIFT_TOKEN_FILE", str(tmp_path / "secret"))
    assert found() == OTHER  # the environment wins
    environ.setattr(token, "_handed", GOOD)
    assert found() == GOOD


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_files_that_others_can_open_are_refused(environ, tmp_path, mode):
    a_file(tmp_path / ".env", f"NIGHTSHIFT_TOKEN={GOOD}\n", mode)
    with pytest.raises(OperatorError, match=rf"chmod 600 {tmp_path}/\.env"):
        found()
    a_file(tmp_path / ".env", "NIGHTSHIFT_BOX=this\n", mode)  # no secret in it
    assert found() is None
    a_file(tmp_path / "secret", GOOD, mode)
    environ.setenv("NIGHTSHIFT_TOKEN_FILE", str(tmp_path / "secret"))
    with pytest.raises(OperatorError, match=f"chmod 600 {tmp_path}/secret"):
        found()


@pytest.mark.parametrize(
    "text", ["canary", "12:canary", "x:" + "A" * 35, GOOD + "\ncanary", "@canary_bot", GOOD + " #canary"]
)
def test_what_cannot_be_a_token_is_refused_and_never_repeated(environ, tmp_path, text):
    a_file(tmp_path / "secret", text)
    environ.setenv("NIGHTSHIFT_TOKEN_FILE", str(tmp_path / "secret"))
    with pytest.raises(OperatorError) as refused:
        found()
    assert "canary" not in str(refused.value)
    assert GOOD not in str(refused.value)
    assert "@BotFather" in str(refused.value)


def run(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code], env={"PATH": os.environ["PATH"], **env}, cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


ASK = """
import os, sys, time
from bot import token
number = os.environ["NIGHTSHIFT_TOKEN_FD"]
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
token.out_of_sight('bot')
print(token.handed(), 'NIGHTSHIFT_TOKEN_FD' in os.environ, os.path.exists(f'/proc/self/fd/{number}'))
"""


@pytest.fixture
def starting(tmp_path, monkeypatch):
    """A process that was started to get the token, and does not ask for it before there is a file `go`."""
    monkeypatch.chdir(ROOT)
    with (tmp_path / "out").open("wb") as output:
        command = [sys.executable, "-c", ASK, str(tmp_path / "go")]
        process = keeper.start(command, output.fileno(), [token.Handover(GOOD)])
    yield process
    process.kill()
    process.wait(60)


def goes_on(process, tmp_path):
    (tmp_path / "go").touch()
    process.wait(60)
    return (tmp_path / "out").read_text()


def inherited(process):
    """The descriptor that its environment names, once it has that environment."""
    found = re.search(rb"NIGHTSHIFT_TOKEN_FD=(\d+)\0", Path(f"/proc/{process.pid}/environ").read_bytes())
    return found and int(found[1])


def test_it_is_handed_over_once_and_the_descriptor_closed(starting, tmp_path):
    assert goes_on(starting, tmp_path) == f"{GOOD} False False\n"


def test_another_process_of_the_account_gets_nothing_from_one_that_starts(starting, tmp_path):
    """Not by opening what it has inherited, nor by asking in its place with a copy of that."""
    number = eventually(lambda: inherited(starting))
    with contextlib.suppress(OSError), open(f"/proc/{starting.pid}/fd/{number}", "rb", buffering=0) as pipe:
        os.set_blocking(pipe.fileno(), False)
        assert not pipe.read(100)
    with copied(starting, number) as asking:
        assert answer_to(asking) == b""
        asking.setblocking(False)
        with pytest.raises(BlockingIOError):
            asking.recv(100)
    assert GOOD in goes_on(starting, tmp_path)  # who was meant has got it all the same


def copied(process, number):
    handle = os.pidfd_open(process.pid)
    copy = ctypes.CDLL(None).syscall(PIDFD_GETFD, handle, number, 0)
    os.close(handle)
    return socket.socket(fileno=copy)


def answer_to(asking):
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with mine:
        with theirs:
            socket.send_fds(asking, [b"?"], [theirs.fileno()])
        return mine.recv(100)


def test_a_descriptor_that_is_none():
    done = run("from bot import token; token.out_of_sight('bot')", NIGHTSHIFT_TOKEN_FD="77")
    assert "NIGHTSHIFT_TOKEN_FD=77 is no socket" in done.stderr


SHOW = """
import os, sys
from bot import token
token.out_of_sight(sys.argv[1])
seen = open('/proc/self/environ', 'rb').read()
print(token.handed(), b'4242:' in seen, 'NIGHTSHIFT_TOKEN' in os.environ, sys.argv[1:], os.getpid())
"""


@pytest.mark.parametrize(
    ("command", "has"), [("bot", True), ("up", True), ("doctor", True), ("runner", False), ("ls", False)]
)
def test_a_process_starts_anew_without_it(command, has):
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW, command, "a b", ""], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        env={"PATH": os.environ["PATH"], "NIGHTSHIFT_TOKEN": GOOD},
    )  # fmt: skip
    said = process.communicate(timeout=60)[0]
    assert said == f"{GOOD if has else None} False False {[command, 'a b', '']} {process.pid}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become somebody else")
def test_others_of_the_same_account_cannot_look_inside():
    nobody = 65534
    code = (
        "import ctypes, os, sys; from bot.token import guard\n"
        f"os.setuid({nobody}); ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"  # as any process of that account is
        "print('open', flush=True); sys.stdin.readline(); guard(); print('guarded', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def can_look():
        look = ["cat", f"/proc/{process.pid}/environ"]
        return subprocess.run(look, user=nobody, capture_output=True, check=False, cwd="/").returncode == 0

    with process:
        assert (process.stdout.readline(), can_look()) == ("open\n", True)
        process.stdin.write("\n")
        process.stdin.flush()
        assert (process.stdout.readline(), can_look()) == ("guarded\n", False)
        process.stdin.close()
