"""A runner that is gone while the bot lives: the admins hear of it once, and once when one is back."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time

import pytest

from bot.outbound import no_runner
from runner import clock
from runner.config.home import RUNNER_LOCK
from runner.processes.process_lock import held
from tests.fault.rough import texts
from tests.room import a_room, in_room

NONE, BACK = "🛑 lab1 has had no runner since ", "▶️ lab1 has a runner again since "


async def until(look, timeout=40.0):
    deadline = time.monotonic() + timeout
    while not look():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


def told(room, person):
    return [NONE if one.startswith(NONE) else BACK for one in texts(room, person) if one.startswith((NONE, BACK))]


def test_a_runner_that_is_killed_is_missed_and_its_return_is_told(box, monkeypatch):
    monkeypatch.setattr(no_runner, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(no_runner, "STEADY_S", 0.3)

    async def check():
        box.start_runner()
        async with a_room(box.folder) as room:
            box.stop_runner(signal.SIGKILL)
            await until(lambda: told(room, room.ada) == [NONE])
            await room.close()
            await room.open()
            await asyncio.to_thread(box.start_runner)
            await until(lambda: told(room, room.ada) == [NONE, BACK])
            assert told(room, room.uma) == []
            said = next(one for one in texts(room, room.ada) if one.startswith(NONE))
            assert "Queued jobs wait, running jobs go on. On the box, start one with nightshift up" in said

    asyncio.run(check())


@pytest.fixture
def pass_s(monkeypatch):
    """Lets seconds pass, and looks at the runner after each ten of them."""
    ahead, monotonic = 0.0, clock.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + ahead)
    monkeypatch.setattr(no_runner, "LOOK_EVERY_S", 3600.0)  # only when the test says so

    def let_pass(room, seconds):
        nonlocal ahead
        for _ in range(0, seconds, 10):
            ahead += 10
            room.bot.runner_watch.look()

    return let_pass


def test_it_is_told_once_after_a_minute_whatever_becomes_of_the_bot(tmp_path, pass_s):
    @in_room()
    async def check(room):
        pass_s(room, 40)
        await room.settle()
        assert told(room, room.ada) == []
        pass_s(room, 600)
        await room.settle()
        assert told(room, room.ada) == [NONE]
        await room.close()
        await room.open()
        pass_s(room, 600)
        with held(room.settings.home, RUNNER_LOCK):
            pass_s(room, 40)
            await room.settle()
            assert told(room, room.ada) == [NONE]
            pass_s(room, 600)
            await room.settle()
        pass_s(room, 40)  # it is started again
        with held(room.settings.home, RUNNER_LOCK):
            pass_s(room, 600)
        await room.settle()
        assert told(room, room.ada) == [NONE, BACK]
        assert next(one for one in room.said(room.ada) if one.text.text.startswith(BACK)).silent
        assert not next(one for one in room.said(room.ada) if one.text.text.startswith(NONE)).silent
        pass_s(room, 100)
        await room.settle()
        assert told(room, room.ada) == [NONE, BACK, NONE]

    check(tmp_path)


def test_one_that_dies_at_each_start_is_told_of_once(tmp_path, pass_s):
    @in_room()
    async def check(room):
        for number in range(20):
            with held(room.settings.home, RUNNER_LOCK) if number % 3 else contextlib.nullcontext():
                pass_s(room, 10)
            pass_s(room, 10)
        await room.settle()
        assert told(room, room.ada) == [NONE]

    check(tmp_path)
