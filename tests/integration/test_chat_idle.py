"""Idle jobs in the chat: the warning and its buttons, silence, an outage, and the picture."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from bot import waiting
from bot.commands import Role
from bot.handlers.button_taps import NOT_YOURS
from bot.pictures import plots
from bot.text.html import CAPTION_UNITS
from runner import clock
from runner.model import Reason, State
from runner.notices import payload_of
from tests.attempts import begin, end
from tests.e2e.test_over_http import Telegram, text_of
from tests.idle_stage import IdleStage
from tests.room import Room, a_room, data_of, labels
from tests.telegram.photo import dimensions
from tests.telegram.remote import WorldProcess
from tests.wait import eventually, is_on_time

UNLESS_KEPT = "unless it is kept or works again"

GPU = "GPU-0a1b2c3d-1111"
MINUTE = "20%:1s:60:0"
BUTTONS = ["Keep 1 h", "Keep for good", "Kill now", "Log"]
LAB = -5001
IDLE_FOR = {GPU: 0}

Scene = Callable[[Room, IdleStage], Awaitable[None]]


def staged(*, pictures: bool = False, refusals: int = 0, **settings: Any) -> Callable[[Scene], Any]:
    """A conversation on a box whose GPUs do what the test says; nothing the bot sends may be refused."""

    def decorate(scene: Scene) -> Any:
        def run(tmp_path, monkeypatch):
            monkeypatch.setattr(plots, "available", lambda: pictures)
            plots._drawn.clear()

            async def inside() -> None:
                async with a_room(tmp_path, **settings) as room:
                    await scene(room, IdleStage(room.chat.queue, monkeypatch, idle=MINUTE))
                    assert len([one for one in room.world.refusals if one.code == 400]) == refusals

            asyncio.run(inside())

        run.__name__, run.__doc__ = scene.__name__, scene.__doc__
        return run

    return decorate


async def a_job(room, chat=None, command="python train.py"):
    await room.ask(room.uma, f"/submit --name night {command}", chat)
    number = max(job.id for job in room.chat.queue.jobs.find())
    begin(room.chat.queue, number, GPU)
    await room.settle()
    return number


async def warned(room, stage, chat=None, **how):
    """A job of Uma's, and the warning that she gets of it."""
    number = await a_job(room, chat, **how)
    stage.pass_by(40, IDLE_FOR)
    await room.settle()
    return number, room.said(room.uma, chat)[-1]


def words(message):
    return message.caption.text or message.text.text


def stopped_and_ended(room, stage, number):
    """As the supervisor would."""
    assert room.chat.queue.job(number).stop.reason is Reason.IDLE
    end(room.chat.queue, number, exit_code=None, signal=15, stopped=True, duration_s=61.0)


@staged()
async def test_a_warning_and_keep_1_h(room, stage):
    number, warning = await warned(room, stage)
    (told,) = stage.warnings(number)
    due = clock.moment(told["stops_at"]).astimezone()
    stops = f"and will be stopped at {due:%H:%M:%S} {UNLESS_KEPT}"
    assert words(warning).splitlines()[0] == f"💤 #1 night on lab1 is idle {stops}"
    assert "GPU 0 below 20 % in 30 samples over 30 s" in words(warning)
    assert "▁▁▁▁" in words(warning)
    assert not warning.silent
    assert labels(warning) == BUTTONS
    assert await room.tap(room.uma, warning, "Keep 1 h") == []
    assert room.answers()[-1] == "Job 1 is kept for 1h 00m, even if its GPUs are idle."
    assert labels(warning) == ["✓ Kept for 1h 00m", "Log", "Details", "Kill"]
    assert words(warning).splitlines()[0] == "💤 #1 night on lab1 is idle"
    assert words(warning).splitlines()[-1] == "Job 1 is kept for 1h 00m, even if its GPUs are idle. – Uma"
    stage.pass_by(200, IDLE_FOR)
    assert stage.stopped_at(number) is None
    assert len(stage.warnings(number)) == 1
    (kept,) = [entry for entry in room.chat.queue.audit.rows() if entry["action"] == "keep"]
    assert kept["actor"] == f"tg:{room.uma.id}"


@staged()
async def test_keep_for_good(room, stage):
    number, warning = await warned(room, stage)
    await room.tap(room.uma, warning, "Keep for good")
    assert room.answers()[-1] == "Job 1 is kept for good, even if its GPUs are idle."
    stage.pass_by(200, IDLE_FOR)
    assert stage.stopped_at(number) is None


@staged()
async def test_a_warning_and_silence(room, stage):
    """Stopped at the promised second, told with the evidence and a way to run it again."""
    number, _ = await warned(room, stage)
    stage.pass_by(21, IDLE_FOR)
    promised = clock.moment(stage.warnings(number)[0]["stops_at"])
    assert abs(stage.stopped_at(number) - promised) <= timedelta(seconds=1)
    stopped_and_ended(room, stage, number)
    await room.settle()
    said = room.said(room.uma)[-1]
    assert words(said).splitlines()[0] == "⏹ #1 night stopped on lab1 after 1m 01s · GPU idle"
    assert "GPU 0 below 20 % in 60 samples over 1m 00s" in words(said)
    assert labels(said) == ["Log", "Details", "Rerun"]
    (again,) = await room.tap(room.uma, said, "Rerun")
    assert "#2 night queued" in words(again)


@staged()
async def test_kill_now(room, stage):
    number, warning = await warned(room, stage)
    await room.tap(room.uma, warning, "Kill now")
    assert room.answers()[-1] == "Job 1 is being stopped."
    stop = room.chat.queue.job(number).stop
    assert (stop.reason, stop.by) == (Reason.USER, f"tg:{room.uma.id}")
    assert labels(warning) == ["Log", "Details", "Kill"]
    end(room.chat.queue, number, exit_code=None, signal=15, stopped=True)
    await room.settle()
    assert "stopped by Uma" in words(room.said(room.uma)[-1])


@staged()
async def test_buttons_that_come_too_late_say_so(room, stage):
    number, warning = await warned(room, stage)
    stage.pass_by(21, IDLE_FOR)
    assert stage.stopped_at(number) is not None
    await room.tap(room.uma, warning, "Keep 1 h")
    assert room.answers()[-1] == "Job 1 is already being stopped: it is too late to keep it."
    late = [data_of(warning, label) for label in ("Keep for good", "Kill now")]
    stopped_and_ended(room, stage, number)
    await room.settle()
    assert labels(warning) == ["Log", "Rerun"]
    for data in late:
        room.people.tap(room.uma, None, warning.message_id, data)
        await room.settle()
        assert room.answers()[-1].startswith("#1 has ended: stopped, GPU idle (")
        assert labels(warning) == ["Log", "Details", "Rerun"]


@staged(groups=(LAB,))
async def test_the_taps_of_others_do_nothing(room, stage):
    everybody = (room.ada, room.uma, room.una, room.vic, room.sam)
    group = room.world.add_group("Lab", everybody)
    number, warning = await warned(room, stage, group)
    answers = len(room.answers())
    for person in (room.sam, room.una, room.vic, room.ada):
        for label in ("Keep 1 h", "Keep for good", "Kill now"):
            assert await room.tap(person, warning, label) == []
    assert set(room.answers()[answers:]) == {NOT_YOURS}
    assert len(room.answers()) == answers + 9  # of people who are in; strangers meet silence
    assert labels(room.said(room.uma, group)[-1]) == BUTTONS
    assert room.chat.queue.job(number).stop is None
    assert room.chat.queue.view.watched(number)["kept"] is None
    stage.pass_by(21, IDLE_FOR)
    assert stage.stopped_at(number) is not None


@staged()
async def test_who_may_no_longer_has_buttons_that_do_nothing(room, stage):
    number, warning = await warned(room, stage)
    room.chat.gate.role_of = lambda _: Role.VIEWER
    for label in ("Keep 1 h", "Kill now"):
        await room.tap(room.uma, warning, label)
        assert room.answers()[-1].startswith("That takes a user of this box")
    assert room.chat.queue.view.watched(number)["kept"] is None
    assert room.chat.queue.job(number).stop is None


@staged()
async def test_telegram_is_down(room, stage):
    """Put off once, by no more than a window; then stopped, and all of it told when Telegram is back."""
    number = await a_job(room)
    before = len(room.said(room.uma))
    room.faults.outage = True
    stage.pass_by(40, IDLE_FOR)
    await told_as_far_as_possible(room)
    stage.pass_by(25, IDLE_FOR)
    assert stage.stopped_at(number) is None
    promised = clock.moment(stage.warnings(number)[0]["stops_at"])
    stage.pass_by(60, IDLE_FOR)
    late_s = (stage.stopped_at(number) - promised).total_seconds()
    assert 58 <= late_s <= 61
    stopped_and_ended(room, stage, number)
    room.faults.clear()
    stage.passed_s += 60  # past the pause before the next try
    await room.settle()
    told = [words(message).splitlines()[0] for message in room.said(room.uma)[before:]]
    assert told[0].startswith("💤 #1 night on lab1 is idle")
    assert told[1].startswith("⏹ #1 night stopped on lab1")
    assert len(told) == 2


@staged()
async def test_telegram_is_back_before_the_time_is_over(room, stage):
    """Whoever hears of it late has the time that the warning gives, and buttons that work."""
    number = await a_job(room)
    before = len(room.said(room.uma))
    room.faults.outage = True
    stage.pass_by(40, IDLE_FOR)
    await told_as_far_as_possible(room)
    stage.pass_by(22, IDLE_FOR)
    room.faults.clear()
    await room.settle()
    stage.pass_by(1, IDLE_FOR)
    await room.settle()
    _, again = room.said(room.uma)[before:]
    due = clock.moment(stage.warnings(number)[1]["stops_at"])
    assert f"will be stopped at {due.astimezone():%H:%M:%S}" in words(again)
    assert due > clock.now() + timedelta(seconds=25)
    await room.tap(room.uma, again, "Keep 1 h")
    stage.pass_by(120, IDLE_FOR)
    assert stage.stopped_at(number) is None


async def told_as_far_as_possible(room):
    """The bot has tried and failed."""
    tried = sum(room.faults.applied.values())
    deadline = asyncio.get_running_loop().time() + 10
    while room.chat.queue.notices.open() or sum(room.faults.applied.values()) == tried or room.bot.sender.busy:
        assert asyncio.get_running_loop().time() < deadline
        room.bot.notifier.wake()
        room.bot.sender.wake()
        await asyncio.sleep(0.005)


@staged()
async def test_a_warning_that_comes_after_the_end_offers_nothing_that_is_too_late(room, stage):
    number = await a_job(room)
    room.bot.notifier._wake.clear()
    stage.pass_by(40, IDLE_FOR)
    end(room.chat.queue, number)
    await room.settle()
    warning = room.said(room.uma)[-2]
    assert "is idle" in words(warning)
    assert labels(warning) == ["Log", "Details", "Rerun"]


@staged()
async def test_what_looks_hung_is_told(room, stage):
    number = await a_job(room)
    why = "looks hung: 12 min silent at 31 % of its usual power"
    room.chat.queue.notices.add(payload_of("looks hung", {"why": why}), number)
    await room.settle()
    said = room.said(room.uma)[-1]
    assert words(said).splitlines()[0] == f"🧊 #1 night on lab1 {why}"
    assert labels(said) == ["Log", "Details", "Kill"]
    assert not said.silent


@staged()
async def test_what_looks_hung_and_will_be_stopped_can_be_kept(room, stage):
    number = await a_job(room)
    why, stops_at = "looks hung: 5 min silent at 31 % of its usual power", clock.now() + timedelta(minutes=5)
    for yields, unless in ((False, ""), (True, " if another job waits for its GPUs,")):
        data = {"why": why, "stops_at": clock.text(stops_at), "yields": yields}
        room.chat.queue.notices.add(payload_of("looks hung", data), number)
        await room.settle()
        said = room.said(room.uma)[-1]
        assert words(said).splitlines()[:2] == [
            f"🧊 #1 night on lab1 {why}",
            f"It will be stopped at {stops_at.astimezone():%H:%M:%S}{unless} {UNLESS_KEPT}",
        ]
        assert labels(said) == BUTTONS
    await room.tap(room.uma, said, "Keep 1 h")
    assert room.chat.queue.view.watched(number)["kept"]["by"] == f"tg:{room.uma.id}"
    assert "will be stopped" not in words(said)
    room.bot.notifier._wake.clear()
    room.chat.queue.notices.add(payload_of("looks hung", data), number)
    end(room.chat.queue, number)
    await room.settle()
    too_late = room.said(room.uma)[-2]
    assert "looks hung" in words(too_late)
    assert labels(too_late) == ["Log", "Details", "Rerun"]


@staged()
async def test_keep_as_a_command(room, stage):
    number, warning = await warned(room, stage)
    for sent, how, answer in (
        ("/keep 1", {}, "Job 1 is kept for good, even if its GPUs are idle."),
        ("/keep #1 2h", {}, "Job 1 is kept for 2h 00m, even if its GPUs are idle."),
        ("/keep", {"reply_to": warning.message_id}, "Job 1 is kept for good, even if its GPUs are idle."),
        ("/keep 30m", {"reply_to": warning.message_id}, "Job 1 is kept for 30m 00s, even if its GPUs are idle."),
        ("/keep", {}, "Keep which job from being stopped as idle?"),
        ("/keep 1 soon", {}, "⚠️ 'soon' is not a duration: write it like 30s, 10m, 6h, 3d, 1h30m or 500ms"),
        ("/keep 1 0s", {}, "⚠️ The time to keep a job is at least 1s: write it like 30m, 2h or 1d."),
        ("/keep 99", {}, "⚠️ There is no job #99. /status lists the latest."),
        ("/keep 99 2h", {}, "⚠️ There is no job #99. /status lists the latest."),
    ):
        (said,) = await room.ask(room.uma, sent, **how)
        assert words(said) == answer, sent
    (refused,) = await room.ask(room.una, "/keep 1")
    assert words(refused) == "⚠️ #1 belongs to Uma: only they or an admin may change it."
    (refused,) = await room.ask(room.vic, "/keep 1")
    assert "That takes a user of this box" in words(refused)
    (said,) = await room.ask(room.ada, "/keep 1 1d")
    assert words(said).startswith("Job 1 is kept for")
    assert room.chat.queue.view.watched(number)["kept"]["by"] == f"tg:{room.ada.id}"
    before = room.chat.queue.view.watched(number)
    room.people.start(room.sam)
    await room.ask(room.sam, "/keep 1 1h")
    assert room.chat.queue.view.watched(number) == before


@staged()
async def test_a_rule_that_is_none_is_refused_in_the_chat(room, stage):
    for option, sentence in (
        ("--idle 0%", "nothing is ever below 0 %"),
        ("--idle often", "'often' is not a threshold"),
        ("--hung maybe", "'maybe' is not a rule for hung jobs"),
    ):
        (said,) = await room.ask(room.uma, f"/submit {option} python train.py")
        assert sentence in words(said)
    assert room.chat.queue.jobs.find() == []
    await room.ask(room.uma, "/submit --idle OFF --hung kill python train.py")
    assert (room.chat.queue.job(1).spec.idle, room.chat.queue.job(1).spec.hung) == ("off", "kill")


# -- pictures --------------------------------------------------------------------------------------------------------


@staged(pictures=True)
async def test_the_warning_is_a_picture_with_the_same_buttons(room, stage):
    number, warning = await warned(room, stage, command="python train.py " + "--option value " * 200)
    assert dimensions(warning.photo.data) == (800, 400)
    assert words(warning).startswith("💤 #1 night on lab1 is idle and will be stopped at")
    assert words(warning).endswith("GPU 0 below 20 % in 30 samples over 30 s")
    assert labels(warning) == BUTTONS
    (said,) = await room.ask(room.uma, "/keep 1s", reply_to=warning.message_id)
    assert "Job 1 is kept for 1 s" in words(said)
    await room.tap(room.uma, warning, "Keep for good")
    edited = next(m for m in room.said(room.uma) if m.message_id == warning.message_id)
    assert labels(edited) == ["✓ Kept for good", "Log", "Details", "Kill"]
    assert edited.photo is not None
    assert words(edited).startswith("💤 #1 night on lab1 is idle\nGPU 0 below 20 %")
    assert words(edited).endswith("\nJob 1 is kept for good, even if its GPUs are idle. – Uma")
    await room.tap(room.uma, edited, "Kill")
    edited = next(m for m in room.said(room.uma) if m.message_id == warning.message_id)
    assert labels(edited) == ["Yes, kill #1", "No"]
    await room.tap(room.uma, edited, "Yes, kill #1")
    assert room.chat.queue.job(number).stop.reason is Reason.USER
    assert len(words(edited).encode("utf-16-le")) // 2 <= CAPTION_UNITS


@staged(pictures=True)
async def test_the_end_is_a_picture_too(room, stage):
    number, _ = await warned(room, stage, command="python train.py " + "--option value " * 200)
    stage.pass_by(21, IDLE_FOR)
    stopped_and_ended(room, stage, number)
    await room.settle()
    warning, said = room.said(room.uma)[-2:]
    assert warning.photo is not None
    assert dimensions(said.photo.data) == (800, 400)
    assert words(said).startswith("⏹ #1 night stopped on lab1 after 1m 01s · GPU idle")
    assert words(said).endswith("GPU 0 below 20 % in 60 samples over 1m 00s")
    assert len(words(said).encode("utf-16-le")) // 2 <= CAPTION_UNITS
    assert labels(said) == ["Log", "Details", "Rerun"]
    (again,) = await room.tap(room.uma, said, "Rerun")
    assert "#2 night queued" in words(again)


@pytest.mark.parametrize("broken", [["false"], ["/no/such/python"], ["echo", "no picture"]], ids=str)
def test_without_a_picture_the_words_are_sent(broken, tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "python_command", lambda *_: broken)

    @staged(pictures=True)
    async def scene(room, stage):
        number, warning = await warned(room, stage)
        assert warning.photo is None
        assert "▁▁▁▁" in words(warning)
        assert labels(warning) == BUTTONS
        await room.tap(room.uma, warning, "Keep 1 h")
        assert room.chat.queue.view.watched(number)["kept"] is not None

    scene(tmp_path, monkeypatch)


def test_a_picture_that_takes_too_long_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "python_command", lambda *_: ["sleep", "300"])
    monkeypatch.setattr(plots, "DRAW_S", 0.2)

    @staged(pictures=True)
    async def scene(room, stage):
        _, warning = await warned(room, stage)
        assert warning.photo is None
        assert "▁▁▁▁" in words(warning)

    scene(tmp_path, monkeypatch)


def test_a_picture_that_is_refused_is_sent_as_words(tmp_path, monkeypatch):
    async def spoilt(*_):
        return plots.PNG + b"\0" * 30

    monkeypatch.setattr(plots, "drawn", spoilt)

    @staged(pictures=True, refusals=1)
    async def scene(room, stage):
        number, warning = await warned(room, stage)
        assert warning.photo is None
        assert "▁▁▁▁" in words(warning)
        assert labels(warning) == BUTTONS
        stage.pass_by(21, IDLE_FOR)
        assert stage.stopped_at(number) is not None  # it has arrived: nothing is put off

    scene(tmp_path, monkeypatch)


def test_a_picture_is_drawn_beside_the_loop_and_once(tmp_path, monkeypatch):
    plots._drawn.clear()
    plot = {"gpus": ["0"], "samples": [[-1.0, 0], [0.0, None]], "threshold_percent": 5.0}

    async def scene():
        turns = 0
        drawing = asyncio.ensure_future(plots.drawn(plot, str(tmp_path)))
        while not drawing.done():
            await asyncio.sleep(0.005)
            turns += 1
        assert turns > 10
        monkeypatch.setattr(waiting, "python_command", lambda *_: ["false"])
        assert await plots.drawn(plot, str(tmp_path)) == drawing.result()
        return drawing.result()

    assert dimensions(asyncio.run(scene())) == (800, 400)


# -- the real runner and the real bot --------------------------------------------------------------------------------


@pytest.mark.evidence
def test_over_http_one_is_kept_and_one_is_not(box):
    with WorldProcess() as world:
        world.do("add_user", first_name="Ada", user_id=1001)
        world.do("start", user=1001)
        environ = {
            **box.environ, "NIGHTSHIFT_API_URL": world.url, "NIGHTSHIFT_TOKEN": world.token, "NIGHTSHIFT_BOX": "lab1",
            "NIGHTSHIFT_ADMINS": "1001", "NIGHTSHIFT_GPUS": "sim:2x24GiB", "NIGHTSHIFT_IDLE": "20%:2s:5:0",
            "NIGHTSHIFT_IDLE_WARNING": "6s",  # time to draw two pictures on a busy machine
        }  # fmt: skip
        with (box.folder / "up.out").open("wb") as output:
            up = subprocess.Popen(box.command("up"), env=environ, cwd=box.folder, stdout=output, stderr=output)
        try:
            _one_is_kept_and_one_is_not(box, Telegram(world, 1001))
        finally:
            up.terminate()
            up.wait(30)
        assert [one for one in world.do("refusals") if one["code"] == 400] == []


def _one_is_kept_and_one_is_not(box, ada):
    eventually((box.home / "nightshift.db").exists)
    kept, stopped = box.submit("sleep 300"), box.submit("sleep 300")
    warning = ada.hear(f"#{kept} on lab1 is idle and will be stopped at")
    assert "photo" in warning
    ada.press(warning, "Keep 1 h")
    ada.hear(f"#{stopped} on lab1 is idle and will be stopped at")
    said = ada.hear(f"#{stopped} stopped on lab1")
    assert "GPU idle" in text_of(said)
    assert "photo" in said
    with box.queue() as queue:
        *_, notice = [one for one in queue.notices.about(stopped) if one.kind == "idle warning"]
        assert is_on_time(queue.job(stopped).stop.at, clock.moment(notice.payload.stops_at))
        assert queue.job(kept).state is State.RUNNING
        assert queue.job(kept).stop is None
