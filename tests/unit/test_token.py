"""The bot's token: where it may lie, and who can see it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot import settings
from bot.secrets import token
from runner import home
from runner.errors import OperatorError

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


def run(code, pipe=None, **env):
    return subprocess.run(
        [sys.executable, "-c", code], env={"PATH": os.environ["PATH"], **env}, cwd=ROOT, capture_output=True, text=True,
        check=False, pass_fds=[] if pipe is None else [pipe],
    )  # fmt: skip


def test_a_descriptor_is_read_once_and_closed():
    read = token.pipe_with(GOOD)
    code = (
        "import os; from bot.secrets import token; token.out_of_sight('bot')\n"
        f"print(token.handed(), 'NIGHTSHIFT_TOKEN_FD' in os.environ, os.path.exists('/proc/self/fd/{read}'))"
    )
    done = run(code, read, NIGHTSHIFT_TOKEN_FD=str(read))
    os.close(read)
    assert done.stdout == f"{GOOD} False False\n", done.stderr


def test_a_descriptor_that_is_none():
    done = run("from bot.secrets import token; token.out_of_sight('bot')", NIGHTSHIFT_TOKEN_FD="77")
    assert "NIGHTSHIFT_TOKEN_FD=77 is no open file" in done.stderr


SHOW = """
import os, sys
from bot.secrets import token
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
        "import ctypes, os, sys; from bot.secrets.token import guard\n"
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
