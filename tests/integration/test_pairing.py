"""Letting people in by a link, raising them, and taking it back: at once, and for what waits to be sent."""

from datetime import timedelta

from bot.access.gate import WRONG_CODES_AT_MOST
from bot.commands import Role
from bot.handlers.people import MOST_REVOKES
from runner.api.chat import clock
from runner.model import State
from tests.room import data_of, in_room, labels
from tests.traces import differences, traces

SUBMIT = "/submit -g 0 true"


def text(messages):
    return "\n".join(message.text.text for message in messages)


def offered(room, person):
    return {entry["command"] for entry in room.world.menu.shown(room.world.chats[person.id], person.id)}


async def opens(room, person, code):
    """They open a link: what the bot says to that."""
    before = len(room.said(person))
    room.people.start(person, code)
    await room.settle()
    return text(room.said(person)[before:])


def audited(room, action):
    return [(row["actor"], row["data"]) for row in room.chat.queue.audit.rows() if row["action"] == action]


async def link_for(room, role):
    """The code of a link an admin asked for in the chat."""
    said = text(await room.ask(room.ada, f"/pair {role}"))
    assert f"becomes {role} of lab1" in said
    assert "https://t.me/nightshift_bot?start=" in said
    return said.partition("?start=")[2].split()[0]


@in_room()
async def test_a_link_lets_one_person_in(room):
    code = await link_for(room, "user")
    assert audited(room, "pair") == [(f"tg:{room.ada.id}", {"role": "user"})]
    assert "You are user of lab1" in await opens(room, room.sam, code)
    assert room.chat.gate.role_of(room.sam.id) is Role.USER
    assert audited(room, "paired") == [(f"tg:{room.sam.id}", {"role": "user"})]
    assert f"Sam ({room.sam.id}) is now user of lab1" in text(room.said(room.ada))
    assert "submit" in offered(room, room.sam)
    assert "pair" not in offered(room, room.sam)
    assert "queued in lab" in text(await room.ask(room.sam, SUBMIT))
    assert "paired by Ada" in text(await room.ask(room.sam, "/whoami"))
    pat = room.world.add_user("Pat")
    assert await opens(room, pat, code) == ""
    assert room.chat.gate.role_of(pat.id) is None


@in_room()
async def test_a_link_is_good_for_ten_minutes(room):
    code, now = await link_for(room, "admin"), clock.now
    before = traces(room)
    try:
        clock.now = lambda: now() + timedelta(minutes=10, seconds=1)
        assert await opens(room, room.sam, code) == ""
    finally:
        clock.now = now
    assert differences(before, traces(room)) == {}
    assert "You are admin" in await opens(room, room.sam, code)


@in_room()
async def test_wrong_codes_meet_silence_and_then_so_does_a_right_one(room):
    code = await link_for(room, "user")
    before = traces(room)
    for number in range(WRONG_CODES_AT_MOST):
        assert await opens(room, room.sam, f"wrong{number}") == ""
    assert await opens(room, room.sam, code) == ""
    assert differences(before, traces(room)) == {}
    pat = room.world.add_user("Pat")
    assert "You are user" in await opens(room, pat, code)


@in_room()
async def test_a_bot_cannot_pair(room):
    robot = room.world.add_user("Robot", is_bot=True)
    code = await link_for(room, "user")
    before = traces(room)
    assert await opens(room, robot, code) == ""
    assert differences(before, traces(room)) == {}


@in_room()
async def test_whoever_is_in_can_be_raised(room):
    await opens(room, room.sam, await link_for(room, "viewer"))
    assert "submit" not in offered(room, room.sam)
    assert "You are user of lab1" in await opens(room, room.sam, await link_for(room, "user"))
    assert room.chat.gate.role_of(room.sam.id) is Role.USER
    assert "submit" in offered(room, room.sam)
    assert f"Sam ({room.sam.id}) is now user" in text(room.said(room.ada))


@in_room()
async def test_a_link_for_less_lowers_nobody_and_stays_good_for_another(room):
    await opens(room, room.sam, await link_for(room, "admin"))
    code = await link_for(room, "viewer")
    assert "You are an admin here" in await opens(room, room.sam, code)
    assert room.chat.gate.role_of(room.sam.id) is Role.ADMIN
    pat = room.world.add_user("Pat")
    assert "You are viewer" in await opens(room, pat, code)


@in_room()
async def test_a_role_from_the_settings_is_kept(room):
    code = await link_for(room, "admin")
    assert "You are a viewer here" in await opens(room, room.vic, code)
    assert "You are a user here" in await opens(room, room.uma, code)
    assert room.chat.gate.role_of(room.vic.id) is Role.VIEWER
    assert audited(room, "paired") == []
    assert "You are admin of" in await opens(room, room.sam, code)


@in_room()
async def test_two_who_open_one_link_at_once_are_one(room):
    code = await link_for(room, "user")
    pat = room.world.add_user("Pat")
    room.people.start(room.sam, code)
    room.people.start(pat, code)
    await room.settle()
    assert (room.chat.gate.role_of(room.sam.id), room.chat.gate.role_of(pat.id)) == (Role.USER, None)
    assert room.said(pat) == []


@in_room()
async def test_revoking_takes_effect_at_once(room):
    await opens(room, room.sam, await link_for(room, "user"))
    said = (await room.ask(room.sam, SUBMIT))[0]
    shown = (await room.ask(room.ada, "/pair"))[0]
    assert f"Sam {room.sam.id} · user" in text([shown])
    assert [label for label in labels(shown) if label.startswith("Revoke")] == ["Revoke Sam"]
    await room.tap(room.ada, shown, "Revoke Sam")
    assert room.chat.gate.role_of(room.sam.id) is Role.USER
    await room.tap(room.ada, shown, "No")
    await room.tap(room.ada, shown, "Revoke Sam")
    await room.tap(room.ada, shown, "Yes, revoke Sam")
    assert room.answers()[-1] == "Sam may no longer use this box."
    assert "Sam" not in shown.text.text
    assert offered(room, room.sam) == {"start"}
    assert audited(room, "revoke") == [(f"tg:{room.ada.id}", {"person": room.sam.id})]
    before = traces(room)
    room.people.send_text(room.sam, None, SUBMIT)
    room.people.tap(room.sam, None, said.message_id, data_of(said, "Kill"))
    await room.settle()
    assert differences(before, traces(room)) == {}
    assert room.chat.queue.job(1).state is State.QUEUED


@in_room()
async def test_what_waits_to_be_sent_to_somebody_revoked_is_not_sent(room):
    await opens(room, room.sam, await link_for(room, "user"))
    said = (await room.ask(room.sam, SUBMIT))[0]
    before = len(room.said(room.sam))
    with room.chat.transaction():
        room.chat.say(room.sam.id, room.sam.id, "the secret of the lab")
        room.chat.outbox.add(room.sam.id, "sendDocument", {"log_of": 1}, lane="file", person=room.sam.id)
        edit = {"message_id": said.message_id, "text": "another secret"}
        room.chat.outbox.add(room.sam.id, "editMessageText", edit, lane="edit", person=room.sam.id)
        room.chat.people.revoke(room.sam.id)
    await room.settle()
    assert len(room.said(room.sam)) == before
    assert "secret" not in text(room.said(room.sam))
    rows = room.chat.queue.store.rows("SELECT undeliverable FROM messages WHERE undeliverable IS NOT NULL")
    assert [row["undeliverable"] for row in rows] == ["no longer allowed"] * 3
    await opens(room, room.sam, await link_for(room, "user"))
    assert "secret" not in text(room.said(room.sam))


@in_room()
async def test_notices_of_somebody_revoked_go_to_the_admins(room):
    await opens(room, room.sam, await link_for(room, "user"))
    await room.ask(room.sam, SUBMIT)
    room.chat.people.revoke(room.sam.id)
    before = len(room.said(room.sam))
    room.chat.queue.stop(1)
    await room.settle()
    assert len(room.said(room.sam)) == before
    assert "⏹ #1 " in text(room.said(room.ada))


@in_room()
async def test_open_links_can_be_cancelled(room):
    code = await link_for(room, "user")
    shown = (await room.ask(room.ada, "/pair"))[0]
    assert "1 open link" in shown.text.text
    await room.tap(room.ada, shown, "Cancel open links")
    assert await opens(room, room.sam, code) == ""
    assert room.chat.gate.role_of(room.sam.id) is None
    assert audited(room, "cancel links") == [(f"tg:{room.ada.id}", {"count": 1})]


@in_room()
async def test_open_links_can_be_cancelled_however_many_are_in(room):
    for number in range(MOST_REVOKES + 5):
        room.chat.people.accept(room.chat.people.invite("viewer", "test"), 90_000 + number, f"Nr {number}")
    await link_for(room, "user")
    shown = (await room.ask(room.ada, "/pair"))[0]
    assert labels(shown)[-1] == "Cancel open links"
    assert len(labels(shown)) == MOST_REVOKES + 1


@in_room()
async def test_somebody_from_the_settings_cannot_be_revoked_here(room):
    shown = (await room.ask(room.ada, "/pair"))[0]
    assert labels(shown) == []
    nonce = room.chat.buttons.make(room.ada.id, "revoked", None, {"person": room.uma.id})
    room.people.tap(room.ada, None, shown.message_id, nonce)
    await room.settle()
    assert room.answers()[-1] == "Uma has no role that was given by pairing."
    room.world.refusals.clear()  # the list is as it was
    assert room.chat.gate.role_of(room.uma.id) is Role.USER


@in_room()
async def test_nobody_locks_themselves_out(room):
    await opens(room, room.sam, await link_for(room, "admin"))
    shown = (await room.ask(room.sam, "/pair"))[0]
    assert "Revoke Sam" not in labels(shown)
    nonce = room.chat.buttons.make(room.sam.id, "revoked", None, {"person": room.sam.id})
    room.people.tap(room.sam, None, shown.message_id, nonce)
    await room.settle()
    assert room.chat.gate.role_of(room.sam.id) is Role.ADMIN
    assert "Ask another admin" in room.answers()[-1]


@in_room()
async def test_a_code_is_kept_as_a_digest_alone(room):
    code = await link_for(room, "user")
    for table in ("pairings", "audit", "events", "inbox", "people"):
        assert code not in str(traces(room)[table]), table


@in_room(chat="page")
async def test_on_the_page_of_this_machine_there_is_nobody_to_let_in(room):
    for asked in ("/pair", "/pair user", "/pair admin"):
        said = text(await room.ask(room.ada, asked))
        assert "nightshift page" in said
        assert "t.me" not in said
    assert room.chat.people.invitations() == 0
