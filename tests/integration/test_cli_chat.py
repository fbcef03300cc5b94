"""The bot in its processes: the token's way, up and down with it, pairing, the audit, the doctor's look at the chat."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest

from bot.store.people import People
from runner.api.chat import BOT_BELL, BOT_LOCK
from runner.config.home import RUNNER_LOCK
from runner.processes.process_lock import KEEPER_LOCK, holder, is_ready, written_pid
from runner.store.box import BoxKey
from tests.page_door import is_let_in
from tests.telegram.remote import WorldProcess
from tests.wait import eventually

SIMULATED = {"NIGHTSHIFT_GPUS": "sim:1x24GiB"}
NOWHERE = "http://127.0.0.1:9"
GOOD = "4242:AAnightshift-local-chat-token-000000"
REFUSED = "4243:" + "R" * 36


@pytest.fixture(scope="module")
def world():
    with WorldProcess() as world:
        yield world


@pytest.fixture
def chat(box, world):
    """A box that is set up for the strict Bot API, but for the token."""
    box.environ |= {**SIMULATED, "NIGHTSHIFT_API_URL": world.url, "NIGHTSHIFT_ADMINS": "77"}
    return box


def bot_pid(box):
    pid = written_pid(box.home, BOT_LOCK)
    return pid if pid and is_ready(str(box.home), pid, BOT_LOCK, BOT_BELL) else None


def seen(box):
    """What everybody can see of every process of the box."""
    shown = {}
    for pid in box.processes():
        with contextlib.suppress(OSError):
            shown[pid] = b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline"))
    return shown


def shows_token(box, token=GOOD):
    return [pid for pid, text in seen(box).items() if token.encode() in text]


# -- the token's way -----------------------------------------------------------------------------------


def test_the_token_shows_in_no_process_and_reaches_the_bot_again_and_again(chat):
    done = chat.run("up", "--detach", env={"NIGHTSHIFT_TOKEN": GOOD})
    assert done.returncode == 0, done.stderr
    assert re.search(r"nightshift is up \(runner pid \d+, bot pid \d+\)", done.stdout)
    job_id = int(chat.run("submit", "--json", "--", "env; sleep 20", env={"NIGHTSHIFT_TOKEN": GOOD}).stdout[9:-3])
    eventually(lambda: "CUDA_VISIBLE_DEVICES" in chat.log(job_id))
    assert len(seen(chat)) >= 6
    assert shows_token(chat) == []
    _, found = findings(chat)
    assert (found["bot"]["level"], found["token"]["level"]) == ("ok", "info")
    first = bot_pid(chat)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: bot_pid(chat) not in (None, first))
    assert shows_token(chat) == []
    assert GOOD not in chat.log(job_id) + (chat.home / "nightshift.log").read_text()
    assert "NIGHTSHIFT_TOKEN" not in chat.log(job_id)
    done = chat.run("down")
    assert (done.returncode, done.stdout) == (0, "nightshift is down. 1 job is still running.\n")
    assert [holder(str(chat.home), lock) for lock in (KEEPER_LOCK, BOT_LOCK, RUNNER_LOCK)] == [None] * 3


def test_in_the_foreground_too(chat):
    environ = {**chat.environ, "NIGHTSHIFT_TOKEN": GOOD}
    keeper = subprocess.Popen(
        chat.command("up"), env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert "bot pid" in keeper.stdout.readline()
    assert len(seen(chat)) >= 5
    assert shows_token(chat) == []
    keeper.send_signal(signal.SIGINT)
    said = keeper.communicate(timeout=60)[1]
    assert keeper.returncode == 0
    assert GOOD not in said
    assert "runner leaves" in said


def test_a_runner_or_a_client_started_with_the_token_drops_it(chat):
    chat.environ["NIGHTSHIFT_TOKEN"] = GOOD
    chat.start_runner()
    assert len(seen(chat)) >= 3
    assert shows_token(chat) == []
    client = subprocess.Popen(
        chat.command("submit", "-"), env=chat.environ, cwd=chat.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    client.stdin.write("env; sleep 20\n")
    client.stdin.flush()
    assert client.stdout.readline() == "Submitted job 1\n"
    chat.wait_state(1, "RUNNING")
    assert client.pid in seen(chat)
    assert shows_token(chat) == []
    client.communicate(timeout=60)
    assert "NIGHTSHIFT_TOKEN" not in chat.log(1)


@pytest.mark.parametrize("place", ["env file", "token file", "credential"])
def test_a_token_from_a_file(chat, place):
    chat.home.mkdir(mode=0o700)
    file = {"env file": chat.home / ".env", "token file": chat.folder / "t", "credential": chat.folder / "token"}[place]
    file.write_text(f"NIGHTSHIFT_TOKEN={GOOD}\n" if place == "env file" else GOOD)
    file.chmod(0o600)
    if place == "token file":
        chat.environ["NIGHTSHIFT_TOKEN_FILE"] = str(file)
    if place == "credential":
        chat.environ["CREDENTIALS_DIRECTORY"] = str(chat.folder)
    done = chat.run("up", "--detach")
    assert (done.returncode, "bot pid" in done.stdout) == (0, True), done.stderr
    assert shows_token(chat) == []
    chat.run("down")


def test_an_env_file_that_others_can_read(chat):
    chat.home.mkdir(mode=0o700)
    file = chat.home / ".env"
    file.write_text(f"NIGHTSHIFT_TOKEN={GOOD}\n")
    file.chmod(0o644)
    done = chat.run("up", "--detach")
    assert done.returncode == 2
    assert f"chmod 600 {file}" in done.stderr
    assert GOOD not in done.stdout + done.stderr
    assert chat.processes() == {}


# -- up and down with a bot ----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["up"], ["up", "--detach"]])
def test_a_token_that_telegram_does_not_know(chat, words):
    done = chat.run(*words, env={"NIGHTSHIFT_TOKEN": REFUSED})
    assert done.returncode == 2
    assert "Telegram does not know" in done.stderr
    assert REFUSED not in done.stdout + done.stderr + (chat.home / "nightshift.log").read_text()
    assert chat.processes() == {}


def test_a_bot_that_nobody_could_use_does_not_come_up(chat):
    del chat.environ["NIGHTSHIFT_ADMINS"]
    chat.environ["NIGHTSHIFT_TOKEN"] = GOOD
    done = chat.run("up", "--detach")
    assert done.returncode == 2
    assert "nightshift pair" in done.stderr
    assert chat.processes() == {}
    assert chat.run("pair").returncode == 0
    assert chat.run("up", "--detach").returncode == 0
    chat.run("down")


def test_without_a_network_both_come_up(chat):
    done = chat.run("up", "--detach", env={"NIGHTSHIFT_TOKEN": GOOD, "NIGHTSHIFT_API_URL": NOWHERE})
    assert done.returncode == 0, done.stderr
    assert "has not reached Telegram yet" in done.stdout
    chat.wait_state(chat.submit("true"), "SUCCEEDED")
    chat.run("down")


def test_without_a_token_the_runner_comes_up_alone_and_says_how_to_get_the_bot(chat):
    done = chat.run("up", "--detach")
    assert (done.returncode, "bot pid" in done.stdout) == (0, False)
    assert done.stderr.count("the bot stays off") == 1
    assert "NIGHTSHIFT_CHAT=page" in done.stderr
    chat.run("down")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def page(box):
    box.environ |= {**SIMULATED, "NIGHTSHIFT_CHAT": "page", "NIGHTSHIFT_PAGE_PORT": str(free_port())}
    return box


def test_a_page_instead_of_telegram(page):
    done = page.run("up", "--detach")
    assert done.returncode == 0, done.stderr
    link = page.home / "page.url"
    assert f"The chat's link is in {link}" in done.stdout
    assert link.stat().st_mode & 0o777 == 0o600
    assert f"127.0.0.1:{page.environ['NIGHTSHIFT_PAGE_PORT']}" in link.read_text()
    again = page.run("up", "--detach").stdout
    assert "is already up" in again
    assert f"The chat's link is in {link}" in again
    assert "It would not be restarted" not in again
    del page.environ["NIGHTSHIFT_CHAT"]  # a terminal that was not told: the bot that is up knows
    said = page.run("pair")
    assert (said.returncode, "a page on this machine" in said.stderr) == (1, True), said.stderr
    found = findings(page)[1]
    assert (found["page"]["level"], found.keys() & {"people", "token", "chat"}) == ("ok", set())
    page.run("down")
    assert findings(page)[1]["chat"]["text"] == "off: no NIGHTSHIFT_TOKEN"
    assert page.processes() == {}


class Squatting:
    """Another account's program that loops on bind: it answers whoever connects, and keeps what they say."""

    def __init__(self, port):
        self._port, self._over = port, threading.Event()
        self.binds, self.heard = 0, []
        self._thread = threading.Thread(target=self._loop)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _loop(self):
        while not self._over.wait(0.001):
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", self._port)) as server:
                self.binds += 1
                server.settimeout(1)
                with server.accept()[0] as caller:
                    self.heard.append(caller.recv(4096))


def test_the_port_is_never_free_while_up_starts_its_bot_again(page):
    page.run("up", "--detach")
    port = int(page.environ["NIGHTSHIFT_PAGE_PORT"])
    link = (page.home / "page.url").read_text().strip()
    with Squatting(port) as squatter:
        first = bot_pid(page)
        os.kill(first, signal.SIGKILL)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as waiting:  # for the next one
            waiting.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert waiting.recv(4096).startswith(b"HTTP/1.1 200 OK")
        assert eventually(lambda: bot_pid(page) not in (None, first))
    assert (squatter.binds, squatter.heard) == (0, [])
    assert asyncio.run(is_let_in(link))
    page.run("down")


def test_the_link_is_printed_and_replaced(page):
    assert page.run("page").returncode == 1
    made = page.run("page", "--new-link")
    assert (made.returncode, made.stdout) == (0, "")
    page.run("up", "--detach")
    link = page.run("page").stdout.strip()
    assert link == (page.home / "page.url").read_text().strip()
    assert asyncio.run(is_let_in(link))
    other = page.run("page", "--new-link").stdout.strip()
    assert [asyncio.run(is_let_in(old)) for old in (link, other)] == [False, True]
    first = bot_pid(page)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: bot_pid(page) not in (None, first))
    assert [asyncio.run(is_let_in(old)) for old in (link, other)] == [False, True]
    assert json.loads(page.run("audit", "--json").stdout)[-1]["action"] == "new link"
    assert other not in page.run("audit").stdout
    page.run("down")
    assert "not up" in page.run("page").stderr
    said = page.run("page", env={"NIGHTSHIFT_CHAT": "telegram"})
    assert (said.returncode, "NIGHTSHIFT_CHAT=page" in said.stderr) == (1, True)


def test_what_a_killed_keeper_leaves_behind_goes_on_and_is_taken_over(page):
    page.run("up", "--detach")
    running = page.submit("sleep 1000", "-g", "0")
    page.wait_state(running, "RUNNING")
    before = written_pid(page.home, RUNNER_LOCK), bot_pid(page)
    os.kill(written_pid(page.home, KEEPER_LOCK), signal.SIGKILL)
    eventually(lambda: holder(str(page.home), KEEPER_LOCK) is None)
    assert (holder(str(page.home), RUNNER_LOCK), bot_pid(page)) == before
    again = page.run("up", "--detach")
    assert "left its runner and bot running. Restarted; jobs go on." in again.stderr
    assert "nightshift is up (runner pid" in again.stdout
    assert not {written_pid(page.home, RUNNER_LOCK), bot_pid(page)} & set(before)
    assert holder(str(page.home), KEEPER_LOCK)
    assert page.job(running)["state"] == "RUNNING"
    assert page.job(running)["attempt"] == 1
    page.run("kill", str(running))
    page.wait_state(running, "CANCELLED")
    page.run("down")
    assert page.processes() == {}


def test_a_port_that_is_taken_ends_up_with_the_way_out(page):
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = page.run("up", "--detach", env={"NIGHTSHIFT_PAGE_PORT": str(server.getsockname()[1])})
    assert done.returncode == 2
    assert "NIGHTSHIFT_PAGE_PORT" in done.stderr
    assert page.processes() == {}


def test_a_bot_alone_is_found_by_down(page):
    with (page.folder / "bot.out").open("wb") as output:
        bot = subprocess.Popen(page.command("bot"), env=page.environ, stdout=output, stderr=output)
    eventually(lambda: bot_pid(page))
    assert page.run("down").stdout == "nightshift is down. No job is running.\n"
    assert bot.wait(60) == 0


def test_a_bot_without_a_token_says_how_to_get_one(chat):
    done = chat.run("bot")
    assert done.returncode == 2
    assert "@BotFather" in done.stderr
    done = chat.run("bot", env={"NIGHTSHIFT_TOKEN": "12:canary"})
    assert done.returncode == 2
    assert "canary" not in done.stderr


# -- pairing -------------------------------------------------------------------------------------------


def invite(box, *words):
    done = box.run("pair", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout, re.search(r"(?:/start |\?start=)([A-Za-z0-9_-]{32})\n", done.stdout)[1]


def accept(box, code, person, name):
    with box.queue() as queue:
        return People(queue.store).accept(code, person, name)


def test_the_first_who_is_paired_is_admin_and_the_next_are_not(box):
    said, code = invite(box)
    assert f"/start {code}" in said  # which bot it is, is not known yet
    assert "becomes admin" in said
    assert "within 10 minutes" in said
    assert accept(box, code, 501, "Ann") == "admin"
    assert accept(box, code, 502, "Eve") is None
    with box.queue() as queue:
        queue.box.set(BoxKey.BOT_USERNAME, "night_bot")
    said, code = invite(box)
    assert f"https://t.me/night_bot?start={code}" in said
    assert accept(box, code, 502, "Bob") == "user"
    _, code = invite(box, "--role", "viewer")
    assert accept(box, code, 503, "\x1b[2J\rE\x07ve\u202e") == "viewer"
    settings = {"NIGHTSHIFT_ADMINS": "77", "NIGHTSHIFT_USERS": "502"}
    listed = json.loads(box.run("pair", "--list", "--json", env=settings).stdout)
    assert [(person["id"], person["role"]) for person in listed] == [
        (77, "admin"), (502, "user"), (501, "admin"), (503, "viewer"),
    ]  # fmt: skip
    shown = box.run("pair", "--list", env=settings).stdout
    assert "NIGHTSHIFT_ADMINS" in shown
    assert "Ann" in shown
    assert r"\x1b[2J\rE\x07ve\u202e" in shown  # nothing that a terminal would act upon
    assert shown.replace("\n", "").isprintable()


def test_pairing_without_a_token_says_how_to_get_one(box):
    said = box.run("pair").stderr
    assert "@BotFather" in said
    assert "the bot is not up" in said
    box.environ["NIGHTSHIFT_TOKEN_FILE"] = str(box.folder / "token")
    assert "@BotFather" not in box.run("pair").stderr


def test_roles_are_taken_back(box):
    accept(box, invite(box)[1], 501, "Ann")
    done = box.run("pair", "--revoke", "77", env={"NIGHTSHIFT_ADMINS": "77"})
    assert (done.returncode, "NIGHTSHIFT_ADMINS" in done.stderr) == (1, True)
    assert box.run("pair", "--revoke", "99").returncode == 1
    done = box.run("pair", "--revoke", "501")
    assert (done.returncode, done.stdout) == (0, "501 is no longer admin.\n")
    assert "nobody is admin now" in done.stderr
    assert box.run("pair", "--revoke", "501").returncode == 1
    assert json.loads(box.run("pair", "--list", "--json").stdout) == []


def test_links_are_made_useless(box):
    code = invite(box)[1]
    assert "1 link can still be used" in box.run("pair", "--list").stdout
    assert box.run("pair", "--cancel").stdout == "1 link cancelled.\n"
    assert accept(box, code, 501, "Ann") is None
    assert box.run("pair", "--cancel").stdout == "There was no link to cancel.\n"
    assert box.run("pair", "--cancel", "--list").returncode == 1


# -- the audit -----------------------------------------------------------------------------------------


def test_the_audit_tells_who_did_what_and_whether_it_is_whole(box):
    assert box.run("audit").stdout == "Nobody has done anything yet.\n"
    code = invite(box)[1]
    box.run("pair", "--cancel")
    box.submit("true")
    rows = json.loads(box.run("audit", "--json").stdout)
    assert [row["action"] for row in rows] == ["pair", "cancel pairing", "submit"]
    assert rows[0]["data"] == {"role": "admin"}
    assert code not in json.dumps(rows)
    assert [row["action"] for row in json.loads(box.run("audit", "-n", "1", "--json").stdout)] == ["submit"]
    assert "cancel pairing" in box.run("audit").stdout
    done = box.run("audit", "--verify")
    assert (done.returncode, "is whole" in done.stdout) == (0, True)
    with box.queue() as queue:
        queue.store.execute("UPDATE audit SET actor = 'somebody else' WHERE id = 2")
    done = box.run("audit", "--verify")
    assert (done.returncode, "Row 2 " in done.stdout) == (1, True)
    assert json.loads(box.run("audit", "--verify", "--json").stdout) == {"first_broken": 2}
    assert findings(box)[1]["audit"]["level"] == "warn"


# -- doctor --------------------------------------------------------------------------------------------


def findings(box, **env):
    done = box.run("doctor", "--json", env={**SIMULATED, **env})
    assert GOOD not in done.stdout + done.stderr
    assert REFUSED not in done.stdout + done.stderr
    return done.returncode, {finding["name"]: finding for finding in json.loads(done.stdout)}


def test_a_chat_that_is_well(chat):
    code, found = findings(chat, NIGHTSHIFT_TOKEN=GOOD)
    assert code == 0
    assert found["token"]["text"] == "from NIGHTSHIFT_TOKEN"
    assert found["Telegram"]["level"] == "ok"
    assert found["Telegram"]["text"].startswith("answers; the bot is @")
    assert found["people"]["text"] == "1 admin"
    assert (found["bot"]["level"], "webhook" in found) == ("warn", False)
    assert findings(chat)[1]["chat"]["level"] == "info"


def test_what_is_wrong_with_the_chat_is_told_with_the_way(chat):
    del chat.environ["NIGHTSHIFT_ADMINS"]
    code, found = findings(chat, NIGHTSHIFT_TOKEN=REFUSED)
    assert (code, found["Telegram"]["level"]) == (2, "fail")
    assert (found["people"]["level"], found["people"]["fix"]) == ("fail", "nightshift pair")
    chat.run("pair")
    code, found = findings(chat, NIGHTSHIFT_TOKEN=GOOD, NIGHTSHIFT_API_URL=NOWHERE)
    assert (code, found["Telegram"]["level"], found["people"]["level"]) == (0, "warn", "warn")
    code, found = findings(chat, NIGHTSHIFT_TOKEN=GOOD, NIGHTSHIFT_USERS="@me")
    assert (code, found["chat settings"]["level"]) == (2, "fail")


def test_a_webhook_is_told(chat):
    with WorldProcess() as own:
        call(own, "setWebhook?url=https://evil.example/secret-path")
        code, found = findings(chat, NIGHTSHIFT_TOKEN=GOOD, NIGHTSHIFT_API_URL=own.url)
    assert (code, found["webhook"]["level"]) == (2, "fail")
    assert "evil.example" in found["webhook"]["text"]
    assert "secret-path" not in json.dumps(found)


def call(world, method):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{world.url}/bot{world.token}/{method}", timeout=10) as answer:
        return json.load(answer)["result"]


def test_messages_that_could_not_be_delivered_are_told(chat):
    from bot.store.outbox import Outbox

    with chat.queue() as queue:
        outbox = Outbox(queue.store)
        for _ in range(2):
            outbox.mark_undeliverable(outbox.add(77, "sendMessage", {}), "unreachable: blocked by the user")
    _, found = findings(chat, NIGHTSHIFT_TOKEN=GOOD)
    assert "2 messages of the last week not delivered: unreachable" in found["messages"]["text"]


def test_a_page_and_its_port(page):
    code, found = findings(page)
    assert (code, found["page"]["level"], "people" in found) == (0, "ok", False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, found = findings(page, NIGHTSHIFT_PAGE_PORT=str(server.getsockname()[1]))
    assert (code, found["page"]["level"]) == (2, "fail")


# -- proxies -------------------------------------------------------------------------------------------


class Proxy:
    """One that speaks HTTP or SOCKS5 and counts whom it serves."""

    def __init__(self, answer):
        self._answer, self.asked = answer, []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                threading.Thread(target=self._pass_on, args=(near,), daemon=True).start()

    def _pass_on(self, near):
        with near, contextlib.suppress(OSError):
            address, first = self._answer(near)
            self.asked.append(address)
            with socket.create_connection(address) as far:
                far.sendall(first)
                back = threading.Thread(target=pump, args=(far, near), daemon=True)
                back.start()
                pump(near, far)
                back.join(5)

    def close(self):
        self._server.close()


def pump(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def http(near):
    head = near.recv(65536)
    found = re.match(rb"(\w+) http://([^/:]+):(\d+)(/\S*)", head)
    return (found[2].decode(), int(found[3])), found[1] + b" " + found[4] + head[found.end() :]


def socks5(near):
    near.recv(64)
    near.sendall(b"\x05\x00")
    asked = near.recv(300)
    near.sendall(b"\x05\x00\x00\x01" + b"\0" * 6)
    host = socket.inet_ntoa(asked[4:8]) if asked[3] == 1 else asked[5:-2].decode()
    return (host, int.from_bytes(asked[-2:], "big")), b""


@pytest.mark.parametrize(("scheme", "answer"), [("http", http), ("socks5", socks5)])
def test_telegram_is_reached_through_a_proxy(chat, scheme, answer):
    with contextlib.closing(Proxy(answer)) as proxy:
        chat.environ |= {"NIGHTSHIFT_PROXY": f"{scheme}://127.0.0.1:{proxy.port}", "NIGHTSHIFT_TOKEN": GOOD}
        _, found = findings(chat)
        assert found["Telegram"]["level"] == "ok", found["Telegram"]
        assert proxy.asked
        asked = len(proxy.asked)
        done = chat.run("up", "--detach")
        assert (done.returncode, "has not reached" in done.stdout) == (0, False), done.stderr
        assert len(proxy.asked) > asked
        chat.run("down")
