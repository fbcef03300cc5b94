"""The whole product as a newcomer meets it: `nightshift demo`, its link, a phone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest
from playwright.async_api import Page, expect

from tests.box import Box
from tests.browser.demo import Phone, a_demo

TRAINING = "python3 examples/train.py"


@pytest.fixture
def demo(box: Box) -> Iterator[str]:
    with a_demo(box) as link:
        yield link


async def test_submit_watch_log_finish_and_kill(
    demo: str, phone: Page, desktop: Page, screenshot: Callable[..., Awaitable[str]]
):
    await phone.goto(demo)
    await expect(phone.get_by_text("SIMULATED", exact=True)).to_be_visible()
    hand = Phone(phone)
    await expect(hand.said("This is nightshift on gpu-box")).to_be_visible()

    await hand.send(f"/submit --name night {TRAINING} --steps 12 --seconds 0.1 --lr 3e-4")
    await expect(phone.locator(".message.mine", has_text="--name night").locator(".reactions")).to_have_text("👍")
    finished = hand.said("#1 night finished")
    await expect(finished).to_be_visible()
    await hand.press(finished, "Log")
    await expect(hand.said("saved model.pt")).to_be_visible()

    await hand.send(f"/submit --name long {TRAINING} --steps 600 --bs 16")
    running = hand.said("#2 long running on gpu-box")
    await expect(phone.get_by_role("button", name="GPU 0: #2, 90 %")).to_be_visible()

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
