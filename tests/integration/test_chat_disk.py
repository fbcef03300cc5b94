"""A disk that fills, as the phone hears of it."""

import asyncio

from bot.inbound import poll
from runner.notices import payload_of
from runner.store.box import BoxKey
from tests.fault.rough import FullDisk, texts
from tests.room import in_room

LOW = {"free_mib": 700, "files": 10**6, "folder": "/srv/nightshift"}


async def until(condition):
    async def look():
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), 15)


@in_room()
async def test_the_admins_hear_of_it_and_of_its_end(room):
    room.chat.queue.notices.add(payload_of("disk low", LOW))
    room.chat.queue.box.set(BoxKey.DISK_LOW, {**LOW, "since": "2026-01-01T00:00:00.000000+00:00"})
    await room.settle()
    said = room.said(room.ada)[-1]
    assert said.text.text.startswith("💾 lab1: only 700 MiB left on the disk of /srv/nightshift\n")
    assert "nightshift prune" in said.text.text
    assert not said.silent
    assert "💾" not in "".join(texts(room, room.uma))
    assert "💾 only 700 MiB left on the disk" in (await room.ask(room.vic, "/status"))[0].text.text
    room.chat.queue.notices.add(payload_of("disk back", {**LOW, "free_mib": 9000, "since": None}))
    room.chat.queue.box.set(BoxKey.DISK_LOW, None)
    await room.settle()
    assert room.said(room.ada)[-1].text.text == "💾 lab1 has room on its disk again: 8.8 GiB free"
    assert "💾" not in (await room.ask(room.vic, "/status"))[0].text.text


@in_room()
async def test_files_that_run_out_are_told_as_such(room):
    room.chat.queue.notices.add(payload_of("disk low", {**LOW, "files": 12}))
    await room.settle()
    assert "only 12 more files fit on the disk" in room.said(room.ada)[-1].text.text


@in_room()
async def test_the_admins_hear_of_copies_that_fail_and_of_a_queue_that_was_lost(room):
    add = room.chat.queue.notices.add
    add(
        payload_of(
            "backup failing", {"folder": "/mnt/<copies>", "why": "it cannot be written to: No space left on device."}
        )
    )
    add(payload_of("backup back", {"folder": "/mnt/<copies>", "since": None}))
    add(payload_of("new queue", {"jobs": 1200, "folder": "/srv/nightshift/runs"}))
    add(payload_of("queue restored", {"from": "/mnt/<copies>/nightshift.db"}))
    await room.settle()
    failing, back, new, restored = room.said(room.ada)[-4:]
    assert failing.text.text.startswith("💾 lab1: the queue is no longer copied to /mnt/<copies>\nit cannot be written")
    assert (failing.silent, back.silent) == (False, True)
    assert back.text.text == "💾 lab1: the queue is copied to /mnt/<copies> again"
    assert "started a new, empty queue" in new.text.text
    assert "the folders of 1,200 jobs" in new.text.text
    assert "restored the copy /mnt/<copies>/nightshift.db" in restored.text.text
    assert not {"💾", "🚨"} & set("".join(texts(room, room.uma)))


def test_who_writes_while_it_is_full_does_not_meet_silence(tmp_path, monkeypatch):
    monkeypatch.setattr(poll, "DISK_PAUSE_S", 0.05)

    @in_room()
    async def check(room):
        disk = FullDisk(room)
        disk.on = True
        room.people.send_text(room.sam, None, "/status")
        room.people.send_text(room.uma, None, "/submit -g 0 true")
        await until(lambda: texts(room, room.uma)[-1].startswith("⚠️ The disk is full."))
        refused = disk.refused
        await until(lambda: disk.refused > refused + 3)
        assert sum("The disk is full" in one for one in texts(room, room.uma)) == 1
        assert texts(room, room.sam) == []
        disk.on = False
        await until(lambda: "#1 queued" in texts(room, room.uma)[-1])

    check(tmp_path)
