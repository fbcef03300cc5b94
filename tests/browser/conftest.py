"""A real browser for tests: Debian's Chromium, driven by Playwright.

Tests here are coroutines. They run on one event loop that stands still between them, so that tests elsewhere in the
same process may have loops of their own; what they serve (a Page, a bot) may run on the same loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Error, Page, async_playwright, expect

from tests.browser.stage import Stage

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
STILL = {"reduced_motion": "reduce"}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
DESKTOP = {"viewport": {"width": 1280, "height": 800}}
WAIT_MS = 40_000
KINDS: dict[BrowserContext, dict[str, Any]] = {}
expect.set_options(timeout=WAIT_MS)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test on the browser's loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    loop = pyfuncitem.funcargs["browser_loop"]
    wanted = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    loop.run_until_complete(pyfuncitem.obj(**wanted))
    return True


@pytest.fixture(scope="session", autouse=True)
def browser_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def browser(browser_loop: asyncio.AbstractEventLoop) -> Iterator[Browser]:
    """Chromium, once per test process."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    driver = browser_loop.run_until_complete(async_playwright().start())
    # Chromium refuses to run as root in its sandbox
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    launch = driver.chromium.launch(executable_path=CHROMIUM, args=[*sandbox, "--disable-gpu", "--process-per-site"])
    chromium = browser_loop.run_until_complete(launch)
    yield chromium
    browser_loop.run_until_complete(chromium.close())
    browser_loop.run_until_complete(driver.stop())


async def _context(browser: Browser, settings: dict[str, Any]) -> BrowserContext:
    """One for each kind of device, with a page that keeps its process: to start one takes a second of a processor."""
    found = [context for context in browser.contexts if KINDS.get(context) == settings]
    if found:
        return found[0]
    context = await browser.new_context(**STILL, **settings)
    KINDS[context] = settings
    context.set_default_timeout(WAIT_MS)
    keeper = await context.new_page()
    await keeper.route("**", lambda route: route.fulfill(body=""))
    await keeper.goto("http://127.0.0.1/")
    return context


async def _leave(page: Page) -> None:
    """As if nobody had been there, whoever gets this port next."""
    await page.context.clear_permissions()
    with contextlib.suppress(Error):  # it may show nothing at all
        await page.evaluate("localStorage.clear()")
    await page.close()


@pytest.fixture
def new_page(browser: Browser, browser_loop: asyncio.AbstractEventLoop) -> Iterator[Callable[..., Awaitable[Page]]]:
    """Open pages; a script error or a breach of the policy on any of them is a failure.

    Every server has a port of its own, and with it its pages have a storage of their own.
    """
    pages: list[Page] = []
    complaints: list[str] = []

    async def make(**settings: Any) -> Page:
        page = await (await _context(browser, settings)).new_page()
        pages.append(page)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
        return page

    yield make
    for page in pages:
        browser_loop.run_until_complete(_leave(page))
    # a connection that is refused while the server is away is written to the console by the browser itself
    assert [said for said in complaints if "ERR_CONNECTION_REFUSED" not in said] == []


@pytest.fixture
def phone(new_page: Callable[..., Awaitable[Page]], browser_loop: asyncio.AbstractEventLoop) -> Page:
    """A blank page on a phone."""
    return browser_loop.run_until_complete(new_page(**PHONE))


@pytest.fixture
def desktop(new_page: Callable[..., Awaitable[Page]], browser_loop: asyncio.AbstractEventLoop) -> Page:
    """A blank page in a window."""
    return browser_loop.run_until_complete(new_page(**DESKTOP))


@pytest.fixture
def screenshot(tmp_path: Path) -> Callable[..., Awaitable[str]]:
    """Take a picture of a page; NIGHTSHIFT_SCREENSHOTS names a folder to keep them in."""
    folder = os.environ.get("NIGHTSHIFT_SCREENSHOTS") or str(tmp_path)

    async def take(page: Page, name: str, *, color_scheme: str | None = None) -> str:
        if color_scheme is not None:
            await page.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")
        path = os.path.join(folder, f"{name}.png")
        await page.screenshot(path=path)
        return path

    return take


@pytest.fixture
def stage(browser_loop: asyncio.AbstractEventLoop) -> Iterator[Stage]:
    """A small bot and its page, served on the browser's loop."""
    made = Stage()
    browser_loop.run_until_complete(made.open())
    yield made
    browser_loop.run_until_complete(made.close())
