"""Sweeps and groups in the chat: one reply, one status, one notice."""

import pytest

from bot.pictures import plots
from runner import rundir
from runner.model import Reason, State
from tests.integration.test_chat_commands import claim, end, job, text
from tests.room import data_of, in_room, labels
from tests.traces import EFFECTS, differences, traces

SWEEP = "/sweep -g 0 --seed 1 —metric val_loss python train.py —lr {lr} —bs {bs} ; lr=1e-3,5e-4 bs=32,64"


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """They are drawn in a process that takes its time, and the words are what most of these are about."""
    monkeypatch.setattr(plots, "available", lambda: False)


def finish(room, number, *, printed=None, **exit):
    """The job ran and ended."""
    folder = claim(room, number, slot=number)
    if printed is not None:
        (folder / rundir.OUTPUT).write_text(printed)
    end(room, number, **exit)


async def a_finished_sweep(room):
    """Of four jobs the third has failed; the second is the best that has not."""
    said = await room.ask(room.uma, SWEEP)
    for number, loss in ((1, "0.5"), (2, "0.31"), (4, "0.4")):
        finish(room, number, printed=f"val_loss=9\nval_loss={loss}\n")
    finish(room, 3, printed="val_loss=0.1\nTraceback", exit_code=1)
    await room.settle()
    return said[0]


def best(room):
    given = job(room, 2).spec.parameters
    return f"best val_loss 0.31 with lr={given['lr']} bs={given['bs']}"


@in_room()
async def test_jobs_of_a_sweep_are_told_apart_in_lists_and_before_they_are_killed(room):
    long = "python examples/train_the_largest_model.py --lr {lr} ; lr=1e-3,5e-4"
    await room.ask(room.uma, f"/sweep --sampling-mode grid {long}")
    await room.ask(room.uma, f"/sweep --sampling-mode grid --name vit {long}")
    await room.ask(room.uma, "/edit 2 python other.py")
    (asked,) = await room.ask(room.uma, "/kill all")
    names = ["sweep-1 lr=1e-3", "python other.py", "vit lr=1e-3", "vit lr=5e-4"]
    assert asked.text.text.splitlines()[1:] == [f"⏳ #{number} {name}" for number, name in enumerate(names, 1)]
    (shown,) = await room.ask(room.uma, "/queue")
    assert "⏳ #1 sweep-1 lr=1e-3\n" in shown.text.text


@in_room()
async def test_a_sweep_is_one_reply_with_buttons(room):
    said = await room.ask(room.uma, SWEEP.replace("--seed", "--at-most 2 --seed"))
    assert len(said) == 1
    assert "sweep-1: 4 jobs queued, #1–#4, at most 2 at once" in text(said)
    assert labels(said[0]) == ["Results", "CSV", "Kill all"]
    commands = {job(room, number).spec.command for number in range(1, 5)}
    assert commands == {f"python train.py --lr {lr} --bs {bs}" for lr in ("1e-3", "5e-4") for bs in (32, 64)}
    assert room.chat.queue.groups.get("sweep-1").at_most == 2
    given = job(room, 1).spec.parameters
    assert f"sweep-1 · lr={given['lr']} bs={given['bs']}" in text(await room.ask(room.vic, "/status 1"))


@in_room()
async def test_ranges_are_drawn_from_and_samples_are_taken(room):
    await room.ask(room.uma, "/sweep -g 0 -n 3 —group lrs python t.py {lr} ; lr=log:1e-5..1e-2")
    values = {float(job(room, number).spec.parameters["lr"]) for number in (1, 2, 3)}
    assert len(values) == 3
    assert all(1e-5 <= value <= 1e-2 for value in values)
    assert job(room, 1).spec.group == "lrs"


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ("/sweep", "/sweep python train.py --lr {lr}"),
        ("/sweep python train.py --lr {lr}", "Write the values after a semicolon"),
        ("/sweep python train.py --lr {lr} ; lr", "not a parameter with values"),
        ("/sweep python train.py --lr {lr} ; bs=1", "no values for {lr}"),
        (
            "/sweep python train.py --lr {lr} ; lr=log:1e-5..1e-2",
            "say before the command how many samples to draw from it (-n 20)",
        ),
        ("/sweep --at-most 0 echo {a} ; a=1", "write 1, 2, 3"),
        ("/sweep --metric loss=( echo {a} ; a=1", "not a pattern"),
        ("/sweep --largest echo {a} ; a=1", "--largest of what"),
        ("/sweep --group 12 echo {a} ; a=1", "not a group's name"),
        ("/sweep --gpuz 1 echo {a} ; a=1", "did you mean --gpus"),
        ("/sweep echo {a} & ; a=1", "&"),
        (f"/sweep -g 0 echo {{a}} {{b}} ; a={','.join('12345')} b={','.join(map(str, range(300)))}", "/sweep -n 100"),
        ("/group nope", "There is no group 'nope'"),
        ("/group a b", "Send /group sweep-1"),
        ("/group --at-most 2", "Send /group sweep-1"),
        ("/group -g 1 nope", "takes --at-most and --metric"),
        ("/group", "There are no groups yet"),
        ("/kill sweep-1", "is not a job number"),
        ("/rerun sweep-1 failed", "Send /rerun 12"),
    ],
)
def test_every_mistake_is_answered_with_what_to_send(sent, answer, tmp_path):
    @in_room()
    async def check(room):
        assert answer in text(await room.ask(room.ada, sent))
        assert room.chat.queue.jobs.count(*State) == 0
        assert room.chat.queue.groups.latest(9) == []

    check(tmp_path)


@in_room(queued_per_person=3)
async def test_a_sweep_is_queued_as_a_whole_or_not_at_all(room):
    assert "nothing was queued" in text(await room.ask(room.uma, SWEEP))
    assert room.chat.queue.jobs.count(*State) == 0
    assert room.chat.queue.groups.latest(9) == []


@in_room()
async def test_members_are_quiet_failures_are_not_and_the_last_end_is_told_once(room):
    before = len(room.said(room.uma))
    await a_finished_sweep(room)
    told = [message.text.text for message in room.said(room.uma)[before + 1 :]]
    assert len(told) == 2
    assert told[0].startswith("❌ #3 failed on lab1")
    assert told[1].startswith(f"❌ sweep-1 is done on lab1: 3 succeeded, 1 failed, {best(room)}, ")
    assert room.said(room.ada)[-1].text.text.startswith("🌙")  # whom it does not concern hears nothing
    assert room.chat.queue.notices.open() == []


@in_room()
async def test_who_wants_failures_only_hears_of_a_group_only_if_one_failed(room):
    await room.ask(room.uma, "/notify failures")
    await room.ask(room.uma, "/sweep -g 0 echo {a} ; a=1")
    before = len(room.said(room.uma))
    finish(room, 1)
    await room.settle()
    assert len(room.said(room.uma)) == before
    await room.ask(room.uma, "/sweep -g 0 echo {a} ; a=1")
    finish(room, 2, exit_code=1)
    await room.settle()
    assert "sweep-2 is done" in room.said(room.uma)[-1].text.text


@in_room()
async def test_everybody_who_asked_for_a_job_of_a_group_is_told(room):
    await room.ask(room.uma, "/submit -g 0 --group night true")
    await room.ask(room.una, "/submit -g 0 --group night true")
    finish(room, 1)
    finish(room, 2)
    await room.settle()
    for person in (room.uma, room.una):
        assert [m.text.text for m in room.said(person)].count("✅ night is done on lab1: 2 succeeded, 0 s") == 1
    room.chat.queue.rerun(1)  # as from a terminal: nobody's message
    finish(room, 3)
    await room.settle()
    assert "night is done on lab1: 1 succeeded (3 of 3 in all)" in room.said(room.ada)[-1].text.text
    assert "in all" not in text(room.said(room.uma))


@in_room()
async def test_results_fit_a_phone_and_come_as_csv(room):
    await a_finished_sweep(room)
    shown = (await room.ask(room.vic, "/group sweep-1"))[0]
    lines = shown.text.text.split("\n")
    assert lines[0] == "❌ sweep-1: 3 of 4 done, 1 failed"
    assert lines[1] == best(room)
    assert lines[2].split() == ["lr", "bs", "val_loss"]
    assert [line.split()[0] for line in lines[3:]] == ["#3", "#2", "#4", "#1"]
    assert lines[3].endswith("0.1 !")
    assert max(map(len, lines[2:])) <= 34
    assert labels(shown) == ["Results", "CSV"]  # who looks on runs nothing again
    assert labels(room.said(room.uma)[-1]) == ["Results", "CSV", "Rerun failed"]
    sent = (await room.tap(room.vic, shown, "CSV"))[-1]
    assert sent.document.name == "sweep-1.csv"
    rows = sent.document.data.decode().splitlines()
    assert rows[0].startswith("job,lr,bs,val_loss,state")
    assert rows[1].startswith("3,")
    assert len(rows) == 5
    assert "sweep-1: 3 of 4 done" in text(await room.ask(room.vic, "/group"))
    assert "sweep-1: 3 of 4 done" in text(await room.tap(room.vic, shown, "Results"))


def test_results_are_drawn_where_that_can_be_done(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(plots, "available", lambda: True)

    @in_room()
    async def check(room):
        await a_finished_sweep(room)
        shown = (await room.ask(room.vic, "/group sweep-1"))[0]
        assert shown.photo
        assert best(room) in shown.caption.text

    check(tmp_path)


@in_room(log_text=False)
async def test_where_output_stays_on_the_box_so_do_its_numbers(room):
    await a_finished_sweep(room)
    shown = await room.ask(room.uma, "/group sweep-1")
    assert "0.31" not in text(room.said(room.uma))
    assert "3 of 4 done" in text(shown)
    sent = (await room.tap(room.uma, shown[0], "CSV"))[-1]
    assert b"0.31" not in sent.document.data


@in_room()
async def test_no_secret_leaves_with_the_results(room):
    await room.ask(room.uma, "/sweep -g 0 --env HF_TOKEN=hf_very_secret_0815 echo {key} ; key=hf_very_secret_0815,x")
    shown = (await room.ask(room.uma, "/group sweep-1"))[0]
    sent = (await room.tap(room.uma, shown, "CSV"))[-1]
    assert "hf_very_secret_0815" not in text(room.said(room.uma)[-3:-1])
    assert b"hf_very_secret_0815" not in sent.document.data


@in_room()
async def test_a_pattern_that_others_search_for_ever_is_searched_quickly(room):
    await room.ask(room.uma, "/sweep -g 0 --metric '(?:a+)+=([0-9])' echo {a} ; a=1")
    finish(room, 1, printed="aaa=7\n" + "a" * 5000)
    assert "best metric 7" in text(await room.ask(room.uma, "/group sweep-1"))


@in_room()
async def test_a_pattern_that_needs_a_slow_search_is_refused(room):
    said = text(await room.ask(room.uma, "/sweep -g 0 --metric '(?<=val_)loss=([0-9])' echo {a} ; a=1"))
    assert "lookbehind and backreferences are not supported" in said
    assert "like val_loss" in said


def test_output_that_takes_too_long_costs_the_numbers_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.outbound.documents.READ_S", 0.0)

    @in_room()
    async def check(room):
        await room.ask(room.uma, "/sweep -g 0 --metric loss echo {a} ; a=1")
        finish(room, 1, printed="loss=1")
        said = text(await room.ask(room.uma, "/group sweep-1"))
        assert "sweep-1: done" in said
        assert "not all output could be searched within 0 s" in said

    check(tmp_path)


# -- acting ----------------------------------------------------------------------------------------


@in_room()
async def test_kill_all_asks_first(room):
    said = (await room.ask(room.uma, SWEEP))[0]
    await room.tap(room.uma, said, "Kill all")
    assert labels(said) == ["Yes, kill 4 jobs", "No"]
    await room.tap(room.uma, said, "No")
    assert labels(said) == ["Results", "CSV", "Kill all"]
    assert room.chat.queue.jobs.count(State.QUEUED) == 4
    await room.tap(room.uma, said, "Kill all")
    told = await room.tap(room.uma, said, "Yes, kill 4 jobs")
    assert room.chat.queue.jobs.count(State.CANCELLED) == 4
    # they asked for it themselves: that all of it is over is the news
    assert [message.text.text for message in told] == ["⏹ sweep-1 is done on lab1: 4 stopped"]


@in_room()
async def test_kill_by_name(room):
    await room.ask(room.uma, SWEEP)
    asked = (await room.ask(room.uma, "/kill sweep-1"))[0]
    await room.tap(room.uma, asked, "Yes, kill 4 jobs")
    assert room.chat.queue.jobs.count(State.CANCELLED) == 4
    assert "No job of sweep-1 waits or runs" in text(await room.ask(room.uma, "/kill sweep-1"))


@in_room()
async def test_what_an_admin_stopped_is_told_to_its_owner(room):
    await room.ask(room.uma, SWEEP)
    asked = (await room.ask(room.ada, "/kill sweep-1"))[0]
    await room.tap(room.ada, asked, "Yes, kill 4 jobs")
    assert "4 jobs cancelled by Ada" in text(room.said(room.uma))


@in_room()
async def test_what_failed_is_run_again_once(room):
    await a_finished_sweep(room)
    again = await room.tap(room.uma, room.said(room.uma)[-1], "Rerun failed")
    assert "sweep-1: 1 job queued again, #5" in text(again)
    assert job(room, 5).spec.parameters == job(room, 3).spec.parameters
    assert "No job of sweep-1 has failed" in text(await room.ask(room.uma, "/rerun sweep-1 failed"))
    finish(room, 5, printed="val_loss=0.2\n")
    await room.settle()
    told = room.said(room.uma)[-1].text.text
    assert told.startswith("✅ sweep-1 is done on lab1: 1 succeeded (4 of 4 in all), best val_loss 0.2 with ")
    assert "/rerun sweep-1 failed" in text(await room.ask(room.uma, "/rerun sweep-1 --lr 1"))


@in_room()
async def test_users_act_on_their_own_jobs_of_a_group_admins_on_all(room):
    await room.ask(room.uma, "/submit -g 0 --group night true")
    finish(room, 1, exit_code=1)
    await room.ask(room.uma, "/submit -g 0 --group night true")
    before = traces(room, (*EFFECTS, "groups"))
    for sent in (
        "/kill night",
        "/rerun night failed",
        "/group --at-most 1 night",
        "/sweep --group night --at-most 1 a {b} ; b=1",
    ):
        assert "night belongs to Uma" in text(await room.ask(room.una, sent)), sent
    for action in ("kill group", "rerun failed"):
        nonce = room.chat.buttons.make(room.una.id, action, None, {"group": "night"})
        room.people.tap(room.una, None, room.said(room.una)[-1].message_id, nonce)
        await room.settle()
        assert "night belongs to Uma" in room.answers()[-1], action
    assert differences(before, traces(room, tuple(before))) == {}
    for sent in ("/group --at-most 1 night", "/kill night", "/rerun night failed"):
        assert "That takes a user" in text(await room.ask(room.vic, sent)), sent
    await room.ask(room.una, "/submit -g 0 --group night true")
    asked = (await room.ask(room.una, "/kill night"))[0]
    assert labels(asked) == ["Yes, kill #3", "No"]
    asked = (await room.ask(room.ada, "/kill night"))[0]
    assert labels(asked) == ["Yes, kill 2 jobs", "No"]
    assert "night: at most 2 at once" in text(await room.ask(room.ada, "/group --at-most 2 night"))
    assert "1 job queued again" in text(await room.ask(room.ada, "/rerun night failed"))


@in_room()
async def test_a_question_about_a_group_stops_what_it_asked_about(room):
    said = (await room.ask(room.uma, "/sweep -g 0 echo {a} ; a=1,2"))[0]
    await room.tap(room.uma, said, "Kill all")
    yes = data_of(said, "Yes, kill 2 jobs")
    await room.ask(room.uma, "/submit -g 0 --group sweep-1 true")
    room.people.tap(room.uma, None, said.message_id, yes)
    await room.settle()
    assert [job(room, number).state for number in (1, 2, 3)] == [State.CANCELLED, State.CANCELLED, State.QUEUED]
    assert job(room, 1).reason is Reason.USER
