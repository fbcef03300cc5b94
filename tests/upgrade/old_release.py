"""An older release, taken from the history of this repository and run with this interpreter."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.wait import eventually

ROOT = Path(__file__).parents[2]


def is_in_history(commit: str) -> bool:
    """Return whether this clone has the commit; a shallow one may not."""
    question = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(question, cwd=ROOT, capture_output=True, check=False).returncode == 0


def unpack(commit: str, folder: Path) -> Path:
    """Write the source of a commit into a folder."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


class OldBox:
    """A state folder, and the commands of an older release to use it with."""

    def __init__(self, source: Path, folder: Path, **settings: str) -> None:
        self.source, self.folder = source, folder
        self.home = folder / "home"
        self.environ = {
            "PATH": os.defpath, "HOME": "/", "USER": "ada", "LOGNAME": "ada", "LANG": "C.UTF-8", "TERM": "dumb",
            "NIGHTSHIFT_HOME": str(self.home), **{f"NIGHTSHIFT_{name}": value for name, value in settings.items()},
        }  # fmt: skip

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(self.source / "nightshift.py"), *words]

    def run(self, *words: str) -> str:
        """Run a command to its end and return what it prints."""
        return subprocess.run(
            self.command(*words), env=self.environ, cwd="/", check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def start(self, word: str, **environ: str) -> subprocess.Popen[bytes]:
        """Start the runner or the bot. It is up when this returns."""
        output = self.folder / f"{word}.out"
        with output.open("wb") as file:
            process = subprocess.Popen(
                self.command(word), env={**self.environ, **environ}, cwd="/", stdin=subprocess.DEVNULL,
                stdout=file, stderr=file,
            )  # fmt: skip

        def is_up() -> bool:
            assert process.poll() is None, output.read_text()
            return f"pid {process.pid}" in output.read_text()

        eventually(is_up, 60, f"the old {word} is up")
        return process

    def close(self) -> None:
        """Kill all that is left of this box."""
        marker = f"NIGHTSHIFT_HOME={self.home}".encode()
        for _ in range(100):
            pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and marker in _environ(pid)]
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        raise AssertionError(f"still there: {pids}")

    def job(self, job_id: int) -> dict[str, Any]:
        """Return what `show --json` says about a job."""
        return json.loads(self.run("show", str(job_id), "--json"))

    def wait_state(self, job_id: int, state: str) -> None:
        eventually(lambda: self.job(job_id)["state"] == state, 60, f"job {job_id} is {state}")


def _environ(pid: str) -> list[bytes]:
    try:
        return Path("/proc", pid, "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process as `nightshift down` does."""
    process.terminate()
    assert process.wait(30) == 0


class OldTelegram:
    """The Bot API double of an older release, in a process of its own."""

    def __init__(self, source: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bot.local_chat.serve"], cwd=source, env={"PYTHONPATH": str(source)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        address = json.loads(self._process.stdout.readline())
        self.url, self.token, self._control_url = address["url"], address["token"], address["control"]

    def close(self) -> None:
        self._process.communicate(timeout=10)

    def do(self, verb: str, **arguments: Any) -> Any:
        """Do one thing as a person, or to the double itself."""
        request = urllib.request.Request(f"{self._control_url}/{verb}", data=json.dumps(arguments).encode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as response:
            return json.load(response)["result"]

    def texts(self, person: int) -> list[dict[str, Any]]:
        """Return what the bot has sent to somebody."""
        return [message for message in self.do("messages", chat=person) if message["from"]["is_bot"]]

    def ask(self, person: int, text: str, answer: str) -> dict[str, Any]:
        """Send a message and return the answer, which contains these words."""
        self.do("send_text", user=person, chat=None, text=text)
        return self.wait_for(person, answer)

    def wait_for(self, person: int, words: str, timeout: float = 60) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            matching = [one for one in self.texts(person) if words in text_of(one)]
            return matching[-1] if matching else None

        return eventually(look, timeout, f"the bot says {words!r}")

    def tap(self, person: int, message: dict[str, Any], label: str) -> None:
        """Tap a button. It may appear only after a while."""

        def data() -> str | None:
            now = next(one for one in self.texts(person) if one["message_id"] == message["message_id"])
            buttons = [one for row in now.get("reply_markup", {}).get("inline_keyboard", []) for one in row]
            return next((one["callback_data"] for one in buttons if one["text"] == label), None)

        self.do("tap", user=person, chat=None, message_id=message["message_id"], data=eventually(data, what=label))


def text_of(message: dict[str, Any]) -> str:
    return str(message.get("text") or message.get("caption") or "").replace("\xa0", " ")
