"""A bot under SIGKILL at random points, with people who write, tap and wait; each update comes one to three times."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.store.cards import Cards
from bot.store.inbox import Inbox
from bot.store.outbox import Outbox
from runner.api import Queue
from runner.api.chat import Workspace, stamp
from runner.model import FINAL_STATES, State
from runner.notices import Notice
from tests.fault import told
from tests.telegram.remote import WorldProcess

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "NIGHTSHIFT_GPUS": "sim:2x24GiB",
    "NIGHTSHIFT_CPU_SLOTS": "6",
    "NIGHTSHIFT_BREAKER": "0",
    "NIGHTSHIFT_STOP_GRACE": "1s",
    "NIGHTSHIFT_BOX": "lab1",
    "NIGHTSHIFT_SUBMITS_PER_MINUTE": "100000",
    "NIGHTSHIFT_QUEUED_PER_PERSON": "100000",
}
LOOKS = ("/status", "/queue", "/whoami")
QUESTION = re.compile(r"Stop this job\?\n\S+ #(\d+) ")
ACK = re.compile(r"\S+ #(\d+) (\S+) (?:queued|running)")  # its card


@dataclass
class Report:
    seed: int
    kills: int = 0
    submits: int = 0
    stops: int = 0
    messages: int = 0
    copies: int = 0
    updates: int = 0
    given: int = 0
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"chat chaos, seed {self.seed}: {self.kills} SIGKILLs of the bot in {self.took_s:.0f} s; "
            f"{self.updates} updates given {self.given} times, {self.submits} jobs submitted, {self.stops} stopped; "
            f"{self.messages} messages, {self.copies} of them there twice and saying so; {len(self.problems)} problems"
        )


@dataclass
class Victim:
    """A job that somebody stops again: it is asked for, acknowledged, asked about, confirmed."""

    person: int
    job: int | None = None
    asked: bool = False
    tapped: bool = False


class ChatChaos:
    def __init__(self, folder: Path, world: WorldProcess, seed: int) -> None:
        self.home, self.log = str(folder / "home"), folder / "out"
        self.world, self.random, self.report = world, random.Random(seed), Report(seed)
        self.ada, *self.users = (world.do("add_user", first_name=name)["id"] for name in ("Ada", "Uma", "Una"))
        for person in (self.ada, *self.users):
            world.do("start", user=person)
        people = {"NIGHTSHIFT_ADMINS": str(self.ada), "NIGHTSHIFT_USERS": ",".join(map(str, self.users))}
        place = {"NIGHTSHIFT_HOME": self.home, "NIGHTSHIFT_API_URL": world.url}
        self.environ = {**os.environ, **SETTINGS, **people, **place}
        self.names: dict[str, int] = {}  # who submitted what
        self.victims: dict[str, Victim] = {}
        self.seen = 0
        self.others: list[subprocess.Popen[bytes]] = []
        self.runner: subprocess.Popen[bytes] | None = None
        self.nursery: subprocess.Popen[str] | None = None
        self.bot: int | None = None
        with Queue(self.home, actor="chaos") as queue:
            workspace = Workspace(name="lab", dir="/", default=True)
            queue.workspaces.put(workspace)
            queue.workspaces.keep_environment(workspace, stamp(workspace), {"PATH": os.environ["PATH"]})

    # -- processes ---------------------------------------------------------------------------------

    def start_runner(self) -> None:
        self.runner = self.command("runner", self.environ)
        self.others.append(self.runner)

    def command(self, word: str, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(ROOT / "nightshift.py"), word],
                env=environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def start_bot(self, *, from_scratch: bool = False) -> None:
        """As people start it, or quickly."""
        if from_scratch:
            bot = self.command("bot", {**self.environ, "NIGHTSHIFT_TOKEN": self.world.token})
            self.others.append(bot)
            self.bot = bot.pid
            return
        if self.nursery is None:
            with self.log.open("a") as log:
                self.nursery = subprocess.Popen(
                    [sys.executable, "-m", "tests.fault.bot_nursery"], cwd=ROOT, stdin=subprocess.PIPE, stderr=log,
                    env={**self.environ, "CHAOS_TOKEN": self.world.token}, stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        self.nursery.stdin.write("\n")
        self.nursery.stdin.flush()
        self.bot = int(self.nursery.stdout.readline())

    def kill_bot(self, number: int = signal.SIGKILL) -> None:
        """Gone when this returns."""
        assert self.bot is not None
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(self.bot)
            try:
                signal.pidfd_send_signal(handle, number)
                select.select([handle], [], [], 20)
            finally:
                os.close(handle)
        self.bot = None

    def close(self) -> None:
        if self.bot is not None:
            self.kill_bot()
        if self.nursery is not None:
            self.nursery.communicate(timeout=60)
        for process in self.others:
            if process.poll() is None:
                process.terminate()
            process.wait(60)

    # -- people ------------------------------------------------------------------------------------

    def write(self) -> None:
        """Somebody writes something."""
        person = self.random.choice(self.users)
        name = f"n{len(self.names)}"
        self.names[name] = person
        command = self.random.choice(("true", "true", "exit 3"))
        if self.random.random() < 0.2:
            self.victims[name] = Victim(person)
            command = "sleep 1000"
        text = f"/submit -g {self.random.choice((0, 0, 0, 1))} --name {name} {command}"
        self.world.do("send_text", user=person, chat=None, text=text)
        if self.random.random() < 0.2:
            self.world.do(
                "send_text", user=self.ada, chat=None, text=self.random.choice(("/status", "/queue", "/whoami"))
            )

    def react(self) -> None:
        """Read what the bot said since, and go on with what that asks for."""
        for event in self.world.do("events", after=self.seen):
            self.seen = event["number"]
            if event["kind"] != "message" or not event["by_bot"]:
                continue
            text, person = event["data"].get("text", ""), event["chat_id"]
            if (found := ACK.match(text)) and (victim := self.victims.get(found[2])) and not victim.asked:
                victim.job, victim.asked = int(found[1]), True
                self.world.do("send_text", user=person, chat=None, text=f"/kill {victim.job}")
            elif found := QUESTION.match(text):
                self.tap(person, event["data"], int(found[1]))

    def tap(self, person: int, message: dict[str, Any], job: int) -> None:
        """Yes, once or with an impatient thumb; a copy of the question is answered as well."""
        yes = message["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
        for _ in range(self.random.choice((1, 1, 2))):
            self.world.do("tap", user=person, chat=None, message_id=message["message_id"], data=yes)
        for victim in self.victims.values():
            victim.tapped |= victim.job == job

    # -- the night ---------------------------------------------------------------------------------

    def run(
        self, kills: int, timeout_s: float, *, from_scratch_every: int = 5, fewest_jobs: int = 0,
        most_jobs: int = 10**6,
    ) -> Report:  # fmt: skip
        began = time.monotonic()
        self.world.do("repeat_updates", seed=self.report.seed, at_most=2)
        while self.report.kills < kills and time.monotonic() - began < timeout_s:
            self.start_bot(from_scratch=self.report.kills % from_scratch_every == from_scratch_every - 1)
            missing = fewest_jobs * (self.report.kills + 1) // kills - len(self.names)
            if self.random.random() < 0.15 and missing <= 0:
                time.sleep(self.random.uniform(0, 0.2))  # while it comes up
            else:
                self.until_it_polls()
                wanted = self.random.choice((0, 1, 1, 2, 3)) if len(self.names) < most_jobs else 0
                for _ in range(max(wanted, missing)):
                    self.write()
                self.react()
                time.sleep(self.random.choice((0.0, 1.0)) * self.random.uniform(0, 0.12))
            self.kill_bot()
            self.report.kills += 1
        self.start_bot()
        self.finish(began + timeout_s)
        self.kill_bot(signal.SIGTERM)
        self.report.took_s = time.monotonic() - began
        self.check()
        return self.report

    def until_it_polls(self) -> None:
        polls = self.world.do("calls")["calls"].get("getUpdates", 0)
        deadline = time.monotonic() + 30
        while self.world.do("calls")["calls"].get("getUpdates", 0) == polls:
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.005)

    def finish(self, deadline: float) -> None:
        """Everything comes to its end."""
        with Queue(self.home, actor="chaos") as queue:
            while time.monotonic() < deadline:
                self.react()
                if self.is_over(queue):
                    return
                if self.runner is not None and self.runner.poll() is not None:
                    self.report.problems.append("the runner is gone, though nobody shot at it")
                    return
                time.sleep(0.05)
        self.report.problems.append("it did not come to an end in time")

    def is_over(self, queue: Queue) -> bool:
        waiting = any(not victim.tapped for victim in self.victims.values()) or self.world.do("pending")
        return not (
            waiting
            or Inbox(queue.store).open()
            or len(self.names) > queue.jobs.count(*FINAL_STATES)
            or queue.notices.open()
            or Outbox(queue.store).waiting()
            or Cards(queue.store).all()
        )

    # -- the morning after -------------------------------------------------------------------------

    def check(self) -> None:
        report, problems = self.report, self.report.problems
        with Queue(self.home, actor="chaos") as queue:
            jobs = {job.id: job for job in queue.jobs.find()}
            named = Counter(job.spec.name for job in jobs.values())
            problems += [f"{name} was queued {named[name]} times" for name in self.names if named[name] != 1]
            problems += [f"nobody asked for {name}" for name in named if name not in self.names]
            stops = Counter(row["data"]["job"] for row in queue.audit.rows(10**6) if row["action"] == "kill")
            wanted = {victim.job for victim in self.victims.values() if victim.tapped}
            problems += [f"#{job} was stopped {stops[job]} times" for job in wanted if stops[job] != 1]
            problems += [f"nobody stopped #{job}" for job in stops if job not in wanted]
            problems += [f"#{job.id} is {job.state.value}" for job in jobs.values() if not job.state.final]
            notices = [notice for number in jobs for notice in queue.notices.about(number)]
            self.check_chats(notices, {job.id: job.spec.name or "" for job in jobs.values()})
            if queue.audit.first_broken() is not None:
                problems.append(f"the audit is broken at row {queue.audit.first_broken()}")
            for row in queue.store.rows("PRAGMA integrity_check"):
                problems += [] if row[0] == "ok" else [row[0]]
            if left := Inbox(queue.store).open():
                problems.append(f"left in the inbox: {left}")
            if parked := Outbox(queue.store).undeliverable(""):
                problems.append(f"not delivered: {parked}")
            report.updates = queue.store.row("SELECT count(*) FROM inbox")[0]
        report.given = self.world.do("given")
        report.submits, report.stops = len(self.names), len(wanted)
        problems += [line for line in self.log.read_text().splitlines() if "Traceback" in line or "ERROR" in line]
        problems += [f"refused: {one}" for one in self.world.do("refusals") if not _is_forgiven(one)]

    def check_chats(self, notices: list[Notice], names: dict[int, str]) -> None:
        for person in self.users:
            sent = self.world.do("messages", chat=person)
            said = [one["text"] for one in sent if one["from"]["is_bot"] and "text" in one]
            ends = [one for one in notices if one.kind == "ended" and self.names[names[one.job_id or 0]] == person]
            expected = [(one.job_id or 0, _fact(one)) for one in ends]
            self.report.problems += told.problems(said, expected)
            self.report.messages += len(said)
            copies = told.copies(said)
            self.report.copies += copies
            if copies > told.repeats(said):
                self.report.problems.append(f"{copies} messages came twice, {told.repeats(said)} of them say so")


def _fact(notice: Notice) -> str:
    state = State(notice.payload.state)
    if state is State.CANCELLED:
        return "stopped" if notice.payload.attempt else "cancelled"
    return {State.SUCCEEDED: "finished", State.FAILED: "failed", State.LOST: "lost"}[state]


def _is_forgiven(refusal: dict[str, Any]) -> bool:
    """What a repeated try may well meet."""
    return refusal["code"] == 409 or any(
        words in refusal["description"] for words in ("message is not modified", "query is too old")
    )


def a_night(folder: Path, seed: int, kills: int, timeout_s: float, **how: Any) -> Report:
    """All of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with WorldProcess() as world:
        chaos = ChatChaos(folder, world, seed)
        try:
            chaos.start_runner()
            return chaos.run(kills, timeout_s, **how)
        finally:
            chaos.close()


if __name__ == "__main__":
    print(report := a_night(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), 3000))
    for problem in report.problems[:50]:
        print(" ", problem)
