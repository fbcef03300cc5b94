"""How updates wait, are fetched, confirmed and lost."""

import asyncio
from collections import Counter

import pytest

from bot.local_chat.bot_api.methods import ApiError
from tests.telegram.limits import Limits
from tests.telegram.testing import Trial, wire
from tests.telegram.updates import DEFAULT, KINDS, OTHER_POLLER, WEBHOOK_SET
from tests.telegram.world import World


def texts(updates):
    return [update["message"]["text"] for update in updates]


def say(trial, *words):
    for word in words:
        trial.people.send_text(trial.ada, None, word)


async def poll(trial, **params):
    return await trial.api.call(trial.world.token, "getUpdates", wire(params))


def test_an_offset_confirms_what_lies_before_it():
    trial = Trial()
    say(trial, "a", "b", "c")
    first = trial.ask("getUpdates")
    assert texts(first) == texts(trial.ask("getUpdates")) == ["a", "b", "c"]
    ids = [update["update_id"] for update in first]
    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]
    assert texts(trial.ask("getUpdates", offset=ids[1])) == ["b", "c"]
    assert texts(trial.ask("getUpdates", offset=ids[0])) == ["b", "c"]
    assert trial.ask("getUpdates", offset=ids[2] + 1) == []
    assert trial.ask("getUpdates") == []


def test_a_negative_offset_keeps_that_many_from_the_end():
    trial = Trial()
    say(trial, "a", "b", "c")
    assert texts(trial.ask("getUpdates", offset=-2)) == ["b", "c"]
    assert texts(trial.ask("getUpdates")) == ["b", "c"]


def test_an_offset_far_ahead_confirms_nothing():
    trial = Trial()
    say(trial, "a")
    assert texts(trial.ask("getUpdates", offset=2_147_483_647)) == ["a"]


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (3, 3), (100, 100), (1000, 100), (0, 1), (-5, 1), (None, 100)])
def test_limit(limit, count):
    trial = Trial()
    say(trial, *map(str, range(120)))
    assert len(trial.ask("getUpdates", limit=limit)) == count


def test_update_ids_begin_with_the_time_so_that_a_new_world_goes_on_above_an_older_one():
    assert World(clock=lambda: 100.5).updates.add("message", {}) == 100
    assert World(first_update_id=7).updates.add("message", {}) == 7


LIVES = {"message": 86400, "callback_query": 150, "inline_query": 30, "chosen_inline_result": 600}


@pytest.mark.parametrize("kind", LIVES)
def test_updates_grow_too_old(kind):
    trial = Trial()
    trial.people.raw_update(kind, {"x": 1})
    trial.clock.advance(LIVES[kind] - 1)
    assert len(trial.waiting()) == 1
    trial.clock.advance(1)
    assert trial.ask("getUpdates") == []


ALLOWED = {
    "nothing said": (None, DEFAULT),
    "empty": ([], DEFAULT),
    "some": (["message", "chat_member"], {"message", "chat_member"}),
    "capitals": (["Message"], {"message"}),
    "unknown ones": (["nonsense"], DEFAULT),
    "no list": ({"a": 1}, DEFAULT),
    "no JSON": ("[", DEFAULT),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_allowed_updates(case):
    given, wanted = ALLOWED[case]
    trial = Trial()
    trial.ask("getUpdates", allowed_updates=given)
    for kind in KINDS:
        trial.people.raw_update(kind, {})
    assert {kind for update in trial.waiting() for kind in update} - {"update_id"} == wanted


def test_allowed_updates_are_remembered_and_do_not_touch_what_waits():
    trial = Trial()
    say(trial, "a")
    trial.ask("getUpdates", allowed_updates=["callback_query"])
    say(trial, "b")
    trial.people.tap(trial.ada, None, 1, "x")
    waiting = trial.ask("getUpdates")
    assert ["message" in update for update in waiting] == [True, False]
    assert trial.ask("getWebhookInfo")["allowed_updates"] == ["callback_query"]
    assert {"chat_member", "message_reaction", "message_reaction_count"}.isdisjoint(DEFAULT)


def test_a_poll_wakes_at_once():
    async def scene():
        trial = Trial()
        waiting = asyncio.create_task(poll(trial, timeout=50))
        await asyncio.sleep(0)
        say(trial, "a")
        reply = await asyncio.wait_for(waiting, 20)
        assert b'"text": "a"' in reply.body

    asyncio.run(scene())


def test_a_poll_ends_when_its_time_is_over():
    trial = Trial(limits=Limits(long_poll_s=0.05))
    assert trial.ask("getUpdates", timeout=50) == []


def test_a_second_poll_ends_the_first():
    trial = Trial()

    async def scene():
        first = asyncio.create_task(poll(trial, timeout=50))
        await asyncio.sleep(0)
        second = asyncio.create_task(poll(trial, timeout=50))
        ended = await asyncio.wait_for(first, 20)
        assert ended.status == 409
        assert OTHER_POLLER in ended.body.decode()
        say(trial, "a")
        assert (await asyncio.wait_for(second, 20)).status == 200

    asyncio.run(scene())
    assert [(refusal.method, refusal.code) for refusal in trial.world.refusals] == [("getUpdates", 409)]


def test_a_poll_that_does_not_wait_ends_nobody():
    trial = Trial()

    async def scene():
        first = asyncio.create_task(poll(trial, timeout=50))
        await asyncio.sleep(0)
        assert (await poll(trial)).status == 200
        assert not first.done()
        first.cancel()

    asyncio.run(scene())


def test_a_poll_given_up_leaves_no_trace():
    trial = Trial()

    async def scene():
        gone = asyncio.create_task(poll(trial, timeout=50))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        say(trial, "a")
        assert (await poll(trial, timeout=50)).status == 200

    asyncio.run(scene())
    assert not trial.world.refusals


def test_a_webhook_ends_polling():
    trial = Trial()

    async def scene():
        first = asyncio.create_task(poll(trial, timeout=50))
        await asyncio.sleep(0)
        params = wire({"url": "https://a.bc/hook"})
        assert (await trial.api.call(trial.world.token, "setWebhook", params)).status == 200
        assert WEBHOOK_SET in (await asyncio.wait_for(first, 20)).body.decode()

    asyncio.run(scene())
    with pytest.raises(ApiError) as refused:
        trial.ask("getUpdates")
    assert refused.value.description == (
        "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
    )
    assert trial.ask("getWebhookInfo")["url"] == "https://a.bc/hook"
    say(trial, "a")
    assert trial.ask("getWebhookInfo")["pending_update_count"] == 1
    assert trial.ask("deleteWebhook", drop_pending_updates=True) is True
    assert trial.ask("getUpdates") == []
    assert trial.ask("setWebhook", url="") is True
    with pytest.raises(ApiError, match="bad webhook: An HTTPS URL must be provided for webhook"):
        trial.ask("setWebhook", url="http://a.bc")


def test_asking_the_same_again_is_slowed_down_if_wanted():
    trial = Trial(limits=Limits(repeated_poll=True, long_poll_s=50))
    say(trial, "a", "b")
    assert len(trial.ask("getUpdates", offset=5)) == 2
    assert len(trial.ask("getUpdates", offset=5)) == 1
    trial.clock.advance(0.6)
    assert len(trial.ask("getUpdates", offset=5)) == 2
    last = trial.waiting()[-1]["update_id"]

    async def scene():
        assert (await poll(trial, offset=last + 1)).body == b'{"ok": true, "result": []}'
        waiting = asyncio.create_task(poll(trial, offset=last + 1))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        say(trial, "c")
        assert b'"c"' in (await asyncio.wait_for(waiting, 20)).body

    asyncio.run(scene())


def test_on_request_a_confirmed_update_comes_again_a_few_times():
    trial = Trial()
    trial.world.updates.repeat(seed=1, at_most=2)
    for _ in range(20):
        trial.people.send_text(trial.ada, None, "hello")
    given = Counter()
    offset = 0
    while found := trial.ask("getUpdates", offset=offset):
        given.update(update["update_id"] for update in found)
        offset = max(offset, *(update["update_id"] + 1 for update in found))
    assert set(given.values()) == {1, 2, 3}
    assert sum(given.values()) == trial.world.updates.given
