"""Presets: a job saved under a name, queued again with other values."""

import json
from dataclasses import replace

from tests.integration.test_chat_picker import begin, end, queue
from tests.jobs import KEY, VARIABLES, a_spec
from tests.room import in_room, labels


def job(room, number):
    return room.chat.queue.jobs.get(number)


async def saved(room, options=""):
    """Uma's job is saved as nano."""
    await queue(room, room.uma, f"-t 2h {options} python train.py --lr 1e-3")
    await begin(room, 1)
    await end(room, 1)
    (said,) = await room.ask(room.uma, "/save 1 as nano")
    assert said.text.text == "Job 1 is saved as nano. Run it with /nano, or with another value: /nano lr=3e-4"


@in_room()
async def test_a_saved_job_is_queued_by_its_name_with_another_value(room):
    await saved(room)
    for sent in ("/nano lr=3e-4", "/preset nano lr=3e-4", "/preset nano --lr 3e-4", "/submit --preset nano lr=3e-4"):
        (said,) = await room.ask(room.uma, sent)
        assert "python train.py --lr 3e-4" in said.text.text, sent
    spec = job(room, 2).spec
    assert (spec.name, spec.time_limit_s, spec.gpus, spec.again_of) == ("nano", 7200, 0, None)
    assert spec.owner == f"tg:{room.uma.id}"
    assert spec.environment == job(room, 1).spec.environment
    await room.ask(room.uma, "/submit --preset nano -t 4h --name other")
    assert (job(room, 6).spec.time_limit_s, job(room, 6).spec.name) == (4 * 3600, "other")
    assert job(room, 6).spec.command == "python train.py --lr 1e-3"
    assert "A preset is one job" in (await room.ask(room.uma, "/batch --preset nano\na"))[0].text.text


@in_room()
async def test_presets_are_listed_run_and_deleted_by_buttons(room):
    assert "You have saved no job yet" in (await room.ask(room.uma, "/preset"))[0].text.text
    await saved(room)
    (shown,) = await room.ask(room.uma, "/presets")
    assert labels(shown) == ["nano: python train.py --lr 1e-3", "✖"]
    await room.tap(room.uma, shown, labels(shown)[0])
    assert job(room, 2).spec.command == "python train.py --lr 1e-3"
    (theirs,) = await room.ask(room.una, "/preset")
    assert labels(theirs) == ["nano: python train.py --lr 1e-3"]  # not hers to delete
    await room.ask(room.una, "/nano")
    assert job(room, 3).spec.owner == f"tg:{room.una.id}"
    assert "You have no preset" in (await room.ask(room.una, "/preset delete nano"))[0].text.text
    (shown,) = await room.ask(room.uma, "/preset")
    await room.tap(room.uma, shown, "✖")
    assert "You have saved no job yet" in shown.text.text
    assert "There is no /nano" in (await room.ask(room.uma, "/nano"))[0].text.text
    assert "There is no preset 'nano' (there is: none yet)" in (await room.ask(room.uma, "/preset nano"))[0].text.text


@in_room()
async def test_who_may_save_and_under_which_names(room):
    await saved(room)
    for name in ("kill", "stop", "9lives", "a-b", "x" * 40):
        (said,) = await room.ask(room.uma, f"/save 1 as {name}")
        assert "choose another name" in said.text.text or "is not a name for a preset" in said.text.text, name
    assert [one.name for one in room.chat.queue.presets.all()] == ["nano"]
    assert "That takes a user" in (await room.ask(room.vic, "/nano"))[0].text.text
    assert "That takes a user" in (await room.ask(room.vic, "/save 1 as x"))[0].text.text
    assert "A quote is not closed" in (await room.ask(room.uma, "/nano lr='1"))[0].text.text


@in_room()
async def test_a_preset_of_a_workspace_runs_in_its_environment_as_it_is_now(room):
    await saved(room)
    workspaces = room.chat.queue.workspaces
    changed = replace(workspaces.get("lab"), variables={"NEW": "1"})
    workspaces.put(changed)
    await room.ask(room.uma, "/nano")
    environment = room.chat.queue.jobs.environment(job(room, 2).spec.environment)
    assert environment["NEW"] == "1"


def test_presets_in_the_terminal(box):
    assert "There are no presets" in box.run("preset").stdout
    with box.queue() as jobs:
        jobs.submit([a_spec("python train.py --lr 1", time_limit_s=60.0)], {KEY: VARIABLES})
    assert box.run("save", "1", "as", "nano").stdout == "Job 1 is saved as nano.\n"
    assert "python train.py --lr 1" in box.run("preset").stdout
    ids = json.loads(box.run("submit", "--preset", "nano", "-g", "0", "--json", "--", "--lr", "3").stdout)["ids"]
    with box.queue() as jobs:
        spec = jobs.job(ids[0]).spec
    assert (spec.command, spec.gpus, spec.time_limit_s, spec.name) == ("python train.py --lr 3", 0, 60.0, "nano")
    missing = box.run("submit", "--preset", "other")
    assert missing.returncode == 1
    assert "There is no preset 'other' (there is: nano)" in missing.stderr
    assert box.run("preset", "--delete", "nano").stdout == "The preset nano is deleted.\n"


def test_the_environment_of_a_preset_outlives_its_job(box):
    with box.queue() as jobs:
        (number,) = jobs.submit([a_spec()], {KEY: VARIABLES})
        jobs.presets.put("ada", "nano", jobs.job(number).spec)
        jobs.stop(number)
        jobs.store.execute("UPDATE jobs SET finished_at = '2000-01-01T00:00:00.000000+00:00'")
    assert box.run("prune", "--older-than", "1d", "--jobs").returncode == 0
    with box.queue() as jobs:
        assert jobs.jobs.get(number) is None
        assert jobs.jobs.environment(KEY) == VARIABLES


def test_a_job_with_a_terminal_cannot_be_saved(box):
    with box.queue() as jobs:
        (number,) = jobs.submit([replace(a_spec(), terminal=True)], {KEY: VARIABLES})
    refused = box.run("save", str(number), "as", "nano")
    assert refused.returncode == 1
    assert "had a terminal" in refused.stderr
