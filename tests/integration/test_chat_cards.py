"""One card for each job: changed in place, as often as Telegram allows, and never at the cost of an alert."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest

from bot.chat import SOON_OVER_S
from runner import clock, rundir
from runner.model import Ref
from runner.notices import LooksHung
from tests.attempts import begin, end
from tests.jobs import submit
from tests.room import a_room, in_room, labels
from tests.telegram.limits import FloodLimits
from tests.telegram.world import World

GPU = "GPU-0a1b2c3d-1111"


def stand_in_box(room):
    """As if a runner were up, with one GPU."""
    room.chat.queue.view.gpus = lambda: [{"uuid": GPU, "index": 0}]
    room.chat.queue.reasons.of = lambda jobs: {job.id: "starts next" for job in jobs}


def progressed(folder, position, total=100, **metrics):
    """What the reader of progress writes while a job prints."""
    job, attempt = int(folder.parent.name), int(folder.name)
    progress = {"position": position, "total": total, "unit": "step", "metrics": metrics or {"loss": 2.31}}
    record = rundir.ProgressRecord(
        job_id=job, attempt=attempt, run_id="r", boot_id="b", at=clock.text(clock.now()), progress=progress,
        broken={}, final=False,
    )  # fmt: skip
    rundir.write_progress(str(folder), record)


def card_of(room, user, number, chat=None):
    """The message that is the card of a job."""
    return next(one for one in room.said(user, chat) if f"#{number} " in one.text.text)


async def shows(room, message, words):
    """Until the message says so."""
    deadline = asyncio.get_running_loop().time() + 20
    while words not in message.text.text:
        assert asyncio.get_running_loop().time() < deadline, message.text.text
        await asyncio.sleep(0.01)
    await room.settle()


# -- messages per job ------------------------------------------------------------------------------


@in_room()
async def test_a_short_job_is_a_reaction_and_one_message_in_all(room):
    stand_in_box(room)
    before = len(room.said(room.uma))
    assert await room.ask(room.uma, "/submit echo hi") == []
    asked = next(one for one in room.world.chats[room.uma.id].messages.values() if "echo hi" in one.text.text)
    assert asked.reactions == ["👍"]
    begin(room.chat.queue, 1, output=b"hi\n")
    end(room.chat.queue, 1)
    await room.settle()
    await room.show_cards()
    (said,) = room.said(room.uma)[before:]
    assert said.text.text == "✅ #1 finished on lab1 after 1 s\necho hi\nhi"
    assert not said.silent
    assert labels(said) == ["Log", "Details", "Rerun"]
    assert room.chat.cards.all() == []


@in_room()
async def test_a_long_job_is_a_card_from_start_to_end_and_one_message_at_the_end(room):
    stand_in_box(room)
    before = len(room.said(room.uma))
    await room.ask(room.uma, "/submit --name night python train.py")
    folder = begin(room.chat.queue, 1, GPU)
    await room.show_cards()
    (card,) = room.said(room.uma)[before:]
    assert card.silent
    assert card.reply_to is not None
    assert card.text.text.startswith("▶️ #1 night running on lab1 · GPU 0 · since ")
    assert labels(card) == ["Log", "Details", "Kill"]
    progressed(folder, 38)
    await shows(room, card, "▓▓▓░░░░░ 38 % · step 38 of 100 · loss 2.31")
    progressed(folder, 55, loss=1.9)
    await shows(room, card, "55 % · step 55 of 100 · loss 1.9")
    assert len(room.said(room.uma)) == before + 1
    room.chat.queue.jobs.save_progress(Ref(1, 1, "r"), rundir.read_progress(str(folder)))
    end(room.chat.queue, 1, duration_s=7321.0)
    await room.settle()
    _, said = room.said(room.uma)[before:]
    first, second, *_ = said.text.text.splitlines()
    assert first == "✅ #1 night finished on lab1 after 2h 02m"
    assert second == "▓▓▓▓░░░░ 55 % · step 55 of 100 · loss 1.9"
    assert not said.silent
    assert card.text.text.startswith("✅ #1 night succeeded · ")
    assert card.text.text.endswith(" · loss 1.9")
    assert labels(card) == []


@in_room()
async def test_a_job_that_waits_gets_its_card_at_once_with_the_reason(room):
    (card,) = await room.ask(room.uma, "/submit --name night python train.py")
    assert card.text.text == "⏳ #1 night queued in lab\npython train.py\nno runner is up"
    assert card.silent
    begin(room.chat.queue, 1)
    await room.settle()
    assert card.text.text.startswith("▶️ #1 night running on lab1 · ")
    assert labels(card) == ["Log", "Details", "Kill"]


@in_room()
async def test_a_job_from_the_terminal_gets_a_card_once_it_has_run_for_a_while(room):
    before = len(room.said(room.ada))
    (number,) = submit(room.chat.queue, "python train.py", gpus=0)
    begin(room.chat.queue, number)
    await room.settle()
    assert len(room.said(room.ada)) == before, f"it may be over within {SOON_OVER_S} s"
    await room.show_cards()
    (card,) = room.said(room.ada)[before:]
    assert (card.silent, card.text.text.split(" · ")[0]) == (True, "▶️ #1 running on lab1")
    end(room.chat.queue, number)
    await room.settle()
    assert len(room.said(room.ada)) == before + 2


@in_room()
async def test_a_sweep_of_20_is_one_card_and_one_message_at_the_end(room):
    before = len(room.said(room.uma))
    (card,) = await room.ask(room.uma, "/sweep -g 0 true {n} ; n=" + ",".join(map(str, range(20))))
    folders = {number: begin(room.chat.queue, number) for number in (1, 2)}
    await room.settle()
    assert card.text.text.splitlines()[0] == "▶️ sweep-1: 0 of 20 done, 2 running, 18 waiting"
    progressed(folders[2], 40)
    await shows(room, card, "40 % · loss 2.31")
    end(room.chat.queue, 1)
    end(room.chat.queue, 2)
    for number in range(3, 21):
        begin(room.chat.queue, number)
        end(room.chat.queue, number)
    await room.settle()
    _, said = room.said(room.uma)[before:]
    assert "✅ sweep-1 is done on lab1: 20 succeeded" in said.text.text
    assert not said.silent
    assert "all 20 done" in card.text.text
    assert labels(card) == []


@in_room()
async def test_a_batch_is_one_card_too(room):
    before = len(room.said(room.uma))
    (card,) = await room.ask(room.uma, "/batch -g 0\ntrue 1\ntrue 2\ntrue 3")
    for number in (1, 2, 3):
        begin(room.chat.queue, number)
        end(room.chat.queue, number)
    await room.settle()
    _, said = room.said(room.uma)[before:]
    assert "✅ batch-1 is done on lab1: 3 succeeded" in said.text.text
    assert "all 3 done" in card.text.text


# -- what may go wrong -----------------------------------------------------------------------------


@in_room()
async def test_a_reaction_that_is_refused_is_replaced_by_the_card(room):
    """A group may allow no reactions."""
    stand_in_box(room)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bot.inbound.turn.TAKEN", "🚀")  # none of those that Telegram has
        (card,) = await room.ask(room.uma, "/submit python train.py")
    assert card.text.text.startswith("⏳ #1 queued")
    assert [one.method for one in room.world.refusals] == ["setMessageReaction"]
    room.world.refusals.clear()


@in_room()
async def test_a_question_on_a_card_stays_while_the_job_goes_on(room):
    (card,) = await room.ask(room.uma, "/submit python train.py")
    await room.tap(room.uma, card, "Kill")
    folder = begin(room.chat.queue, 1)
    await room.settle()
    progressed(folder, 10)
    await shows(room, card, "10 %")
    assert labels(card) == ["Yes, kill #1", "No"]
    await room.tap(room.uma, card, "No")
    progressed(folder, 20)
    await shows(room, card, "20 %")
    assert labels(card) == ["Log", "Details", "Kill"]


@in_room()
async def test_cards_outlive_the_bot_and_are_finished_by_the_next_one(room):
    stand_in_box(room)
    (waiting,) = submit(room.chat.queue, "true", gpus=0)
    await room.ask(room.uma, "/submit python train.py")
    begin(room.chat.queue, waiting)
    begin(room.chat.queue, 2)
    await room.show_cards()
    cards = card_of(room, room.ada, 1), card_of(room, room.uma, 2)
    await room.die()
    await room.open()
    stand_in_box(room)
    for number in (1, 2):
        end(room.chat.queue, number)
    await room.settle()
    assert [card.text.text.split(" · ")[0] for card in cards] == ["✅ #1 succeeded", "✅ #2 succeeded"]
    room.world.refusals.clear()  # the next bot does not know what the card says, and writes it again


@in_room()
async def test_a_card_that_was_deleted_is_forgotten_and_the_end_is_told(room):
    (card,) = await room.ask(room.uma, "/submit python train.py")
    del room.world.chats[room.uma.id].messages[card.message_id]
    begin(room.chat.queue, 1)
    await room.settle()
    assert room.chat.cards.all() == []
    end(room.chat.queue, 1)
    await room.settle()
    assert "#1 finished" in room.said(room.uma)[-1].text.text
    assert [one.description for one in room.world.refusals] == ["Bad Request: message to edit not found"]
    room.world.refusals.clear()


@in_room(log_text=False)
async def test_where_output_stays_on_the_box_a_card_has_no_metrics(room):
    (card,) = await room.ask(room.uma, "/submit python train.py")
    progressed(begin(room.chat.queue, 1), 10)
    await room.settle()
    await shows(room, card, "10 %")
    assert "loss" not in card.text.text


@in_room()
async def test_a_card_follows_a_group_no_further_when_that_gets_a_new_id(room):
    room.chat.cards.add(-7, room.uma.id, "x", [], "QUEUED", job_id=1, number=3)
    room.chat.cards.add(-7, room.uma.id, "x", [], "QUEUED", job_id=2)
    room.chat.cards.move(-7, -8)
    assert [(card.chat, card.job_id) for card in room.chat.cards.all()] == [(-8, 2)]


# -- Telegram's limits -----------------------------------------------------------------------------

JOBS, LASTS_S, STEP_S, ALERT_EVERY_S = 50, 600, 6, 60  # the limits look back a minute: an hour shows no more


class BusyTime:
    """Fifty jobs that run and print, with a clock that the test moves, in a chat with Telegram's limits."""

    def __init__(self, monkeypatch):
        self.at = 1000.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.at)
        self.world = World(clock=lambda: 1_800_000_000.0 + self.at)

    async def begins(self, room, place):
        """Fifty jobs start at once."""
        self.room, self.place = room, place
        self.world.flood.set_limits(FloodLimits())
        room.bot.sender.pace.__init__()
        numbers = room.queue_apart(room.uma, JOBS)
        room.chat.queue.store.execute("UPDATE threads SET chat = ?", (place.id,))
        self.folders = [begin(room.chat.queue, number) for number in numbers]
        await room.settle()
        room.chat.queue.store.execute("UPDATE messages SET next_try_at = NULL WHERE lane = 'card'")
        self.edits = self.watched()

    def watched(self):
        """When each message of this chat is changed, by the moved clock."""
        edits: dict[int, list[float]] = {}
        self.calls: list[float] = []

        def note(event):
            if event.by_bot and event.chat_id == self.place.id:
                self.calls.append(self.at)
            if event.kind == "edited" and event.chat_id == self.place.id:
                edits.setdefault(event.data["message_id"], []).append(self.at)

        self.world.events.watch(note)
        return edits

    async def step(self, second):
        """Every fifth job prints; what can be sent is sent."""
        self.at += STEP_S
        for folder in self.folders[second // STEP_S % 5 :: 5]:
            record = {"at": clock.text(clock.now()), "progress": {"position": second, "total": LASTS_S, "unit": "step"}}
            (folder / "draft").write_text(json.dumps(record))
            (folder / "draft").rename(folder / rundir.PROGRESS)
        await self.room.settle()

    def refused(self):
        return [one for one in self.world.refusals if one.code == 429]


@pytest.mark.parametrize("kind", ["private", "group"])
def test_fifty_cards_delay_no_alert(kind, tmp_path, monkeypatch):
    async def scene():
        time = BusyTime(monkeypatch)
        async with a_room(tmp_path, world=time.world, groups=(-5001,), queued_per_person=100) as room:
            group = room.world.add_group("Lab", [room.uma])
            place = group if kind == "group" else room.world.chats[room.uma.id]
            await time.begins(room, place)
            alerts = 0
            for second in range(0, LASTS_S, STEP_S):
                await time.step(second)
                if second % ALERT_EVERY_S == 0:
                    alerts += 1
                    room.chat.queue.notices.add(LooksHung(why=f"alert {alerts}"), alerts)
                    await room.settle()
                    said = room.said(room.uma, group if kind == "group" else None)
                    assert f"alert {alerts}" in said[-1].text.text, "it waited until the clock moved"
            assert time.refused() == []
            assert len(time.edits) == JOBS, "every card is alive"
            return sorted(len(times) for times in time.edits.values())

    fewest, *_, most = asyncio.run(scene())
    assert 1 <= fewest <= most <= fewest + 1, "they take turns"


def test_after_a_429_cards_are_slower_and_there_is_no_other(tmp_path, monkeypatch):
    async def scene():
        time = BusyTime(monkeypatch)
        async with a_room(tmp_path, world=time.world, queued_per_person=100) as room:
            await time.begins(room, room.world.chats[room.uma.id])
            time.world.flood.set_limits(FloodLimits(chat_per_s=0.1, chat_burst=3))  # it differs by bot and time
            for second in range(0, LASTS_S // 4, STEP_S):
                await time.step(second)
            assert len(time.refused()) == 1
            gaps = [after - before for before, after in itertools.pairwise(time.calls)]
            assert gaps[0] == STEP_S
            assert min(gaps[-4:]) == 2 * STEP_S

    asyncio.run(scene())
