"""Jobs that do nothing, on the phone: one is kept by a tap, the other stopped when nobody answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta

import pytest
from playwright.async_api import Locator, Page, expect

from runner import clock
from runner.api import Queue
from runner.model import Reason, State
from tests.box import Box
from tests.browser.demo import Phone, a_demo
from tests.wait import eventually, is_on_time

# long enough between warning and stop to draw two pictures on a busy machine, and to tap below the first
RULES = {"idle": "20%:2s:14:0", "idle_warning": "24s"}
WINDOW, A_MOMENT = timedelta(seconds=28), timedelta(seconds=2)


@pytest.fixture
def demo(box: Box) -> Iterator[str]:
    with a_demo(box, **RULES) as link:
        yield link


async def test_one_is_kept_by_a_tap_and_one_is_stopped_when_nobody_answers(
    demo: str, box: Box, phone: Page, screenshot: Callable[..., Awaitable[str]]
):
    await phone.goto(demo)
    hand = Phone(phone)
    await expect(hand.said("This is nightshift on gpu-box")).to_be_visible()
    await hand.send("/submit --name kept sleep 300")
    await expect(hand.said("#1 kept running")).to_be_visible(timeout=20_000)
    await hand.send("/submit --name forgotten sleep 300")

    warning = hand.said("#1 kept on gpu-box is idle and will be stopped at")
    for label in ("Keep 1 h", "Keep for good", "Kill now", "Log"):
        await expect(button(warning, label)).to_be_visible(timeout=40_000)
    await hand.press(warning, "Keep 1 h")
    kept = hand.said("Job 1 is kept for 1h 00m")
    await expect(kept).to_contain_text("#1 kept on gpu-box is idle")
    await expect(kept).not_to_contain_text("will be stopped")
    await expect(button(kept, "✓ Kept for 1h 00m")).to_be_visible()
    await expect(button(kept, "Keep 1 h")).to_have_count(0)

    second = hand.said("#2 forgotten on gpu-box is idle and will be stopped at")
    await expect(button(second, "Keep 1 h")).to_be_visible()
    await expect(second.locator("img")).to_have_js_property("naturalWidth", 800)
    await screenshot(phone, "idle-warning", color_scheme="dark")
    stopped = hand.said("#2 forgotten stopped on gpu-box")
    await expect(stopped).to_contain_text("GPU idle", timeout=60_000)
    await expect(button(stopped, "Rerun")).to_be_visible()
    await expect(stopped.locator("img")).to_have_js_property("naturalWidth", 800)
    await screenshot(phone, "idle-stopped", color_scheme="light")

    with box.queue() as queue:
        assert queue.job(2).reason is Reason.IDLE
        asked = queue.job(2).stop
        assert asked is not None
        assert is_on_time(asked.at, due(queue, 2))
        eventually(lambda: clock.now() > due(queue, 1) + A_MOMENT, what="the time of the first one is over as well")
        assert queue.job(1).state is State.RUNNING
        assert queue.job(1).stop is None


def button(message: Locator, label: str) -> Locator:
    return message.get_by_role("button", name=label, exact=True)


def due(queue: Queue, job_id: int) -> datetime:
    """When it is to be stopped, by the latest word on it: one whose warning was late is put off by a window."""
    *_, last = [one for one in queue.jobs.events(job_id) if one["kind"] in {"idle warning", "stop put off"}]
    moment = clock.moment(last["data"].get("stops_at"))
    return moment or clock.moment(last["at"]) + WINDOW
