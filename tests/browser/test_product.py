"""The whole product as a newcomer meets it: `nightshift demo`, its link, a phone."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from tests.box import Box
from tests.wait import eventually

ROOT = Path(__file__).parents[2]
TRAINING = "python3 examples/train.py"


@pytest.fixture
def demo(box: Box) -> Iterator[str]:
    """The link that it prints."""
    environ = {**box.environ, "NIGHTSHIFT_PAGE_PORT": "0", "NIGHTSHIFT_BOX": "gpu-box"}
    environ.pop("NIGHTSHIFT_HOME")
    box.homes.append(Path(box.environ["HOME"]) / ".nightshift-demo")
    with (box.folder / "demo.out").open("wb") as output:
        demo = subprocess.Popen(
            box.command("demo"), env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield eventually(lambda: _link(box, demo), 40, "the demo prints its link")  # type: ignore[misc]
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(60)


def _link(box: Box, demo: subprocess.Popen[bytes]) -> str | None:
    said = (box.folder / "demo.out").read_text()
    assert demo.poll() is None, said
    found = re.search(r"http://127\.0\.0\.1:\d+/#\S+", said)
    return found[0] if found else None


class Phone:
    """Somebody's thumbs."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def send(self, text: str) -> None:
        await self.page.get_by_role("textbox", name="Message").fill(text)
        await self.page.get_by_role("button", name="Send", exact=True).tap()

    def said(self, words: str) -> Locator:
        """The bot's newest message with these words."""
        return self.page.locator(".message.theirs", has_text=words).last

    async def press(self, message: Locator, label: str) -> None:
        await message.get_by_role("button", name=label, exact=True).tap()


async def test_submit_watch_log_finish_and_kill(
    demo: str, phone: Page, desktop: Page, screenshot: Callable[..., Awaitable[str]]
):
    await phone.goto(demo)
    await expect(phone.get_by_text("SIMULATED", exact=True)).to_be_visible()
    hand = Phone(phone)
    await expect(hand.said("This is nightshift on gpu-box")).to_be_visible()

    await hand.send(f"/submit --name night {TRAINING} --steps 12 --seconds 0.1 --lr 3e-4")
    await expect(hand.said("#1 night queued in demo")).to_contain_text("--lr 3e-4")
    started = hand.said("#1 night started on gpu-box")
    await expect(started).to_be_visible()
    await hand.press(started, "Log")
    await expect(hand.said("loss=").or_(hand.said("no output yet")).first).to_be_visible()
    finished = hand.said("#1 night finished")
    await expect(finished).to_be_visible()
    await hand.press(finished, "Log")
    await expect(hand.said("saved model.pt")).to_be_visible()

    await hand.send(f"/submit --name long {TRAINING} --steps 600 --bs 16")
    running = hand.said("#2 long started on gpu-box")
    await expect(phone.get_by_role("group", name="GPU 0: #2, 90 %")).to_be_visible()

    await hand.send(f"/submit --name broken {TRAINING} --steps 9 --seconds 0.05 --fail-at 5")
    failed = hand.said("#3 broken failed")
    await expect(failed).to_contain_text("RuntimeError: loss is NaN at step 5")
    await expect(failed).not_to_contain_text("█")
    await screenshot(phone, "chat-phone", color_scheme="dark")
    await desktop.goto(demo)
    await expect(desktop.locator(".message.theirs", has_text="#3 broken failed").last).to_be_visible()
    await screenshot(desktop, "chat-desktop", color_scheme="light")

    await hand.press(running, "Kill")
    await hand.press(running, "Yes, kill #2")
    await expect(hand.said("#2 long stopped by")).to_be_visible()
