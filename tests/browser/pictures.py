"""The README's pictures: python -m tests.browser.pictures; it takes a font with emoji (fonts-noto-color-emoji)."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.box import Box
from tests.browser.conftest import CHROMIUM, DESKTOP, PHONE
from tests.browser.demo import ROOT, Phone, a_demo

DOCS, PROJECT = ROOT / "docs", Path("/tmp/vision")
TRAINING = "python3 train.py --steps 400 --seconds 0.15"
ONLOOKERS = {"locale": "en-GB", "reduced_motion": "reduce"}


def main() -> None:
    """Play the scene on simulated GPUs, and take it on a phone and in a window."""
    with tempfile.TemporaryDirectory() as folder:
        box = Box(Path(folder))
        PROJECT.mkdir()  # its path is in the picture
        try:
            shutil.copy(ROOT / "examples" / "train.py", PROJECT)
            with a_demo(box, cwd=PROJECT) as link:
                asyncio.run(_take(link))
                box.run("kill", "--all", "--yes")
        finally:
            shutil.rmtree(PROJECT)


async def _take(link: str) -> None:
    async with async_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        phone = await _page(browser, link, PHONE, "dark")
        hand = Phone(phone)
        await hand.send(f"/submit --name resnet {TRAINING} --bs 16")
        await expect(hand.said("#1 resnet running")).to_be_visible(timeout=20_000)
        await hand.send(f"/submit --name vit {TRAINING} --bs 32 --lr 1e-3 --fail-at 24")
        await expect(hand.said("#2 vit failed")).to_be_visible()
        await phone.screenshot(path=DOCS / "chat-phone.png")
        await hand.send("/rerun 2 --lr 3e-4 --fail-at 999")
        await expect(phone.get_by_role("button", name="GPU 1: #3, 90 %")).to_be_visible()
        await hand.send("/status")
        await expect(hand.said("2 running")).to_be_visible()
        desktop = await _page(browser, link, DESKTOP, "light")
        await expect(desktop.locator(".message.theirs", has_text="2 running").last).to_be_visible()
        await desktop.screenshot(path=DOCS / "chat-desktop.png")
        await browser.close()


async def _page(browser: Browser, link: str, device: dict[str, object], colours: str) -> Page:
    page = await (await browser.new_context(**ONLOOKERS, **device, color_scheme=colours)).new_page()  # type: ignore[arg-type]
    await page.goto(link)
    return page


if __name__ == "__main__":
    main()
