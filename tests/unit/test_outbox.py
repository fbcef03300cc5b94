"""What waits to be sent: in which order, from when, and what becomes of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.store.outbox import LANES, LONGEST_WAIT_S, Outbox
from runner import clock
from runner.store.connection import open_store
from runner.store.retention import tidy

LATER_S = 31.0


@pytest.fixture
def outbox(tmp_path):
    store = open_store(str(tmp_path / "home"))
    yield Outbox(store)
    store.close()


def add(outbox, chat=1, lane="send", **body):
    return outbox.add(chat, "sendMessage", {"text": "x", **body}, lane=lane, person=1)


def due(outbox, *chat):
    return [message.id for message in outbox.due(*chat)]


def test_the_first_of_each_lane_of_each_chat_is_due(outbox):
    first = [add(outbox, chat, lane) for chat in (1, 2) for lane in LANES]
    for chat in (1, 2):
        add(outbox, chat)
    assert due(outbox) == first
    assert due(outbox, 2) == first[len(LANES) :]


def test_one_that_waits_holds_back_those_behind_it_in_its_lane_only(outbox):
    first, second, edit, other = add(outbox), add(outbox), add(outbox, lane="edit"), add(outbox, 2)
    outbox.begin(first)
    outbox.again(first, 30, arrived_perhaps=False)
    assert due(outbox) == [edit, other]
    assert [message.id for message in outbox.due(now=clock.monotonic() + LATER_S)] == [first, edit, other]
    outbox.done(first, 7)
    assert due(outbox, 1) == [second, edit]


def test_when_the_next_try_is(outbox):
    first, second = add(outbox), add(outbox, 2)
    now = clock.monotonic()
    assert outbox.next_try_in(now) is None
    outbox.again(first, 30, arrived_perhaps=False)
    outbox.again(second, 10, arrived_perhaps=False)
    assert 9 < outbox.next_try_in(now) < 12
    assert 9 < outbox.next_try_in(now + 20) < 12


def test_nothing_is_forgotten_between_due_and_next_try(outbox):
    """Whatever waits is either due at a moment or tried after it."""
    number = add(outbox)
    outbox.again(number, 0.5, arrived_perhaps=False)
    for tenth in range(10):
        at = clock.monotonic() + tenth / 10
        assert bool(outbox.due(now=at)) != (outbox.next_try_in(at) is not None)


@pytest.mark.parametrize("hours", [-5, 5], ids=["back", "forward"])
def test_a_clock_that_is_set_neither_lengthens_a_wait_nor_ends_it(hours, outbox, monkeypatch):
    number = add(outbox)
    outbox.again(number, 30, arrived_perhaps=False)
    now, later = clock.monotonic(), clock.now() + timedelta(hours=hours)
    monkeypatch.setattr(clock, "now", lambda: later)
    assert due(outbox) == []
    assert 20 < outbox.next_try_in(now) < 31
    assert [message.id for message in outbox.due(now=now + 31)] == [number]


def test_a_wait_from_before_the_clock_was_set_back_is_no_longer_than_the_longest(outbox, monkeypatch):
    """As a bot finds it that comes up after the step."""
    number = add(outbox)
    outbox.again(number, 30, arrived_perhaps=False)
    now, before = clock.monotonic(), clock.now() - timedelta(hours=9)
    monkeypatch.setattr(clock, "now", lambda: before)
    anew = Outbox(outbox._store)
    assert LONGEST_WAIT_S - 5 < anew.next_try_in(now) < LONGEST_WAIT_S + 5
    assert [message.id for message in anew.due(now=now + LONGEST_WAIT_S + 5)] == [number]


def test_edits_of_different_messages_do_not_wait_for_each_other(outbox):
    first, same, other, menu = (
        add(outbox, lane="edit", **how) for how in ({"message_id": 7},) * 2 + ({"message_id": 8}, {})
    )
    outbox.again(first, 30, arrived_perhaps=False)
    assert due(outbox) == [other, menu]
    outbox.done(first)
    assert due(outbox) == [same, other, menu]


def test_a_try_leaves_its_mark_until_its_end_is_known(outbox):
    number = add(outbox)
    outbox.begin(number)
    (found,) = outbox.due()
    assert (found.begun, found.tries) == (True, 1)
    outbox.again(number, 0, arrived_perhaps=False)
    assert outbox.due()[0].begun is False
    outbox.begin(number)
    outbox.again(number, 0, arrived_perhaps=True, body={"text": "plain"})
    (found,) = outbox.due()
    assert (found.begun, found.tries, found.body) == (True, 2, {"text": "plain"})


def test_parked_ones_wait_for_their_person_in_their_chat(outbox):
    mine, group, refused = add(outbox), add(outbox, -5), add(outbox)
    outbox.mark_undeliverable(mine, "unreachable: blocked")
    outbox.mark_undeliverable(group, "unreachable: kicked")
    outbox.mark_undeliverable(refused, "refused: bad")
    since = clock.text(clock.now() - timedelta(days=1))
    assert due(outbox) == []
    assert sorted(outbox.undeliverable(since)) == [
        ("refused: bad", 1), ("unreachable: blocked", 1), ("unreachable: kicked", 1),
    ]  # fmt: skip
    assert outbox.retry_unreachable(2, 1, since) == 0
    assert outbox.retry_unreachable(1, 1, clock.text(clock.now())) == 0
    assert outbox.retry_unreachable(1, 1, since) == 1
    assert due(outbox) == [mine]


def test_a_newer_edit_of_the_same_message_takes_its_place(outbox):
    old, other, elsewhere = (add(outbox, chat, "edit", message_id=n) for chat, n in ((1, 7), (1, 8), (2, 7)))
    outbox.supersede(1, 7)
    assert due(outbox) == [other, elsewhere]
    new = add(outbox, lane="edit", message_id=7)
    outbox.again(old, 0, arrived_perhaps=False)  # it was under way, and failed afterwards
    outbox.done(other)
    assert due(outbox, 1) == [new]


def test_a_newer_menu_takes_the_place_of_the_older(outbox):
    for chat in (1, 1, 2):
        outbox.supersede_menu(chat)
        outbox.add(chat, "setMyCommands", {"commands": []}, lane="edit")
    assert outbox.waiting() == 2


def test_a_group_that_moves_takes_along_what_waits_but_no_edits(outbox):
    told = add(outbox, -1)
    outbox.done(told, 5)
    waiting, edit = add(outbox, -1, reply_to=5), add(outbox, -1, "edit", message_id=5)
    outbox.move(-1, -100)
    (found,) = outbox.due()
    assert (found.id, found.chat) == (waiting, -100)
    assert "reply_to" not in found.body
    assert edit not in due(outbox)


def test_the_job_of_a_message_is_found_by_its_number(outbox):
    number = outbox.add(1, "sendMessage", {"text": "x"}, job_id=12)
    assert outbox.job_of(1, 70) is None
    outbox.done(number, 70)
    assert outbox.job_of(1, 70) == 12
    assert outbox.job_of(2, 70) is None


def test_only_what_is_settled_is_forgotten(outbox):
    long_ago = clock.now() - timedelta(days=60)
    sent, refused, waiting = (outbox.add(1, "sendMessage", {}, at=long_ago) for _ in range(3))
    fresh = add(outbox)
    outbox.done(sent)
    outbox.done(fresh)
    outbox.mark_undeliverable(refused, "refused")
    assert tidy(outbox._store)
    assert [row["id"] for row in outbox._store.rows("SELECT id FROM messages ORDER BY id")] == [waiting, fresh]
    assert due(outbox) == [waiting]


def test_it_is_of_the_time_of_what_it_tells(outbox):
    at = clock.now() - timedelta(hours=6)
    outbox.add(1, "sendMessage", {}, at=at, lasts_s=60)
    (found,) = outbox.due()
    assert found.created_at == at
    assert found.expires_at > clock.now()


def test_ten_thousand_waiting_are_looked_through_by_index(outbox):
    plan = outbox._store.rows(
        "EXPLAIN QUERY PLAN SELECT min(id) FROM messages WHERE done_at IS NULL AND undeliverable IS NULL AND chat = 1"
        " AND lane != 'edit' GROUP BY chat, lane"
    )
    assert "messages_open" in " ".join(row["detail"] for row in plan)
