"""A Bot API that answers anything at all, over HTTP: it costs a moment, never the bot and never a message."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time

import pytest
from telegram.error import NetworkError, RetryAfter, TelegramError

from bot.outbound import retry_policy, telegram_client, telegram_http
from bot.outbound.retry_policy import after_failure
from bot.outbound.telegram_client import TelegramClient
from tests.fault.rough import HttpRoom, instead, texts
from tests.telegram.api import Reply
from tests.telegram.http import HttpServer


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    for name in ("FIRST_PAUSE_S", "LONGEST_PAUSE_S", "LONGEST_UNSURE_S"):
        monkeypatch.setattr(retry_policy, name, 0.02)
    monkeypatch.setattr(telegram_client, "POLL_OVERDUE_S", 5.0)


async def until(look, timeout=40.0):
    deadline = time.monotonic() + timeout
    while not look():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def over_http(folder, **settings):
    room = HttpRoom(folder, **settings)
    for person in (room.ada, room.uma):
        room.people.start(person)
    async with HttpServer(room.api) as room.server:
        await room.open()
        await room.settle()
        yield room
        await room.close()


def told(status=200, **parts):
    return Reply(status, json.dumps(parts).encode())


def refusal(**parts):
    return told(400, ok=False, error_code=400, **parts)


MISSHAPEN = {
    "nothing": Reply(body=b""),
    "null": Reply(body=b"null"),
    "a number": Reply(body=b"5"),
    "a list": Reply(body=b"[]"),
    "a text": Reply(body=b'"ok"'),
    "half of it": Reply(body=b'{"ok": true, "resu'),
    "no UTF-8": Reply(body=b'{"ok": true, "\xff": \xfe}'),
    "without a result": told(ok=True),
    "refused with 200": told(ok=False, description="Not OK"),
    "result null": told(ok=True, result=None),
    "result a number": told(ok=True, result=5),
    "result a text": told(ok=True, result="done"),
    "result NaN": Reply(body=b'{"ok": true, "result": NaN}'),
    "nested too deep": Reply(body=b'{"ok": true, "result": ' + b"[" * 100_000),
    "an error that is a list": Reply(500, b"[]"),
    "parameters of another kind": told(500, ok=False, parameters=7),
    "a description of another kind": told(500, ok=False, description={"a": 1}),
    "moved to nowhere": told(500, ok=False, parameters={"migrate_to_chat_id": "there"}),
}
NO_MESSAGES = {
    "an empty object": told(ok=True, result={}),
    "a message with a name": told(ok=True, result={"message_id": "one"}),
}


def test_misshapen_answers_to_a_poll(tmp_path):
    async def check():
        async with over_http(tmp_path) as room:
            for name, reply in MISSHAPEN.items():
                left = instead(room, reply, "getUpdates", times=2)
                room.people.send_text(room.uma, None, "/whoami")
                said = len(texts(room, room.uma))
                await until(lambda said=said, left=left: len(texts(room, room.uma)) > said and not left)
                assert not room._serving.done(), name

    asyncio.run(check())


def test_misshapen_answers_to_a_message(tmp_path):
    """Whether it arrived is not known, so that it is sent again and says so."""

    async def check():
        async with over_http(tmp_path) as room:
            for number, (name, reply) in enumerate({**MISSHAPEN, **NO_MESSAGES}.items()):
                left = instead(room, reply, "sendMessage", times=2)
                with room.chat.transaction():
                    room.chat.say(room.uma.id, room.uma.id, f"news {number}")
                await until(lambda: not room.chat.outbox.waiting())
                assert not left, name
                assert texts(room, room.uma)[-1].startswith(f"news {number}"), name
            assert room.chat.outbox.undeliverable("") == []

    asyncio.run(check())


UNNUMBERED = [5, None, "x", [], {}, *({"update_id": one} for one in ("7", True, -3, 0, 1e9, 1 << 70, None, [1]))]


def misread(update):
    """The same with a chat of another kind, nested as deep as JSON can be read."""
    deep = json.loads("[" * 900 + "]" * 900)
    return {**update, "message": {**update["message"], "chat": deep}}


def test_an_update_of_the_wrong_shape_is_left_out_and_the_next_is_handled(tmp_path, caplog):
    async def check():
        async with over_http(tmp_path) as room:
            through = room.api.call
            numbers = []

            async def call(token, method, params, files=None):
                if method != "getUpdates" or numbers:
                    return await through(token, method, params, files)
                room.people.send_text(room.uma, None, "/whoami")
                *_, honest = room.world.updates.pending()
                numbers.append(honest["update_id"])
                return told(ok=True, result=[*UNNUMBERED, {**honest, "message": 5}, misread(honest)])

            room.api.call = call
            room.people.send_text(room.ada, None, "/status")  # ends the poll under way
            said = len(texts(room, room.uma))
            await until(lambda: numbers and room.bot.poller._offset == numbers[0] + 1)
            room.people.send_text(room.ada, None, "/whoami")  # what comes next is fetched by the right offset
            await until(lambda: "admin of lab1" in texts(room, room.ada)[-1])
            assert len(texts(room, room.uma)) == said
            assert not room._serving.done()

    asyncio.run(check())
    assert sum("is no update" in record.message for record in caplog.records) == 1


ODD_WAITS = ["0", "-5", "0.001", "NaN", "Infinity", "1e300", "-1e300", "1" * 400, '"7"', "true", "[]", "{}", "null"]


def test_an_odd_wait_is_a_sane_one(tmp_path):
    async def check():
        room = HttpRoom(tmp_path)
        async with HttpServer(room.api) as server:
            called = TelegramClient(room.world.token, room.settings.model_copy(update={"api_url": server.url}))
            for asked in ODD_WAITS:
                body = f'{{"ok": false, "error_code": 429, "parameters": {{"retry_after": {asked}}}}}'
                instead(room, Reply(429, body.encode()), "sendMessage", times=1)
                with pytest.raises(RetryAfter) as caught:
                    await called.bot.send_message(1, "x")
                assert 1 <= after_failure(caught.value, 1).after_s <= 3600, asked
            await called.close()

    asyncio.run(check())


def test_a_wait_below_zero_does_not_make_it_hammer(tmp_path):
    async def check():
        async with over_http(tmp_path) as room:
            before = room.faults.calls["sendMessage"]
            asked = told(429, ok=False, error_code=429, parameters={"retry_after": -1})
            left = instead(room, asked, "sendMessage", times=1000)
            with room.chat.transaction():
                room.chat.say(room.uma.id, room.uma.id, "news")
            await until(lambda: len(left) < 1000)
            await asyncio.sleep(0.5)
            assert len(left) >= 997
            assert room.faults.calls["sendMessage"] == before
            left.clear()
            await until(lambda: texts(room, room.uma)[-1] == "news")

    asyncio.run(check())


@pytest.mark.parametrize("old", [False, True], ids=["nothing", "the same again"])
def test_a_poll_that_is_answered_at_once_with_nothing_new_is_not_a_loop(old, tmp_path):
    async def check():
        async with over_http(tmp_path) as room:
            first = {"update_id": room.bot.poller._offset - 1, "poll": {"id": "1"}}
            left = instead(room, told(ok=True, result=[first] if old else []), "getUpdates", times=1000)
            room.people.send_text(room.ada, None, "/whoami")  # ends the poll under way
            await until(lambda: len(left) < 1000)
            await asyncio.sleep(1.0)
            assert len(left) >= 995
            left.clear()
            await until(lambda: "admin of lab1" in texts(room, room.ada)[-1])

    asyncio.run(check())


def test_who_we_are_is_asked_until_it_is_a_bot(tmp_path, caplog):
    async def check():
        room = HttpRoom(tmp_path)
        room.people.start(room.ada)
        people = [{"id": 7, "first_name": "Pat"}, {"id": 7, "first_name": "Pat", "is_bot": False}, {"is_bot": True}, {}]
        replies = [told(ok=True, result=one) for one in people]
        through = room.api.call

        async def call(token, method, params, files=None):
            return replies.pop() if replies and method == "getMe" else await through(token, method, params, files)

        room.api.call = call
        async with HttpServer(room.api) as room.server:
            await asyncio.wait_for(room.open(), 40)
            assert not replies
            await room.settle()
            assert "You are an admin here" in texts(room, room.ada)[0]
            await room.close()

    asyncio.run(check())
    assert sum("cannot be reached" in record.message for record in caplog.records) == 1


# -- bodies without an end ---------------------------------------------------------------------------


class Endless:
    """Answers every request with a body that does not end, or hardly grows; counts what was taken of it."""

    def __init__(self, piece, *, headers=b"", pause_s=0.0):
        self._piece, self._headers, self._pause_s = piece, headers, pause_s
        self._answering = []
        self.sent = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _answer(self, reader, writer):
        self._answering.append(asyncio.current_task())
        try:
            await self._write(reader, writer)
        finally:
            writer.transport.abort()

    async def _write(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + self._headers + b"\r\n")
            while self.sent < 64 << 20:
                writer.write(b"%x\r\n%s\r\n" % (len(self._piece), self._piece))
                self.sent += len(self._piece)
                await writer.drain()
                await asyncio.sleep(self._pause_s)


def asks(folder, server):
    room = HttpRoom(folder)
    return TelegramClient(room.world.token, room.settings.model_copy(update={"api_url": server.url}))


def test_a_body_without_an_end_is_given_up(tmp_path):
    async def check():
        async with Endless(b" " * 65536) as server:
            asking = asks(tmp_path, server)
            with pytest.raises(NetworkError, match="longer than 8 MiB") as caught:
                await asking.bot.send_message(1, "x")
            assert after_failure(caught.value, 1).then is retry_policy.Then.PERHAPS
            await asking.close()
            assert server.sent < 32 << 20

    asyncio.run(check())


def test_a_small_body_that_unpacks_to_a_huge_one_is_given_up(tmp_path):
    async def check():
        packed = gzip.compress(b" " * (64 << 20))
        async with Endless(packed, headers=b"Content-Encoding: gzip\r\n") as server:
            asking = asks(tmp_path, server)
            with pytest.raises(NetworkError, match="longer than 8 MiB"):
                await asking.bot.send_message(1, "x")
            await asking.close()

    asyncio.run(check())


def test_a_body_that_comes_in_drops_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(telegram_http, "BODY_WITHIN_S", 0.3)

    async def check():
        async with Endless(b" ", pause_s=0.05) as server:
            asking = asks(tmp_path, server)
            with pytest.raises(TelegramError):
                await asyncio.wait_for(asking.bot.send_message(1, "x"), 40)
            await asking.close()

    asyncio.run(check())


def test_a_long_page_in_place_of_a_refusal_does_not_fill_the_log(tmp_path):
    async def check():
        room = HttpRoom(tmp_path)
        async with HttpServer(room.api) as server:
            asking = asks(tmp_path, server)
            for status in (404, 413, 500):
                instead(room, Reply(status, b"<html>" * 100_000, "text/html"), "sendMessage", times=1)
                with pytest.raises(TelegramError) as caught:
                    await asking.bot.send_message(1, "x")
                assert len(str(caught.value)) < 5000
            await asking.close()

    asyncio.run(check())
