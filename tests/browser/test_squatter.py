"""Another account takes the page's port when it is free: what it gets is of no use once its page is gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, Page, expect

from runner.config.home import BOT_LOCK, RUNNER_LOCK
from runner.processes.process_lock import KEEPER_LOCK, holder
from tests.box import Box
from tests.browser.squatter import Squatter
from tests.browser.stage import Stage
from tests.page_door import is_let_in
from tests.wait import eventually

LOCKED = "This link is no longer valid"
DRAFT, PENDING = "draft-that-is-private", "/submit -g 0 echo pending-that-is-private"


class Server:
    """The real thing on a port of its own, started by one command or another."""

    def __init__(self, box: Box, command: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        box.environ |= {"NIGHTSHIFT_CHAT": "page", "NIGHTSHIFT_PAGE_PORT": str(self.port), "NIGHTSHIFT_GPUS": "none"}
        self._box, self._command = box, command

    def start(self) -> str:
        """The link."""
        with (self._box.folder / "out").open("ab") as output:
            self._process = subprocess.Popen(
                self._box.command(self._command), env=self._box.environ, stdout=output, stderr=output
            )
        return str(eventually(self._link, 60, "the page is up"))

    def _link(self) -> str:
        assert self._process.poll() is None, (self._box.folder / "out").read_text()
        return self._box.run("page").stdout.strip() if holder(str(self._box.home), BOT_LOCK) else ""

    def kill(self) -> None:
        for lock in (KEEPER_LOCK, BOT_LOCK, RUNNER_LOCK):
            if pid := holder(str(self._box.home), lock):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(60)

    def jobs(self) -> list[str]:
        with self._box.queue() as queue:
            return [job.spec.command for job in queue.jobs.find()]


@pytest.fixture(params=["bot", "up"])
def server(box: Box, request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(box, request.param)
    yield made
    made.kill()


@asynccontextmanager
async def a_window(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context()
    try:
        yield await context.new_page()
    finally:
        await context.close()


async def write(page: Page, text: str, *, send: bool = False) -> None:
    await page.get_by_role("textbox", name="Message").fill(text)
    if send:
        await page.get_by_role("button", name="Send", exact=True).click()


async def replay(port: int, frames: list[dict[str, Any]]) -> list[str]:
    """Say this to the real server; what kinds of frames come back."""
    async with aiohttp.ClientSession() as client, client.ws_connect(f"http://127.0.0.1:{port}/chat") as talk:
        for frame in frames:
            await talk.send_json(frame)
        return [answer.json()["type"] async for answer in talk]


async def test_what_a_squatter_gets_is_of_no_use_once_its_page_is_gone(server: Server, browser: Browser):
    link = server.start()
    secret = link.partition("#")[2]
    async with a_window(browser) as page:
        await page.goto(link)
        await expect(page.locator(".message").first).to_be_visible()
        await write(page, DRAFT)
        server.kill()
        await expect(page.locator("#offline")).to_be_visible()
        await write(page, PENDING, send=True)
        async with Squatter(server.port) as squatter:
            # the page that is still open finds it, and does not take it for its server
            await expect(page.get_by_role("heading", name=LOCKED)).to_be_visible()
            said = list(squatter.frames)
            await page.reload()
            await expect(page.get_by_role("heading", name="Squatted")).to_be_visible()
            loot = await asyncio.wait_for(squatter.loot, 40)
        assert (loot["keys"], loot["exported"]) == (1, [])  # it had the browser sign, and could not have the key
        assert len(loot["signed"]) == 3
        got = json.dumps(loot) + "".join(said)
        assert not [word for word in (secret, DRAFT, PENDING) if word in got]
        assert {tuple(json.loads(frame)) for frame in said} == {("nonce",)}

        assert server.start() == link
        for proof in loot["signed"].values():
            assert await replay(server.port, [{"nonce": "ab" * 16}, {"proof": proof}]) == ["proof"]
        assert await replay(server.port, [json.loads(said[0])] * 2) == ["proof"]
        # its service worker shows its page once more, which uses the key that is still there: to no avail
        await page.reload()
        await expect(page.get_by_role("heading", name=LOCKED)).to_be_visible()
        await page.goto(link)
        await expect(page.locator(".message").first).to_be_visible()
        assert await page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0
        assert await page.evaluate("typeof talk") == "undefined"
        await expect(page.locator("#pending .message")).to_have_count(0)
    assert await is_let_in(link)
    assert server.jobs() == []


async def test_secret_leaves_the_address_bar_and_a_reload_needs_none(stage: Stage, desktop: Page):
    stage.start()
    await desktop.goto(stage.url)
    await expect(desktop.locator(".message")).to_have_count(1)
    assert "test-secret" not in desktop.url
    await desktop.reload()
    await expect(desktop.locator(".message")).to_have_count(1)
    stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, history.state, document.cookie])"
    assert "test-secret" not in await desktop.evaluate(stored)


async def test_new_link_opens_the_page_that_the_old_one_no_longer_does(stage: Stage, desktop: Page):
    stage.start()
    await desktop.goto(stage.url)
    await expect(desktop.locator(".message")).to_have_count(1)
    assert stage.page is not None
    stage.page.use_secret("another-secret-than-before")
    await expect(desktop.get_by_role("heading", name=LOCKED)).to_be_visible()
    await desktop.goto(stage.url)  # only what is behind the # is another: the page is not loaded again
    await expect(desktop.locator(".message")).to_have_count(1)
    await expect(desktop.get_by_role("heading", name=LOCKED)).to_be_hidden()
    assert "another-secret" not in desktop.url
