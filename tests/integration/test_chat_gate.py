"""Who is not let in leaves no trace and hears nothing; who is, may do what their role allows and no more."""

import asyncio
import itertools
import random
import secrets
from datetime import timedelta
from pathlib import Path

import pytest
from telegram import Update

from bot.access.gate import Caller
from bot.app import ROUTES
from bot.commands import COMMANDS, Role
from bot.handlers.button_taps import GONE, JUST_NOW, NOT_YOURS
from bot.inbound.dispatch import let_in
from bot.inbound.routing import answer
from bot.text.buttons import BY_ACTION
from runner import rundir
from runner.api.chat import clock
from runner.lifecycle import outcome
from runner.model import State
from tests.jobs import an_exit
from tests.room import a_room, data_of, in_room, labels
from tests.telegram.updates import KINDS
from tests.telegram.world import ANONYMOUS_ADMIN, CHANNEL_BOT
from tests.traces import EFFECTS, differences, traces, without_waiting_for_the_disk
from tests.updates import payload

LAB, SUBMIT = -5001, "/submit -g 0 true"
in_lab = in_room(groups=(LAB,))


def text(messages):
    return "\n".join(message.text.text for message in messages)


def job(room, number):
    return room.chat.queue.job(number)


class Anywhere:
    """Everybody and every place of a room."""

    def __init__(self, room):
        world = room.world
        self.room = room
        everybody = (room.ada, room.uma, room.una, room.vic, room.sam)
        self.lab = world.add_group("Lab", everybody)
        self.other = world.add_group("Other", everybody)
        self.channel = world.add_channel("News")
        self.robot = world.add_user("Robot", is_bot=True)
        assert self.lab.id == LAB
        self.known = {room.ada.id, room.uma.id, room.una.id, room.vic.id}
        self.people = (*everybody, self.robot, ANONYMOUS_ADMIN, CHANNEL_BOT, None)

    def places(self, user):
        own = [self.room.world.chats[user.id]] if user is not None and user.id in self.room.world.chats else []
        return [*own, self.lab, self.other, self.channel, self.room.world.chats[self.room.sam.id]]

    def allowed(self, kind, user, place):
        if kind == "my_chat_member":  # what that does is told in test_chat_groups
            return True
        known = user is not None and user.id in self.known
        return kind in {"message", "callback_query"} and known and place.id in {user.id, LAB}

    def denied_updates(self, text_of):
        for kind, user in itertools.product(KINDS, self.people):
            for place in self.places(user):
                if not self.allowed(kind, user, place):
                    yield kind, payload(kind, user and user.to_json(), place.to_json(), text_of(kind))


@in_lab
async def test_who_is_not_let_in_leaves_no_trace_and_hears_nothing(room):
    """Every kind of update, as if the bot had asked for it."""
    without_waiting_for_the_disk(room)
    anywhere = Anywhere(room)
    await room.ask(room.uma, SUBMIT)
    stolen = room.chat.buttons.make(room.uma.id, "kill", 1)
    room.world.updates.allow(list(KINDS))
    before, sent = traces(room), 0
    for kind, body in anywhere.denied_updates(lambda kind: stolen if kind == "callback_query" else SUBMIT):
        assert room.people.raw_update(kind, body) is not None
        sent += 1
    await room.settle()
    assert sent > 700
    assert differences(before, traces(room)) == {}


@in_lab
async def test_behind_the_poller_stands_a_second_line(room):
    """Even an update that is in the inbox already is judged before it is handled."""
    without_waiting_for_the_disk(room)
    anywhere = Anywhere(room)
    await room.ask(room.uma, SUBMIT)
    stolen = room.chat.buttons.make(room.uma.id, "kill", 1)
    before, number = traces(room), 10
    for kind, body in anywhere.denied_updates(lambda kind: stolen if kind == "callback_query" else SUBMIT):
        number += 1
        assert room.chat.inbox.keep(number, {"update_id": number, kind: body})
    room.bot.dispatcher.wake()
    await room.settle()
    assert number > 700
    found = differences(before, traces(room))
    assert set(found) == {"inbox"}


@in_lab
async def test_each_line_holds_by_itself(room):
    """The door lets nobody on, and no handler acts for whoever came past it: the transaction asks who they are."""
    anywhere = Anywhere(room)
    await room.ask(room.uma, SUBMIT)
    stolen = room.chat.buttons.make(room.uma.id, "kill", 1)
    before, past_the_door = traces(room), 0
    for kind, body in anywhere.denied_updates(lambda kind: stolen if kind == "callback_query" else SUBMIT):
        room.chat.inbox.keep(1, {"update_id": 1})
        update = Update.de_json({"update_id": 1, kind: body}, room.bot.client.bot)
        assert let_in(room.chat, update) is None
        person, place = update.effective_user, update.effective_chat
        if person is not None and place is not None and (update.message or update.callback_query):
            past_the_door += 1
            caller = Caller(person.id, person.full_name, Role.ADMIN, place.id, private=place.id == person.id)
            await answer(room.chat, ROUTES, caller, update)
    assert past_the_door > 50
    room.chat.inbox.forget_all()
    before.pop("inbox")
    assert differences(before, traces(room)) == {}


@in_room()
async def test_only_what_is_served_is_fetched(room):
    assert room.world.updates.allowed == {"message", "callback_query", "my_chat_member"}


@in_room()
async def test_only_owners_and_admins_are_asked_about_a_job(room):
    await room.ask(room.uma, SUBMIT)
    said = await room.ask(room.una, "/kill 1")
    assert "belongs to Uma" in text(said)
    assert labels(said[0]) == []
    assert labels((await room.ask(room.ada, "/kill 1"))[0])


@in_room()
async def test_an_update_that_cannot_be_read_holds_nothing_up(room):
    room.chat.inbox.keep(1, {"update_id": 1, "message": {"message_id": "?"}})
    room.chat.inbox.keep(2, {"update_id": 2, "callback_query": []})
    room.chat.inbox.keep(3, {"update_id": 3})
    room.people.raw_update("message", {"message_id": 1})
    room.people.raw_update("callback_query", {"id": "1"})
    room.bot.dispatcher.wake()
    assert "lab1" in text(await room.ask(room.vic, "/status"))
    assert room.chat.inbox.open() == []


@in_lab
async def test_where_they_are_allowed_each_does_what_their_role_may(room):
    anywhere = Anywhere(room)
    for place in (None, anywhere.lab):
        for person in (room.ada, room.uma, room.una):
            assert "queued in lab" in text(await room.ask(person, SUBMIT, place))
        before = traces(room, EFFECTS)
        assert "That takes a user" in text(await room.ask(room.vic, SUBMIT, place))
        assert not differences(before, traces(room, EFFECTS))
    assert room.chat.queue.jobs.count(State.QUEUED) == 6


@in_lab
async def test_what_a_person_did_not_write_here_does_nothing(room):
    anywhere = Anywhere(room)
    for place in (None, anywhere.lab):
        written = room.people.send_text(room.ada, place, "/status")
        await room.settle()
        before = traces(room)
        room.people.send_text(room.ada, place, SUBMIT, forward_from=room.ada)
        room.people.send_text(room.ada, place, SUBMIT, forward_from=room.sam)
        room.people.send_text(room.ada, place, SUBMIT, via_bot=anywhere.robot)
        room.people.send_text(room.ada, place, SUBMIT, sender_chat=anywhere.channel)
        room.people.edit(room.ada, place, written.message_id, SUBMIT)
        # as a message although it was edited: what Telegram does not do, but what would be run again
        room.people.raw_update("message", {**written.to_json(), "text": SUBMIT, "edit_date": room.world.now()})
        room.people.send_text(room.ada, anywhere.lab, SUBMIT, sender_chat=anywhere.lab)
        room.people.send_text(None, anywhere.channel, SUBMIT)
        await room.settle()
        assert differences(before, traces(room)) == {}


# -- roles -----------------------------------------------------------------------------------------

ARGUMENTS = {
    "submit": "-g 0 true", "batch": "\ntrue", "kill": "1", "rerun": "1", "log": "1", "ws": "lab", "pair": "user",
    "notify": "ends", "edit": "2 --time 4h", "move": "2 first", "hold": "2", "release": "2",
    "sweep": "-g 0 echo {a} ; a=1,2", "save": "1 as nano",
}  # fmt: skip
PEOPLE = {Role.ADMIN: "ada", Role.USER: "uma", Role.VIEWER: "vic"}
TAKES = {
    **dict.fromkeys(
        ("status", "queue", "gpus", "log", "fit", "group", "ws", "notify", "whoami", "help", "start"), Role.VIEWER
    ),
    **dict.fromkeys(("submit", "batch", "sweep", "rerun", "kill", "edit", "move", "hold", "release"), Role.USER),
    **dict.fromkeys(("keep", "extend", "resume", "save", "preset"), Role.USER),
    **dict.fromkeys(("pause", "drain", "pair", "audit"), Role.ADMIN),
}


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_what_each_command_takes(name, tmp_path):
    @in_room()
    async def check(room):
        await room.ask(room.una, SUBMIT)
        await room.ask(room.uma, SUBMIT)
        for role, person in PEOPLE.items():
            before = traces(room, EFFECTS)
            sent = f"/{name} {ARGUMENTS.get(name, '')}".replace("/kill 1", "/kill 2")
            said = text(await room.ask(getattr(room, person), sent))
            allowed = TAKES[name] <= role
            assert ("That takes a" not in said) is allowed, (role, said)
            assert said
            if not allowed:
                assert differences(before, traces(room, EFFECTS)) == {}
        before = traces(room)
        room.people.send_text(room.sam, None, f"/{name} {ARGUMENTS.get(name, '')}".rstrip())
        await room.settle()
        assert differences(before, traces(room)) == {}

    check(tmp_path)


@in_room()
async def test_a_command_of_ours_never_meets_silence_from_who_may(room):
    for sent in ("/status?", "/submit—gpus 0 ls", "/kill#1", "/status@nightshift_bot.", "/STATUS", "/help\u00a0me"):
        assert len(await room.ask(room.uma, sent)) == 1, sent
    assert await room.ask(room.uma, "/status@other_bot") == []


@in_room()
async def test_what_only_an_admin_may(room):
    await room.ask(room.ada, "/pause")
    before = traces(room, EFFECTS)
    for sent in ("/resume", "/drain", "/pause", "/pair user", "/audit", "/ws default lab", "/kill all everyone"):
        for person in (room.uma, room.vic):
            assert "That takes a" in text(await room.ask(person, sent)), sent
    assert differences(before, traces(room, EFFECTS)) == {}


# -- buttons ---------------------------------------------------------------------------------------


async def forged(room, person, data, place=None, message_id=1):
    """A tap with any data whatever; the short words that came back."""
    before = len(room.answers())
    room.people.tap(person, place, message_id, data)
    await room.settle()
    return room.answers()[before:]


@in_lab
async def test_anothers_button_is_no_button(room):
    anywhere = Anywhere(room)
    said = (await room.ask(room.uma, SUBMIT, anywhere.lab))[0]
    assert labels(said) == ["Details", "Kill"]
    before = traces(room, tuple(name for name in traces(room) if name not in {"inbox", "calls", "messages"}))
    for person in (room.una, room.vic, room.ada, room.sam):
        heard = [] if person is room.sam else [NOT_YOURS]
        for label in labels(said):
            assert await forged(room, person, data_of(said, label), anywhere.lab, said.message_id) == heard
    assert differences(before, traces(room, tuple(before))) == {}
    assert await room.tap(room.uma, said, "Details")


@in_room()
async def test_forged_buttons_do_nothing(room):
    without_waiting_for_the_disk(room)
    await room.ask(room.uma, SUBMIT)
    await room.ask(room.uma, "/kill 1")
    good = [row["nonce"] for row in room.chat.queue.store.rows("SELECT nonce FROM buttons")]
    dice = random.Random(7)
    before = traces(room, tuple(name for name in traces(room) if name not in {"inbox", "calls", "messages"}))
    people = (room.ada, room.uma, room.una, room.vic, room.sam)
    for number in range(3000):
        room.people.tap(dice.choice(people), None, dice.randrange(9), forgery(dice, good, number))
        if number % 100 == 99:
            await room.settle()
    assert differences(before, traces(room, tuple(before))) == {}
    assert set(room.answers()) == {GONE}


def forgery(dice, good, number):
    nonce = dice.choice(good)
    made = (
        lambda: secrets.token_urlsafe(16),
        lambda: nonce[:-1] + ("A" if nonce[-1] != "A" else "B"),
        lambda: nonce.swapcase() if nonce.swapcase() != nonce else "x",
        lambda: nonce + dice.choice([" ", "\0", "%", "'", "\n"]),
        lambda: dice.choice(["kill", "killed", "revoke", "drain", "resume", f"kill:{number}", f"k:1:{number}"]),
        lambda: dice.choice(["%", "_" * 22, "' OR 1=1 --", "\0", "", "🙈", "null", "0", "-1", "{}", '{"job": 1}']),
        lambda: "".join(chr(dice.randrange(1, 0x3000)) for _ in range(dice.randrange(1, 20))),
    )
    return dice.choice(made)()


@in_room()
async def test_a_question_is_good_once_and_for_five_minutes(room):
    await room.ask(room.uma, "/batch -g 0\ntrue\ntrue\ntrue")
    asked = [(await room.ask(room.uma, f"/kill {number}"))[0] for number in (1, 2)]
    now = clock.now
    try:
        clock.now = lambda: now() + timedelta(minutes=4, seconds=50)
        await room.tap(room.uma, asked[0], "Yes, kill #1")
        assert job(room, 1).state is State.CANCELLED
        clock.now = lambda: now() + timedelta(minutes=5, seconds=1)
        assert await forged(room, room.uma, data_of(asked[1], "Yes, kill #2"), None, asked[1].message_id) == [GONE]
        assert job(room, 2).state is State.QUEUED
    finally:
        clock.now = now


@in_room()
async def test_a_used_question_is_used_also_for_its_other_answer(room):
    await room.ask(room.uma, "/batch -g 0\ntrue\ntrue")
    asked = (await room.ask(room.uma, "/submit -g 0\ntrue\nfalse"))[0]
    jobs, script = data_of(asked, "2 jobs"), data_of(asked, "One script")
    await room.tap(room.uma, asked, "2 jobs")
    assert room.chat.queue.jobs.count(State.QUEUED) == 4
    for data in (jobs, script):
        assert await forged(room, room.uma, data, None, asked.message_id) == [GONE]
    assert room.chat.queue.jobs.count(State.QUEUED) == 4


@in_room()
async def test_two_taps_at_once_count_once(room):
    await room.ask(room.uma, SUBMIT)
    said = (await room.ask(room.uma, "/kill 1"))[0]
    yes = data_of(said, "Yes, kill #1")
    for _ in range(20):
        room.people.tap(room.uma, None, said.message_id, yes)
    await room.settle()
    assert job(room, 1).state is State.CANCELLED
    assert [row["action"] for row in room.chat.queue.audit.rows()].count("kill") == 1
    assert room.answers().count(GONE) == 19


@in_room()
async def test_the_next_morning_log_and_rerun_still_work(room):
    await room.ask(room.uma, SUBMIT)
    queue = room.chat.queue
    folder = Path(rundir.folder_of(queue.home, 1, queue.jobs.claim(1, [("cpu", 0)], "boot")))
    folder.mkdir(parents=True)
    (folder / rundir.OUTPUT).write_bytes(b"epoch 9\n")
    queue.jobs.started(queue.job(1), "2026-01-01T00:00:00.000000+00:00")
    end = an_exit()
    queue.jobs.ended(queue.job(1), *outcome(end, None), end)
    await room.settle()
    said, now, world_now = room.said(room.uma)[-1], clock.now, room.world.clock
    assert labels(said) == ["Log", "Details", "Rerun"]
    try:
        clock.now = lambda: now() + timedelta(hours=9)
        room.world.clock = lambda: world_now() + 9 * 3600
        assert "epoch 9" in text(await room.tap(room.uma, said, "Log"))
        assert "#2 queued" in text(await room.tap(room.uma, said, "Rerun"))
        assert await room.tap(room.uma, said, "Rerun") == []  # a thumb that slipped
        assert room.answers()[-1] == JUST_NOW
        clock.now = lambda: now() + timedelta(hours=9, seconds=6)
        assert "#3 queued" in text(await room.tap(room.uma, said, "Rerun"))
        assert "✅ #1" in text(await room.tap(room.uma, said, "Details"))
    finally:
        clock.now, room.world.clock = now, world_now


@in_room()
async def test_a_button_whose_job_has_changed_says_so(room):
    said = (await room.ask(room.uma, SUBMIT))[0]
    kill = data_of(said, "Kill")
    asked = (await room.ask(room.uma, "/kill 1"))[0]
    yes = data_of(asked, "Yes, kill #1")
    room.chat.queue.stop(1)
    ended = f"{job(room, 1).finished_at.astimezone():%H:%M}"
    assert await forged(room, room.uma, kill, None, said.message_id) == [f"#1 has ended: cancelled ({ended})."]
    assert await forged(room, room.uma, yes, None, asked.message_id) == ["#1 has already ended (cancelled)."]
    kills = [row for row in room.chat.queue.audit.rows() if row["action"] == "kill"]
    assert len(kills) == 1
    assert kills[0]["actor"] == "bot"


@in_lab
async def test_the_same_person_in_another_chat_has_the_same_rights_and_no_more(room):
    anywhere = Anywhere(room)
    said = (await room.ask(room.uma, SUBMIT))[0]
    kill = data_of(said, "Kill")
    assert await forged(room, room.uma, kill, anywhere.other) == []
    shown = (await room.ask(room.una, "/status", anywhere.lab))[0]
    assert await forged(room, room.uma, kill, anywhere.lab, shown.message_id) == ["Sure?"]
    await room.tap(room.uma, shown, "Yes, kill #1")
    assert job(room, 1).state is State.CANCELLED
    assert job(room, 1).stop.by == f"tg:{room.uma.id}"


@pytest.mark.parametrize("action", sorted(BY_ACTION))
def test_a_button_gives_no_right_that_its_presser_has_lost(action, tmp_path):
    """Made while somebody was admin, pressed when they are viewer: what changes something is refused."""

    async def check():
        async with a_room(tmp_path) as room:
            room.people.start(room.sam, room.chat.people.invite("admin", "test"))
            await room.settle()
            await room.ask(room.uma, "/submit -g 0 --group night true")
            await room.ask(room.ada, "/pause")
            data = {"group": "night"} | {
                "person": room.sam.id,
                "jobs": [1],
                "values": {},
                "text": "true",
                "noise": "none",
                "first": 0,
                "about": "look",
                "command": "rerun",
                "rest": "",
            }
            nonce = room.chat.buttons.make(room.sam.id, action, 1, data)
            room.chat.people._set(room.sam.id, "role", "viewer")
            before = traces(room, ("jobs", "events", "audit", "box", "pairings", "workspaces"))
            answers = await forged(room, room.sam, nonce, None, room.said(room.sam)[-1].message_id)
            changed = differences(before, traces(room, tuple(before)))
            if action in LOOKING:
                assert set(changed) <= {"audit"}
            else:
                assert changed == {}
                assert "That takes a" in "".join(answers)

    asyncio.run(check())


LOOKING = {
    "status", "gpus", "queue", "details", "fit", "log", "log again", "log page", "live", "stop live", "document",
    "back", "dismiss", "noise", "group", "group csv", "choose", "help", "cancel",
}  # fmt: skip


@in_room()
async def test_a_button_for_a_job_of_another_is_for_its_owner_and_admins(room):
    await room.ask(room.uma, SUBMIT)
    for action in ("kill", "killed", "hold", "release", "front", "up", "down", "edit", "keep", "extend"):
        nonce = room.chat.buttons.make(room.una.id, action, 1, {"jobs": [1], "first": 0, "by_s": 60.0, "limit_s": 60.0})
        before = traces(room, EFFECTS)
        last = room.said(room.una)[-1].message_id
        assert "belongs to Uma" in "".join(await forged(room, room.una, nonce, None, last)), action
        assert differences(before, traces(room, EFFECTS)) == {}, action


async def submits_while(room, changed):
    """Sam, who was paired as a user, submits; meanwhile his role changes: a login shell takes seconds."""
    room.people.start(room.sam, room.chat.people.invite("user", "test"))
    await room.settle()
    workspaces = room.chat.queue.workspaces
    workspaces.known_environment = lambda *_: changed() and None
    workspaces.keep_environment = lambda *_: ("key", {})
    from bot.handlers import submit

    usual = submit.environment_of
    submit.environment_of = lambda _: {}
    try:
        room.people.send_text(room.sam, None, SUBMIT)
        await room.settle()
    finally:
        submit.environment_of = usual


@in_room()
async def test_a_role_lost_while_the_message_was_being_worked_on_counts(room):
    """Who is shown the door meanwhile has queued nothing."""
    await submits_while(room, lambda: room.chat.people.revoke(room.sam.id))
    assert room.chat.queue.jobs.count(State.QUEUED) == 0
    assert "queued" not in text(room.said(room.sam))


@in_room()
async def test_a_role_lowered_while_the_message_was_being_worked_on_counts(room):
    people = room.chat.people

    def lower():
        people.revoke(room.sam.id)
        return people.accept(people.invite("viewer", "test"), room.sam.id, "Sam")

    await submits_while(room, lower)
    assert room.chat.queue.jobs.count(State.QUEUED) == 0
    assert "That takes a user of this box; you are a viewer." in text(room.said(room.sam))


@in_room()
async def test_admins_are_told_of_strangers_by_number_alone(room):
    for _ in range(3):
        room.people.send_text(room.sam, None, "/status")
    await room.settle()
    assert "3 messages from strangers" in text(await room.ask(room.ada, "/status"))
    assert "strangers" not in text(await room.ask(room.uma, "/status"))
