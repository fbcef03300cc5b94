"""The wire itself: forms, JSON, parts, secrets, a process of its own."""

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager

import httpx
import pytest

from bot.local_chat.bot_api.world import TOKEN
from bot.local_chat.page.actions import PersonError
from tests.telegram.api import BotApi
from tests.telegram.control import Control
from tests.telegram.http import HttpServer
from tests.telegram.limits import Limits
from tests.telegram.remote import WorldProcess
from tests.telegram.world import World


@asynccontextmanager
async def serving(**settings):
    """A started server with Ada in its world, and a client for it."""
    api = BotApi(World(**settings))
    ada = api.world.add_user("Ada")
    api.people.start(ada)
    async with HttpServer(api, control=Control(api)) as server, httpx.AsyncClient(trust_env=False) as client:
        yield server, client


KEYBOARD = {"inline_keyboard": [[{"text": "x", "callback_data": "y"}]]}
FORMS = {
    "query": ("GET", {"params": {"chat_id": 1001, "text": "é & 1"}}),
    "query of a POST": ("POST", {"params": {"chat_id": 1001, "text": "é & 1"}}),
    "form": ("POST", {"data": {"chat_id": 1001, "text": "é & 1"}}),
    "JSON": ("POST", {"json": {"chat_id": 1001, "text": "é & 1", "reply_markup": KEYBOARD, "protect_content": True}}),
    "parts": ("POST", {"files": {"chat_id": (None, "1001"), "text": (None, "é & 1")}}),
    "both": ("POST", {"params": {"chat_id": 1001}, "data": {"text": "é & 1"}}),
}


@pytest.mark.parametrize("case", FORMS)
def test_every_way_to_send_parameters(case):
    method, sent = FORMS[case]

    async def scene():
        async with serving() as (server, client):
            answer = await client.request(method, f"{server.url}/bot{TOKEN}/sendMessage", **sent)
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"].startswith("application/json")
            assert answer.json()["result"]["text"] == "é & 1"
            assert ("reply_markup" in answer.json()["result"]) is (case == "JSON")

    asyncio.run(scene())


WRONG = {
    "broken JSON": ({"content": b"{", "headers": {"content-type": "application/json"}}, 400, "message text is empty"),
    "no object": ({"content": b"[1]", "headers": {"content-type": "application/json"}}, 400, "message text is empty"),
    "no UTF-8": (
        {"content": b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\n\xff\r\n--b--\r\n'}
        | {"headers": {"content-type": "multipart/form-data; boundary=b"}},
        400,
        "strings must be encoded in UTF-8",
    ),
    "too much": ({"files": {"document": ("x", b"x" * 3_000_000)}}, 413, "Request Entity Too Large"),
    "a little too much": ({"files": {"document": ("x", b"x" * 1_100_000)}}, 413, "Request Entity Too Large"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_bodies(case):
    sent, code, text = WRONG[case]

    async def scene():
        async with serving(limits=Limits(upload_bytes=1_000_000)) as (server, client):
            answer = await client.post(f"{server.url}/bot{TOKEN}/sendMessage", **sent)
            body = answer.json()
            assert (answer.status_code, body["ok"], body["error_code"]) == (code, False, code)
            assert text in body["description"]
            assert [(refusal.method, refusal.code) for refusal in server.api.world.refusals] == [("sendMessage", code)]

    asyncio.run(scene())


PATHS = {
    "/": 404,
    "/bot": 404,
    f"/bot{TOKEN}": 404,
    f"/bot{TOKEN}/nonsense": 404,
    "/bot4242:wrong/getMe": 401,
    f"/bot{TOKEN}/getMe": 200,
    f"/file/bot{TOKEN}/documents/none": 404,
    "/control/guess/add_user": 404,
}


def test_paths():
    async def scene():
        async with serving() as (server, client):
            for path, status in PATHS.items():
                answer = await client.post(f"{server.url}{path}") if "/file" not in path else None
                answer = answer or await client.get(f"{server.url}{path}")
                assert (path, answer.status_code, answer.json()["ok"]) == (path, status, status == 200)

    asyncio.run(scene())


def test_too_many_requests_says_when_in_a_header_too():
    async def scene():
        async with serving() as (server, client):
            server.api.faults.script("429")
            server.api.faults.retry_after_s = 9
            answer = await client.post(f"{server.url}/bot{TOKEN}/getMe")
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "9")
            assert answer.json()["parameters"] == {"retry_after": 9}

    asyncio.run(scene())


def test_control_over_http():
    async def scene():
        async with serving() as (server, client):
            done = await client.post(f"{server.control_url}/send_text", json={"user": 1001, "chat": None, "text": "/x"})
            assert done.json()["result"]["text"] == "/x"
            wrong = await client.post(f"{server.control_url}/send_text", json={"user": 5, "chat": None, "text": "/x"})
            assert (wrong.status_code, wrong.json()) == (400, {"error": "nobody has the id 5"})
            assert (await client.post(f"{server.control_url}/pending")).json()["result"][1]["message"]["text"] == "/x"
            assert (await client.post(f"{server.control_url}/pending", content=b"{")).status_code == 400

    asyncio.run(scene())


def test_without_control_there_is_no_door():
    async def scene():
        async with HttpServer(BotApi()) as server, httpx.AsyncClient(trust_env=False) as client:
            assert (await client.post(f"{server.control_url}/add_user")).status_code == 404

    asyncio.run(scene())


def test_a_closed_listener_refuses_and_comes_back_on_the_same_port():
    async def scene():
        async with serving() as (server, client):
            address = f"{server.url}/bot{TOKEN}/getMe"
            server.api.world.updates.clear()
            poll = asyncio.create_task(client.post(f"{server.url}/bot{TOKEN}/getUpdates?timeout=50"))
            await asyncio.sleep(0.1)
            await server.close_listener()
            with pytest.raises(httpx.TransportError):
                await poll
            with pytest.raises(httpx.ConnectError):
                await client.post(address)
            await server.open_listener()
            assert (await client.post(address)).status_code == 200

    asyncio.run(scene())


def test_only_loopback_is_served():
    async def scene():
        async with HttpServer(BotApi()) as server:
            assert server.url.startswith("http://127.0.0.1:")

    asyncio.run(scene())


def test_a_world_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with WorldProcess("--token", "77:secret") as world:
        ada = world.do("add_user", first_name="Ada")["id"]
        world.do("start", user=ada)
        with httpx.Client(trust_env=False, base_url=f"{world.url}/bot{world.token}/") as client:
            (update,) = client.post("getUpdates").json()["result"]
            assert (update["message"]["text"], world.token) == ("/start", "77:secret")
            assert client.post("sendMessage", data={"chat_id": ada, "text": "hi"}).status_code == 200
            assert client.post("sendMessage", data={"chat_id": 5, "text": "hi"}).status_code == 400
            world.do("advance", seconds=90000)
            assert client.post("getUpdates").json()["result"] == []
        assert [event["data"]["text"] for event in world.do("events", after=1)] == ["hi"]
        assert [refusal["code"] for refusal in world.do("refusals")] == [400]
        with pytest.raises(PersonError, match="no such verb"):
            world.do("nonsense")
        pid = world.pid
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_core_needs_neither_aiohttp_nor_telegram():
    code = (
        "import sys, tests.telegram.testing, tests.telegram.control, tests.telegram.remote\n"
        "sys.exit(' '.join({'aiohttp', 'telegram', 'httpx'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
