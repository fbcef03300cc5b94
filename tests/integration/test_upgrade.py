"""An upgrade: the state folder of an older release goes on under this one. Nothing is lost, nothing happens twice.

The folder was written by a real run of that release (tests/upgrade/record.py). The last test runs that release again.
"""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests import nursery
from tests.box import Box
from tests.telegram.remote import WorldProcess
from tests.upgrade.old_release import OldBox, is_in_history, stop, text_of, unpack
from tests.upgrade.record import ADA, FITTED, SETTINGS, UMA, UNA
from tests.upgrade.state_folder import OldStateFolder
from tests.wait import eventually

RELEASE = "cf984f8"
VIC = 1004
FINISHED = {
    1: ("SUCCEEDED", "EXIT", 0), 2: ("FAILED", "EXIT", 3), 3: ("CANCELLED", "USER", None), 4: ("SUCCEEDED", "EXIT", 0),
    18: ("SUCCEEDED", "EXIT", 0), 19: ("SUCCEEDED", "EXIT", 0), 20: ("FAILED", "EXIT", 4),
}  # fmt: skip


@pytest.fixture
def old(box: Box) -> Iterator[OldStateFolder]:
    """The folder of a release that was stopped a moment ago; four of its jobs are running."""
    with OldStateFolder(RELEASE, box.home) as folder:
        yield folder


def start_runner(box: Box) -> None:
    settings = {name.lower(): value for name, value in SETTINGS.items() if name not in ("ADMINS", "USERS")}
    box.start_runner(settings.pop("gpus"), **settings)


def ends(box: Box, job_id: int) -> list[Any]:
    return [notice for notice in box.notices(job_id) if notice.kind == "ended"]


def test_jobs_go_on_where_the_old_release_left_them(box: Box, old: OldStateFolder):
    start_runner(box)
    for job_id, end in FINISHED.items():
        job = box.job(job_id)
        assert (job["state"], job["reason"], job["exit_code"]) == end
    assert box.log(1) == "hello\n"
    assert {box.job(job_id)["state"] for job_id in old.running} == {"RUNNING"}
    assert box.job(4)["batch_size"] == 40

    old.running[6].end()
    broken = box.wait_state(6, "FAILED")
    assert (broken["reason"], broken["exit_code"], broken["attempt"]) == ("EXIT", 7, 1)
    order = [11, 17, 10, 15, 16, 9]  # one after the other, on the one GPU that is free: priority, then position
    for job_id in order:
        assert box.wait_state(job_id, "SUCCEEDED")["attempt"] == 1
    started = {job_id: datetime.fromisoformat(box.job(job_id)["started_at"]) for job_id in order}
    assert sorted(started, key=started.__getitem__) == order

    assert {job_id: box.job(job_id)["state"] for job_id in (12, 13, 14)} == dict.fromkeys((12, 13, 14), "QUEUED")
    assert box.job(13)["waiting_for"].startswith("held by")
    old.running[5].end()
    assert box.wait_state(5, "SUCCEEDED")["exit_code"] == 0
    box.wait_state(12, "SUCCEEDED")
    box.run("release", "13")
    box.wait_state(13, "SUCCEEDED")
    assert [len(ends(box, job_id)) for job_id in range(1, 21) if job_id not in (7, 8, 14)] == [1] * 17


def test_a_kept_job_stays_and_a_known_batch_is_used(box: Box, old: OldStateFolder):
    """Job 7 would be stopped after two seconds of idleness, had nobody kept it."""
    ((state,),) = old.rows("SELECT state FROM watches WHERE job_id = 7")
    start_runner(box)
    old.running[6].end()
    box.wait_state(6, "FAILED")
    folder, _, command = FITTED.removeprefix("--dir ").partition(" ")
    (fitted,) = json.loads(box.run("submit", "--json", "--probe", "--dir", folder, "--", command).stdout)["ids"]
    assert box.wait_state(fitted, "SUCCEEDED")["batch_size"] == 40
    probed_s = json.loads((box.home / f"runs/{fitted}/1/exit.json").read_text())
    assert probed_s["duration_s"] == pytest.approx(probed_s["run_s"], abs=0.5), "it was probed although it is known"
    long_after = json.loads(state)["window"]["last_at"] + 5
    eventually(lambda: last_reading(box) >= long_after, what="job 7 was seen idle for longer than it may")
    assert box.job(7)["state"] == "RUNNING"
    assert [notice.kind for notice in box.notices(7)] == ["started"]


def last_reading(box: Box) -> float:
    """Return when the watchdog for idle jobs last looked at job 7."""
    with box.queue() as queue:
        state = queue.store.row("SELECT state FROM watches WHERE job_id = 7")["state"]
    return float(json.loads(state)["window"]["last_at"])


class Telegram:
    """The chats as Telegram has them: what the old bot sent, under the numbers that it remembers."""

    def __init__(self, world: WorldProcess, old: OldStateFolder) -> None:
        self._world, self._old = world, old
        for number, name in ((ADA, "Ada"), (UMA, "Uma"), (UNA, "Una"), (VIC, "Vic")):
            world.do("add_user", first_name=name, user_id=number)
        for person in (ADA, UMA, UNA):
            world.do("start", user=person)
            self._replay(person)
        world.do("block", user=UNA)
        self._call("getUpdates", offset=self._call("getUpdates")[-1]["update_id"] + 1)  # as the old bot did
        self.before = {person: self.texts(person) for person in (ADA, UMA, UNA)}

    def _replay(self, person: int) -> None:
        sent = "SELECT message, body FROM messages WHERE chat = ? AND message IS NOT NULL AND method LIKE 'send%'"
        bodies = {number: json.loads(body) for number, body in self._old.rows(sent, person)}
        for number in range(2, max(bodies) + 1):
            body = bodies.get(number, {})
            rows = [
                [{"text": one["text"], "callback_data": one["data"]} for one in row] for row in body.get("keyboard", [])
            ]
            text = body.get("text") or body.get("caption") or "a message of this person"
            markup = {"reply_markup": {"inline_keyboard": rows}} if rows else {}
            reply = self._call("sendMessage", chat_id=person, text=text, parse_mode="HTML", **markup)
            assert reply["message_id"] == number

    def _call(self, method: str, **params: Any) -> Any:
        url = f"{self._world.url}/bot{self._world.token}/{method}"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data=json.dumps(params).encode(), headers=headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as response:
            return json.load(response)["result"]

    def texts(self, person: int) -> list[str]:
        return [text_of(one) for one in self._world.do("messages", chat=person) if one["from"]["is_bot"]]

    def news(self, person: int) -> list[str]:
        """Return what the new bot has sent."""
        return self.texts(person)[len(self.before[person]) :]

    def wait_for(self, person: int, words: str) -> str:
        return eventually(lambda: next((one for one in self.news(person) if words in one), ""), 60, words)

    def ask(self, person: int, text: str, words: str) -> str:
        self._world.do("send_text", user=person, chat=None, text=text)
        return self.wait_for(person, words)

    def button(self, action: str, job_id: int, **data: Any) -> tuple[int, str]:
        """Return the latest message of the old bot with such a button, and what the button carries."""
        sql = "SELECT nonce FROM buttons WHERE action = ? AND job_id = ? AND data = ? ORDER BY created_at"
        nonce = self._old.rows(sql, action, job_id, json.dumps(data))[-1][0]
        message = self._old.rows("SELECT message FROM messages WHERE body LIKE ? AND message > 0", f"%{nonce}%")[-1][0]
        return message, nonce

    def tap(self, person: int, message: int, data: str) -> None:
        self._world.do("tap", user=person, chat=None, message_id=message, data=data)

    def labels(self, person: int, message: int) -> dict[str, str]:
        """Return the buttons that are under a message now."""
        shown = next(one for one in self._world.do("messages", chat=person) if one["message_id"] == message)
        rows = shown.get("reply_markup", {}).get("inline_keyboard", [])
        return {one["text"]: one["callback_data"] for row in rows for one in row}

    def wait_for_label(self, person: int, message: int, label: str) -> str:
        return eventually(lambda: self.labels(person, message).get(label), 60, label) or ""


@pytest.fixture
def telegram(box: Box, old: OldStateFolder) -> Iterator[Telegram]:
    """The new runner and the new bot, up."""
    with WorldProcess() as world:
        chats = Telegram(world, old)
        start_runner(box)
        people = {f"NIGHTSHIFT_{name}": SETTINGS[name] for name in ("ADMINS", "USERS", "BOX")}
        environ = {**box.environ, **people, "NIGHTSHIFT_API_URL": world.url, "NIGHTSHIFT_TOKEN": world.token}
        with (box.folder / "bot.out").open("wb") as output, open(os.devnull) as nothing:
            bot = nursery.start(["bot"], environ, str(box.folder), nothing, output, output)
        try:
            yield chats
        finally:
            bot.send_signal(signal.SIGTERM)
            bot.wait(30)
        assert [one for one in world.do("refusals") if one["code"] == 400] == []


def test_what_was_not_sent_goes_out_once(old: OldStateFolder, telegram: Telegram):
    telegram.wait_for(ADA, "#19 late finished")
    telegram.wait_for(ADA, "#20 unseen failed")
    old.running[6].end()
    assert "exit 7" in telegram.wait_for(UMA, "#6 broken failed")
    telegram.wait_for(ADA, "#9 low finished")
    telegram.wait_for(ADA, "sweep-1")
    telegram.ask(ADA, "/status", "1 not delivered")
    told = Counter(line for text in telegram.texts(ADA) for line in text.splitlines()[:1] if "#" in line)
    assert {line: count for line, count in told.items() if count > 1 and "held" not in line} == {}
    assert [text for text in telegram.news(ADA) if any(f"#{job_id} " in text for job_id in (1, 2, 3, 4, 18))] == []
    assert telegram.news(UNA) == []


def test_old_buttons_and_links_work(box: Box, old: OldStateFolder, telegram: Telegram):
    message, extend = telegram.button("extend", 5, by_s=3600.0, limit_s=300.0)
    telegram.tap(ADA, message, extend)
    telegram.wait_for_label(ADA, message, "✓ Extended 1 h")
    assert json.loads((box.home / "runs/5/1/limit.json").read_text())["time_limit_s"] == 3900.0

    message, keep = telegram.button("keep", 8, for_s=3600.0)
    telegram.tap(ADA, message, keep)
    telegram.wait_for_label(ADA, message, "✓ Kept for 1h 00m")

    message, kill = telegram.button("kill", 7)
    telegram.tap(ADA, message, kill)
    telegram.tap(ADA, message, telegram.wait_for_label(ADA, message, "Yes, kill #7"))
    stopped = box.wait_state(7, "CANCELLED")
    assert (stopped["reason"], stopped["attempt"]) == ("USER", 1)
    telegram.wait_for(ADA, "#7 kept stopped")

    telegram.ask(UMA, "/whoami", "user of lab1")
    link = next(text for text in telegram.before[ADA] if "becomes viewer" in text)
    code = re.search(r"start=([\w-]+)", link)
    assert code is not None
    telegram.before[VIC] = []
    telegram.ask(VIC, f"/start {code[1]}", "You are viewer of lab1")
    telegram.ask(ADA, "/audit", "the chain is whole")
    telegram.ask(ADA, "/group sweep-1", "sweep-1")


@pytest.mark.evidence
def test_a_job_of_the_old_release_finishes_under_the_new_one(box: Box):
    if not is_in_history(RELEASE):
        pytest.skip(f"{RELEASE} is not in this clone's history: it is shallow, or no clone")
    before = OldBox(unpack(RELEASE, box.folder / "source"), box.folder, **SETTINGS)
    assert before.home == box.home
    runner = before.start("runner")
    before.run(
        "submit", "--name", "long", "--dir", "/", "--", "until [ -e $NIGHTSHIFT_HOME/go ]; do sleep 0.1; done; exit 7"
    )
    before.run("submit", "--name", "next", "--dir", "/", "--after", "1", "--", "echo next")
    before.wait_state(1, "RUNNING")
    stop(runner)

    start_runner(box)
    box.wait_state(1, "RUNNING")
    (box.home / "go").touch()
    long = box.wait_state(1, "FAILED")
    assert (long["reason"], long["exit_code"], long["attempt"]) == ("EXIT", 7, 1)
    box.wait_state(2, "SUCCEEDED")
    assert box.log(2) == "next\n"
    assert [notice.kind for notice in box.notices(1)] == ["started", "ended"]
