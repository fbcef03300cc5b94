"""Canaries: secrets where a lab has them. None sings in a message, a file, a button's answer, a log or /proc."""

import asyncio
import base64
import contextlib
import json
import logging
import secrets
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from telegram import BotCommand

from bot.outbound.telegram_client import TelegramClient
from bot.secrets import quiet_log
from bot.settings import ChatSettings
from runner import rundir
from runner.api.chat import Workspace, stamp
from runner.errors import OperatorError
from runner.lifecycle import outcome
from runner.store.box import BoxKey
from tests.jobs import an_exit
from tests.room import in_room, labels
from tests.telegram.remote import WorldProcess
from tests.wait import eventually

HUB, OPEN, WANDB = "Zx81kQpL0vTn55RwYb3MuA", "qL7-9vRt2_mNb4XcZ1sDfG6hJ", "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432"
NAMELESS = "vT5w-Qe71_xKc9pLz0RaYb"  # in the env file, under a name that says nothing
AWS, FOREIGN = "AKIAQ3EGUZ5CANARY7QX", "7123456789:AAHk9canaryB0tT0kenOfSomebodyElse12"
KEY_LINES = [
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" + "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj" * 1,
    "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3S",
]
PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *KEY_LINES, "-----END PRIVATE KEY-----"])


def canaries(token):
    return {"hub": HUB, "env file": OPEN, "nameless": NAMELESS,
            "--env": WANDB, "AWS": AWS, "PEM": KEY_LINES[0], "PEM 2": KEY_LINES[1],
            "a bot's token": FOREIGN, "our token": token, "our token's half": token.partition(":")[2]}  # fmt: skip


def output(token):
    """As programs print such things."""
    lines = [
        f"connected to {NAMELESS}",
        f"HF_TOKEN={HUB}", f"using {HUB} for the hub", f'{{"api_key": "{OPEN}"}}', f"wandb login {WANDB}", AWS,
        f"aws_access_key_id = {AWS}", PEM, json.dumps({"key": PEM}), token, f"https://api.telegram.org/bot{token}/getMe",
        f"\x1b[31m{token[:20]}\x1b[0m{token[20:]}", base64.b64encode(token.encode()).decode(), FOREIGN,
        f"requests.get('https://api.telegram.org/bot{FOREIGN}/sendMessage')", repr({"OPENAI_API_KEY": OPEN}),
        "Traceback (most recent call last):", '  File "train.py", line 1, in <module>', f"    login({HUB!r})",
        f"ValueError: bad credentials {OPEN} {token} {WANDB}",
    ]  # fmt: skip
    return "\n".join(lines).encode() + b"\n"


def hits(texts, token):
    """Which canaries sing, and where."""
    return sorted(
        {(what, where) for where, text in texts for what, canary in canaries(token).items() if canary in text}
    )


def everything_said(room):
    """All that has left the box, and what waits to."""
    for chat in room.world.chats.values():
        for message in chat.messages.values():
            if message.outgoing:
                yield "message", message.text.text + message.caption.text + json.dumps(message.reply_markup or {})
                if message.document is not None:
                    yield "document", message.document.data.decode() + message.document.name
    yield from (("answer", words) for words in room.answers())
    for table in ("messages", "audit", "people"):
        for row in room.chat.queue.store.rows(f"SELECT * FROM {table}"):
            yield table, str(tuple(row))


def a_workspace(room):
    keys = room.folder / "keys"
    keys.write_text(f"OPENAI_API_KEY={OPEN}\nSTORE={NAMELESS}\n")
    keys.chmod(0o600)
    known = room.chat.queue.workspaces
    made = Workspace(name="vision", dir=str(room.folder), variables={"HF_TOKEN": HUB}, env_file=str(keys))
    known.put(made)
    known.keep_environment(made, stamp(made), {"PATH": "/bin", "HF_TOKEN": HUB})


def run_to_its_end(room, number, exit_code):
    queue = room.chat.queue
    attempt = queue.jobs.claim(number, [("cpu", number)], "boot")
    folder = Path(rundir.folder_of(queue.home, number, attempt))
    folder.mkdir(parents=True)
    queue.jobs.started(queue.job(number), "2026-01-01T00:00:00.000000+00:00")
    (folder / rundir.OUTPUT).write_bytes(output(room.world.token))
    found = an_exit(exit_code=exit_code)
    queue.jobs.ended(queue.job(number), *outcome(found, None), found)


async def talk_about_it(room):
    """Every way to look at a job, its output and its place."""
    a_workspace(room)
    submit = f"/submit -g 0 -w vision --env WANDB_API_KEY={WANDB}"
    await room.ask(room.uma, f"{submit} python train.py --token {HUB}")
    await room.ask(room.uma, f"{submit} WANDB_API_KEY={WANDB} python train.py")
    await room.ask(room.uma, f"{submit} curl https://api.telegram.org/bot{room.world.token}/getMe")
    await room.ask(room.uma, f"{submit} -g x python train.py")
    await room.ask(room.uma, f"/submt {room.world.token}")
    await room.ask(room.uma, f"/ws {room.world.token}")
    for number in (1, 2, 3):
        run_to_its_end(room, number, exit_code=number - 1)
    await room.settle()
    for person in (room.ada, room.uma, room.vic):
        for sent in (
            "/status",
            "/status 1",
            "/status 2",
            "/status 3",
            "/log 1",
            "/log 1 200",
            "/ws vision",
            "/audit 60",
        ):
            await room.ask(person, sent)
        shown = (await room.ask(person, "/log 2"))[0]
        assert "Whole log" in labels(shown)
        await room.tap(person, shown, "Whole log")
        await room.tap(person, shown, "Details")
    for lines in range(1, len(output("x").splitlines()) + 1):
        await room.ask(room.vic, f"/log 2 {lines}")  # wherever it is cut
    await room.ask(room.una, "/rerun 1")
    await room.ask(room.una, "/queue")


@in_room()
async def test_no_secret_leaves_in_the_chat(room):
    await talk_about_it(room)
    await room.ask(room.uma, f"/submit --env WANDB_API_KEY {WANDB}")
    said = list(everything_said(room))
    assert hits(said, room.world.token) == []
    assert len([where for where, _ in said if where == "document"]) == 3
    assert sum("[redacted]" in text for _, text in said) > 20
    # what is not secret is still there
    assert any("bad credentials" in text for where, text in said if where == "message")


LOCAL = "4242:AAnightshift-local-chat-token-000000"


@pytest.fixture
def loudest(caplog, monkeypatch):
    """The bot's log as it is set up, then everything in it as loud as it can be."""
    hooks = [(sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook"), (logging, "raiseExceptions")]
    for holder, name in hooks:
        monkeypatch.setattr(holder, name, getattr(holder, name))
    names = ("", *quiet_log.TALKATIVE, "telegram.Bot", "telegram.ext", "asyncio")
    levels = {name: logging.getLogger(name).level for name in names}
    quiet_log.install(LOCAL)
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield caplog
    logging.captureWarnings(False)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    for handler in (*logging.getLogger().handlers, logging.lastResort):
        handler.filters.clear()


def test_no_secret_is_logged_even_at_the_lowest_level(tmp_path, loudest):
    @in_room()
    async def check(room):
        await talk_about_it(room)
        await room.ask(room.uma, f"/submit -g 0 --env HF_TOKEN={HUB} true")
        room.chat.queue.box.set(BoxKey.PAUSED, "nonsense")  # something goes wrong inside a handler
        room.people.send_text(room.ada, None, "/resume")
        await room.settle()
        room.chat.queue.box.set(BoxKey.PAUSED, None)

    check(tmp_path)
    assert "could not be answered" in loudest.text
    assert len(loudest.records) > 100
    assert hits([("log", loudest.text)], LOCAL) == []


def test_nor_is_the_token_when_it_goes_over_http_or_is_refused(tmp_path, loudest):
    async def talk(world, given):
        client = TelegramClient(given, ChatSettings(home=str(tmp_path), api_url=world.url))
        with contextlib.suppress(OperatorError):
            await client.connect()
            await client.bot.set_my_commands([BotCommand("start", "begin")])
            await client.bot.raw_updates(None, 0, ["message"])
        logging.getLogger("bot").error("this is %r of %s", client.bot, client.bot)
        await client.close()

    with WorldProcess() as world:
        assert world.token == LOCAL
        asyncio.run(talk(world, LOCAL))
        asyncio.run(talk(world, FOREIGN))
    heard = {record.name.partition(".")[0] for record in loudest.records}
    assert {"httpx", "httpcore", "telegram"} <= heard
    assert hits([("log", loudest.text)], LOCAL) == []


def in_proc(token, but):
    """What any process of this account can read of the others, but for one: the world's, which is not ours."""
    shown = []
    for name in (path for path in Path("/proc").iterdir() if path.name.isdigit() and path.name != str(but)):
        for part in ("environ", "cmdline"):
            with contextlib.suppress(OSError):
                shown.append((str(name), (name / part).read_bytes().decode(errors="replace")))
    return hits(shown, token)


PEEK = (
    "env; for p in /proc/[0-9]*; do [ $p = /proc/$W ] || cat $p/environ $p/cmdline; done 2>/dev/null"
    " | tr '\\0' '\\n' | sort -u; "
    'sed p "$STATE/.env"; exit 3'
)


def test_a_job_that_looks_everywhere_finds_no_token_and_the_chat_shows_none(box):
    mine = f"4242:AA{secrets.token_hex(16)}Zq"  # other tests' processes may show theirs
    with WorldProcess("--token", mine) as world:
        ada = world.do("add_user", first_name="Ada")["id"]
        world.do("start", user=ada)
        box.environ |= {"NIGHTSHIFT_API_URL": world.url, "NIGHTSHIFT_ADMINS": str(ada), "NIGHTSHIFT_GPUS": "none"}
        box.home.mkdir(mode=0o700)
        (box.home / ".env").write_text(f"NIGHTSHIFT_TOKEN={world.token}\n")
        (box.home / ".env").chmod(0o600)
        done = box.run("up", "--detach")
        assert done.returncode == 0, done.stderr
        assert in_proc(world.token, world.pid) == []
        with subprocess.Popen(["sleep", "60"], env={"SHOWN": world.token}) as shown:
            eventually(lambda: in_proc(world.token, world.pid), what="a token in an environment is seen")
            shown.kill()
        world.do(
            "send_text", user=ada, chat=None, text=f"/submit -g 0 --env STATE={box.home} --env W={world.pid} {PEEK}"
        )
        box.wait_state(eventually(lambda: job_of(box)), "FAILED")
        said = eventually(lambda: told(world, ada, "exit 3"))
        world.do("send_text", user=ada, chat=None, text="/log 1 200")
        eventually(lambda: told(world, ada, "Whole log", "NIGHTSHIFT_TOKEN"))
        found = box.log(1)
        assert f"STATE={box.home}" in found
        assert "PATH=" in found.partition(f"STATE={box.home}")[2]  # it has seen others' environments
        assert found.count(world.token) == 2  # in the file, which its owner may read; nowhere else
        assert box.run("down").returncode == 0
        said = json.dumps(world.do("messages", chat=ada))
        ours = [("said", said), ("log", (box.home / "nightshift.log").read_text()), ("up", done.stdout + done.stderr)]
        assert hits([*ours, ("events", json.dumps(world.do("events")))], world.token) == []


def job_of(box):
    with box.queue() as queue:
        return 1 if queue.jobs.get(1) else None


def told(world, chat, *words):
    """All the messages, once one of them has all these words."""
    messages = [json.dumps(message, ensure_ascii=False) for message in world.do("messages", chat=chat)]
    return messages if any(all(word in message for word in words) for message in messages) else None


@in_room()
async def test_a_secret_in_a_command_is_gone_before_the_command_is_cut(room):
    """A list has room for forty letters of a command; of a secret that a cut went through, most would be left."""
    a_workspace(room)
    for secret in (room.world.token, f"hf_{'aB3xY9kLmN2pQ7rS5tU8vW1zC4dE6fG0hJ'}", NAMELESS):
        await room.ask(room.uma, f"/submit -g 0 -w vision echo {'x' * 20} {secret}")
        await room.ask(room.uma, f"/submit -g 0 -w vision echo {'x' * 280} {secret}")
    for number in range(1, 7):
        run_to_its_end(room, number, exit_code=1)
    await room.settle()
    await room.ask(room.uma, f"/batch -g 0 -w vision\necho {room.world.token}\necho {'x' * 20} {NAMELESS}")
    for person in (room.vic, room.uma):
        for command in ("/status", "/queue", "/status 1", "/status 4"):
            await room.ask(person, command)
    await room.ask(room.uma, "/kill all")
    said = "\n".join(words for where, words in everything_said(room) if where in {"message", "answer"})
    for secret in (room.world.token, "hf_aB3xY9kLmN2pQ7rS5tU8vW1zC4dE6fG0hJ", NAMELESS):
        assert secret[:14] not in said
