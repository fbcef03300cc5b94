"""The gate by itself: every kind of update, from everybody, everywhere. What is not allowed is denied."""

import contextlib
import itertools

import pytest
from telegram import Update

from bot.access.gate import WRONG_CODES_AT_MOST, Added, Caller, Candidate, Denied, Gate, Moved, actor_of, person_of
from bot.commands import Role
from bot.settings import ChatSettings
from bot.store.people import People
from runner.api import Queue
from runner.api.chat import clock
from tests.telegram.updates import KINDS
from tests.updates import CHANNEL_BOT, GROUP_ANONYMOUS, TELEGRAM, a_change, a_message, a_place, a_tap, a_user, payload

ADA, UMA, VIC, SAM, PAT = 1001, 1002, 1003, 1004, 1005
ROBOT = 4343
LAB, WIDE_LAB, OTHER, WIDE_OTHER = -5001, -1000000005001, -5002, -1000000005002
NEWS = -1000000006001
KNOWN = {ADA: Role.ADMIN, UMA: Role.USER, VIC: Role.VIEWER}
# whoever writes a stand-in's or a bot's number into the settings lets nobody in by it
STAND_INS = (GROUP_ANONYMOUS, CHANNEL_BOT, TELEGRAM, ROBOT)
LET_IN = {"message", "callback_query"}
GROUPS = {LAB: "group", WIDE_LAB: "supergroup", OTHER: "group", WIDE_OTHER: "supergroup"}
PLACES = [a_place(number, kind) for number, kind in GROUPS.items()] + [a_place(NEWS, "channel")]


@contextlib.contextmanager
def a_gate(folder, **settings):
    given = {"home": str(folder), "box": "lab1", "admins": (ADA, *STAND_INS), "users": (UMA,), "viewers": (VIC,)}
    with Queue(str(folder), actor="test") as queue:
        people = People(queue.store)
        yield Gate(ChatSettings(**{**given, "groups": (LAB, WIDE_LAB), **settings}), people), people


def judged(gate, kind, body):
    return gate.judge(Update.de_json({"update_id": 1, kind: body}, None))


def everybody():
    """All sorts of senders, and nobody at all."""
    yield from (a_user(number) for number in (ADA, UMA, VIC, SAM))
    yield from (a_user(GROUP_ANONYMOUS, is_bot=True), a_user(CHANNEL_BOT, is_bot=True), a_user(TELEGRAM))
    yield from (a_user(ROBOT, is_bot=True), a_user(ADA, is_bot=True), None)


def everywhere(user):
    yield from PLACES
    yield a_place(SAM, "private")  # a chat of somebody else
    if user is not None:
        yield a_place(user["id"], "private")


def expected(kind, user, place):
    """Who they should be: the rule, said another way than the gate says it."""
    if kind not in LET_IN or user is None or user["is_bot"] or user["id"] not in KNOWN:
        return None
    own = place["type"] == "private" and place["id"] == user["id"]
    if not own and place["id"] not in {LAB, WIDE_LAB}:
        return None
    return Caller(user["id"], user["first_name"], KNOWN[user["id"]], place["id"], private=own)


def test_everybody_everywhere_with_every_kind_of_update(tmp_path):
    looked = let_in = 0
    with a_gate(tmp_path) as (gate, _):
        for kind, user in itertools.product(KINDS, everybody()):
            if kind == "my_chat_member":
                continue
            for place in everywhere(user):
                found = judged(gate, kind, payload(kind, user, place))
                who = expected(kind, user, place)
                assert found == who if who else isinstance(found, Denied), (kind, user, place, found)
                looked, let_in = looked + 1, let_in + (who is not None)
    assert let_in == len(LET_IN) * len(KNOWN) * 3
    assert looked > 1500


def test_a_tap_on_an_inline_message_is_nobodys(tmp_path):
    with a_gate(tmp_path) as (gate, _):
        assert isinstance(judged(gate, "callback_query", a_tap(a_user(ADA), None)), Denied)


def test_groups_are_off_unless_named(tmp_path):
    with a_gate(tmp_path, groups=()) as (gate, _):
        for place in PLACES:
            assert isinstance(judged(gate, "message", a_message(a_user(ADA), place)), Denied)
            assert not gate.may_reach(ADA, place["id"])


NOT_WRITTEN_HERE = {
    "edit_date": 1,
    "forward_origin": {"type": "user", "sender_user": a_user(ADA), "date": 1},
    "via_bot": a_user(ROBOT, is_bot=True),
    "sender_chat": a_place(NEWS, "channel"),
    "is_automatic_forward": True,
    "sender_business_bot": a_user(ROBOT, is_bot=True),
    "business_connection_id": "1",
}


def test_what_was_not_written_here_by_a_person_is_denied_even_from_an_admin(tmp_path):
    with a_gate(tmp_path) as (gate, people):
        code = people.invite("admin", "test")
        for place in (a_place(ADA, "private"), a_place(LAB, "group"), a_place(WIDE_LAB, "supergroup")):
            assert isinstance(judged(gate, "message", a_message(a_user(ADA), place)), Caller)
            for name, value in NOT_WRITTEN_HERE.items():
                found = judged(gate, "message", a_message(a_user(ADA), place, **{name: value}))
                assert isinstance(found, Denied), (name, place)
        for name, value in NOT_WRITTEN_HERE.items():
            sent = a_message(a_user(SAM), a_place(SAM, "private"), f"/start {code}", **{name: value})
            assert isinstance(judged(gate, "message", sent), Denied), name


def test_a_place_is_private_only_if_it_is_ones_own(tmp_path):
    with a_gate(tmp_path) as (gate, _):
        for place in (a_place(UMA, "private"), a_place(ADA, "group"), a_place(ADA, "channel")):
            assert isinstance(judged(gate, "message", a_message(a_user(ADA), place)), Denied)


def test_a_channel_is_not_served_even_if_named_as_a_group(tmp_path):
    with a_gate(tmp_path, groups=(NEWS,)) as (gate, _):
        assert isinstance(judged(gate, "message", a_message(a_user(ADA), a_place(NEWS, "channel"))), Denied)


@pytest.mark.parametrize("number", [0, -1, -ADA])
def test_no_person_has_such_a_number(number, tmp_path):
    with a_gate(tmp_path, admins=(number,)) as (gate, people):
        assert isinstance(judged(gate, "message", a_message(a_user(number), a_place(LAB, "group"))), Denied)
        code = people.invite("admin", "test")
        sent = a_message(a_user(number), a_place(number, "private"), f"/start {code}")
        assert isinstance(judged(gate, "message", sent), Denied)


# -- groups ----------------------------------------------------------------------------------------


def test_a_group_that_is_not_served_is_left_whoever_adds_us(tmp_path):
    bot = a_user(4242, is_bot=True)
    with a_gate(tmp_path) as (gate, _):
        for user, place in itertools.product(everybody(), PLACES):
            for status in ("member", "administrator", "restricted", "left", "kicked"):
                change = a_change(user or a_user(TELEGRAM), place, bot, "left", status)
                found = judged(gate, "my_chat_member", change)
                leave = status not in {"left", "kicked"} and place["id"] not in {LAB, WIDE_LAB}
                by = (user or a_user(TELEGRAM))["id"]
                assert found == Added(place["id"], "x", by) if leave else isinstance(found, Denied), (place, status)


def test_a_person_who_unblocks_us_adds_us_nowhere(tmp_path):
    with a_gate(tmp_path) as (gate, _):
        change = a_change(a_user(SAM), a_place(SAM, "private"), a_user(4242, is_bot=True), "kicked", "member")
        assert isinstance(judged(gate, "my_chat_member", change), Denied)


def test_only_a_group_that_is_served_moves(tmp_path):
    with a_gate(tmp_path) as (gate, _):
        for number, kind in GROUPS.items():
            for user in (None, a_user(ADA), a_user(SAM)):
                sent = a_message(user, a_place(number, kind), "", migrate_to_chat_id=-1000000009999)
                found = judged(gate, "message", sent)
                assert (
                    found == Moved(number, -1000000009999) if number in {LAB, WIDE_LAB} else isinstance(found, Denied)
                )


def test_a_moved_group_is_served_as_long_as_its_root_is_named(tmp_path):
    new = a_place(-1000000009999, "supergroup")
    with a_gate(tmp_path) as (gate, people):
        assert isinstance(judged(gate, "message", a_message(a_user(ADA), new)), Denied)
        people.note_successor(LAB, new["id"])
        people.note_successor(OTHER, -1000000008888)
        assert isinstance(judged(gate, "message", a_message(a_user(ADA), new)), Caller)
        assert isinstance(judged(gate, "message", a_message(a_user(SAM), new)), Denied)
        assert not gate.serves(-1000000008888)
    with a_gate(tmp_path, groups=(WIDE_LAB,)) as (gate, _):
        assert isinstance(judged(gate, "message", a_message(a_user(ADA), new)), Denied)


# -- codes -----------------------------------------------------------------------------------------


def start(gate, person, code, place=None, *, is_bot=False):
    where = place or a_place(person, "private")
    return judged(gate, "message", a_message(a_user(person, is_bot=is_bot), where, f"/start {code}".rstrip()))


def test_a_good_code_in_private_is_the_way_in(tmp_path):
    with a_gate(tmp_path) as (gate, people):
        code = people.invite("user", "test")
        assert start(gate, SAM, code) == Candidate(SAM, "Somebody", code)
        assert isinstance(start(gate, SAM, ""), Denied)
        for text in (code, f"/begin {code}", f"/start{code}", f"start {code}", f"/submit {code}"):
            sent = a_message(a_user(SAM), a_place(SAM, "private"), text)
            assert isinstance(judged(gate, "message", sent), Denied), text


def test_a_good_code_elsewhere_or_from_a_bot_is_nothing(tmp_path):
    with a_gate(tmp_path) as (gate, people):
        code = people.invite("user", "test")
        for place in (*PLACES, a_place(UMA, "private"), a_place(SAM, "group")):
            assert isinstance(start(gate, SAM, code, place), Denied), place
        for robot in (ROBOT, SAM):
            assert isinstance(start(gate, robot, code, is_bot=True), Denied)
        assert isinstance(start(gate, TELEGRAM, code), Denied)
        assert isinstance(start(gate, SAM, code), Candidate)


def test_after_five_wrong_codes_a_right_one_is_one_too(tmp_path):
    with a_gate(tmp_path) as (gate, people):
        code = people.invite("user", "test")
        for number in range(WRONG_CODES_AT_MOST - 1):
            assert isinstance(start(gate, SAM, f"wrong{number}"), Denied)
        for _ in range(WRONG_CODES_AT_MOST):
            assert isinstance(start(gate, SAM, ""), Denied)
        assert isinstance(start(gate, SAM, code), Candidate)
        assert isinstance(start(gate, SAM, "wrong"), Denied)
        assert isinstance(start(gate, SAM, code), Denied)
        assert isinstance(start(gate, PAT, code), Candidate)
    assert WRONG_CODES_AT_MOST == 5


def test_an_expired_code_is_a_wrong_one(tmp_path, monkeypatch):
    from datetime import timedelta

    now = clock.now()
    with a_gate(tmp_path) as (gate, people), monkeypatch.context() as patch:
        patch.setattr(clock, "now", lambda: now)
        code = people.invite("user", "test")
        patch.setattr(clock, "now", lambda: now + timedelta(minutes=9, seconds=59))
        assert isinstance(start(gate, SAM, code), Candidate)
        patch.setattr(clock, "now", lambda: now + timedelta(minutes=10, seconds=1))
        assert isinstance(start(gate, SAM, code), Denied)


def test_a_code_raises_and_never_lowers(tmp_path):
    with a_gate(tmp_path) as (gate, people):
        people.accept(people.invite("user", "test"), PAT, "Pat")
        for role, what in (("viewer", Caller), ("user", Caller), ("admin", Candidate)):
            assert isinstance(start(gate, PAT, people.invite(role, "test")), what), role
        for _ in range(3 * WRONG_CODES_AT_MOST):
            assert isinstance(start(gate, PAT, "wrong"), Caller)
        assert isinstance(start(gate, PAT, people.invite("admin", "test")), Candidate)


def test_a_role_from_the_settings_is_changed_by_no_code(tmp_path):
    with a_gate(tmp_path) as (gate, people):
        code = people.invite("admin", "test")
        assert start(gate, VIC, code) == Caller(VIC, "Somebody", Role.VIEWER, VIC, private=True)
        people.accept(code, VIC, "Vic")
        assert gate.role_of(VIC) is Role.VIEWER
        assert gate.everybody()[VIC] is Role.VIEWER


# -- roles -----------------------------------------------------------------------------------------


def test_what_pairing_gave_can_be_taken_back_at_once(tmp_path):
    with a_gate(tmp_path) as (gate, people):
        people.accept(people.invite("admin", "test"), PAT, "Pat")
        assert isinstance(judged(gate, "message", a_message(a_user(PAT), a_place(PAT, "private"))), Caller)
        assert PAT in gate.admins()
        people.revoke(PAT)
        assert isinstance(judged(gate, "message", a_message(a_user(PAT), a_place(PAT, "private"))), Denied)
        assert isinstance(judged(gate, "callback_query", a_tap(a_user(PAT), a_place(PAT, "private"))), Denied)
        assert PAT not in gate.everybody()
        assert not gate.may_reach(PAT, PAT)


def test_whom_something_may_be_told_and_where(tmp_path):
    with a_gate(tmp_path) as (gate, _):
        for person in (*KNOWN, SAM):
            reached = {chat for chat in (person, LAB, WIDE_LAB, OTHER, ADA + UMA) if gate.may_reach(person, chat)}
            assert reached == ({person, LAB, WIDE_LAB} if person in KNOWN else set())


def test_a_group_never_becomes_a_person(tmp_path):
    with a_gate(tmp_path) as (gate, people):
        people.note_successor(LAB, SAM)
        assert not gate.may_reach(ADA, SAM)
        assert isinstance(judged(gate, "message", a_message(a_user(ADA), a_place(SAM, "private"))), Denied)


def test_a_name_gives_no_rights(tmp_path):
    with a_gate(tmp_path) as (gate, people):
        people.note_name(SAM, "Ada")
        people.set_noise(SAM, "all")
        sent = a_message({**a_user(SAM, "Ada"), "username": "ada"}, a_place(SAM, "private"))
        assert isinstance(judged(gate, "message", sent), Denied)


@pytest.mark.parametrize("actor", ["ada", "tg:", "tg:x", "tg:-5", "tg:²", "TG:5", "xtg:5", ""])
def test_somebody_at_a_terminal_is_nobody_of_the_chat(actor):
    assert person_of(actor) is None


def test_people_of_the_chat_have_an_actors_name():
    assert actor_of(5) == "tg:5"
    assert person_of(actor_of(5)) == 5
