"""`nightshift setup`: from an empty home to a finished job, against the strict Bot API over HTTP."""

import re

import pytest

from tests.box import a_box
from tests.telegram.remote import WorldProcess
from tests.terminal import Terminal
from tests.wait import eventually

ADMIN = 1001
WRONG = "123456:" + "A" * 35


@pytest.fixture
def world():
    with WorldProcess() as world:
        world.do("add_user", first_name="Ada", user_id=ADMIN)
        yield world


@pytest.fixture
def box(world):
    with a_box() as box:
        box.environ["NIGHTSHIFT_API_URL"] = world.url
        box.environ["HOME"] = str(box.folder)
        yield box
        box.run("down")


def said_to(world):
    return "\n".join(
        message.get("text", "") for message in world.do("messages", chat=ADMIN) if message["from"]["is_bot"]
    )


def test_three_answers_from_an_empty_home_to_a_finished_job(box, world):
    env_file = box.home / ".env"
    box.home.mkdir(mode=0o700)
    env_file.write_text("# mine\nNIGHTSHIFT_GPUS=sim:1x24GiB\n")
    env_file.chmod(0o644)
    terminal = Terminal(box, "setup")
    terminal.until(b"Token (it is not shown): ")
    terminal.type(WRONG.encode() + b"\n")
    terminal.until(b"API Token.\r\nToken (it is not shown): ")
    terminal.type(world.token.encode() + b"\n")  # answer 1
    terminal.until(b"Waiting for Start")
    assert env_file.read_text() == f"# mine\nNIGHTSHIFT_GPUS=sim:1x24GiB\nNIGHTSHIFT_TOKEN={world.token}\n"
    assert env_file.stat().st_mode & 0o777 == 0o600
    assert "▄" in terminal.seen.decode()
    code = re.search(rb"https://t.me/nightshift_bot\?start=(\S+)", terminal.seen)[1].decode()
    world.do("start", user=ADMIN, payload=code)  # the phone
    terminal.until(b"Ada may do everything")
    for question in (b"Folder [", b"activates its environment"):  # answers 2 and 3
        terminal.until(question)
        terminal.type(b"\n")
    assert terminal.code() == 0, terminal.seen.decode()
    assert re.search(r"nightshift works on \S+\. GPU: GPU-", terminal.seen.decode())
    assert b"Job 1: succeeded" in terminal.seen
    assert world.token.encode() not in terminal.seen
    assert b"AAAAA" not in terminal.seen
    eventually(lambda: "#1" in said_to(world))

    again = Terminal(box, "setup")  # asks nothing that it knows
    assert again.code() == 0, again.seen.decode()
    assert b"Token" not in again.seen
    assert b"Job 2: succeeded" in again.seen
    assert env_file.read_text().count("NIGHTSHIFT_TOKEN") == 1


def test_it_says_what_it_needs(box):
    done = box.run("setup")
    assert (done.returncode, "needs a terminal" in done.stderr) == (1, True)
    terminal = Terminal(box, "setup")
    terminal.until(b"Token (it is not shown): ")
    terminal.type(b"\n")
    assert terminal.code() == 1
    assert b"NIGHTSHIFT_CHAT=page" in terminal.seen
    terminal = Terminal(box, "setup", NIGHTSHIFT_API_URL="http://127.0.0.1:9")
    terminal.until(b"Token (it is not shown): ")
    terminal.type(WRONG.encode() + b"\n")
    assert terminal.code() == 2
    assert b"does not answer" in terminal.seen
