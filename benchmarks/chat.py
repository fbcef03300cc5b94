"""From a command in the chat to the bot's reply, over HTTP on loopback, with 10,000 jobs in the database.

Once with the queue paused, and once with every GPU at work and several dozen jobs of many kinds behind them, so that
each look at the queue has starts to foresee.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

from benchmarks.box import COMMAND, KEY, VARIABLES, Box, a_box, until
from bot.local_chat.bot_api.world import MESSAGE, ChatEvent
from runner import clock, rundir
from runner.api.chat import Workspace, stamp
from runner.model import Exit, Reason, State
from tests.telegram.api import BotApi
from tests.telegram.http import HttpServer

JOBS, WAITING, AT_WORK, ROUNDS = 10_000, 2_000, 60, 100
COMMANDS = ("/status", "/queue", "/gpus", "/log 5", "/status 5", "/submit -g 1 python train.py --lr 3e-4")
GPUS, KINDS, PRIORITIES = 4, 9, ("low", "normal", "high")
MEDIAN_MS, P95_MS = 20.0, 50.0


def main() -> None:
    with a_full_box() as box:
        asyncio.run(_talk(box))


async def _talk(box: Box) -> None:
    api = BotApi()
    person = api.world.add_user("Ada")
    async with HttpServer(api) as server, _a_bot(box, api, server.url, person.id):
        await _reply_ms(api, person.id, "/start")
        await asyncio.sleep(1)
        _tell(f"queue paused, {WAITING:,} of them waiting", await _measured(api, person.id))
        with _at_work(box):
            how = f"runner at work, {AT_WORK} of them waiting, starts foreseen"
            _tell(how, await _measured(api, person.id))


def _tell(how: str, found: dict[str, list[float]]) -> None:
    print(f"\nCommand → reply over loopback HTTP, {JOBS:,} jobs in the database ({how}), ms")
    for command, times in found.items():
        median, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        verdict = "yes" if median < MEDIAN_MS and p95 < P95_MS else "NO"
        print(f"  {command.split(' -g')[0]:<12} median {median:6.1f}   p95 {p95:6.1f}", end="")
        print(f"   (required below {MEDIAN_MS:.0f} and {P95_MS:.0f}: {verdict})")


@contextlib.contextmanager
def a_full_box() -> Iterator[Box]:
    """A box after a long month: jobs that ended, with what was said of them, and jobs that wait."""
    with a_box(f"sim:{GPUS}x24GiB") as box:
        box.queue.pause()
        ids = box.submit(*[box.spec(_command(seed), gpus=1) for seed in range(JOBS - WAITING)])
        with box.queue.store.transaction():
            for number in ids:
                _ran(box, number, for_s=600 + 60 * (number % KINDS))
            box.queue.store.execute("UPDATE notices SET handled_at = created_at, delivered_at = created_at")
        box.submit(*[box.spec("python train.py --seed 2", gpus=1) for _ in range(WAITING)])
        folder = Path(rundir.folder_of(box.home, 5, 1))
        folder.mkdir(parents=True)
        (folder / rundir.OUTPUT).write_bytes(b"".join(b"step %d loss 0.123\n" % step for step in range(50_000)))
        workspace = Workspace(name="lab", dir="/", default=True)
        box.queue.workspaces.put(workspace)
        box.queue.workspaces.keep_environment(workspace, stamp(workspace), VARIABLES)
        assert KEY
        yield box


@contextlib.contextmanager
def _at_work(box: Box) -> Iterator[None]:
    """Every GPU has a job, and behind them wait jobs of many kinds, priorities and sizes, instead of what waited."""
    with box.queue.store.transaction():
        for job in box.queue.listing.queued():
            box.queue.stop(job.id)
        box.queue.store.execute("UPDATE notices SET handled_at = created_at, delivered_at = created_at")
    busy = box.submit(*[box.spec("sleep 10000", gpus=1, time="3h", priority="high") for _ in range(GPUS)])
    box.queue.resume()
    try:
        until(lambda: all(box.is_running(number) for number in busy))
        box.submit(
            *[
                box.spec(_command(number), gpus=1 + (number % 5 == 0), priority=PRIORITIES[number % 3])
                for number in range(AT_WORK)
            ]
        )
        yield
    finally:
        box.queue.pause()
        for number in busy:
            box.queue.stop(number)


def _command(number: int) -> str:
    return f"python train.py --layers {number % KINDS} --seed {number}"


def _ran(box: Box, number: int, for_s: float) -> None:
    """A job that is over, and took so long."""
    ended = clock.now()
    times = {"started_at": clock.text(ended - timedelta(seconds=for_s)), "finished_at": clock.text(ended)}
    box.queue.jobs.claim(number, [("cpu", number)], "boot")
    box.queue.jobs.started(box.queue.job(number), times["started_at"])
    box.queue.jobs.ended(
        box.queue.job(number), State.SUCCEEDED, Reason.EXIT, Exit(duration_s=for_s, exit_code=0, **times)
    )


@contextlib.asynccontextmanager
async def _a_bot(box: Box, api: BotApi, url: str, person: int) -> AsyncIterator[None]:
    settings = {"API_URL": url, "TOKEN": api.world.token, "ADMINS": str(person), "HOME": box.home}
    settings |= {"SUBMITS_PER_MINUTE": "10000", "QUEUED_PER_PERSON": "10000"}
    environ = {**os.environ, **{f"NIGHTSHIFT_{name}": value for name, value in settings.items()}}
    with tempfile.TemporaryFile() as out:
        bot = subprocess.Popen([*COMMAND, "bot"], env=environ, stdout=out, stderr=out)
        try:
            yield
        finally:
            bot.terminate()
            bot.wait()


async def _measured(api: BotApi, person: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {command: [] for command in COMMANDS}
    for _ in range(ROUNDS):
        for command, times in found.items():
            times.append(await _reply_ms(api, person, command))
            await asyncio.sleep(0.01)
    return found


async def _reply_ms(api: BotApi, person: int, text: str) -> float:
    said = asyncio.get_running_loop().create_future()

    def look(event: ChatEvent) -> None:
        if event.kind == MESSAGE and event.by_bot and not said.done():
            said.set_result(time.perf_counter())

    stop = api.world.events.watch(look)
    began = time.perf_counter()
    api.people.send_text(person, None, text)
    try:
        return (await asyncio.wait_for(said, 60) - began) * 1e3
    finally:
        stop()


if __name__ == "__main__":
    main()
