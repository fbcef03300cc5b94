"""A training on the phone: bar, loss and end time in /status and above the chat; a loss that is not a number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest
from playwright.async_api import Page, expect

from tests.box import Box
from tests.browser.demo import Phone, a_demo

LATE_MS = 20_000  # for a busy machine; benchmarks/progress.py measures how soon it comes


@pytest.fixture
def demo(box: Box) -> Iterator[str]:
    with a_demo(box) as link:
        yield link


async def test_a_training_shows_how_far_it_is(
    demo: str, box: Box, phone: Page, screenshot: Callable[..., Awaitable[str]]
):
    (box.folder / "train.sh").write_text(
        "for i in $(seq 1 4000); do loss=2.5; [ -e nan ] && loss=nan; echo step $i/4000 loss=$loss; sleep 0.2; done"
    )
    await phone.goto(demo)
    hand = Phone(phone)
    await expect(hand.said("This is nightshift on gpu-box")).to_be_visible()
    await hand.send(f"/submit --name nano --dir {box.folder} bash train.sh")
    card = hand.said("#1 nano running on gpu-box")
    await expect(card).to_contain_text("loss 2.5", timeout=LATE_MS)
    far = phone.locator(".gpu .progress:not([hidden])")
    await expect(far).to_contain_text("% · ends", timeout=LATE_MS)
    await expect(far).to_contain_text("loss 2.5")
    await hand.send("/status")
    status = hand.said("1 running")
    await expect(status).to_contain_text("▱ 0 % · ends")
    await screenshot(phone, "progress", color_scheme="dark")
    (box.folder / "nan").touch()
    told = hand.said("#1 nano on gpu-box prints loss=nan")
    await expect(told).to_contain_text("It goes on.", timeout=LATE_MS)
    await hand.press(told, "Kill now")
    await expect(far).to_have_count(0, timeout=LATE_MS)
