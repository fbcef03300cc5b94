"""Every command, as people send it: over the strict Bot API, with the real handlers and a real queue."""

import asyncio
import json
from pathlib import Path

import pytest

from bot.access.gate import actor_of
from bot.commands import Role, menu
from bot.text import job_words
from runner import rundir
from runner.api import Queue
from runner.model import State
from runner.notices import payload_of
from runner.store.box import BoxKey
from tests import attempts
from tests.jobs import an_exit
from tests.room import Room, data_of, in_room, labels


def text(messages):
    return "\n".join(message.text.text for message in messages)


def job(room, number):
    return room.chat.queue.job(number)


@in_room()
async def test_submit_queues_what_was_meant_and_echoes_it(room):
    said = await room.ask(room.uma, "/submit —gpus 0 —name night python train.py —lr 3e-4 --note “a b”")
    assert "#1 night queued in lab" in text(said)
    assert 'python train.py --lr 3e-4 --note "a b"' in text(said)
    spec = job(room, 1).spec
    assert (spec.command, spec.gpus, spec.name) == ('python train.py --lr 3e-4 --note "a b"', 0, "night")
    assert spec.owner == f"tg:{room.uma.id}"
    assert said[0].reply_to is not None


@in_room()
async def test_code_is_left_as_it_was_typed(room):
    sent = "/submit -g 0 echo “keep — this”"
    await room.ask(room.uma, sent, entities=[{"type": "code", "offset": 13, "length": len(sent) - 13}])
    assert job(room, 1).spec.command == "echo “keep — this”"


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ("/submit", "Send the command, like python train.py"),
        ("/submit --gpuz 2 ls", "did you mean --gpus"),
        ("/submit -g 2", "Send the command, like python train.py"),
        ("/submit -t 0s ls", "leave it out for no limit"),
        ("/submit -w nowhere ls", "There is no workspace 'nowhere' (there is: lab)"),
        ("/submit python train.py &", "&"),
        ("/batch", "One command per line"),
        ("/kill", "Send /kill 12"),
        ("/kill 99", "There is no job #99"),
        ("/kill twelve", "12"),
        ("/kill all", "None of your jobs waits or runs"),
        ("/kill queued", "None of your jobs waits."),
        ("/kill running everyone", "No job runs."),
        ("/kill group night", "No job of group night waits or runs"),
        ("/kill group", "is not a job number"),
        ("/kill --state", "--state takes queued or running"),
        ("/kill --state failed", "--state takes queued or running"),
        ("/edit", "Send /edit 12 --time 4h"),
        ("/edit 99 --time 4h", "There is no job #99"),
        ("/move", "Send /move 12 first"),
        ("/move 99 first", "There is no job #99"),
        ("/move 99", "Where to? Send /move 12 first"),
        ("/move 99 after x", "is not a job number"),
        ("/rerun", "/rerun 12"),
        ("/log", "/log 12"),
        ("/log 99", "There is no job #99"),
        ("/status 99", "There is no job #99"),
        ("/stauts", "Did you mean /status?"),
        ("/frobnicate", "/help lists"),
        ("/notify loudly", "/notify more, all, ends, failures, none"),
        ("/notify quiet sometimes", "23-7"),
        ("/pair king", "/pair user"),
        ("/audit lots", "/audit 60"),
        ("/ws nowhere", "There is no workspace"),
        ("python train.py", "/submit python train.py"),
        ("status", "/status"),
    ],
)
def test_every_mistake_is_answered_with_what_to_send(sent, answer, tmp_path):
    @in_room()
    async def check(room):
        said = text(await room.ask(room.ada, sent))
        assert answer in said
        assert room.chat.queue.jobs.count(*State) == 0

    check(tmp_path)


@in_room()
async def test_status_is_the_box_at_a_glance_and_loud_without_a_runner(room):
    await room.ask(room.uma, "/submit python train.py")
    said = text(await room.ask(room.vic, "/status"))
    assert "lab1 · 0 running · 1 queued" in said
    assert "No runner is up: nothing starts." in said
    assert "#1 python train.py" in said


@in_room()
async def test_status_of_one_job(room):
    await room.ask(room.uma, "/submit --name night python train.py")
    said = await room.ask(room.vic, "/status #1")
    assert "#1 night · no runner is up" in text(said)
    assert "Uma · lab" in text(said)


@in_room()
async def test_replying_to_a_jobs_message_means_that_job(room):
    first = await room.ask(room.uma, "/submit python a.py")
    await room.ask(room.uma, "/submit python b.py")
    said = await room.ask(room.uma, "/kill", reply_to=first[0].message_id)
    assert "#1 python a.py" in text(said)
    own = first[0].reply_to.message_id
    said = await room.ask(room.uma, "/status", reply_to=own)
    assert "#1" in text(said)


@in_room()
async def test_kill_asks_and_then_stops_once(room):
    await room.ask(room.uma, "/submit python a.py")
    asked = (await room.ask(room.uma, "/kill 1"))[0]
    assert labels(asked) == ["Yes, kill #1", "No"]
    assert job(room, 1).state is State.QUEUED
    yes = data_of(asked, "Yes, kill #1")
    await room.tap(room.uma, asked, "Yes, kill #1")
    assert job(room, 1).state is State.CANCELLED
    assert job(room, 1).stop.by == f"tg:{room.uma.id}"
    room.people.tap(room.uma, None, asked.message_id, yes)
    await room.settle()
    assert room.answers()[-1] == "This button no longer works. Send the command again."
    kills = [row for row in room.chat.queue.audit.rows() if row["action"] == "kill"]
    assert len(kills) == 1


@in_room()
async def test_no_leaves_it_alone(room):
    await room.ask(room.uma, "/submit python a.py")
    asked = (await room.ask(room.uma, "/kill 1"))[0]
    await room.tap(room.uma, asked, "No")
    assert job(room, 1).state is State.QUEUED
    assert labels(room.said(room.uma)[-1]) == []


@in_room()
async def test_kill_several_and_all_of_mine(room):
    for _ in range(4):
        await room.ask(room.uma, "/submit python a.py")
    await room.ask(room.una, "/submit python b.py")
    asked = (await room.ask(room.uma, "/kill 1 2-3"))[0]
    await room.tap(room.uma, asked, "Yes, kill 3 jobs")
    assert [job(room, n).state for n in (1, 2, 3)] == [State.CANCELLED] * 3
    await room.ask(room.uma, "/submit python c.py")
    asked = (await room.ask(room.uma, "/kill all"))[0]
    await room.tap(room.uma, asked, "Yes, kill 2 jobs")
    assert job(room, 5).state is State.QUEUED


@in_room()
async def test_only_owners_and_admins_stop_a_job(room):
    await room.ask(room.uma, "/submit python a.py")
    said = await room.ask(room.una, "/kill 1")
    assert "#1 belongs to Uma" in text(said)
    asked = (await room.ask(room.ada, "/kill 1"))[0]
    await room.tap(room.ada, asked, "Yes, kill #1")
    assert job(room, 1).state is State.CANCELLED


@in_room()
async def test_the_kill_button_of_a_notice_swaps_its_buttons_for_the_question(room):
    said = (await room.ask(room.uma, "/submit python a.py"))[0]
    await room.tap(room.uma, said, "Kill")
    assert labels(said) == ["Yes, kill #1", "No"]
    await room.tap(room.uma, said, "No")
    assert labels(said) == ["Details", "Kill"]
    await room.tap(room.uma, said, "Kill")
    await room.tap(room.uma, said, "Yes, kill #1")
    assert job(room, 1).state is State.CANCELLED
    assert labels(said) == []
    assert labels(room.said(room.uma)[-1]) == ["Details", "Rerun"]


@in_room()
async def test_several_lines_are_asked_about(room):
    asked = (await room.ask(room.uma, "/submit -g 0\npython a.py\n\n# not this\npython b.py"))[0]
    assert labels(asked) == ["2 jobs", "One script", "Neither"]
    assert room.chat.queue.jobs.count(State.QUEUED) == 0
    await room.tap(room.uma, asked, "2 jobs")
    assert [job(room, n).spec.command for n in (1, 2)] == ["python a.py", "python b.py"]
    assert job(room, 1).spec.gpus == 0
    assert "batch-1: 2 jobs queued, #1–#2" in text(room.said(room.uma))
    asked = (await room.ask(room.uma, "/submit -g 0\npython a.py\npython b.py"))[0]
    await room.tap(room.uma, asked, "One script")
    assert job(room, 3).spec.script
    assert job(room, 3).spec.command == "python a.py\npython b.py"


@in_room()
async def test_batch_asks_nothing(room):
    await room.ask(room.uma, "/batch -g 0\npython a.py\npython b.py\npython c.py")
    assert room.chat.queue.jobs.count(State.QUEUED) == 3


@in_room()
async def test_an_attached_file_is_jobs_or_a_script(room):
    room.people.send_document(room.uma, None, "night.txt", b"python a.py\npython b.py\n", caption="/submit -g 0")
    await room.settle()
    asked = room.said(room.uma)[-1]
    assert labels(asked) == ["2 jobs", "One script", "Neither"]
    await room.tap(room.uma, asked, "2 jobs")
    assert [job(room, n).spec.gpus for n in (1, 2)] == [0, 0]


@in_room()
async def test_an_attached_program_is_one_script_in_its_language(room):
    room.people.send_document(room.uma, None, "train.py", b"import os\nprint(os.getcwd())\n")
    await room.settle()
    asked = room.said(room.uma)[-1]
    assert labels(asked) == ["One script", "Neither"]
    await room.tap(room.uma, asked, "One script")
    assert job(room, 1).spec.command.startswith("#!/usr/bin/env python3\nimport os")


@pytest.mark.parametrize(
    ("content", "answer"),
    [(b"\x89PNG\r\n\0\0", "not text"), (b"  \n", "empty"), (b"x" * ((1 << 20) + 1), "larger than 1 MiB")],
)
def test_a_file_that_is_no_list_is_refused(content, answer, tmp_path):
    @in_room()
    async def check(room):
        room.people.send_document(room.uma, None, "a.bin", content)
        await room.settle()
        assert answer in text(room.said(room.uma))

    check(tmp_path)


@in_room()
async def test_rerun_with_changed_arguments(room):
    await room.ask(room.uma, "/submit -g 0 python train.py --lr 1e-3 --bs 32")
    await room.ask(room.una, "/rerun 1 —lr 3e-4")
    assert job(room, 2).spec.command == "python train.py --lr 3e-4 --bs 32"
    assert job(room, 2).spec.owner == f"tg:{room.una.id}"
    assert job(room, 2).run_id != job(room, 1).run_id


@in_room()
async def test_from_the_queue_one_chooses_a_job_then_what_to_do_with_it(room):
    for name in "abc":
        await room.ask(room.uma, f"/submit python {name}.py")
    shown = (await room.ask(room.uma, "/queue"))[0]
    assert "3 waiting" in shown.text.text
    assert labels(shown) == ["#1 python a.py", "#2 python b.py", "#3 python c.py", "Refresh"]
    await room.tap(room.uma, shown, "#1 python a.py")
    assert labels(shown) == ["First", "Sooner", "Later", "Hold", "Edit", "Kill", "◀ Queue"]
    await room.tap(room.uma, shown, "◀ Queue")
    await press(room, shown, 3, "Sooner")
    assert listed(shown) == [1, 3, 2]
    await press(room, shown, 1, "Later")
    assert listed(shown) == [3, 1, 2]
    await press(room, shown, 2, "First")
    assert listed(shown) == [2, 3, 1]
    assert "Job 2 is now first." in room.answers()
    await press(room, shown, 1, "Later")
    assert "Job 1 is already last." in room.answers()
    await press(room, shown, 1, "Hold")
    assert job(room, 1).held_by == f"tg:{room.uma.id}"
    await press(room, shown, 1, "Release")
    assert job(room, 1).held_by is None
    await room.tap(room.uma, shown, "#1 python a.py")
    await room.tap(room.uma, shown, "Kill")
    await room.tap(room.uma, shown, "Yes, kill #1")
    assert room.chat.queue.jobs.count(State.QUEUED) == 2
    assert "2 waiting" in shown.text.text


def listed(shown):
    """The jobs in the order of their buttons, which is that of the text."""
    rows = [int(label.split()[0][1:]) for label in labels(shown) if label.startswith("#")]
    assert rows == sorted(rows, key=lambda number: shown.text.text.index(f"#{number} "))
    return rows


async def press(room, shown, number, label):
    """Choose this job, do this to it, and go back to the queue."""
    (chosen,) = (text for text in labels(shown) if text.startswith(f"#{number} "))
    for text in (chosen, label, "◀ Queue"):
        await room.tap(room.uma, shown, text)


@in_room()
async def test_a_long_queue_has_pages(room):
    await room.ask(room.uma, "/batch\n" + "\n".join(f"python {n}.py" for n in range(20)))
    shown = (await room.ask(room.uma, "/queue"))[0]
    await room.tap(room.uma, shown, "▶")
    assert "#7 " in shown.text.text
    assert "#1 " not in shown.text.text
    await room.tap(room.uma, shown, "◀")
    assert "#1 " in shown.text.text


@in_room()
async def test_pause_drain_and_resume(room):
    await room.ask(room.ada, "/pause")
    assert room.chat.queue.reasons.why_paused().startswith("the queue is paused")
    said = text(await room.ask(room.uma, "/resume"))
    assert "takes an admin" in said
    assert room.chat.queue.reasons.why_paused()
    await room.ask(room.ada, "/drain")
    shown = (await room.ask(room.ada, "/status"))[0]
    assert "paused by Ada" in shown.text.text
    await room.ask(room.ada, "/resume")
    assert room.chat.queue.reasons.why_paused() is None


@in_room()
async def test_anybody_who_submits_may_go_on_after_the_breaker(room):
    room.chat.queue.box.set(BoxKey.PAUSED, {"by": "breaker", "why": "3 jobs failed"})
    await room.ask(room.uma, "/resume")
    assert room.chat.queue.reasons.why_paused() is None


@in_room()
async def test_workspaces(room):
    assert "★ lab" in text(await room.ask(room.vic, "/ws"))
    other = room.folder / "other"
    other.mkdir()
    from runner.api.chat import Workspace

    room.chat.queue.workspaces.put(Workspace(name="other", dir=str(other), variables={"HF_TOKEN": "hidden-value"}))
    shown = text(await room.ask(room.vic, "/ws other"))
    assert "HF_TOKEN" in shown
    assert "hidden-value" not in shown
    assert "takes an admin" in text(await room.ask(room.uma, "/ws default other"))
    await room.ask(room.ada, "/ws default other")
    assert room.chat.queue.workspaces.default().name == "other"


@in_room()
async def test_without_a_workspace_jobs_run_in_the_home_folder(room):
    room.chat.queue.workspaces.remove("lab")
    await room.ask(room.uma, "/submit -g 0 pwd")
    assert job(room, 1).spec.workspace == "home"


@in_room()
async def test_whoami_and_help_know_the_role(room):
    assert f"id {room.uma.id}: user of lab1" in text(await room.ask(room.uma, "/whoami"))
    for person, offered, kept_back in ((room.vic, "/status", "/submit"), (room.uma, "/submit", "/pair")):
        shown = text(await room.ask(person, "/help"))
        assert offered in shown
        assert kept_back not in shown
    assert "--retries N" in text(await room.ask(room.ada, "/help submit"))
    assert "There is no help about that" in text(await room.ask(room.vic, "/help submit"))


@in_room()
async def test_the_menu_offers_what_the_role_may(room):
    def offered(person):
        return {entry["command"] for entry in room.world.menu.shown(room.world.chats[person.id], person.id)}

    assert "pair" in offered(room.ada)
    assert "submit" in offered(room.uma)
    assert "pair" not in offered(room.uma)
    assert "submit" not in offered(room.vic)
    assert offered(room.sam) == {"start"}


@in_room()
async def test_audit_shows_who_did_what_and_whether_the_record_is_whole(room):
    await room.ask(room.uma, "/submit python a.py")
    said = text(await room.ask(room.ada, "/audit"))
    assert "the chain is whole" in said
    assert "Uma: submit (jobs [1])" in said
    room.chat.queue.store.execute("UPDATE audit SET data = '{}' WHERE action = 'submit'")
    assert "the chain is broken" in text(await room.ask(room.ada, "/audit"))


@in_room()
async def test_an_old_drain_is_asked_about_an_old_submit_is_not(room):
    room.world.clock = lambda clock=room.world.clock: clock() - 3 * 3600
    await room.ask(room.uma, "/submit python a.py")
    assert job(room, 1).state is State.QUEUED
    said = (await room.ask(room.ada, "/drain"))[0]
    assert "3h 00m ago" in said.text.text
    assert room.chat.queue.reasons.why_paused() is None
    said_kill = (await room.ask(room.uma, "/kill 1"))[0]
    assert "You sent this 3h 00m ago" in said_kill.text.text
    await room.tap(room.ada, said, "Drain now")
    assert "draining" in room.chat.queue.reasons.why_paused()


@in_room(submits_per_minute=3)
async def test_so_many_submissions_a_minute(room):
    for _ in range(3):
        await room.ask(room.uma, "/submit python a.py")
    assert "more than 3 submissions a minute" in text(await room.ask(room.uma, "/submit python b.py"))
    await room.ask(room.una, "/submit python c.py")
    assert room.chat.queue.jobs.count(State.QUEUED) == 4


@in_room(queued_per_person=5)
async def test_so_many_jobs_of_one_person_may_wait(room):
    await room.ask(room.uma, "/batch\n" + "\n".join("a" for _ in range(4)))
    assert "nothing was queued" in text(await room.ask(room.uma, "/batch\na\nb"))
    assert room.chat.queue.jobs.count(State.QUEUED) == 4


@in_room()
async def test_a_log_is_shown_with_its_end_and_sent_whole(room):
    await room.ask(room.uma, "/submit -g 0 python a.py")
    ran = claim(room, 1)
    (ran / rundir.OUTPUT).write_bytes(b"".join(b"line %d\n" % n for n in range(100)))
    said = (await room.ask(room.vic, "/log 1"))[0]
    assert "line 99" in said.text.text
    assert "line 2\n" not in said.text.text
    sent = (await room.tap(room.vic, said, "Whole log"))[-1]
    assert sent.document.name == "job-1.log"
    assert sent.document.data.startswith(b"line 0\nline 1\n")


@in_room(log_text=False)
async def test_where_output_is_not_to_be_shown_it_is_not(room):
    await room.ask(room.uma, "/submit -g 0 python a.py")
    ran = claim(room, 1)
    (ran / rundir.OUTPUT).write_bytes(b"the secret of the lab\n")
    said = text(await room.ask(room.uma, "/log 1"))
    assert "NIGHTSHIFT_LOG_TEXT" in said
    end(room, 1, exit_code=1)
    await room.settle()
    assert "secret of the lab" not in json.dumps([message.text.text for message in room.said(room.uma)])


def claim(room, number, slot=0):
    """The job runs, as far as the queue is concerned; its run directory."""

    queue = room.chat.queue
    attempt = queue.jobs.claim(number, [("cpu", slot)], "boot")
    folder = Path(rundir.folder_of(queue.home, number, attempt))
    folder.mkdir(parents=True)
    queue.jobs.started(queue.job(number), "2026-01-01T00:00:00.000000+00:00")
    return folder


def end(room, number, **exit):
    from runner.lifecycle import outcome

    queue = room.chat.queue
    found = an_exit(**exit)
    queue.jobs.ended(queue.job(number), *outcome(found, None), found)


def test_a_first_bot_does_not_tell_old_news(tmp_path):
    """A box that ran for weeks from the terminal has notices that nobody ever fetched."""

    async def check():
        room = Room(tmp_path)
        room.people.start(room.ada)
        with Queue(room.settings.home, actor="somebody") as queue:
            queue.notices.add(payload_of("gpu back", {"gpu": "GPU-1"}))
            queue.store.execute("UPDATE notices SET created_at = '2026-01-01T00:00:00.000000+00:00'")
            queue.notices.add(payload_of("gpu lost", {"gpu": "GPU-2", "index": 1, "why": "fell off the bus"}))
        await room.open()
        try:
            await room.settle()
            told = text(room.said(room.ada))
            assert "fell off the bus" in told
            assert "is back" not in told
        finally:
            await room.close()

    asyncio.run(check())


@in_room()
async def test_each_line_has_its_own_options(room):
    await room.ask(room.uma, "/batch -g 0\n--name one echo 1\n-g 2 --name two echo 2\necho 3")
    assert [(job(room, n).spec.name, job(room, n).spec.gpus) for n in (1, 2, 3)] == [("one", 0), ("two", 2), (None, 0)]
    said = text(await room.ask(room.uma, "/batch\necho 1\n-q echo 2"))
    assert "Line 2: there is no option -q" in said
    asked = (await room.ask(room.uma, "/submit\n-g 0 echo a\n-g 0 --name b echo b"))[0]
    await room.tap(room.uma, asked, "2 jobs")
    assert [job(room, n).spec.command for n in (4, 5)] == ["echo a", "echo b"]


@in_room()
async def test_many_that_are_cancelled_at_once_are_told_in_one_message(room):
    room.queue_apart(room.uma, 30)
    asked = (await room.ask(room.uma, "/kill all"))[0]
    said = await room.tap(room.uma, asked, "Yes, kill 30 jobs")
    assert [message.text.text for message in said] == ["⏹ 30 jobs cancelled by Uma on lab1 before they started: #1–#30"]
    assert "30 jobs are being stopped. – Uma" in asked.text.text
    assert room.chat.queue.notices.open() == []


@in_room()
async def test_the_end_of_a_running_job_is_not_lost_among_those_cancelled_with_it(room):
    room.queue_apart(room.uma, 5)
    queue = room.chat.queue.acting_as(actor_of(room.uma.id))
    attempts.begin(queue, 1)
    await room.settle()
    before = len(room.said(room.uma))
    with room.chat.transaction():  # the notices come together, the one of the running job first
        for number in range(1, 6):
            queue.stop(number)
        attempts.end(queue, 1, exit_code=None, signal=15, stopped=True)
        order = "SELECT id FROM notices WHERE handled_at IS NULL AND kind = 'ended' ORDER BY job_id"
        ids = [row[0] for row in queue.store.tuples(order)]
        for place, number in enumerate(ids):
            queue.store.execute("UPDATE notices SET id = ? WHERE id = ?", (10_000 + place, number))
    await room.settle()
    said = [message.text.text.splitlines()[0] for message in room.said(room.uma)[before:]]
    assert said[0].startswith("⏹ #1 ")
    assert "⏹ 4 jobs cancelled by Uma on lab1 before they started: #2–#5" in said[1]


@in_room()
async def test_who_asks_is_answered_before_the_news(room):
    room.queue_apart(room.uma, 6)
    room.faults.script(*["429"] * 1, methods=["sendMessage"])
    for number in range(1, 7):
        claim(room, number, slot=number)
        end(room, number)
    said = await room.ask(room.uma, "/whoami")
    order = ["You are" in message.text.text for message in said]
    assert order.index(True) < len(order) - 3


@in_room()
async def test_a_file_of_somebody_who_may_not_submit_is_answered_and_a_strangers_is_not(room):
    for person in (room.vic, room.sam):
        room.people.send_document(person, None, "night.sh", b"true\n")
    await room.settle()
    assert room.said(room.vic)[-1].text.text == "⚠️ That takes a user of this box; you are a viewer."
    assert room.said(room.sam) == []


@in_room()
async def test_a_file_that_is_gone_is_asked_for_again(room):
    from bot.local_chat.bot_api.methods import ApiError
    from tests.telegram.api import error_reply

    async def gone(*_):
        return error_reply(ApiError(404, "Not Found"))

    room.api.download = gone
    room.people.send_document(room.uma, None, "night.sh", b"true\n")
    await room.settle()
    assert room.said(room.uma)[-1].text.text == "⚠️ Telegram no longer has that file. Send it again."


@in_room()
async def test_what_a_terminal_would_type_is_said_as_a_phone_can_do_it(room):
    await room.ask(room.uma, "/submit -g 0 python a.py")
    shown = (await room.ask(room.uma, "/queue"))[0]
    await press(room, shown, 1, "Hold")
    assert "Job 1 is held: it does not start before /release 1." in room.answers()
    assert "held by Uma; /release 1 lets it start" in (await room.ask(room.uma, "/status 1"))[0].text.text
    said = (await room.ask(room.uma, "/submit --after-ok 99 true"))[0]
    assert said.text.text == "⚠️ There is no job 99. /status lists the jobs there are."


@in_room()
async def test_when_a_job_begins_is_said_once(room):
    await room.ask(room.uma, "/submit -g 0 python a.py")
    line = job_words.waiting_line(job(room, 1), "begins at 19:56 on 16 Nov", "about 19:56")
    assert line == "⏳ <b>#1</b> python a.py — begins at 19:56 on 16 Nov"
    assert job_words.waiting_line(job(room, 1), "needs 1 GPU, 0 free", "about 19:56").endswith("0 free · about 19:56")


@in_room()
async def test_help_has_nothing_that_a_narrow_screen_would_cut(room):
    said = (await room.ask(room.uma, "/help submit"))[0]
    assert not [entity for entity in said.text.entities if entity.type == "pre"]
    assert "-t, --time 6h stop it after this long" in said.text.text


@in_room()
async def test_help_fits_a_screen_and_its_topics_are_buttons(room):
    (said,) = await room.ask(room.ada, "/help")
    assert len(said.text.text.splitlines()) <= 8
    assert all(f"/{command.name}" in said.text.text for command in menu(Role.ADMIN))
    assert labels(said) == ["Run", "Look", "Change", "Box", "You"]
    await room.tap(room.ada, said, "Change")
    assert "/kill 12 [13 …] | GROUP | all | queued — stop jobs; asks first" in said.text.text
    await room.tap(room.ada, said, "Run")
    assert "/submit [options] COMMAND — queue a job" in said.text.text
    (said,) = await room.ask(room.ada, "/help stop")
    assert "like /kill 12" in said.text.text


@in_room()
async def test_the_names_that_people_try_work(room):
    await room.ask(room.uma, "/run -g 0 --name a true")
    assert "1 queued" in text(await room.ask(room.uma, "/jobs"))
    assert "#1 a" in text(await room.ask(room.uma, "/show 1"))
    assert "Stop this job?" in text(await room.ask(room.uma, "/stop 1"))
    assert "Stop this job?" in text(await room.ask(room.uma, "/cancel a"))
    assert "has not started yet" in text(await room.ask(room.uma, "/logs 1"))
    assert "That takes a user" in text(await room.ask(room.vic, "/stop 1"))
