"""The chat page's server: who may talk to it, and what it tells."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.page.listening_socket import listen
from bot.local_chat.page.security import KEY_HEADER
from bot.local_chat.page.server import STATIC, WRONG_SECRET, Page
from bot.local_chat.page.stream import WAITING_FRAMES
from runner.errors import OperatorError
from tests.page_door import mac, prove
from tests.telegram.limits import Limits
from tests.telegram.testing import Trial

SECRET = "correct-horse"
STATUS = {"box": "b", "runner_up": True, "simulated": False, "running": 0, "queued": 0, "held": None, "gpus": []}


class Visit:
    """A page of Ada's world, and a client that is not a browser."""

    def __init__(self, trial: Trial, page: Page, client: aiohttp.ClientSession) -> None:
        self.trial, self.page, self.client = trial, page, client
        self.root, _, self.secret = page.url.partition("/#")
        self.port = int(self.root.rpartition(":")[2])

    async def greet(self, secret: str = SECRET, headers: dict[str, str] | None = None, **seen: Any) -> Talk:
        socket = await self.client.ws_connect(f"{self.root}/chat", headers=headers)
        return Talk(socket, await prove(socket, secret, self.port, **seen))

    async def come_in(self) -> dict[str, str]:
        """The headers with which files come and go."""
        self.talk = await self.greet()
        await self.talk.next("hello")
        return self.talk.headers

    async def bot_says(self, text: str) -> None:
        world = self.trial.world
        await self.trial.api.call(world.token, "sendMessage", {"chat_id": str(self.trial.ada.id), "text": text})


class Talk:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse, file_key: str) -> None:
        self.socket, self.headers = socket, {KEY_HEADER: file_key}

    async def next(self, *kinds: str) -> dict[str, Any]:
        while True:
            frame = await self.socket.receive_json(timeout=40)
            if frame["type"] in kinds:
                return frame

    async def ask(self, **request: Any) -> dict[str, Any]:
        await self.socket.send_json(request)
        return await self.next("done", "refused", "older")


def visit(scenario: Callable[[Visit], Awaitable[None]], *, status: Any = None, **settings: Any) -> None:
    async def run() -> None:
        trial = Trial(**settings)
        page = Page(trial.world, trial.ada, listener=listen(0), secret=SECRET, status=status or (lambda: STATUS))
        async with page, aiohttp.ClientSession() as client:
            await scenario(Visit(trial, page, client))

    asyncio.run(run())


def test_link_carries_secret_behind_the_hash():
    async def scenario(here: Visit) -> None:
        assert here.root.startswith("http://127.0.0.1:")
        assert here.secret == SECRET

    visit(scenario)


@pytest.mark.parametrize("path", ["/", "/static/x/app.js", "/file/x", "/nothing"])
def test_every_answer_has_the_protective_headers(path: str):
    async def scenario(here: Visit) -> None:
        async with here.client.get(here.root + path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:;")
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert answer.headers["Cache-Control"] == "no-store"
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]

    visit(scenario)


@pytest.mark.parametrize("path", ["/", "/static/x/app.js", "/chat", "/file/x"])
@pytest.mark.parametrize(
    "host", ["evil.example:{port}", "127.0.0.1", "localhost:{port}", "127.0.0.1.evil.example:{port}"]
)
def test_other_hosts_are_refused(path: str, host: str):
    async def scenario(here: Visit) -> None:
        headers = {"Host": host.format(port=here.port), **await here.come_in()}
        async with here.client.get(here.root + path, headers=headers) as answer:
            assert answer.status == 403

    visit(scenario)


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}", "http://localhost:{port}"],
)
def test_other_origins_are_refused(origin: str):
    async def scenario(here: Visit) -> None:
        headers = {"Origin": origin.format(port=here.port), **await here.come_in()}
        async with here.client.post(f"{here.root}/file", headers=headers, data={"id": "x"}) as answer:
            assert answer.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await here.greet(headers=headers)
        assert here.trial.waiting() == []

    visit(scenario)


def test_own_origin_is_let_in():
    async def scenario(here: Visit) -> None:
        talk = await here.greet(headers={"Origin": f"http://127.0.0.1:{here.port}"})
        assert (await talk.next("hello"))["me"]["first_name"] == "Ada"

    visit(scenario)


async def is_sent_away(socket: aiohttp.ClientWebSocketResponse) -> bool:
    frame = await socket.receive(timeout=40)
    return (frame.type, frame.data) == (aiohttp.WSMsgType.CLOSE, WRONG_SECRET)


@pytest.mark.parametrize("secret", ["", "wrong", "correct-hors", "correct-horse ", "\ud800"])
def test_without_the_secret_the_socket_tells_nothing(secret: str):
    async def scenario(here: Visit) -> None:
        assert await is_sent_away((await here.greet(secret)).socket)

    visit(scenario)


@pytest.mark.parametrize(
    "nonce", [SECRET, "", None, 7, "0" * 31, "0" * 33, "0" * 31 + "G", "0" * 30 + " 1", ["0" * 32]]
)
def test_a_nonce_that_is_none_gets_no_proof(nonce: object):
    async def scenario(here: Visit) -> None:
        async with here.client.ws_connect(f"{here.root}/chat") as socket:
            await socket.send_json({"nonce": nonce, "secret": SECRET})
            assert await is_sent_away(socket)

    visit(scenario)


def test_server_proves_itself_first_and_by_what_only_it_knows():
    async def scenario(here: Visit) -> None:
        seen = set()
        for _ in range(2):
            async with here.client.ws_connect(f"{here.root}/chat") as socket:
                await socket.send_json({"nonce": "ab" * 16})
                challenge = await socket.receive_json(timeout=40)
                key = mac(SECRET.encode(), f"key {challenge['session']}")
                said = f"server {here.port} {'ab' * 16} {challenge['nonce']}"
                assert challenge["proof"] == mac(key, said).hex()
                seen.add((challenge["nonce"], challenge["proof"]))
        assert len(seen) == 2

    visit(scenario)


@pytest.mark.parametrize("stolen", ["server's own", "an earlier page's", "for another port", None, 7, ""])
def test_a_proof_that_was_recorded_or_made_for_something_else_opens_nothing(stolen: object):
    async def scenario(here: Visit) -> None:
        nonce, key = "cd" * 16, b""

        async def begin() -> tuple[aiohttp.ClientWebSocketResponse, dict[str, Any]]:
            socket = await here.client.ws_connect(f"{here.root}/chat")
            await socket.send_json({"nonce": nonce})
            return socket, await socket.receive_json(timeout=40)

        earlier, before = await begin()
        key = mac(SECRET.encode(), f"key {before['session']}")
        proof = mac(key, f"page {here.port} {nonce} {before['nonce']}").hex()
        await earlier.send_json({"proof": proof})
        assert (await earlier.receive_json(timeout=40))["type"] == "hello"
        socket, now = await begin()
        given = {
            "server's own": now["proof"],
            "an earlier page's": proof,
            "for another port": mac(key, f"page {here.port + 1} {nonce} {now['nonce']}").hex(),
        }.get(str(stolen), stolen)
        await socket.send_json({"proof": given})
        assert await is_sent_away(socket)

    visit(scenario)


@pytest.mark.parametrize("headers", [{}, {KEY_HEADER: "wrong"}, {KEY_HEADER: SECRET}, {"Authorization": SECRET}])
def test_without_a_connection_files_neither_come_nor_go(headers: dict[str, str]):
    async def scenario(here: Visit) -> None:
        stored = here.trial.world.files.add("document", Upload("key.txt", b"private", "text/plain"))
        await here.come_in()
        async with here.client.get(f"{here.root}/file/{stored.file_id}", headers=headers) as answer:
            assert answer.status == 401
            assert "private" not in await answer.text()
        form = aiohttp.FormData({"id": "1"})
        form.add_field("file", b"x", filename="x")
        async with here.client.post(f"{here.root}/file", headers=headers, data=form) as answer:
            assert answer.status == 401
        assert here.trial.waiting() == []

    visit(scenario)


def test_key_for_files_ends_with_its_connection():
    async def scenario(here: Visit) -> None:
        stored = here.trial.world.files.add("document", Upload("key.txt", b"private", "text/plain"))
        talk = await here.greet()
        await talk.next("hello")
        await talk.socket.close()
        while True:  # the server notices a moment later
            async with here.client.get(f"{here.root}/file/{stored.file_id}", headers=talk.headers) as answer:
                if answer.status == 401:
                    break

    visit(scenario)


def test_a_new_secret_counts_at_once():
    async def scenario(here: Visit) -> None:
        stored = here.trial.world.files.add("document", Upload("key.txt", b"private", "text/plain"))
        talk, waiting = await here.greet(), await here.client.ws_connect(f"{here.root}/chat")
        await talk.next("hello")
        await waiting.send_json({"nonce": "ab" * 16})  # has been greeted, and has not answered yet
        challenge = await waiting.receive_json(timeout=40)
        await talk.socket.send_json({"do": "send", "id": "1", "text": "too late"})
        assert here.page.use_secret("battery-staple")
        assert not here.page.use_secret("battery-staple")
        with contextlib.suppress(TypeError):
            while True:
                await talk.socket.receive_json(timeout=40)
        assert talk.socket.closed
        key = mac(SECRET.encode(), f"key {challenge['session']}")
        await waiting.send_json({"proof": mac(key, f"page {here.port} {'ab' * 16} {challenge['nonce']}").hex()})
        assert await is_sent_away(waiting)
        assert await is_sent_away((await here.greet()).socket)
        async with here.client.get(f"{here.root}/file/{stored.file_id}", headers=talk.headers) as answer:
            assert answer.status == 401
        assert here.page.url.endswith("/#battery-staple")
        assert (await (await here.greet("battery-staple")).next("hello"))["me"]["first_name"] == "Ada"
        assert here.trial.waiting() == []

    visit(scenario)


@pytest.mark.parametrize("path", ["/", "/worker.js", "/static/x/app.js", "/file/1"])
def test_service_worker_that_another_program_left_is_told_to_leave(path: str):
    async def scenario(here: Visit) -> None:
        async with here.client.get(here.root + path, headers={"Service-Worker": "script"}) as answer:
            assert (answer.status, answer.content_type) == (200, "text/javascript")
            assert answer.headers["Service-Worker-Allowed"] == "/"
            assert answer.headers["Cache-Control"] == "no-store"
            assert "registration.unregister()" in await answer.text()

    visit(scenario)


def test_page_is_made_of_files_that_no_cache_can_have():
    async def scenario(here: Visit) -> None:
        async with here.client.get(here.root) as answer:
            text = await answer.text()
        [session] = set(re.findall(r'"/static/(\w+)/', text))
        assert len(session) == 16
        assert text.count("/static/") == text.count(f"/static/{session}/")

    visit(scenario)


def test_only_the_page_itself_can_have_the_browser_forget():
    async def scenario(here: Visit) -> None:
        async with here.client.post(
            f"{here.root}/clean", headers={"Origin": f"http://127.0.0.1:{here.port}"}
        ) as answer:
            assert answer.headers["Clear-Site-Data"] == '"cache", "storage"'
        async with here.client.post(f"{here.root}/clean", headers={"Origin": "https://evil.example"}) as answer:
            assert (answer.status, "Clear-Site-Data" in answer.headers) == (403, False)
        async with here.client.get(f"{here.root}/clean") as answer:
            assert (answer.status, "Clear-Site-Data" in answer.headers) == (405, False)

    visit(scenario)


def test_file_never_has_a_type_that_a_browser_shows():
    async def scenario(here: Visit) -> None:
        stored = here.trial.world.files.add("document", Upload("x.html", b"<script>", "text/html"))
        async with here.client.get(f"{here.root}/file/{stored.file_id}", headers=await here.come_in()) as answer:
            assert await answer.read() == b"<script>"
            assert answer.content_type == "application/octet-stream"
            assert answer.headers["Content-Disposition"] == "attachment"

    visit(scenario)


def test_file_arrives_once_however_often_it_is_sent():
    async def scenario(here: Visit) -> None:
        headers = await here.come_in()
        for _ in range(2):
            form = aiohttp.FormData({"id": "same", "caption": "look", "reply_to": "1"})
            form.add_field("file", b"print(1)", filename="a.py", content_type="text/x-python")
            async with here.client.post(f"{here.root}/file", headers=headers, data=form) as answer:
                assert answer.status == 200
        (update,) = here.trial.waiting()
        assert update["message"]["document"]["file_name"] == "a.py"
        assert update["message"]["caption"] == "look"
        assert update["message"]["reply_to_message"]["message_id"] == 1

    visit(scenario)


def test_bodies_and_frames_have_limits():
    async def scenario(here: Visit) -> None:
        form = aiohttp.FormData({"id": "1"})
        form.add_field("file", b"x" * 200_000, filename="x")
        async with here.client.post(f"{here.root}/file", headers=await here.come_in(), data=form) as answer:
            assert answer.status == 413
        talk = await here.greet()
        await talk.next("hello")
        await talk.socket.send_str("x" * 100_000)
        with contextlib.suppress(TypeError):
            while True:
                await talk.socket.receive_json(timeout=40)
        assert talk.socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        assert here.trial.waiting() == []

    visit(scenario, limits=Limits(download_bytes=100_000))


def test_only_the_pages_own_files_are_served():
    async def scenario(here: Visit) -> None:
        names = os.listdir(STATIC)
        assert {"index.html", "app.js", "base.css", "icon.svg"} <= set(names)
        for name in names:
            async with here.client.get(f"{here.root}/static/x/{name}") as answer:
                assert answer.status == 200
                assert SECRET not in await answer.text()
        for name in ("..%2fpage.py", "%2e%2e%2fpage.py", ".", "x.js"):
            async with here.client.get(f"{here.root}/static/x/{name}") as answer:
                assert answer.status == 404

    visit(scenario)


def test_page_asks_nothing_of_the_outside():
    for name in os.listdir(STATIC):
        with open(os.path.join(STATIC, name), encoding="utf-8") as file:
            text = file.read().replace("http://www.w3.org/2000/svg", "")
        assert "innerHTML" not in text
        assert "https://" not in text
        assert "http://" not in text


def test_taken_port_says_what_to_do():
    async def scenario(here: Visit) -> None:
        with pytest.raises(OperatorError, match=rf"Port {here.port} .* is taken\. .*NIGHTSHIFT_PAGE_PORT="):
            listen(here.port)

    visit(scenario)


def test_greeting_shows_the_chat_and_then_what_happens():
    async def scenario(here: Visit) -> None:
        talk = await here.greet()
        hello = await talk.next("hello")
        assert [message["text"] for message in hello["messages"]] == ["/start"]
        assert (await talk.next("status"))["status"] == STATUS
        await here.bot_says("news")
        event = await talk.next("event")
        assert (event["kind"], event["data"]["text"]) == ("message", "news")
        assert event["number"] > hello["number"]

    visit(scenario)


def test_message_is_sent_once_per_name():
    async def scenario(here: Visit) -> None:
        talk = await here.greet()
        await talk.next("hello")
        request = {"do": "send", "id": "n1", "text": "/status", "reply_to": 1}
        await talk.socket.send_json(request)
        event = await talk.next("event")
        assert (event["data"]["text"], event["data"]["client"]) == ("/status", "n1")
        first = await talk.next("done")
        assert (await talk.ask(**request))["message_id"] == first["message_id"]
        (update,) = here.trial.waiting()
        assert update["message"]["reply_to_message"]["message_id"] == 1

    visit(scenario)


def test_page_that_was_away_gets_what_it_missed_and_no_more():
    async def scenario(here: Visit) -> None:
        talk = await here.greet()
        hello = await talk.next("hello")
        await here.bot_says("one")
        seen = (await talk.next("event"))["number"]
        await talk.socket.close()
        await here.bot_says("two")
        again = await here.greet(instance=hello["instance"], seen=seen)
        assert "messages" not in await again.next("hello")
        assert (await again.next("event"))["data"]["text"] == "two"
        stranger = await here.greet(instance="another server", seen=seen)
        assert [message["text"] for message in (await stranger.next("hello"))["messages"]] == ["/start", "one", "two"]

    visit(scenario)


def test_person_sees_only_their_own_chat():
    async def scenario(here: Visit) -> None:
        bob = here.trial.world.add_user("Bob")
        talk = await here.greet()
        await talk.next("hello")
        here.trial.people.start(bob)
        here.trial.people.send_text(bob, None, "for the bot only")
        await here.bot_says("for Ada")
        assert (await talk.next("event"))["data"]["text"] == "for Ada"

    visit(scenario)


def test_press_reaches_the_bot_and_its_answer_comes_back():
    async def scenario(here: Visit) -> None:
        talk = await here.greet()
        await talk.next("hello")
        done = await talk.ask(do="tap", id="t", message_id=1, data="kill:7")
        (update,) = here.trial.waiting()
        assert update["callback_query"]["data"] == "kill:7"
        answer = {"callback_query_id": update["callback_query"]["id"], "text": "Stopping", "show_alert": "true"}
        await here.trial.api.call(here.trial.world.token, "answerCallbackQuery", answer)
        event = await talk.next("event")
        assert event["kind"] == "callback_answered"
        assert event["data"]["id"] == done["tap"]
        assert (event["data"]["text"], event["data"]["show_alert"]) == ("Stopping", True)

    visit(scenario)


@pytest.mark.parametrize(
    "frame",
    [
        "no json",
        "[]",
        "{}",
        json.dumps({"do": "send", "id": "1", "text": "   "}),
        json.dumps({"do": "send", "id": "1", "text": "x" * 5000}),
        json.dumps({"do": "send", "id": "1", "text": 5}),
        json.dumps({"do": "send", "id": "1", "text": "\ud800"}),
        json.dumps({"do": "send", "id": "", "text": "x"}),
        json.dumps({"do": "send", "text": "x"}),
        json.dumps({"do": "send", "id": "1", "text": "x", "reply_to": "1"}),
        json.dumps({"do": "tap", "id": "1", "message_id": True, "data": "x"}),
        json.dumps({"do": "raw_update", "id": "1", "kind": "message"}),
    ],
)
def test_nonsense_is_refused_and_the_page_stays(frame: str):
    async def scenario(here: Visit) -> None:
        talk = await here.greet()
        await talk.next("hello")
        await talk.socket.send_str(frame)
        assert (await talk.next("refused", "done"))["type"] == "refused"
        assert here.trial.waiting() == []
        assert (await talk.ask(do="send", id="2", text="still here"))["type"] == "done"

    visit(scenario)


def test_older_messages_come_on_request():
    async def scenario(here: Visit) -> None:
        for number in range(450):
            await here.bot_says(f"message {number}")
        talk = await here.greet()
        hello = await talk.next("hello")
        assert (len(hello["messages"]), hello["more"]) == (200, True)
        older = await talk.ask(do="older", before=hello["messages"][0]["message_id"])
        assert (older["messages"][-1]["text"], older["more"]) == ("message 249", True)
        oldest = await talk.ask(do="older", before=older["messages"][0]["message_id"])
        assert (oldest["messages"][0]["text"], oldest["more"]) == ("/start", False)

    visit(scenario)


def test_commands_follow_what_the_bot_offers():
    async def scenario(here: Visit) -> None:
        talk = await here.greet()
        assert (await talk.next("hello"))["commands"] == []
        offered = [{"command": "status", "description": "What runs"}]
        await here.trial.api.call(here.trial.world.token, "setMyCommands", {"commands": json.dumps(offered)})
        assert (await talk.next("commands"))["commands"] == offered

    visit(scenario)


def test_status_is_asked_only_while_a_page_is_open():
    asked: list[int] = []

    def status() -> dict[str, Any]:
        asked.append(1)
        return STATUS | {"running": len(asked)}

    async def scenario(here: Visit) -> None:
        here.page.status_changed()
        await asyncio.sleep(0.05)
        assert asked == []
        talk = await here.greet()
        await talk.next("status")
        before = len(asked)
        for _ in range(50):
            here.page.status_changed()
        await talk.next("status")
        assert len(asked) <= before + 2
        await talk.socket.close()

    visit(scenario, status=status)


def test_status_that_fails_is_unknown():
    async def scenario(here: Visit) -> None:
        talk = await here.greet()
        assert (await talk.next("status"))["status"] is None
        assert (await talk.ask(do="send", id="1", text="still here"))["type"] == "done"

    def status() -> dict[str, Any]:
        raise RuntimeError("no store")

    visit(scenario, status=status)


def test_page_that_does_not_read_is_cut_off():
    async def scenario(here: Visit) -> None:
        talk = await here.greet()
        await talk.next("hello")
        for number in range(WAITING_FRAMES + 10):
            await here.bot_says(str(number))
        with contextlib.suppress(TypeError):
            while True:
                await talk.socket.receive_json(timeout=40)
        assert talk.socket.closed

    visit(scenario)
