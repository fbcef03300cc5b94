"""Rerun with another value, and the usual commands: only what is new is typed."""

import pytest

from runner.commands.argument_changes import arguments
from runner.model import State
from runner.store.retention import tidy
from tests.integration.test_chat_picker import begin, end, queue
from tests.room import in_room, labels


def job(room, number):
    return room.chat.queue.jobs.get(number)


async def ended(room, command="python train.py --lr 1e-3 --bs 32 opt=adam"):
    """A job of Uma's has ended: the message that says so."""
    await queue(room, room.uma, command)
    await begin(room, 1)
    await end(room, 1)
    return room.said(room.uma)[-1]


async def asked_for_lr(room):
    (chosen,) = await room.tap(room.uma, await ended(room), "Rerun with…")
    assert labels(chosen) == ["--lr 1e-3", "--bs 32", "opt=adam", "Cancel"]
    await room.tap(room.uma, chosen, "--lr 1e-3")
    assert "Send the new value of --lr for #1 (now 1e-3)." in chosen.text.text
    return chosen


@in_room()
async def test_rerun_with_another_value_takes_two_taps_and_the_value(room):
    await asked_for_lr(room)
    (said,) = await room.ask(room.uma, "3e-4")
    assert "#2 queued" in said.text.text
    assert job(room, 2).spec.command == "python train.py --lr 3e-4 --bs 32 opt=adam"
    assert "To run that" in (await room.ask(room.uma, "5e-4"))[0].text.text  # the question is answered


@pytest.mark.parametrize("value", ["a b; rm -rf /", "-5", "/data", "/data:a", "$(id)", "x='1"])
def test_a_typed_value_is_one_word_of_the_command_whatever_it_contains(value, tmp_path):
    @in_room()
    async def check(room):
        await asked_for_lr(room)
        await room.ask(room.uma, value)
        assert [one.value for one in arguments(job(room, 2).spec.command) if one.name == "--lr"] == [value]

    check(tmp_path)


@in_room()
async def test_cancel_and_any_command_drop_the_question(room):
    chosen = await asked_for_lr(room)
    await room.tap(room.uma, chosen, "Cancel")
    assert labels(chosen) == []
    await room.ask(room.uma, "3e-4")
    assert room.chat.queue.jobs.count(*State) == 1


@in_room()
async def test_a_command_in_between_drops_the_question_but_an_error_does_not(room):
    await asked_for_lr(room)
    room.chat.buttons.ask(room.uma.id, room.uma.id, {"command": "submit", "before": "", "verbatim": True}, 300)
    assert "did you mean --gpus" in (await room.ask(room.uma, "--gpuz 0 true"))[0].text.text
    await room.ask(room.uma, "-g 0 true")
    assert job(room, 2).spec.command == "true"
    room.chat.buttons.ask(room.uma.id, room.uma.id, {"command": "submit", "before": "", "verbatim": True}, 300)
    await room.ask(room.uma, "/gpus")
    await room.ask(room.uma, "-g 0 false")
    assert job(room, 3) is None


@in_room()
async def test_a_question_is_open_for_some_minutes_and_for_one_person_in_one_chat(room):
    await asked_for_lr(room)
    await room.ask(room.una, "3e-4")
    assert job(room, 2) is None
    room.chat.queue.store.execute("UPDATE buttons SET expires_at = '2000-01-01' WHERE action = 'typed'")
    await room.ask(room.uma, "3e-4")
    assert job(room, 2) is None
    room.chat.queue.store.execute("UPDATE buttons SET created_at = '2000-01-01'")
    assert tidy(room.chat.queue.store)


@in_room()
async def test_a_question_survives_the_bot(room):
    await asked_for_lr(room)
    await room.close()
    await room.open()
    await room.ask(room.uma, "3e-4")
    assert "--lr 3e-4" in job(room, 2).spec.command


@in_room()
async def test_nothing_is_offered_where_nothing_can_be_changed(room):
    assert labels(await ended(room, "true")) == ["Log", "Details", "Rerun"]
    (shown,) = await room.ask(room.vic, "/status 1")
    assert labels(shown) == ["Copy command", "Copy run id", "Log"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python t.py --lr=1 --wandb --bs 2", ["--lr=1", "--bs=2"]),
        ("python -m train --lr 1 && echo --lr 2", []),
        ("python t.py --a 1 | tee --append x", ["--a=1", "--append=x"]),
        ("LR=1 python t.py --name 'my run'", ["--name=my run"]),
        ("for x in 1 2; do echo $x; done", []),
    ],
)
def test_the_arguments_that_can_be_changed(command, expected):
    assert [f"{one.name}={one.value}" for one in arguments(command)] == expected


# -- /submit alone -----------------------------------------------------------------------------------


@in_room()
async def test_a_first_submit_asks_where_and_what(room):
    other = room.folder / "other"
    other.mkdir()
    room.chat.queue.workspaces.put(type(room.chat.queue.workspaces.get("lab"))(name="other", dir=str(other)))
    (asked,) = await room.ask(room.uma, "/submit")
    assert "It will run in lab" in asked.text.text
    assert labels(asked) == ["In other", "Cancel"]
    await room.tap(room.uma, asked, "In other")
    assert "It will run in other" in asked.text.text
    await room.ask(room.uma, "-g 0 python train.py --lr 1")
    assert (job(room, 1).spec.workspace, job(room, 1).spec.command) == ("other", "python train.py --lr 1")


@in_room()
async def test_the_usual_command_takes_two_taps(room):
    await queue(room, room.uma, *["python a.py"] * 3, "python b.py", "python c.py", "python d.py")
    await queue(room, room.una, "python e.py")
    (asked,) = await room.ask(room.uma, "/submit")
    assert labels(asked) == ["python d.py", "python c.py", "python b.py", "python a.py", "Cancel"]
    (said,) = await room.tap(room.uma, asked, "python a.py")
    assert "#8 queued" in said.text.text
    assert job(room, 8).spec.command == "python a.py"


@in_room()
async def test_options_without_a_command_wait_for_it(room):
    await room.ask(room.uma, "/submit -g 0 --name night")
    await room.ask(room.uma, "python train.py")
    assert (job(room, 1).spec.name, job(room, 1).spec.command) == ("night", "python train.py")


@in_room()
async def test_a_name_for_a_preset_is_asked_for(room):
    await ended(room)
    (asked,) = await room.ask(room.uma, "/save")
    await room.tap(room.uma, asked, next(one for one in labels(asked) if "#1" in one))
    assert "Under which name?" in asked.text.text
    await room.ask(room.uma, "nano")
    (asked,) = await room.ask(room.uma, "/submit")
    assert labels(asked)[0] == "nano"
