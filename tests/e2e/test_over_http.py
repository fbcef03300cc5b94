"""The real command against the strict Bot API over HTTP, set up by three settings alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from bot.commands import COMMANDS
from tests.box import Box
from tests.telegram.remote import WorldProcess
from tests.wait import eventually

ADMIN, USER = 1001, 1002


class Telegram:
    """One person's chat, seen from outside."""

    def __init__(self, world: WorldProcess, person: int) -> None:
        self._world, self.person = world, person

    def said(self) -> list[dict[str, Any]]:
        return [message for message in self._world.do("messages", chat=self.person) if message["from"]["is_bot"]]

    def ask(self, text: str, words: str) -> dict[str, Any]:
        """The answer with these words."""
        before = max((message["message_id"] for message in self.said()), default=0)
        self._world.do("send_text", user=self.person, chat=None, text=text)
        return self.hear(words, after=before)

    def hear(self, words: str, after: int = 0, timeout: float = 60) -> dict[str, Any]:
        """The newest message with these words, once it is there."""

        def look() -> dict[str, Any] | None:
            found = [one for one in self.said() if one["message_id"] > after and words in text_of(one)]
            return found[-1] if found else None

        return eventually(look, timeout, f"the bot says {words!r}")

    def press(self, message: dict[str, Any], label: str) -> None:
        buttons = [one for row in message["reply_markup"]["inline_keyboard"] for one in row]
        data = next(one["callback_data"] for one in buttons if one["text"] == label)
        self._world.do("tap", user=self.person, chat=None, message_id=message["message_id"], data=data)


def text_of(message: dict[str, Any]) -> str:
    """As it is read: a no-break space is a space."""
    return str(message.get("text") or message.get("caption") or "").replace("\xa0", " ")


@pytest.fixture
def world() -> Iterator[WorldProcess]:
    with WorldProcess() as world:
        for number, name in ((ADMIN, "Ada"), (USER, "Uma")):
            world.do("add_user", first_name=name, user_id=number)
        yield world


@pytest.fixture
def up(box: Box, world: WorldProcess) -> Iterator[Box]:
    """`nightshift up`, with a token, an address and an admin."""
    environ = {
        **box.environ, "NIGHTSHIFT_API_URL": world.url, "NIGHTSHIFT_TOKEN": world.token,
        "NIGHTSHIFT_ADMINS": str(ADMIN), "NIGHTSHIFT_GPUS": "sim:2x24GiB", "NIGHTSHIFT_BOX": "lab1",
    }  # fmt: skip
    world.do("start", user=ADMIN)
    with (box.folder / "up.out").open("wb") as output:
        keeper = subprocess.Popen(
            box.command("up"), env=environ, cwd=box.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        eventually(lambda: "bot pid" in _said(box, keeper), 40, "the bot is up")
        yield box
    finally:
        keeper.terminate()
        keeper.wait(30)
    assert [one for one in world.do("refusals") if one["code"] == 400] == []


def _said(box: Box, keeper: subprocess.Popen[bytes]) -> str:
    said = (box.folder / "up.out").read_text()
    assert keeper.poll() is None, said
    return said


ANSWERS = {
    "start": ("", "This is nightshift on lab1"),
    "help": ("submit", "Options of /submit"),
    "status": ("", "lab1 · "),
    "queue": ("", "Nothing waits"),
    "gpus": ("", "Simulated 24GiB"),
    "log": ("1", "hello"),
    "fit": ("1", "was submitted without --probe"),
    "save": ("1 as nano", "Job 1 is saved as nano"),
    "preset": ("", "Tap one to queue it"),
    "edit": ("1 --time 4h", "only a job that waits"),
    "move": ("1 first", "only a job that waits"),
    "hold": ("1", "only a job that waits"),
    "release": ("1", "only a job that waits"),
    "keep": ("1", "Job 1 is kept for good"),
    "extend": ("1 2h", "Job 1 has no time limit"),
    "kill": ("1", "Stop this job?"),
    "rerun": ("1", "#2 first"),
    "submit": ("-g 0 --name second true", "#3 second finished"),
    "batch": ("-g 0\ntrue\ntrue", "batch-1: 2 jobs queued, #4–#5"),
    "sweep": ("-g 0 --at-most 1 true {n} ; n=1,2", "sweep-1: 2 jobs queued, #6–#7, at most 1 at once"),
    "group": ("", "sweep-1: "),
    "pause": ("", "Paused"),
    "drain": ("", "Draining"),
    "resume": ("", "Resumed"),
    "ws": ("", "home"),
    "notify": ("ends", "ends and failures"),
    "whoami": ("", "admin of lab1"),
    "pair": ("viewer", "https://t.me/"),
    "audit": ("", "the chain is whole"),
}


def test_every_command_is_answered(up: Box, world: WorldProcess):
    ada = Telegram(world, ADMIN)
    ada.hear("This is nightshift on lab1")
    long = "/submit —name first echo hello; nightshift sim-load —memory 4G —load 80 —time 8s"
    card = ada.ask(long, "#1 first running on lab1")
    asked = next(one for one in world.do("messages", chat=ADMIN) if "sim-load" in one.get("text", ""))
    assert card["reply_to_message"]["message_id"] == asked["message_id"]
    eventually(lambda: "hello" in up.log(1), what="it printed something")
    assert set(ANSWERS) == {command.name for command in COMMANDS}
    for name, (arguments, words) in ANSWERS.items():
        ada.ask(f"/{name} {arguments}".strip(), words)
    finished = ada.hear("#1 first finished")
    assert "GPU 0" in text_of(finished)
    assert "peak 4.0 GiB of 24.0 GiB" in text_of(finished)


def test_a_failure_a_kill_the_breaker_and_limits(up: Box, world: WorldProcess):
    ada = Telegram(world, ADMIN)
    ada.ask("/submit -g 0 --name loud python3 -c 'print(\"😀&<\" * 9000); raise SystemExit(3)'", "#1 loud failed")
    failed = ada.hear("#1 loud failed")
    assert "exit 3" in text_of(failed)
    ada.press(failed, "Log")
    shown = ada.hear("😀&<😀&<", after=failed["message_id"])
    for message in (failed, shown):
        assert 2500 < len(text_of(message).encode("utf-16-le")) // 2 <= 4096
    ada.press(shown, "Whole log")
    eventually(lambda: any("document" in message for message in ada.said()), what="the log as a file")

    gpus = ada.ask("/gpus", "Simulated 24GiB")
    ada.press(gpus, "Refresh")  # the same again: "not modified" is no failure
    sleeper = ada.ask("/submit -g 0 --name sleeper sleep 1000", "#2 sleeper running")
    ada.press(sleeper, "Kill")
    asked = eventually(lambda: _with_button(ada, sleeper, "Yes, kill #2"), what="the question")
    ada.press(asked, "Yes, kill #2")
    assert "stopped by Ada" in text_of(ada.hear("#2 sleeper stopped"))

    ada.ask("/batch -g 0\nexit 9\nexit 9\nexit 9\nexit 9", "4 jobs queued")
    paused = ada.hear("is paused")
    ada.press(paused, "Resume")
    eventually(lambda: up.job(6)["state"] == "FAILED", what="it went on")


def _with_button(ada: Telegram, message: dict[str, Any], label: str) -> dict[str, Any] | None:
    now = next(one for one in ada.said() if one["message_id"] == message["message_id"])
    labels = [button["text"] for row in now.get("reply_markup", {}).get("inline_keyboard", []) for button in row]
    return now if label in labels else None


def test_telegrams_flood_limits_are_obeyed_and_everything_arrives(up: Box, world: WorldProcess):
    ada = Telegram(world, ADMIN)
    ada.hear("This is nightshift")
    world.do("flood", chat_per_s=2, chat_burst=3)
    ada.ask("/notify more", "when a job starts")
    for number in range(8):
        world.do("send_text", user=ADMIN, chat=None, text=f"/submit -g 0 true {number}")
    for number in range(1, 9):
        ada.hear(f"#{number} finished")
    told = [text_of(message) for message in ada.said()]
    for number in range(1, 9):
        started = next(at for at, text in enumerate(told) if f"#{number} started" in text)
        finished = next(at for at, text in enumerate(told) if f"#{number} finished" in text)
        assert started < finished
    assert [one for one in world.do("refusals") if one["code"] == 429] != []
