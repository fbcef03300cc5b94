"""What hangs while a message is answered: it costs that answer, never the chat, other people, or the bot's end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from bot import app
from bot.handlers import submit
from bot.inbound import routing
from bot.inbound.dispatch import SET_ASIDE, TRIES
from bot.waiting import within
from tests import nursery
from tests.fault.rough import texts
from tests.room import Room, in_room
from tests.telegram.remote import WorldProcess
from tests.wait import eventually


@contextlib.contextmanager
def a_project_that_hangs(folder: Path):
    """Git waits in it until somebody writes into its .gitignore."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    pipe = folder / ".gitignore"
    os.mkfifo(pipe)
    try:
        yield
    finally:
        writing = os.open(pipe, os.O_RDWR)
        pipe.unlink()  # so that the next git finds none
        os.close(writing)


def test_a_copy_that_hangs_is_given_up_and_the_chat_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(routing, "LIMIT_S", 0.5)

    @in_room()
    async def check(room):
        with a_project_that_hangs(Path(room.chat.queue.workspaces.default().dir)):
            room.people.send_text(room.uma, None, "/submit -g 0 --snapshot true")
            await room.ask(room.una, "/whoami")
            (said,) = await room.ask(room.uma, "/whoami")
        assert texts(room, room.uma)[-2].startswith("⚠️ This took too long, so I gave it up and nothing was done.")
        assert "You are Uma" in said.text.text
        assert room.chat.queue.listing.unfinished() == []
        assert not os.path.exists(os.path.join(room.settings.home, "snapshots"))

    check(tmp_path)


def test_a_folder_that_does_not_answer_holds_up_nobody_else(tmp_path, monkeypatch):
    """As on a network folder whose server is gone: more calls hang than a pool has threads."""
    answers = threading.Event()
    monkeypatch.setattr(submit, "reach", lambda _: answers.wait())
    monkeypatch.setattr(routing, "LIMIT_S", 0.02)

    @in_room()
    async def check(room):
        try:
            for _ in range(40):
                room.people.send_text(room.uma, None, "/submit -g 0 true")
            await room.settle()
            monkeypatch.setattr(submit, "reach", lambda _: None)
            monkeypatch.setattr(routing, "LIMIT_S", 40)
            (said,) = await room.ask(room.una, "/submit -g 0 true")
            assert "queued" in said.text.text
            assert len(room.chat.queue.listing.unfinished()) == 1
            assert sum("took too long" in one for one in texts(room, room.uma)) == 40
        finally:
            answers.set()

    check(tmp_path)


def test_an_update_that_ends_the_bot_each_time_is_set_aside(tmp_path, monkeypatch):
    begun = []

    async def end_of_us(turn, _):
        begun.append(turn.update_id)
        await asyncio.Event().wait()

    monkeypatch.setitem(app.HANDLERS, "gpus", end_of_us)

    async def check():
        room = Room(tmp_path)
        room.people.start(room.uma)
        await room.open()
        await room.settle()
        room.people.send_text(room.uma, None, "/gpus")
        room.people.send_text(room.uma, None, "/whoami")
        for _ in range(TRIES + 1):
            count = len(begun)
            await until(lambda count=count: len(begun) > count)
            await room.die()
            await room.open()
        await room.settle()
        said = texts(room, room.uma)
        await room.close()
        return said

    said = asyncio.run(check())
    assert len(begun) == TRIES + 1
    assert said[-2] == SET_ASIDE
    assert "You are Uma" in said[-1]


async def until(condition):
    async def look():
        while not condition():
            await asyncio.sleep(0.005)

    await within(40, look())


@pytest.fixture
def world():
    with WorldProcess() as world:
        world.do("add_user", first_name="Ada", user_id=77)
        world.do("start", user=77)
        yield world


def test_sigterm_ends_the_bot_and_what_hangs_in_it(box, world):
    environ = {
        **box.environ, "NIGHTSHIFT_GPUS": "none", "NIGHTSHIFT_API_URL": world.url, "NIGHTSHIFT_ADMINS": "77",
        "NIGHTSHIFT_TOKEN": world.token,
    }  # fmt: skip
    with a_project_that_hangs(Path(box.environ["HOME"])), open(os.devnull, "r+b") as nothing:
        bot = nursery.start(["bot"], environ, str(box.folder), nothing, nothing, nothing)
        world.do("send_text", user=77, chat=None, text="/submit -g 0 --snapshot true")
        eventually(lambda: "git" in box.processes().values(), what="git hangs")
        bot.send_signal(signal.SIGTERM)
        assert bot.wait(40) == 0
        assert "git" not in box.processes().values()
