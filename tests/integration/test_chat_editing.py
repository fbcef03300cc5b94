"""Changing what waits from the phone: any option, the command, the order, and stopping many at once."""

from runner.api.chat import Workspace, stamp
from runner.model import Priority, State
from tests.room import in_room, labels


def text(messages):
    return "\n".join(message.text.text for message in messages)


def job(room, number):
    return room.chat.queue.job(number)


@in_room()
async def test_options_and_command_of_a_job_that_waits(room):
    await room.ask(room.uma, "/submit -g 0 --env KEY=hidden-value python a.py")
    said = await room.ask(room.uma, "/edit 1 —time 4h —priority high")
    assert text(said) == "Job 1 is edited: time none → 4h, priority normal → high."
    assert (job(room, 1).spec.time_limit_s, job(room, 1).spec.priority) == (14400.0, Priority.HIGH)
    said = await room.ask(room.uma, "/edit 1 --clear time python b.py —lr “1 2”")
    assert "another command" in text(said)
    assert 'python b.py --lr "1 2"' in text(said)
    assert (job(room, 1).spec.time_limit_s, job(room, 1).spec.command) == (None, 'python b.py --lr "1 2"')
    await room.ask(room.uma, "/edit 1\ncd /tmp\npython c.py")
    assert (job(room, 1).spec.command, job(room, 1).spec.script) == ("cd /tmp\npython c.py", True)
    assert "there is no option --tim; did you mean --time?" in text(await room.ask(room.uma, "/edit 1 --tim 4h"))
    said = text(await room.ask(room.uma, "/edit 1"))
    assert "--gpus 0 --priority high --workspace lab --env KEY=… cd /tmp" in said
    assert "hidden-value" not in text(room.said(room.uma))
    actions = [(row["actor"], row["action"]) for row in room.chat.queue.audit.rows()]
    assert actions == [(f"tg:{room.uma.id}", action) for action in ("submit", "edit", "edit", "edit")]


@in_room()
async def test_a_reply_and_several_at_once_all_or_none(room):
    said = await room.ask(room.uma, "/submit -g 0 python a.py")
    await room.ask(room.uma, "/submit -g 0 python b.py")
    await room.ask(room.uma, "/edit --name night", reply_to=said[0].message_id)
    assert job(room, 1).spec.name == "night"
    await room.ask(room.uma, "/edit 1-2 --after 1")
    assert [job(room, number).spec.after for number in (1, 2)] == [(), ()]
    await room.ask(room.uma, "/edit 1,2 -p low")
    assert [job(room, number).spec.priority for number in (1, 2)] == [Priority.LOW] * 2


@in_room()
async def test_another_workspace_brings_its_environment(room):
    other = Workspace(name="other", dir=str(room.folder / "home"))
    room.chat.queue.workspaces.put(other)
    room.chat.queue.workspaces.keep_environment(other, stamp(other), {"PATH": "/other"})
    await room.ask(room.uma, "/submit -g 0 pwd")
    assert "workspace lab → other" in text(await room.ask(room.uma, "/edit 1 -w other"))
    spec = job(room, 1).spec
    assert (spec.workspace, spec.dir) == ("other", other.dir)
    assert room.chat.queue.jobs.environment(spec.environment) == {"PATH": "/other"}


@in_room()
async def test_what_runs_is_not_edited_and_the_button_tells_how(room):
    shown = (await room.ask(room.uma, "/submit -g 0 python a.py"))[0]
    details = (await room.tap(room.uma, shown, "Details"))[0]
    assert labels(details) == ["Copy command", "Copy run id", "Edit", "Kill"]
    told = text(await room.tap(room.uma, details, "Edit"))
    assert "/edit 1 --time 4h --priority high" in told
    assert "--gpus 0 --workspace lab python a.py" in told
    room.chat.queue.jobs.claim(1, [("cpu", 0)], "boot")
    assert "is already running" in text(await room.ask(room.uma, "/edit 1 --time 4h"))
    await room.tap(room.uma, details, "Edit")
    assert "no longer waits" in room.answers()[-1]


@in_room()
async def test_only_owners_and_admins_edit_and_move(room):
    await room.ask(room.uma, "/batch -g 0\ntrue\ntrue")
    await room.ask(room.una, "/submit -g 0 true")
    for sent in ("/edit 1 --time 4h", "/edit 3,1 --time 4h", "/edit 1", "/move 2 first"):
        assert "belongs to Uma" in text(await room.ask(room.una, sent))
    assert job(room, 3).spec.time_limit_s is None
    await room.ask(room.ada, "/edit 1 --time 4h")
    assert job(room, 1).spec.time_limit_s == 14400.0
    assert text(await room.ask(room.ada, "/move 2 first")) == "Job 2 is now first of Uma's."
    assert "belongs to Uma, job 3 to Una" in text(await room.ask(room.ada, "/move 2 after 3"))


@in_room()
async def test_a_job_is_moved_by_words(room):
    await room.ask(room.uma, "/batch -g 0\na\nb\nc")
    for sent, said in {
        "/move 1 after 2": "Job 1 is now after job 2.",
        "/move 3 --before #2": "Job 3 is now before job 2.",
        "/move 3 last": "Job 3 is now last.",
        "/move 3 sooner": "Job 3 is now before job 1.",
        "/move 3 later": "Job 3 is now after job 1.",
    }.items():
        assert text(await room.ask(room.uma, sent)) == said
    assert [one.id for one in room.chat.listing.queued()] == [2, 1, 3]
    assert "Where to?" in text(await room.ask(room.uma, "/move 3 up"))


@in_room()
async def test_jobs_are_held_and_released_by_words(room):
    await room.ask(room.uma, "/batch -g 0\na\nb")
    assert text(await room.ask(room.uma, "/hold 1")) == "Job 1 is held: it does not start before /release 1."
    assert "✋ #1" in text(await room.ask(room.uma, "/queue"))
    assert text(await room.ask(room.uma, "/release 1 2")) == "Job 1 is released.\nJob 2 is not held."
    assert "belongs to Uma" in text(await room.ask(room.una, "/hold 2"))
    assert "Hold which job?" in text(await room.ask(room.uma, "/hold"))
    assert [job(room, number).held_by for number in (1, 2)] == [None, None]


@in_room()
async def test_kill_by_state_and_group_asks_with_a_count(room):
    await room.ask(room.uma, "/batch -g 0 --group night\na\nb\nc")
    await room.ask(room.uma, "/submit -g 0 d")
    await room.ask(room.una, "/submit -g 0 --group night e")
    room.chat.queue.jobs.claim(1, [("cpu", 0)], "boot")
    for person, sent, count in (
        (room.uma, "/kill queued", 3), (room.uma, "/kill Running", 1), (room.uma, "/kill mine", 4),
        (room.uma, "/kill group night", 3), (room.ada, "/kill group night", 4),
        (room.ada, "/kill group night queued", 3), (room.ada, "/kill queued everyone", 4),
        (room.uma, "/kill --state queued", 3), (room.uma, "/kill —state running", 1), (room.uma, "/kill --all", 4),
        (room.ada, "/kill --all", 5), (room.ada, "/kill --group night --state queued", 3),
        (room.uma, "/kill 1-3 --state queued", 2), (room.uma, "/kill --mine 1-3", 3),
        (room.uma, "/kill 2-9 --mine", 3), (room.uma, "/kill 4-5 queued", 1), (room.ada, "/kill 4-9 everyone", 2),
    ):  # fmt: skip
        asked = (await room.ask(person, sent))[0]
        assert labels(asked)[0] in {f"Yes, kill {count} jobs", "Yes, kill #1", "Yes, kill #4"}, (sent, labels(asked))
        assert ("Stop this job?" if count == 1 else f"Stop these {count} jobs?") in asked.text.text
    assert "None of these is yours and waits." in text(await room.ask(room.uma, "/kill 5 queued"))
    assert "takes an admin" in text(await room.ask(room.uma, "/kill all everyone"))
    asked = (await room.ask(room.uma, "/kill group night queued"))[0]
    await room.tap(room.uma, asked, "Yes, kill 2 jobs")
    states = [job(room, number).state for number in (1, 2, 3, 4, 5)]
    assert states == [State.STARTING, State.CANCELLED, State.CANCELLED, State.QUEUED, State.QUEUED]
