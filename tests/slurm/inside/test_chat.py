"""The chat over a real cluster: the same commands, answers and notices as on one box."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.box import Box, a_box
from tests.e2e.test_over_http import ADMIN, Telegram, text_of
from tests.slurm.inside.test_jobs import SETTINGS
from tests.telegram.remote import WorldProcess
from tests.wait import eventually

pytestmark = pytest.mark.xdist_group("first")


@pytest.fixture
def ada() -> Iterator[tuple[Telegram, Box]]:
    with WorldProcess() as world, a_box() as box:
        world.do("add_user", first_name="Ada", user_id=ADMIN)
        world.do("start", user=ADMIN)
        settings = {**SETTINGS, "slurm_partition": "first", "shared": str(box.folder / "shared"), "gpus": "sim:2x24GiB",
                    "api_url": world.url, "token": world.token, "admins": str(ADMIN), "box": "lab1"}  # fmt: skip
        environ = {
            **box.environ, "SLURM_CONF": os.environ["SLURM_CONF"], "USER": os.environ["USER"],
            **{f"NIGHTSHIFT_{name.upper()}": value for name, value in settings.items()},
        }  # fmt: skip
        with (box.folder / "up.out").open("wb") as output:
            up = subprocess.Popen(
                box.command("up"), env=environ, cwd=box.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            eventually(lambda: "bot pid" in (box.folder / "up.out").read_text(), 60, "the bot is up")
            yield Telegram(world, ADMIN), box
        finally:
            up.terminate()
            up.wait(30)
        assert [one for one in world.do("refusals") if one["code"] == 400] == []


def test_jobs_from_the_chat(ada: tuple[Telegram, Box]) -> None:
    chat, box = ada
    until = "until [ -e go ]; do sleep 0.05; done"
    chat.ask(f"/submit --name one echo hello from $SLURMD_NODENAME; {until}", "#1 one")
    chat.hear("#1 one running")
    eventually(lambda: "hello from n0" in box.log(1))
    chat.ask("/log 1", "hello from n0")  # while it runs
    chat.ask("/submit --name slow -g 0 -t 1s sleep 300", "#2 slow")
    chat.ask("/submit --name refused --partition nowhere true", "#3 refused")
    chat.ask("/submit --name deaf -g 0 trap : TERM; while :; do sleep 0.1; done", "#4 deaf")
    assert "invalid partition" in text_of(chat.hear("#3 refused could not start")).lower()
    chat.hear("#2 slow stopped")
    chat.hear("#4 deaf running")
    chat.ask("/submit --name wide -g 2 echo never >> ran", "#5 wide")
    chat.ask("/submit --name after --after-ok 1 -g 0 python3 -c 'raise SystemError(5)'", "#6 after")
    eventually(lambda: "in Slurm's queue: Resources" in text_of(chat.ask("/queue", "#5 wide")))
    assert "n0:0" in text_of(chat.ask("/gpus", "lab1"))
    for number, name in ((5, "wide"), (4, "deaf")):
        chat.press(chat.ask(f"/kill {number}", "Stop this job?"), f"Yes, kill #{number}")
        chat.hear(f"#{number} {name} stopped")
    folder = box.job(1)["dir"]
    open(os.path.join(folder, "go"), "w").close()
    assert "n0:" in text_of(chat.hear("#1 one finished"))
    failed = text_of(chat.hear("#6 after failed"))
    assert ("exit 1" in failed, "SystemError: 5" in failed) == (True, True)
    assert not os.path.exists(os.path.join(folder, "ran"))
