"""People who try to freeze the bot by what their jobs print, by their scripts and by their patterns.

Judged is how much was computed, in all threads, between two turns of the bot's loop: a busy machine changes nothing
about that, while one long search, in whichever thread, stands between them whole.
"""

import asyncio
import contextlib
import time

import pytest

from bot.pictures import plots
from runner import rundir
from tests.integration.test_chat_commands import claim, end, text
from tests.jobs import submit
from tests.room import in_room

MOST_S = 3.0
LINE = 250_000


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)


class Turns:
    """How much was computed between two turns of the loop, at most."""

    longest_s = 0.0

    async def watch(self):
        last = time.process_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.process_time()
            self.longest_s, last = max(self.longest_s, now - last), now


@contextlib.asynccontextmanager
async def turning():
    turns = Turns()
    task = asyncio.get_running_loop().create_task(turns.watch())
    try:
        yield turns
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert turns.longest_s < MOST_S


async def until(look):
    deadline = time.monotonic() + 40
    while not look():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def printing(room, number, printed):
    (claim(room, number, slot=number) / rundir.OUTPUT).write_text(printed)


LINES = {
    "links": "wandb: /runs/ " + "https://" * (LINE // 8),
    "values": f"key={',' * 2040}x! " * (LINE // 2048),
    "keys": "-----BEGIN PRIVATE KEY-----_" * (LINE // 28),
    "digits": "0" * LINE,
    "boxes": "Traceback (most recent call last):\n" + "╭─" * (LINE // 6),
}


@pytest.mark.parametrize("kind", LINES)
def test_one_line_of_a_log(tmp_path, kind):
    @in_room()
    async def check(room):
        await room.ask(room.uma, "/submit python train.py")
        printing(room, 1, f"{LINES[kind]}\nValueError: no\n")
        await room.settle()
        async with turning():
            end(room, 1, exit_code=1)
            room.people.send_text(room.uma, None, "/log 1")
            assert "You are Ada" in text(await room.ask(room.ada, "/whoami"))
        assert "#1 failed" in text(room.said(room.uma))

    check(tmp_path)


@in_room()
async def test_scripts_that_are_hard_to_redact(room):
    script = f"key={',' * 2040}x!\n" * 100
    submit(room.chat.queue, *[f"true '{number}\n{script}'" for number in range(3)])
    async with turning():
        for _ in range(2):
            assert "lab1" in text(await room.ask(room.ada, "/status"))
            assert "#1" in text(await room.ask(room.ada, "/status 1"))


def test_a_script_is_looked_at_once(tmp_path, monkeypatch):
    @in_room()
    async def check(room):
        submit(room.chat.queue, "true '" + "step\n" * 40_000 + "'")
        await room.ask(room.ada, "/status")
        looked_at = []
        spans = type(room.chat.redactor)._spans
        monkeypatch.setattr(
            type(room.chat.redactor), "_spans", lambda self, data: looked_at.append(len(data)) or spans(self, data)
        )
        await room.ask(room.ada, "/status")
        await room.ask(room.ada, "/queue")
        assert looked_at
        assert max(looked_at) < 40_000

    check(tmp_path)


def test_groups_whose_numbers_take_long_keep_nobody_waiting(tmp_path, monkeypatch):
    asked, may_go_on = [], asyncio.Event()

    async def slow(chat, name):
        from bot.outbound.documents import results_of

        asked.append(name)
        await may_go_on.wait()
        return await results_of(chat, name)

    monkeypatch.setattr("bot.outbound.notifier.results_of", slow)

    @in_room()
    async def check(room):
        for number in range(1, 4):
            await room.ask(room.uma, "/sweep -g 0 --metric loss echo {a} ; a=1")
            printing(room, number, "loss=0.5\n")
        await room.ask(room.una, "/submit true")
        printing(room, 4, "done\n")
        await room.settle()
        for number in range(1, 4):
            end(room, number)
        room.bot.notifier.wake()
        await until(lambda: asked)
        end(room, 4)
        room.bot.notifier.wake()
        await until(lambda: "#4 finished" in text(room.said(room.una)))
        assert "is done" not in text(room.said(room.uma))
        may_go_on.set()
        await room.settle()
        assert [f"sweep-{number} is done" in text(room.said(room.uma)) for number in (1, 2, 3)] == [True] * 3

    check(tmp_path)


@in_room()
async def test_slow_patterns_end(room):
    for number in range(1, 4):
        await room.ask(room.uma, "/sweep -g 0 --metric '(?:a+)+=([0-9])' echo {a} ; a=1")
        printing(room, number, "aaa=7\n" + "a" * 8000 + "\n")
        end(room, number)
    await room.settle()
    said = text(room.said(room.uma))
    assert [f"sweep-{number} is done on lab1: 1 succeeded, best metric 7" in said for number in (1, 2, 3)] == [True] * 3
