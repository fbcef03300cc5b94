"""Writes tests/data/upgrade/: runs an older release, uses all of it, stops it and keeps its state folder as text.

    python -m tests.upgrade.record cf984f8

The queue becomes an SQL dump. Placeholders replace the name of the state folder, what depends on it (the UUIDs of
simulated GPUs), and the machine's boot ID. tests/upgrade/state_folder.py fills them in again, and moves all times.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from runner.processes.linux import boot_id
from tests.upgrade.old_release import ROOT, OldBox, OldTelegram, stop, text_of, unpack
from tests.upgrade.state_folder import ABOUT, BOOT_ID, DATA, GPU, GPUS, HOME, KERNEL_BOOT_ID, LIVE, QUEUE, gpus_of
from tests.wait import eventually

ADA, UMA, UNA = 1001, 1002, 1003
SETTINGS = {
    "GPUS": GPUS, "CPU_SLOTS": "4", "CPUS": "8", "RAM": "64G", "BOX": "lab1", "ADMINS": str(ADA), "USERS": str(UNA),
    "TIME_WARNING": "150s", "IDLE_WARNING": "59m55s", "BREAKER": "0", "PROBE_QUIET": "1s",
}  # fmt: skip
UNTIL_GO = 'until [ -e "$NIGHTSHIFT_HOME/go" ]; do sleep 0.1; done; '
FITTED = "--dir /proc/sys/kernel nightshift sim-load --memory $((2000+500*{batch_size}))M --load 90 --time 3s"
RUN_FILES = ("spec.json", "started.json", "exit.json", "output.log", "output.times", "probe.json", "probe-1.log")


def record(commit: str) -> None:
    """Fill the folder with the data of this release."""
    target = DATA / commit
    with tempfile.TemporaryDirectory(prefix="nightshift-old") as folder:
        source = unpack(commit, Path(folder, "source"))
        telegram = OldTelegram(source)
        box = OldBox(source, Path(folder), **SETTINGS, API_URL=telegram.url)
        try:
            _use(box, telegram)
            _keep_queue(box, target)
            (box.home / "go").touch()  # the supervisors record the ends with no runner up
            for job in (7, 8):
                os.kill(json.loads((box.home / f"runs/{job}/1/started.json").read_text())["pid"], signal.SIGTERM)
            for job in LIVE:
                eventually((box.home / f"runs/{job}/1/exit.json").exists, 60, f"the end of job {job}")
            _keep_runs(box, target)
        finally:
            box.close()
            telegram.close()


def _use(box: OldBox, telegram: OldTelegram) -> None:
    """Have everything in the state folder that a release can leave behind."""
    for number, name in ((ADA, "Ada"), (UMA, "Uma"), (UNA, "Una")):
        telegram.do("add_user", first_name=name, user_id=number)
    runner, bot = box.start("runner"), box.start("bot", NIGHTSHIFT_TOKEN=telegram.token)
    box.run("ws", "add", "lab", "--dir", "/tmp", "--default")
    _let_people_in(telegram)
    _finish_some(box, telegram)
    _run_some(box, telegram)
    _queue_some(telegram)
    _block_the_bot(telegram)
    telegram.wait_for(ADA, "#5 limited on lab1", timeout=200)
    telegram.ask(ADA, "/submit -g 0 --name late sleep 3", "late queued")
    telegram.wait_for(ADA, "late started")
    telegram.do("outage", on=True)
    eventually(lambda: _waiting_messages(box), 60, "a message waits")
    stop(bot)
    box.run("submit", "-g", "0", "--name", "unseen", "--dir", "/", "--", "exit 4")
    box.wait_state(_job(box, "unseen"), "FAILED")
    stop(runner)


def _let_people_in(telegram: OldTelegram) -> None:
    telegram.do("start", user=ADA)
    telegram.wait_for(ADA, "This is nightshift on lab1")
    link = telegram.ask(ADA, "/pair user", "https://t.me/")
    code = re.search(r"start=([\w-]+)", text_of(link) + json.dumps(link))
    assert code is not None, link
    telegram.do("send_text", user=UMA, chat=None, text=f"/start {code[1]}")
    telegram.wait_for(UMA, "You are user of lab1")
    telegram.ask(ADA, "/pair viewer", "viewer")
    telegram.do("start", user=UNA)
    telegram.wait_for(UNA, "This is nightshift on lab1")


def _finish_some(box: OldBox, telegram: OldTelegram) -> None:
    telegram.ask(ADA, "/submit -g 0 --name first echo hello", "#1 first queued")
    telegram.wait_for(ADA, "#1 first finished")
    telegram.ask(ADA, "/submit -g 0 --name second echo oh no; exit 3", "#2 second queued")
    telegram.wait_for(ADA, "#2 second failed")
    asked = telegram.ask(UMA, "/submit -g 0 --name third sleep 1000", "#3 third queued")
    telegram.wait_for(UMA, "#3 third started")
    telegram.tap(UMA, asked, "Kill")
    telegram.tap(UMA, asked, "Yes, kill #3")
    telegram.wait_for(UMA, "#3 third stopped")
    telegram.ask(ADA, f"/submit --name fitted --probe {FITTED}", "#4 fitted queued")
    telegram.wait_for(ADA, "#4 fitted finished", timeout=120)


def _run_some(box: OldBox, telegram: OldTelegram) -> None:
    """Give each GPU a job. They run until the file `go` is there."""
    telegram.ask(ADA, "/pause", "Paused")
    telegram.ask(ADA, f"/submit --name limited -t 5m --idle off {UNTIL_GO} echo well", "#5 limited queued")
    telegram.ask(UMA, f"/submit --name broken --idle off {UNTIL_GO} echo badly; exit 7", "#6 broken queued")
    telegram.ask(ADA, "/submit --name kept --idle 5%:1s:2:1 sleep 1000", "#7 kept queued")
    telegram.ask(ADA, "/keep 7", "Job 7 is kept for good")
    telegram.ask(ADA, "/submit --name idle --idle 5%:1s:3600:1 sleep 1000", "#8 idle queued")
    telegram.ask(ADA, "/resume", "Resumed")
    for job in LIVE:
        box.wait_state(job, "RUNNING")
    telegram.wait_for(ADA, "#8 idle on lab1 is idle")


def _queue_some(telegram: OldTelegram) -> None:
    telegram.ask(ADA, "/submit --name low -p low true", "#9 low queued")
    telegram.ask(ADA, "/submit --name normal true", "#10 normal queued")
    telegram.ask(UMA, "/submit --name high -p high true", "#11 high queued")
    telegram.ask(ADA, "/submit --name after --after-ok 5 true", "#12 after queued")
    telegram.ask(ADA, "/submit --name held true", "#13 held queued")
    telegram.ask(ADA, "/hold 13", "13")
    telegram.ask(ADA, "/submit --name tomorrow --begin +1d true", "#14 tomorrow queued")
    telegram.ask(ADA, "/sweep --at-most 1 true {n} ; n=1,2", "2 jobs queued")
    telegram.ask(ADA, "/submit --name moved true", "#17 moved queued")
    telegram.ask(ADA, "/move 17 first", "17")


def _block_the_bot(telegram: OldTelegram) -> None:
    telegram.ask(UNA, "/submit -g 0 --name una sleep 5", "una queued")
    telegram.wait_for(UNA, "una started")
    telegram.do("block", user=UNA)


def _waiting_messages(box: OldBox) -> int:
    with closing(sqlite3.connect(box.home / "nightshift.db")) as database:
        query = "SELECT count(*) FROM messages WHERE told_at IS NULL AND parked IS NULL AND tries > 0 AND job_id = 19"
        return int(database.execute(query).fetchone()[0])


def _job(box: OldBox, name: str) -> int:
    return next(int(job["id"]) for job in json.loads(box.run("ls", "--json")) if job["name"] == name)


def _keep_queue(box: OldBox, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with closing(sqlite3.connect(box.home / "nightshift.db")) as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        dump = "\n".join([*database.iterdump(), f"PRAGMA user_version = {version};", ""])
    (target / QUEUE).write_text(_without_this_machine(box, dump))
    about = {"recorded_at": datetime.now(timezone.utc).isoformat(), "monotonic": time.monotonic()}
    (target / ABOUT).write_text(json.dumps(about, indent=1) + "\n")


def _keep_runs(box: OldBox, target: Path) -> None:
    for folder in sorted(box.home.glob("runs/*/*")):
        kept = target / folder.relative_to(box.home)
        kept.mkdir(parents=True)
        for name in RUN_FILES:
            if (folder / name).exists():
                text = (folder / name).read_text(encoding="latin-1")  # output.times is binary
                (kept / name).write_text(_without_this_machine(box, text), encoding="latin-1")


def _without_this_machine(box: OldBox, text: str) -> str:
    for index, uuid in enumerate(gpus_of(box.home)):
        text = text.replace(uuid, GPU.format(index))
    return (
        text.replace(str(box.home), HOME)
        .replace(boot_id(), BOOT_ID)
        .replace(boot_id().partition(".")[0], KERNEL_BOOT_ID)
    )


if __name__ == "__main__":
    assert Path.cwd() == ROOT, "run this in the root of the repository"
    record(sys.argv[1])
