"""What waits to be sent: in which order, from when, and what becomes of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from runner import clock
from runner.store.connection import open_store
from runner.store.messages import LANES, LONGEST_WAIT_S, Messages

LATER_S = 31.0


@pytest.fixture
def messages(tmp_path):
    store = open_store(str(tmp_path / "home"))
    yield Messages(store)
    store.close()


def add(messages, chat=1, lane="send", **body):
    return messages.add(chat, "sendMessage", {"text": "x", **body}, lane=lane, person=1)


def due(messages, *chat):
    return [message.id for message in messages.due(*chat)]


def test_the_first_of_each_lane_of_each_chat_is_due(messages):
    first = [add(messages, chat, lane) for chat in (1, 2) for lane in LANES]
    for chat in (1, 2):
        add(messages, chat)
    assert due(messages) == first
    assert due(messages, 2) == first[len(LANES) :]


def test_one_that_waits_holds_back_those_behind_it_in_its_lane_only(messages):
    first, second, edit, other = add(messages), add(messages), add(messages, lane="edit"), add(messages, 2)
    messages.begin(first)
    messages.again(first, 30, arrived_perhaps=False)
    assert due(messages) == [edit, other]
    assert [message.id for message in messages.due(now=clock.monotonic() + LATER_S)] == [first, edit, other]
    messages.told(first, 7)
    assert due(messages, 1) == [second, edit]


def test_when_the_next_try_is(messages):
    first, second = add(messages), add(messages, 2)
    now = clock.monotonic()
    assert messages.next_try_in(now) is None
    messages.again(first, 30, arrived_perhaps=False)
    messages.again(second, 10, arrived_perhaps=False)
    assert 9 < messages.next_try_in(now) < 12
    assert 9 < messages.next_try_in(now + 20) < 12


def test_nothing_is_forgotten_between_due_and_next_try(messages):
    """Whatever waits is either due at a moment or tried after it."""
    number = add(messages)
    messages.again(number, 0.5, arrived_perhaps=False)
    for tenth in range(10):
        at = clock.monotonic() + tenth / 10
        assert bool(messages.due(now=at)) != (messages.next_try_in(at) is not None)


@pytest.mark.parametrize("hours", [-5, 5], ids=["back", "forward"])
def test_a_clock_that_is_set_neither_lengthens_a_wait_nor_ends_it(hours, messages, monkeypatch):
    number = add(messages)
    messages.again(number, 30, arrived_perhaps=False)
    now, later = clock.monotonic(), clock.now() + timedelta(hours=hours)
    monkeypatch.setattr(clock, "now", lambda: later)
    assert due(messages) == []
    assert 20 < messages.next_try_in(now) < 31
    assert [message.id for message in messages.due(now=now + 31)] == [number]


def test_a_wait_from_before_the_clock_was_set_back_is_no_longer_than_the_longest(messages, monkeypatch):
    """As a bot finds it that comes up after the step."""
    number = add(messages)
    messages.again(number, 30, arrived_perhaps=False)
    now, before = clock.monotonic(), clock.now() - timedelta(hours=9)
    monkeypatch.setattr(clock, "now", lambda: before)
    anew = Messages(messages._store)
    assert LONGEST_WAIT_S - 5 < anew.next_try_in(now) < LONGEST_WAIT_S + 5
    assert [message.id for message in anew.due(now=now + LONGEST_WAIT_S + 5)] == [number]


def test_edits_of_different_messages_do_not_wait_for_each_other(messages):
    first, same, other, menu = (
        add(messages, lane="edit", **how) for how in ({"message_id": 7},) * 2 + ({"message_id": 8}, {})
    )
    messages.again(first, 30, arrived_perhaps=False)
    assert due(messages) == [other, menu]
    messages.told(first)
    assert due(messages) == [same, other, menu]


def test_a_try_leaves_its_mark_until_its_end_is_known(messages):
    number = add(messages)
    messages.begin(number)
    (found,) = messages.due()
    assert (found.begun, found.tries) == (True, 1)
    messages.again(number, 0, arrived_perhaps=False)
    assert messages.due()[0].begun is False
    messages.begin(number)
    messages.again(number, 0, arrived_perhaps=True, body={"text": "plain"})
    (found,) = messages.due()
    assert (found.begun, found.tries, found.body) == (True, 2, {"text": "plain"})


def test_parked_ones_wait_for_their_person_in_their_chat(messages):
    mine, group, refused = add(messages), add(messages, -5), add(messages)
    messages.park(mine, "unreachable: blocked")
    messages.park(group, "unreachable: kicked")
    messages.park(refused, "refused: bad")
    since = clock.text(clock.now() - timedelta(days=1))
    assert due(messages) == []
    assert sorted(messages.parked(since)) == [
        ("refused: bad", 1), ("unreachable: blocked", 1), ("unreachable: kicked", 1),
    ]  # fmt: skip
    assert messages.unpark(2, 1, since) == 0
    assert messages.unpark(1, 1, clock.text(clock.now())) == 0
    assert messages.unpark(1, 1, since) == 1
    assert due(messages) == [mine]


def test_a_newer_edit_of_the_same_message_takes_its_place(messages):
    old, other, elsewhere = (add(messages, chat, "edit", message_id=n) for chat, n in ((1, 7), (1, 8), (2, 7)))
    messages.supersede(1, 7)
    assert due(messages) == [other, elsewhere]
    new = add(messages, lane="edit", message_id=7)
    messages.again(old, 0, arrived_perhaps=False)  # it was under way, and failed afterwards
    messages.told(other)
    assert due(messages, 1) == [new]


def test_a_newer_menu_takes_the_place_of_the_older(messages):
    for chat in (1, 1, 2):
        messages.supersede_menu(chat)
        messages.add(chat, "setMyCommands", {"commands": []}, lane="edit")
    assert messages.waiting() == 2


def test_a_group_that_moves_takes_along_what_waits_but_no_edits(messages):
    told = add(messages, -1)
    messages.told(told, 5)
    waiting, edit = add(messages, -1, reply_to=5), add(messages, -1, "edit", message_id=5)
    messages.move(-1, -100)
    (found,) = messages.due()
    assert (found.id, found.chat) == (waiting, -100)
    assert "reply_to" not in found.body
    assert edit not in due(messages)


def test_the_job_of_a_message_is_found_by_its_number(messages):
    number = messages.add(1, "sendMessage", {"text": "x"}, job_id=12)
    assert messages.job_of(1, 70) is None
    messages.told(number, 70)
    assert messages.job_of(1, 70) == 12
    assert messages.job_of(2, 70) is None


def test_only_what_is_settled_is_forgotten(messages):
    long_ago = clock.now() - timedelta(days=60)
    told, parked, waiting = (messages.add(1, "sendMessage", {}, at=long_ago) for _ in range(3))
    fresh = add(messages)
    messages.told(told)
    messages.told(fresh)
    messages.park(parked, "refused")
    assert messages.forget(clock.text(clock.now() - timedelta(days=30))) == 2
    assert due(messages) == [waiting]


def test_it_is_of_the_time_of_what_it_tells(messages):
    at = clock.now() - timedelta(hours=6)
    messages.add(1, "sendMessage", {}, at=at, lasts_s=60)
    (found,) = messages.due()
    assert found.created_at == at
    assert found.expires_at > clock.now()


def test_ten_thousand_waiting_are_looked_through_by_index(messages):
    plan = messages._store.rows(
        "EXPLAIN QUERY PLAN SELECT min(id) FROM messages WHERE told_at IS NULL AND parked IS NULL AND chat = 1"
        " AND lane != 'edit' GROUP BY chat, lane"
    )
    assert "messages_open" in " ".join(row["detail"] for row in plan)
