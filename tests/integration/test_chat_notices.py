"""Every notice the runner writes, as the people read it: where, how loud, in which words, with which buttons, once."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest

from bot.outbound.notifier import is_quiet
from bot.text import box_notices
from bot.text.box_notices import NoticeContext
from runner import clock
from runner.model import Phase, Reason, State
from runner.notices import payload_of
from runner.schedule.backoff import Retry
from runner.store.box import BoxKey
from runner.text.words import event_words, state_words
from tests.attempts import begin, end, lose
from tests.jobs import a_probe_report, an_exit, submit
from tests.room import in_room, labels

AT_LAB = NoticeContext(box="lab1", indices={}, name_of=str)

UNLESS_KEPT = "unless it is kept or works again"

GPU, OTHER = "GPU-0a1b2c3d-1111", "GPU-9f8e7d6c-2222"
USED = {"peak_memory_mib": 18432, "memory_total_mib": 24576, "mean_utilization": 87.4}
FAILED_OUTPUT = b"""Epoch 1:  10%|#    | 10/100 [00:01<00:09]\rEpoch 1:  55%|##   | 55/100\rEpoch 1: 100%|####| 100/100
wandb: View run at https://wandb.ai/lab/proj/runs/abc123
Traceback (most recent call last):
  File "/home/uma/train.py", line 30, in main
    loss.backward()
RuntimeError: shapes do not match
"""


async def news(room, user, chat=None):
    """What the bot says there because of what has just happened."""
    before = len(room.said(user, chat))
    await room.settle()
    return room.said(user, chat)[before:]


async def a_job(room, command="/submit --name night python train.py", user=None, chat=None, **how):
    await room.ask(user or room.uma, command, chat, **how)
    return max(job.id for job in room.chat.queue.jobs.find())


def stand_in_gpus(room):
    """As if the sampler knew two GPUs."""
    room.chat.queue.view.gpus = lambda: [{"uuid": GPU, "index": 0}, {"uuid": OTHER, "index": 1}]


# -- a job ------------------------------------------------------------------------------------------


@in_room()
async def test_who_wants_more_is_told_of_a_start_under_the_message_that_asked_for_it_without_a_sound(room):
    stand_in_gpus(room)
    await room.ask(room.uma, "/notify more")
    number = await a_job(room)
    asked = room.said(room.uma)[-1].reply_to
    begin(room.chat.queue, number, GPU, OTHER)
    (said,) = await news(room, room.uma)
    assert said.text.text == "▶️ #1 night started on lab1 · GPU 0,1"
    assert said.silent
    assert said.reply_to.message_id == asked.message_id
    assert labels(said) == ["Log", "Details", "Kill"]


@in_room()
async def test_a_probed_start_is_told_with_its_batch_and_a_step_back_in_one_line(room):
    stand_in_gpus(room)
    jobs = room.chat.queue.jobs
    number = await a_job(room, "/submit --name night --probe --batch-arg --batch_size python train.py")
    assert jobs.get(number).spec.probe == {"batch_arg": "--batch_size"}
    jobs.claim(number, [(GPU, 0)], "boot")
    jobs.started(jobs.get(number), clock.text(clock.now()), Phase.PROBING)
    assert await news(room, room.uma) == []
    await room.ask(room.uma, "/notify more")
    jobs.probed(jobs.get(number), a_probe_report(), 24, "batch 24, 91 % of 24 GiB, probed in 14 s")
    (said,) = await news(room, room.uma)
    assert said.text.text == "▶️ #1 night started on lab1 · GPU 0\nbatch 24, 91 % of 24 GiB, probed in 14 s"
    why = "batch 24 ran out of memory; again at batch 21"
    jobs.back_to_queue(jobs.get(number), why, (State.FAILED, Reason.OOM), USED, an_exit(exit_code=1))
    (said,) = await news(room, room.uma)
    assert said.text.text.splitlines()[0] == f"🔁 #1 night is queued again on lab1 · {why}"
    begin(room.chat.queue, number, GPU)
    end(room.chat.queue, number, USED)
    assert "batch 24" in (await news(room, room.uma))[-1].text.text


@in_room(log_text=False)
async def test_where_output_stays_on_the_box_so_does_the_address_in_it(room):
    stand_in_gpus(room)
    number = await a_job(room)
    begin(room.chat.queue, number, GPU, output=FAILED_OUTPUT)
    await room.settle()
    end(room.chat.queue, number, USED, exit_code=1)
    (said,) = await news(room, room.uma)
    assert "failed" in said.text.text
    assert "wandb" not in repr(said.text)
    assert "shapes" not in said.text.text


@in_room()
async def test_success_in_full(room):
    stand_in_gpus(room)
    number = await a_job(room)
    begin(room.chat.queue, number, GPU, output=FAILED_OUTPUT)
    await room.settle()
    end(room.chat.queue, number, USED, duration_s=7321.0)
    (said,) = await news(room, room.uma)
    assert said.text.text == (
        "✅ #1 night finished on lab1 after 2h 02m\n"
        "python train.py\n"
        "GPU 0 · peak 18.0 GiB of 24.0 GiB · 87 % busy\n"
        "📈 wandb"
    )
    assert not said.silent
    assert labels(said) == ["Log", "Details", "Rerun"]
    (link,) = [entity for entity in said.text.entities if entity.type == "text_link"]
    assert dict(link.extra)["url"] == "https://wandb.ai/lab/proj/runs/abc123"


@in_room()
async def test_failure_in_full_with_its_traceback_and_not_its_progress_bar(room):
    stand_in_gpus(room)
    number = await a_job(room)
    begin(room.chat.queue, number, GPU, output=FAILED_OUTPUT)
    await room.settle()
    end(room.chat.queue, number, USED, duration_s=63.0, exit_code=3)
    (said,) = await news(room, room.uma)
    first, *rest = said.text.text.splitlines()
    assert first == "❌ #1 night failed on lab1 after 1m 03s · exit 3"
    assert "GPU 0 · peak 18.0 GiB of 24.0 GiB · 87 % busy" in rest
    assert rest[-1] == "RuntimeError: shapes do not match"
    assert "100/100" not in said.text.text
    assert not said.silent
    assert said.reply_to is not None


HOW_IT_ENDS = [
    ({"exit_code": 1}, "❌ #1 failed on lab1 after 1m 03s · exit 1"),
    ({"signal": 11}, "❌ #1 crashed on lab1 after 1m 03s · SIGSEGV, segmentation fault"),
    ({"signal": 9}, "❌ #1 was killed on lab1 after 1m 03s · SIGKILL, perhaps because the machine ran out of memory"),
    ({"signal": 34}, "❌ #1 crashed on lab1 after 1m 03s · SIGRTMIN"),
    ({"spawn_error": "bash: not found"}, "❌ #1 could not start on lab1 · bash: not found"),
    ({"signal": 15, "timed_out": True}, "⏹ #1 stopped on lab1 after 1m 03s · time limit"),
    ({"signal": 15, "stopped": True}, "💥 #1 lost on lab1 after 1m 03s · supervisor killed"),
]


@pytest.mark.parametrize(("exit", "first_line"), HOW_IT_ENDS, ids=[line for _, line in HOW_IT_ENDS])
def test_the_first_line_says_what_matters(exit, first_line, tmp_path):
    @in_room()
    async def check(room):
        number = await a_job(room, "/submit -g 0 python train.py")
        begin(room.chat.queue, number)
        await room.settle()
        end(room.chat.queue, number, **{"duration_s": 63.0, "exit_code": None, **exit})
        (said,) = await news(room, room.uma)
        assert said.text.text.splitlines()[0] == first_line
        assert not said.silent

    check(tmp_path)


@pytest.mark.parametrize(
    ("state", "reason", "first_line"),
    [
        (State.FAILED, Reason.OOM, "❌ #1 failed on lab1 after 1 s · out of memory"),
        (State.CANCELLED, Reason.IDLE, "⏹ #1 stopped on lab1 after 1 s · GPU idle"),
        (State.CANCELLED, Reason.HUNG, "⏹ #1 stopped on lab1 after 1 s · hung"),
        (State.CANCELLED, Reason.PREEMPTED, "⏹ #1 stopped on lab1 after 1 s · preempted"),
        (State.CANCELLED, Reason.DEPENDENCY, "⏹ #1 cancelled on lab1 after 1 s · dependency failed"),
    ],
)
def test_and_for_the_reasons_the_runner_gives(state, reason, first_line, tmp_path):
    @in_room()
    async def check(room):
        number = await a_job(room, "/submit -g 0 python train.py")
        begin(room.chat.queue, number)
        await room.settle()
        queue = room.chat.queue
        queue.jobs.ended(queue.job(number), state, reason, an_exit(exit_code=1))
        (said,) = await news(room, room.uma)
        assert said.text.text.splitlines()[0] == first_line

    check(tmp_path)


@pytest.mark.parametrize(
    ("memory", "why"), [("gpu", "the GPU ran out of memory"), ("host", "the machine ran out of memory")]
)
def test_which_memory_ran_out_is_said_in_the_chat_and_in_the_terminal(memory, why, tmp_path):
    @in_room()
    async def check(room):
        number = await a_job(room, "/submit -g 0 python train.py")
        begin(room.chat.queue, number)
        await room.settle()
        queue = room.chat.queue
        queue.jobs.ended(queue.job(number), State.FAILED, Reason.OOM, an_exit(exit_code=1, memory=memory))
        (said,) = await news(room, room.uma)
        assert said.text.text.splitlines()[0] == f"❌ #1 failed on lab1 after 1 s · {why}"
        assert state_words(queue.job(number)) == f"failed, {why}"
        assert event_words(queue.jobs.events(number)[-1], {}) == f"failed, {why}"

    check(tmp_path)


@in_room()
async def test_whom_it_made_room_for_and_what_it_waited_for_in_vain(room):
    number = await a_job(room, "/submit --preemptible python train.py")
    waiting = await a_job(room, f"/submit --after-ok {number} python test.py")
    queue = room.chat.queue
    begin(queue, number)
    await room.settle()
    queue.jobs.back_to_queue(queue.job(number), "it made room for #9", (State.CANCELLED, Reason.PREEMPTED))
    (said,) = await news(room, room.uma)
    assert said.text.text.splitlines()[0] == f"🔁 #{number} is queued again on lab1 · it made room for #9"
    queue.stop(number)
    told = [said.text.text.splitlines()[0] for said in await news(room, room.uma)]
    assert f"⏹ #{waiting} cancelled on lab1 before it started · it depends on #{number}, which did not succeed" in told


@in_room()
async def test_a_lost_job_says_what_is_not_known(room):
    for reason, why in ((Reason.HOST, "host went down"), (Reason.SUPERVISOR, "supervisor killed")):
        number = await a_job(room)
        begin(room.chat.queue, number)
        await room.settle()
        lose(room.chat.queue, number, reason)
        (said,) = await news(room, room.uma)
        first = said.text.text.splitlines()[0]
        assert re.fullmatch(rf"💥 #{number} night lost on lab1 after about [\d.]+ s · {why}", first)


@in_room()
async def test_who_stopped_it_is_told_by_name(room):
    number = await a_job(room)
    begin(room.chat.queue, number)
    await room.settle()
    queue = room.chat.queue
    queue.acting_as(f"tg:{room.ada.id}").stop(number)
    end(queue, number, exit_code=None, signal=15, stopped=True, duration_s=20)
    (said,) = await news(room, room.uma)
    assert said.text.text.splitlines()[0] == "⏹ #1 night stopped by Ada on lab1 after 20 s"
    waiting = await a_job(room)
    queue.acting_as("root").stop(waiting)
    (said,) = await news(room, room.uma)
    assert said.text.text.splitlines()[0] == "⏹ #2 night cancelled by root on lab1 before it started"
    assert labels(said) == ["Details", "Rerun"]


@in_room()
async def test_an_attempt_that_is_made_again(room):
    number = await a_job(room)
    begin(room.chat.queue, number)
    await room.settle()
    queue = room.chat.queue
    retry = Retry(1, 2, wait_s=0.0, is_news=True)
    queue.jobs.back_to_queue(queue.job(number), retry.words, (State.LOST, Reason.HOST), retry=retry)
    (said,) = await news(room, room.uma)
    assert said.text.text.splitlines()[0] == "🔁 #1 night is queued again on lab1 · host went down · retry 1 of 2"
    assert labels(said) == ["Log", "Details", "Kill"]
    begin(queue, number)
    assert await news(room, room.uma) == []
    assert "attempt 2" in next(one for one in room.said(room.uma) if one.text.text.startswith("▶️ #1")).text.text


@in_room()
async def test_a_series_of_retries_is_told_once_and_at_its_end(room):
    number, queue = await a_job(room), room.chat.queue
    failed = an_exit(exit_code=1)
    begin(queue, number)
    await room.settle()
    retry = Retry(1, 9999, wait_s=10.0, is_news=True)
    queue.jobs.back_to_queue(queue.job(number), retry.words, (State.FAILED, Reason.EXIT), end=failed, retry=retry)
    (said,) = await news(room, room.uma)
    assert said.text.text.splitlines()[0] == "🔁 #1 night is queued again on lab1 · exit 1 · retry 1 of 9999 in 10 s"
    assert said.text.text.endswith("The next message comes when the job ends.")
    for again in range(2, 6):
        queue.store.execute("UPDATE jobs SET begin_at = NULL, ready = 1")
        begin(queue, number)
        retry = Retry(again, 9999, wait_s=20.0, is_news=False)
        queue.jobs.back_to_queue(queue.job(number), retry.words, (State.FAILED, Reason.EXIT), end=failed, retry=retry)
    assert await news(room, room.uma) == []
    queue.store.execute("UPDATE jobs SET begin_at = NULL, ready = 1")
    begin(queue, number)
    end(queue, number, exit_code=1)
    (said,) = await news(room, room.uma)
    assert said.text.text.splitlines()[0] == "❌ #1 night failed on lab1 after 1 s · exit 1 · attempt 6"


@in_room()
async def test_the_output_told_is_that_of_the_attempt_told_about(room):
    number = await a_job(room)
    begin(room.chat.queue, number, output=b"ValueError: of the first\n")
    await room.settle()
    end(room.chat.queue, number, exit_code=1)
    queue = room.chat.queue
    queue.store.execute("UPDATE jobs SET state = 'QUEUED' WHERE id = ?", (number,))
    begin(queue, number, output=b"of the second\n")
    said = await news(room, room.uma)
    assert "of the first" in said[0].text.text


async def a_failed_trial(room, output=FAILED_OUTPUT):
    """The message about it."""
    queue = room.chat.queue
    number = await a_job(room, "/submit --name night --try python train.py")
    begin(queue, number, GPU, output=output)
    await room.settle()
    found = an_exit(exit_code=1, duration_s=3.0)
    queue.jobs.back_to_queue(
        queue.job(number), "why", (State.FAILED, Reason.EXIT), USED, found, held_by="its trial, which failed"
    )
    (said,) = await news(room, room.uma)
    return said


@in_room()
async def test_a_failed_trial_is_told_with_what_went_wrong_and_a_way_on(room):
    stand_in_gpus(room)
    said = await a_failed_trial(room)
    lines = said.text.text.splitlines()
    assert lines[0] == "❌ #1 night failed on lab1 after 3 s · exit 1 · in its trial"
    assert "held until somebody releases it: /release 1 tries it again" in lines[1]
    assert "python train.py" in lines[2]
    assert "RuntimeError: shapes do not match" in said.text.text
    assert not said.silent
    assert labels(said) == ["Release", "Edit", "Log", "Details", "Kill"]
    assert "held by its trial, which failed" in (await room.ask(room.uma, "/status 1"))[-1].text.text
    (how_to,) = await room.tap(room.uma, said, "Edit")
    assert "--try --name night" in how_to.text.text
    await room.tap(room.uma, said, "Release")
    assert room.answers()[-1] == "Job 1 is released."
    assert room.chat.queue.job(1).held_by is None
    (now,) = [one for one in room.said(room.uma) if one.message_id == said.message_id]
    assert now.text.text.endswith("Job 1 is released. – Uma")
    assert labels(now) == ["Log", "Details", "Kill"]


@in_room(log_text=False)
async def test_a_failed_trial_is_told_without_its_output_where_that_stays_on_the_box(room):
    said = await a_failed_trial(room)
    assert "in its trial" in said.text.text
    assert "shapes" not in said.text.text


@in_room()
async def test_a_job_whose_trial_failed_and_that_was_killed_can_only_be_run_again(room):
    said = await a_failed_trial(room)
    await room.ask(room.uma, "/kill 1")
    await room.tap(room.uma, room.said(room.uma)[-1], "Yes, kill #1")
    assert room.chat.queue.job(1).state is State.CANCELLED
    (now,) = [one for one in room.said(room.uma) if one.message_id == said.message_id]
    assert labels(now) == ["Log", "Details", "Rerun"]


@in_room()
async def test_secrets_in_the_output_are_not_told(room):
    number = await a_job(room, "/submit -g 0 --env API_KEY=hunter2-hunter2 python train.py")
    begin(room.chat.queue, number, output=b"ValueError: bad key hunter2-hunter2\n")
    await room.settle()
    end(room.chat.queue, number, exit_code=1)
    (said,) = await news(room, room.uma)
    assert "ValueError: bad key" in said.text.text
    assert "hunter2-hunter2" not in said.text.text


@in_room()
async def test_output_that_cannot_be_read_does_not_keep_the_news_back(room):
    number = await a_job(room)
    folder = begin(room.chat.queue, number, output=b"x")
    await room.settle()
    (folder / "output.log").unlink(missing_ok=True)
    log = room.chat.queue.view.log

    def broken(*_):
        raise OSError("the disk is gone")

    room.chat.queue.view.log = broken
    end(room.chat.queue, number, exit_code=1)
    (said,) = await news(room, room.uma)
    room.chat.queue.view.log = log
    assert said.text.text.startswith("❌ #1 night failed on lab1")


@in_room()
async def test_a_job_that_was_forgotten_meanwhile_is_told_of_all_the_same(room):
    number = await a_job(room)
    begin(room.chat.queue, number)
    await room.settle()
    end(room.chat.queue, number, exit_code=4, duration_s=9)
    room.chat.queue.store.execute("DELETE FROM jobs")
    (said,) = await news(room, room.uma)
    assert said.text.text == "❌ #1 failed on lab1 after 9 s · exit 4"


@in_room()
async def test_a_kind_of_notice_that_nobody_knows_yet_is_told_in_a_few_words(room):
    number = await a_job(room)
    room.chat.queue.notices.add(payload_of("levitating", {"height": 3}), number)
    room.chat.queue.notices.add(payload_of("fog", {}))
    assert [one.text.text for one in await news(room, room.uma)] == ["lab1 #1: levitating"]
    assert room.said(room.ada)[-1].text.text == "lab1: fog"


@in_room()
async def test_a_job_that_does_nothing_is_warned_of_under_its_message(room):
    number = await a_job(room)
    begin(room.chat.queue, number)
    await room.settle()
    at = clock.now() + timedelta(minutes=5)
    data = {"why": "GPU 0 below 20 %", "text": "12:00 GPU 0 3 %", "stops_at": clock.text(at)}
    room.chat.queue.notices.add(payload_of("idle warning", data), number)
    room.chat.queue.notices.add(
        payload_of("looks hung", {"why": "looks hung: 12 min silent at 31 % of its usual power"}), number
    )
    warned, hung = await news(room, room.uma)
    first = warned.text.text.splitlines()[0]
    assert first == f"💤 #1 night on lab1 is idle and will be stopped at {at.astimezone():%H:%M:%S} {UNLESS_KEPT}"
    assert labels(warned) == ["Keep 1 h", "Keep for good", "Kill now", "Log"]
    assert hung.text.text.splitlines()[0] == (
        "🧊 #1 night on lab1 looks hung: 12 min silent at 31 % of its usual power"
    )
    for said in (warned, hung):
        assert not said.silent
        assert said.reply_to is not None


# -- to whom, where, how loud -----------------------------------------------------------------------


@in_room(admins=(1001, 1005))
async def test_jobs_from_a_terminal_are_told_to_every_admin_in_private_and_to_nobody_else(room):
    room.world.refusals.clear()  # Sam, who is admin here, could not be offered any commands before
    room.people.start(room.sam)
    await room.settle()
    assert room.world.menu.shown(room.world.chats[room.sam.id], room.sam.id)[0]["command"] == "submit"
    (number,) = submit(room.chat.queue, "python train.py", gpus=0)
    counts = {person.id: len(room.said(person)) for person in (room.uma, room.una, room.vic)}
    begin(room.chat.queue, number)
    end(room.chat.queue, number)
    await room.settle()
    for admin in (room.ada, room.sam):
        assert room.said(admin)[-1].text.text.splitlines()[0] == "✅ #1 finished on lab1 after 1 s"
        assert "#1" not in room.said(admin)[-2].text.text
    assert counts == {person.id: len(room.said(person)) for person in (room.uma, room.una, room.vic)}


@in_room(groups=(-1_000_000_005_001,))
async def test_jobs_of_a_group_are_told_in_its_topic_and_only_there(room):
    group = room.world.add_group("Lab", [room.uma, room.ada], forum=True)
    room.people.add_topic(group, 77)
    number = await a_job(room, chat=group, thread_id=77)
    private = len(room.said(room.uma))
    begin(room.chat.queue, number)
    end(room.chat.queue, number)
    (said,) = await news(room, room.uma, group)
    assert said.thread_id == 77
    assert said.reply_to is not None
    assert len(room.said(room.uma)) == private


@pytest.mark.parametrize(
    ("noise", "heard"),
    [
        ("more", ["started", "finished", "started", "failed", "queued again", "nothing left"]),
        ("all", ["finished", "failed", "queued again", "nothing left"]),
        ("normal", ["finished", "failed", "queued again", "nothing left"]),
        ("less", ["finished", "failed", "queued again", "nothing left"]),
        ("ends", ["finished", "failed", "queued again", "nothing left"]),
        ("failures", ["failed"]),
        ("none", []),
    ],
)
def test_everybody_hears_as_much_as_they_want(noise, heard, tmp_path):
    @in_room()
    async def check(room):
        await room.ask(room.ada, f"/notify {noise}")
        queue = room.chat.queue
        numbers = submit(queue, "a", "b", "c", gpus=0)
        before = len(room.said(room.ada))
        for number, code in zip(numbers, (0, 1), strict=False):
            begin(queue, number)
            end(queue, number, exit_code=code)
        begin_quietly(queue, numbers[2])
        queue.jobs.back_to_queue(queue.job(numbers[2]), "a retry was asked for", (State.LOST, Reason.HOST))
        queue.notices.add(
            payload_of("queue empty", {"jobs": 2, "failed": 1, "since": None, "held": 0, "command": None})
        )
        await room.settle()
        found = [one.text.text for one in room.said(room.ada)[before:]]
        assert len(found) == len(heard)
        assert all(word in text for word, text in zip(heard, found, strict=True))

    check(tmp_path)


def begin_quietly(queue, number):
    queue.jobs.claim(number, [("cpu", number)], "boot")


@in_room()
async def test_noise_is_each_persons_own(room):
    await room.ask(room.uma, "/notify none")
    mine, hers = await a_job(room), await a_job(room, user=room.una)
    for number in (mine, hers):
        begin(room.chat.queue, number)
        end(room.chat.queue, number)
    before = len(room.said(room.una))
    assert await news(room, room.uma) == []
    assert len(room.said(room.una)) == before + 1


def test_quiet_hours_know_midnight():
    here = datetime(2026, 1, 5, 23, 30).astimezone()
    now = here.astimezone(timezone.utc)
    assert is_quiet((23 * 60, 7 * 60), now)
    assert not is_quiet((0, 7 * 60), now)
    assert is_quiet((22 * 60, 23 * 60 + 31), now)
    assert not is_quiet((22 * 60, 23 * 60 + 30), now)
    assert not is_quiet((), now)
    assert not is_quiet(None, now)


@in_room()
async def test_in_quiet_hours_even_a_failure_makes_no_sound(room):
    now = clock.now().astimezone()
    minute = now.hour * 60 + now.minute
    hours = (minute, (minute + 60) % 1440)
    room.chat.people.set_quiet(room.uma.id, hours)
    for person, silent in ((room.uma, True), (room.una, False)):
        number = await a_job(room, user=person)
        begin(room.chat.queue, number)
        await room.settle()
        end(room.chat.queue, number, exit_code=1)
        (said,) = await news(room, person)
        assert said.silent is silent


@in_room()
async def test_every_notice_is_told_once_whatever_wakes_the_bot(room):
    number = await a_job(room)
    begin(room.chat.queue, number)
    end(room.chat.queue, number)
    said = await news(room, room.uma)
    for _ in range(5):
        assert await news(room, room.uma) == []
    await room.die()
    await room.open()
    assert await news(room, room.uma) == []
    assert len(said) == 1


# -- the box ----------------------------------------------------------------------------------------


FAILED_ALIKE = {"why": "3 jobs failed", "error": "AuthError: <swordfish-9Qx2> was refused"}


@in_room()
async def test_the_breaker_names_the_error_without_the_secrets_of_the_job_that_printed_it(room):
    failed = await a_job(room, "/submit --env API_KEY=swordfish-9Qx2 python train.py")
    room.chat.queue.notices.add(payload_of("paused", {**FAILED_ALIKE, "jobs": [failed] * 3}))
    room.chat.queue.notices.add(payload_of("goes on", {**FAILED_ALIKE, "jobs": [failed] * 3, "trial": 9, "held": [8]}))
    await room.settle()
    for said in room.said(room.uma)[-2:]:
        assert said.text.text.splitlines()[1] == "AuthError: <[redacted]> was refused"


@in_room(log_text=False)
async def test_the_breaker_quotes_no_output_where_the_chat_shows_none(room):
    failed = await a_job(room)
    room.chat.queue.notices.add(payload_of("paused", {**FAILED_ALIKE, "jobs": [failed] * 3}))
    await room.settle()
    assert "3 jobs failed" in room.said(room.uma)[-1].text.text
    assert "AuthError" not in room.said(room.uma)[-1].text.text


@in_room()
async def test_the_breaker_is_told_to_admins_and_to_those_whose_jobs_failed_and_resume_works(room):
    mine = [await a_job(room) for _ in range(2)]
    hers = await a_job(room, user=room.una)
    queue = room.chat.queue
    why = "3 jobs in a row failed within seconds (exit code 1)"
    queue.box.set(BoxKey.PAUSED, {"by": "breaker", "why": why})
    try_at = clock.text(clock.now().astimezone().replace(hour=23, minute=10))
    paused = {"why": why, "jobs": [*mine, hers], "again": True, "tries": 1, "try_at": try_at}
    queue.notices.add(payload_of("paused", paused))
    before = {person.id: len(room.said(person)) for person in (room.ada, room.uma, room.una, room.vic)}
    await room.settle()
    for person, told in ((room.ada, 1), (room.uma, 1), (room.una, 1), (room.vic, 0)):
        assert len(room.said(person)) == before[person.id] + told
    said = room.said(room.uma)[-1]
    assert said.text.text.splitlines()[0] == f"⏸ lab1 is paused: {why}"
    assert said.text.text.endswith("No other job starts. I will try one at 23:10. If the box is fine, resume it now.")
    assert "Failed: #1, #2, #3." in said.text.text
    words = box_notices.paused(payload_of("paused", {**paused, "tries": 0, "jobs": [1, 1, 1]}), AT_LAB)
    assert (
        "Failed: #1. Running jobs go on. No similar job starts. I will try another kind of job as soon as one waits"
        in words
    )
    assert labels(said) == ["Resume", "Status"]
    assert not said.silent
    await room.tap(room.uma, said, "Resume")
    assert queue.reasons.why_paused() is None
    assert room.answers()[-1] == "▶️ Resumed."
    await room.tap(room.una, room.said(room.una)[-1], "Resume")
    assert room.answers()[-1] == "Nothing was paused."


@in_room()
async def test_a_paused_queue_and_status_offer_resume_to_those_who_may(room):
    await a_job(room)
    queue = room.chat.queue
    queue.pause()
    for command in ("/queue", "/status"):
        assert labels((await room.ask(room.ada, command))[-1])[0] == "Resume"
        assert "Resume" not in labels((await room.ask(room.uma, command))[-1])  # a person's pause is an admin's to end
    queue.box.set(BoxKey.PAUSED, {"by": "breaker", "why": "3 jobs in a row failed within seconds (exit code 1)"})
    for command in ("/queue", "/status"):
        said = (await room.ask(room.uma, command))[-1]
        assert labels(said)[0] == "Resume"
        assert "Resume" not in labels((await room.ask(room.vic, command))[-1])
    await room.tap(room.uma, said, "Resume")
    assert (queue.reasons.why_paused(), room.answers()[-1]) == (None, "▶️ Resumed.")
    now = next(one for one in room.said(room.uma) if one.message_id == said.message_id)
    assert "Resume" not in labels(now)
    assert "paused" not in now.text.text


@in_room()
async def test_an_empty_queue_that_is_paused_says_so(room):
    room.chat.queue.pause()
    (said,) = await room.ask(room.ada, "/queue")
    assert "the queue is paused by" in said.text.text
    await room.tap(room.ada, said, "Resume")
    assert room.chat.queue.reasons.why_paused() is None


@in_room()
async def test_jobs_held_by_the_breaker_are_told_and_released_by_whoever_may(room):
    queue = room.chat.queue
    mine = [await a_job(room) for _ in range(2)]
    hers = await a_job(room, user=room.una)
    for number in (*mine, hers):
        queue.order.hold(number)
    why = "3 jobs in a row failed within seconds (exit code 1)"
    queue.notices.add(payload_of("goes on", {"why": why, "jobs": mine, "trial": 9, "held": [*mine, hers]}))
    await room.settle()
    said = room.said(room.uma)[-1]
    assert said.text.text.splitlines() == [
        f"⏸ 3 jobs held on lab1: {why}",
        "Failed: #1, #2. Similar jobs wait until somebody releases them. Other jobs start again: #9 runs.",
    ]
    assert labels(said) == ["Release them", "Queue"]
    assert room.said(room.una)[-1].text.text == said.text.text, "one of hers is held, too"
    await room.tap(room.uma, said, "Release them")
    assert room.answers()[-1] == "Released: 2. Still held: 1 of Una."
    assert [queue.job(number).held_by is None for number in (*mine, hers)] == [True, True, False]
    assert "Released: 2. Still held: 1 of Una. – Uma" in room.said(room.uma)[-1].text.text
    await room.tap(room.ada, room.said(room.ada)[-1], "Release them")
    assert room.answers()[-1] == "Released: 1."
    assert queue.job(hers).held_by is None
    assert "Released: 1." in room.said(room.ada)[-1].text.text
    await room.tap(room.una, room.said(room.una)[-1], "Release them")
    assert room.answers()[-1] == "None of them is held any more."
    queue.notices.add(payload_of("goes on", {"why": why, "jobs": mine, "trial": 9, "held": []}))
    await room.settle()
    assert room.said(room.uma)[-1].text.text == "▶️ lab1 starts jobs again: #9 runs."


@in_room()
async def test_whoever_has_none_of_the_held_jobs_is_not_offered_to_release_them(room):
    queue, mine, hers = room.chat.queue, await a_job(room), await a_job(room, user=room.una)
    queue.order.hold(hers)
    queue.notices.add(payload_of("goes on", {"why": "3 failed", "jobs": [mine, hers], "trial": 9, "held": [hers]}))
    await room.settle()
    assert labels(room.said(room.uma)[-1]) == ["Queue"]
    assert labels(room.said(room.una)[-1]) == labels(room.said(room.ada)[-1]) == ["Release them", "Queue"]


@in_room()
async def test_an_empty_queue_is_told_with_what_was_done(room):
    since = clock.text(clock.now() - timedelta(minutes=1))
    for data, words in (
        ({"jobs": 12, "failed": 2, "held": 0}, "12 jobs since {at} · 10 succeeded · 2 failed"),
        (
            {"jobs": 9, "failed": 3, "states": {"CANCELLED": 2, "LOST": 1}},
            "9 jobs since {at} · 6 succeeded · 1 failed · 2 stopped",
        ),
        ({"jobs": 1, "failed": 0, "held": 3}, "1 job since {at} · it succeeded · 3 held"),
        ({"jobs": 1500, "failed": 0, "held": 0}, "1,500 jobs since {at} · all succeeded"),
    ):
        room.chat.queue.notices.add(
            payload_of("queue empty", {**data, "since": since, "command": None, "due_at": None})
        )
        (said,) = await news(room, room.ada)
        at = clock.moment(since).astimezone().strftime("%H:%M")
        assert said.text.text == f"🌅 lab1 has nothing left to do\n{words.format(at=at)}"
        assert labels(said) == []
        assert said.silent == (data["jobs"] == 1)  # whose end has just made a sound


@in_room()
async def test_what_an_idle_box_will_do_stands_in_the_first_line_and_can_be_cancelled(room):
    queue = room.chat.queue
    due_at = clock.text(clock.now() + timedelta(seconds=600))
    told = {"jobs": 3, "failed": 0, "since": None, "held": 0}
    due = {"due_at": due_at, "cancelled_by": None, "begun": False, "ran_at": None, "boot": "", "command": "poweroff"}
    queue.box.set(BoxKey.WHEN_EMPTY, {**due, "told": told})
    queue.notices.add(payload_of("queue empty", {**told, "command": "poweroff", "due_at": due_at}))
    (said,) = await news(room, room.ada)
    first = said.text.text.splitlines()[0]
    assert re.fullmatch(r"🌅 lab1 has nothing left to do. In (10m 00s|9m 5\ds), at \d\d:\d\d, it runs: poweroff", first)
    assert labels(said) == ["Do not run it"]
    await room.tap(room.ada, said, "Do not run it")
    assert room.answers()[-1] == "It will not be run."
    assert queue.view.when_empty() is None
    assert [row["action"] for row in queue.audit.rows()][-1] == "stay"


@in_room()
async def test_what_an_idle_box_did_is_told(room):
    for code, words in (
        (0, "🌅 lab1 ran poweroff"),
        (7, "⚠️ lab1 ran poweroff: it failed, exit 7"),
        (None, "⚠️ lab1 could not run poweroff"),
    ):
        room.chat.queue.notices.add(payload_of("when empty ran", {"command": "poweroff", "exit_code": code}))
        (said,) = await news(room, room.ada)
        assert said.text.text == words
        assert not said.silent


@in_room()
async def test_a_drained_box_can_be_resumed(room):
    queue = room.chat.queue
    queue.drain()
    queue.notices.add(payload_of("drained", {"by": "root", "since": clock.text(clock.now())}))
    (said,) = await news(room, room.ada)
    assert said.text.text == "⏏️ lab1 is drained: nothing runs, and nothing starts until you resume it."
    assert said.silent
    await room.tap(room.ada, said, "Resume")
    assert queue.reasons.why_paused() is None


@in_room()
async def test_gpus_that_come_and_go(room):
    stand_in_gpus(room)
    why = "fell off the bus; a GPU reset or a reboot may bring it back"
    for kind, data, first, silent in (
        ("gpu lost", {"gpu": OTHER, "index": 1, "why": why}, "🧯 GPU 1 of lab1 is lost", False),
        ("gpu back", {"gpu": OTHER}, "🔌 GPU 1 of lab1 is back", True),
        ("gpu back", {"gpu": "GPU-77777777-aaaa"}, "🔌 GPU 77777777 of lab1 is back", True),
        (
            "gpu held",
            {"gpu": GPU, "index": 0, "why": "x"},
            "⚠️ GPU 0 of lab1 is still in use after its job ended",
            False,
        ),
    ):
        room.chat.queue.notices.add(payload_of(kind, data))
        (said,) = await news(room, room.ada)
        assert said.text.text.splitlines()[0] == first
        assert said.silent is silent
        assert ("why" not in data) or data["why"] in said.text.text


@in_room()
async def test_what_a_person_does_is_told_even_if_no_runner_is_up(room):
    """The bot's own bell is rung by whoever changes the queue."""
    from runner.config.home import BOT_BELL
    from runner.processes.doorbell import Doorbell

    number = await a_job(room)
    bell = Doorbell(room.chat.queue.home, BOT_BELL)
    room.chat.queue.stop(number)
    import select

    assert select.select([bell], [], [], 2)[0]
    bell.close()
