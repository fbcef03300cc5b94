"""The whole product as a newcomer starts it: `nightshift demo`, and a phone in somebody's hand."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from playwright.async_api import Locator, Page

from tests.box import Box
from tests.wait import eventually

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def a_demo(box: Box, cwd: Path = ROOT, **settings: str) -> Iterator[str]:
    """The link that it prints."""
    chosen = {f"NIGHTSHIFT_{name.upper()}": value for name, value in settings.items()}
    environ = {**box.environ, **chosen, "NIGHTSHIFT_PAGE_PORT": "0", "NIGHTSHIFT_BOX": "gpu-box"}
    environ.pop("NIGHTSHIFT_HOME")
    box.use_home(Path(box.environ["HOME"]) / ".nightshift-demo")
    with (box.folder / "demo.out").open("wb") as output:
        demo = subprocess.Popen(
            box.command("demo"), env=environ, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield eventually(lambda: _link(box, demo), 60, "the demo prints its link")  # type: ignore[misc]
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
