"""Hostile texts, wherever a text can be, all the way to the strict Bot API: none breaks anything, none is refused."""

import asyncio
import contextlib
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from bot.commands import COMMANDS
from bot.local_chat.bot_api.formatted_text import utf16_length
from bot.text.html import fit
from runner import rundir
from runner.api.chat import Workspace
from runner.errors import UserError
from runner.lifecycle import outcome
from runner.model import State
from tests.hostile import Hostile
from tests.jobs import KEY, VARIABLES, a_spec, an_exit
from tests.mutants import without
from tests.room import a_room, in_room
from tests.traces import without_waiting_for_the_disk

LAB = -5001
BOUNDLESS = {"submits_per_minute": 10**6, "queued_per_person": 10**6, "groups": (LAB,)}
AT_ONCE = 60


class Siege:
    """People with hostile names who say hostile things."""

    def __init__(self, room, seed):
        self.room, self.texts, self.dice = room, Hostile(seed), Hostile(seed).dice
        self.group = room.world.add_group("Lab", (room.ada, room.uma, room.vic))
        self.sent = 0

    def person(self):
        """One of those who may come in, calling themselves something."""
        room = self.room
        user = self.dice.choice((room.ada, room.ada, room.uma, room.uma, room.una, room.vic))
        return {**user.to_json(), "first_name": self.texts.name(), "last_name": self.texts.name()}

    def place(self, person):
        if self.dice.random() < 0.2:
            return {**self.group.to_json(), "title": self.texts.name()}
        return {"id": person["id"], "type": "private", "first_name": person["first_name"]}

    def send(self, **content):
        person = self.person()
        self.sent += 1
        message = {"message_id": 7, "date": self.room.world.now(), "from": person, "chat": self.place(person)}
        self.room.people.raw_update("message", {**message, **content})

    def command(self):
        name = self.dice.choice(COMMANDS).name
        between = self.dice.choice((" ", " ", "\n", "@nightshift_bot ", "@nightshift_bot\n", "\u00a0", ""))
        words = f"/{name}{between}{self.texts.text(3900)}"
        self.send(text=words, entities=[{"type": "bot_command", "offset": 0, "length": utf16_length(f"/{name}")}])

    def named_job(self):
        """As it may come from an older version, or from a database somebody else wrote."""
        spec = a_spec(whole(self.texts.line()).replace("\0", "") or "ls", gpus=0)
        spec = replace(spec, name=whole(self.texts.line(100)), owner=f"tg:{self.room.uma.id}")
        with contextlib.suppress(UserError):
            number = self.room.chat.queue.submit([spec], {KEY: VARIABLES})[0]
            self.send(text=f"/status {number}", entities=[{"type": "bot_command", "offset": 0, "length": 7}])

    def batch(self):
        lines = "\n".join(self.texts.line(300) for _ in range(6))
        self.send(text=f"/batch -g 0\n{lines}", entities=[{"type": "bot_command", "offset": 0, "length": 6}])

    def look(self):
        """What was named so is shown."""
        latest = self.room.chat.queue.jobs.count(*State) or 1
        words = self.dice.choice(
            ("/status", "/queue", "/audit 60", "/pair", "/ws", "/whoami", "/gpus", "/status {}", "/kill {}")
        )
        text = words.format(self.dice.randrange(latest) + 1)
        self.send(text=text, entities=[{"type": "bot_command", "offset": 0, "length": len(text.split()[0])}])

    def press(self):
        """A button that is there, by whoever may press it."""
        rows = self.room.chat.queue.store.rows("SELECT nonce, person FROM buttons ORDER BY random() LIMIT 1")
        for row in rows:
            user = self.room.people.user(row["person"])
            message = self.room.said(user)[-1] if self.dice.random() < 0.8 else self.room.said(user)[0]
            self.room.people.tap(user, None, message.message_id, row["nonce"])

    def words(self):
        self.send(text=self.texts.text() or "x")

    def file(self):
        content = self.texts.text().encode("utf-8", self.dice.choice(("replace", "surrogatepass")))
        stored = self.room.people.send_document(self.room.sam, None, "x.txt", content).document
        document = {**stored.to_json(), "file_name": self.texts.line(200), "mime_type": self.texts.line(50)}
        caption = self.dice.choice(("", "/submit ", "/batch ")) + self.texts.text(900)
        self.send(document=document, caption=caption)

    def button(self):
        message = {"message_id": 1, "date": 0, "chat": self.group.to_json()}
        person, data = self.person(), self.texts.text(64)
        tap = self.room.world.new_tap(self.room.people.user(person["id"]), self.group, data)
        query = {"id": tap.id, "from": person, "chat_instance": self.texts.line(), "message": message}
        self.room.people.raw_update("callback_query", {**query, "data": data})

    def added(self):
        chat = {**self.room.world.add_group("Other").to_json(), "title": self.texts.text()}
        member = {"user": self.room.world.bot.to_json(), "status": "member"}
        change = {"old_chat_member": {**member, "status": "left"}, "new_chat_member": member}
        self.room.people.raw_update("my_chat_member", {"chat": chat, "from": self.person(), "date": 0, **change})

    def workspace(self):
        name, folder, file, variable = (whole(self.texts.line(60)) or "x" for _ in range(4))
        texts = {variable: whole(self.texts.text())}
        made = Workspace(name=name, dir=folder, activate=whole(self.texts.text()), env_file=file, variables=texts)
        self.room.chat.queue.workspaces.put(made)
        self.send(text=f"/ws {name}", entities=[{"type": "bot_command", "offset": 0, "length": 3}])

    def ended_job(self):
        """Its output is told, and shown."""
        queue = self.room.chat.queue
        found = next((job for job in self.room.chat.listing.queued(500) if job.spec.gpus == 0), None)
        if found is None:
            return
        attempt = queue.jobs.claim(found.id, [("cpu", self.sent)], "boot")
        folder = Path(rundir.folder_of(queue.home, found.id, attempt))
        folder.mkdir(parents=True)
        queue.jobs.started(queue.job(found.id), "2026-01-01T00:00:00.000000+00:00")
        output = "\n".join(self.texts.text() for _ in range(10)).encode("utf-8", "surrogatepass")
        (folder / rundir.OUTPUT).write_bytes(
            b"Traceback (most recent call last):\n" * (self.sent % 2) + output + b"\xff\xfe"
        )
        end = an_exit(exit_code=self.sent % 3)
        queue.jobs.ended(queue.job(found.id), *outcome(end, None), end)
        self.send(text=f"/log {found.id}", entities=[{"type": "bot_command", "offset": 0, "length": 4}])

    def next(self):
        more = (self.ended_job, self.look, self.press)
        acts = (
            self.command,
            self.named_job,
            self.batch,
            self.words,
            self.file,
            self.button,
            self.added,
            self.workspace,
        )
        self.dice.choices((*acts, *more), (40, 12, 12, 6, 5, 4, 2, 2, 3, 10, 10))[0]()


def whole(text):
    """Without halves of characters, which no database keeps."""
    return text.encode("utf-8", "replace").decode()


async def besiege(folder, seed, count):
    async with a_room(folder, **BOUNDLESS) as room:
        without_waiting_for_the_disk(room)
        siege = Siege(room, seed)
        while siege.texts.made < count:
            for _ in range(AT_ONCE):
                siege.next()
            await room.settle(60)
            check(room)
        said = await room.ask(replace(room.vic), "/status")
        assert "lab1" in said[0].text.text
        return siege


def check(room):
    refused = [one for one in room.world.refusals if one.code == 400 and "not modified" not in one.description]
    assert not refused, refused[0]
    rows = room.chat.queue.store.rows(
        "SELECT undeliverable, method, body FROM messages WHERE undeliverable IS NOT NULL"
    )
    assert not [tuple(row) for row in rows if not row["undeliverable"].startswith("unreachable")]


def assert_calm(caplog):
    loud = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not loud, loud[0].getMessage() + str(loud[0].exc_text or loud[0].exc_info)


def test_three_thousand_hostile_texts(tmp_path, caplog):
    siege = asyncio.run(besiege(tmp_path, 1, 3_000))
    assert siege.texts.made >= 3_000
    assert_calm(caplog)


def test_the_siege_would_see_a_text_that_is_not_escaped(tmp_path):
    with (
        without("bot.text.job_words", "heading", "escape(job.spec.name)", "job.spec.name"),
        pytest.raises(AssertionError),
    ):
        asyncio.run(besiege(tmp_path, 1, 3_000))


@in_room()
async def test_what_stands_for_a_secret_may_be_longer_than_it(room):
    text = "password: abc " + "x" * 4082
    assert fit([text]) == text
    room.chat.say(room.ada.id, room.ada.id, text)
    await room.settle()
    said = room.said(room.ada)[-1].text.text
    assert "[redacted]" in said
    assert "abc" not in said


@pytest.mark.evidence
def test_a_hundred_thousand_hostile_texts(tmp_path, caplog):
    for seed in range(2, 22):
        folder = tmp_path / str(seed)
        folder.mkdir(mode=0o700)
        assert asyncio.run(besiege(folder, seed, 5_000)).texts.made >= 5_000
        assert_calm(caplog)
