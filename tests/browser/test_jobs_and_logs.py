"""Jobs beside the GPUs, logs that are read in place, and nothing that covers anything."""

from __future__ import annotations

import gzip
import time
from collections.abc import Awaitable, Callable

from playwright.async_api import Locator, Page, expect

from bot.local_chat.bot_api.files import Upload
from tests.browser.stage import Stage

JOBS = [
    {"id": 12, "name": "nano lr=3e-4", "runs": True, "words": "1200/4000 · loss 2.31 · 14 min left", "percent": 30},
    {"id": 13, "name": "eval", "runs": True, "words": "2 min", "percent": None},
    {
        "id": 14,
        "name": "python train.py --epochs 90 --long x",
        "runs": False,
        "words": "",
        "percent": None,
    },
]
LONG = "\n".join(f"epoch {n} loss {1 / (n + 1):.4f} {'=' * 40}" for n in range(14))


async def overlap(one: Locator, other: Locator) -> bool:
    a, b = await one.bounding_box(), await other.bounding_box()
    assert a is not None
    assert b is not None
    apart = (
        a["x"] + a["width"] <= b["x"] + 0.5 or b["x"] + b["width"] <= a["x"] + 0.5
        or a["y"] + a["height"] <= b["y"] + 0.5 or b["y"] + b["height"] <= a["y"] + 0.5
    )  # fmt: skip
    return not apart


async def test_jobs_are_beside_the_gpus_in_a_window_and_lead_to_the_job(stage: Stage, desktop: Page):
    stage.status["jobs"] = JOBS
    await desktop.goto(stage.url)
    rows = desktop.locator(".job")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text("#12 nano lr=3e-4")
    await expect(rows.first).to_contain_text("loss 2.31")
    await expect(rows.first.locator(".track i")).to_have_attribute("style", "width: 30%;")
    await expect(rows.nth(1).locator(".track")).to_have_count(0)
    await rows.first.click()
    await expect(desktop.locator(".mine").last).to_contain_text("/status 12")
    await rows.last.focus()
    await desktop.keyboard.press("Enter")
    await expect(desktop.locator(".mine").last).to_contain_text("/status 14")


async def test_on_a_phone_a_gpu_leads_to_its_job(stage: Stage, phone: Page):
    stage.status["jobs"] = JOBS
    await phone.goto(stage.url)
    await expect(phone.locator(".gpu")).to_have_count(2)
    await expect(phone.locator("#jobs")).to_be_hidden()
    await phone.locator(".gpu").last.tap()  # nothing runs there
    await phone.locator(".gpu").first.tap()
    await expect(phone.locator(".mine")).to_have_count(1)
    await expect(phone.locator(".mine")).to_contain_text("/status 12")


async def test_arrow_up_also_finds_what_was_sent_before_a_reload(stage: Stage, desktop: Page):
    await desktop.goto(stage.url)
    field = desktop.get_by_role("textbox", name="Message")
    for text in ("/status", "/submit python train.py"):
        await field.fill(text)
        await field.press("Enter")
    await expect(desktop.locator(".mine")).to_have_count(2)
    await desktop.reload()
    await expect(desktop.locator(".mine")).to_have_count(2)
    await field.press("ArrowUp")
    await expect(field).to_have_value("/submit python train.py")
    await field.press("ArrowUp")
    await expect(field).to_have_value("/status")
    await field.press("ArrowDown")
    await field.press("ArrowDown")
    await expect(field).to_have_value("")


async def test_a_whole_log_is_read_in_place_packed_or_not(stage: Stage, phone: Page):
    stage.start()
    text = "".join(f"line {n}\n" for n in range(5000)).encode()
    for name, data in (("job-1.log", text), ("job-2.log.gz", gzip.compress(text))):
        await stage.ask("sendDocument", {"document": Upload(name, data)}, document="attach://document")
    await phone.goto(stage.url)
    for at in range(2):
        await phone.get_by_role("button", name="Read it here").nth(at).tap()
        reader = phone.locator("#reader")
        await expect(reader).to_be_visible()
        await expect(reader.locator("pre")).to_contain_text("line 4999")
        await expect(reader.locator("pre")).to_contain_text("line 0\n")
        assert await reader.locator("pre").evaluate("node => node.scrollTop") > 0
        await reader.get_by_role("button", name="Close").tap()
        await expect(reader).to_be_hidden()


async def test_toasts_and_icons_cover_nothing(stage: Stage, phone: Page):
    stage.start()
    for n in range(30):
        await stage.ask("sendMessage", text=f"<pre>{LONG}</pre>" if n % 3 == 0 else f"message {n}", parse_mode="HTML")
    keys = {"inline_keyboard": [[{"text": "Kill", "callback_data": "k"}]]}
    await stage.ask("sendMessage", text="last", reply_markup=keys)
    await phone.goto(stage.url)
    await phone.get_by_role("button", name="Kill").last.tap()
    toast = phone.locator(".toast")
    await expect(toast).to_be_visible()
    for other in (phone.locator("#scroller"), phone.locator("#composer")):
        assert not await overlap(toast, other)
    code = phone.locator(".pre").last
    assert not await overlap(code.locator(".copy"), code.locator("pre"))
    await phone.locator("#scroller").evaluate("node => node.scrollTo(0, 0)")
    pill = phone.locator("#pill")
    await expect(pill).to_be_visible()
    assert not await overlap(pill, phone.locator("#scroller"))


async def test_copy_buttons_copy_and_a_file_that_is_packed_is_announced(stage: Stage, desktop: Page):
    stage.start()
    await desktop.context.grant_permissions(["clipboard-read", "clipboard-write"])
    keys = {"inline_keyboard": [[{"text": "Copy command", "copy_text": {"text": "python train.py"}}]]}
    await stage.ask("sendMessage", text="a job", reply_markup=keys)
    await desktop.goto(stage.url)
    await desktop.get_by_role("button", name="Copy command").click()
    await expect(desktop.locator(".toast")).to_have_text("Copied.")
    assert await desktop.evaluate("navigator.clipboard.readText()") == "python train.py"
    await stage.ask("sendChatAction", action="upload_document")
    await expect(desktop.locator("#state")).to_have_text("sending a file…")
    await stage.ask("sendDocument", {"document": Upload("a.log", b"x\n")}, document="attach://document")
    await expect(desktop.locator("#state")).to_have_text("1 running · 2 queued")


async def test_times_are_the_browsers(stage: Stage, new_page: Callable[..., Awaitable[Page]]):
    stage.start()
    at = 1_800_000_000  # 08:00 in UTC
    text = f'ended <tg-time unix="{at}" format="t">08:00</tg-time>'
    await stage.ask("sendMessage", text=text, parse_mode="HTML")
    tokyo = await new_page(viewport={"width": 800, "height": 600}, timezone_id="Asia/Tokyo", locale="en-GB")
    await tokyo.goto(stage.url)
    await expect(tokyo.locator(".text > time")).to_have_text("17:00")


async def test_how_it_looks(stage: Stage, phone: Page, desktop: Page, screenshot: Callable[..., Awaitable[str]]):
    stage.start()
    stage.status["jobs"] = JOBS
    now = int(time.time())
    nav = [[{"text": text, "callback_data": text} for text in row] for row in (
        ("First", "Older", "Newer", "Last"), ("Refresh", "Live", "Whole log"), ("Details", "Rerun"))]  # fmt: skip
    trace = (
        "<blockquote expandable><pre>Traceback (most recent call last):\n"
        + "  File a.py\n" * 14
        + "</pre></blockquote>"
    )
    html = f"❌ <b>#12 nano</b>\n<code>ValueError: bad</code>\n{trace}\n<pre>{LONG}</pre>"
    ended = f'ended <tg-time unix="{now}" format="t">08:00</tg-time>'
    await stage.ask("sendDocument", {"document": Upload("job-1.log", b"x\n")}, document="attach://document")
    await stage.ask("sendMessage", text=ended, parse_mode="HTML")
    await stage.ask("sendMessage", text=html, parse_mode="HTML", reply_markup={"inline_keyboard": nav})
    for page, name in ((phone, "phone"), (desktop, "desktop")):
        await page.goto(stage.url)
        await expect(page.get_by_role("button", name="Rerun")).to_be_visible()
        for scheme in ("light", "dark"):
            await screenshot(page, f"log-{name}-{scheme}", color_scheme=scheme)
        assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth")
        for key in await page.locator(".key").all():
            assert await key.evaluate("node => node.scrollWidth <= node.clientWidth")
