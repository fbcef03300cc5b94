"""A job whose batch is found, on the phone: asked for in the chat, told when it starts and when it ends, drawn."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator

import pytest
from playwright.async_api import Page, expect

from tests.box import Box
from tests.browser.demo import Phone, a_demo

QUICK = {"probe_quiet": "500ms", "probe_limit": "20s"}
TRAINER = f"{sys.executable} tests/fakes/trainer.py"
# 24 GiB less 300 MiB reserved, of which 92 % may be used: 2000 + 800 × 25 is within, × 26 is not
FOUND = re.compile(r"batch 25, 90\s% of 24\sGiB, probed in (\d+(\.\d)?\ss|\dm \d\ds)")


@pytest.fixture
def demo(box: Box) -> Iterator[str]:
    with a_demo(box, **QUICK) as link:
        yield link


@pytest.mark.timeout(120)
async def test_a_batch_is_asked_for_found_told_and_drawn(
    demo: str, phone: Page, screenshot: Callable[..., Awaitable[str]]
):
    await phone.goto(demo)
    hand = Phone(phone)
    await expect(hand.said("This is nightshift on gpu-box")).to_be_visible()
    await hand.send(f"/submit --probe --batch-arg --batch_size --name night {TRAINER}")
    finished = hand.said("#1 night finished on gpu-box after")
    await expect(finished).to_contain_text("trainer.py", timeout=60_000)
    await expect(finished).to_contain_text(FOUND)
    await screenshot(phone, "probe-finished", color_scheme="dark")

    await hand.press(finished, "Details")
    await hand.press(hand.said("#1 night · succeeded"), "Fit")
    drawn = hand.said("line: 2.0 GiB + 800 MiB per sample")
    await expect(drawn).to_contain_text(FOUND)
    await expect(drawn.locator("img")).to_have_js_property("naturalWidth", 800)
    await screenshot(phone, "probe-fit", color_scheme="light")
