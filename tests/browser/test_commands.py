"""Commands: found while typing, behind the / button, tapped in a text."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser.stage import COMMANDS, Stage


async def test_typing_a_slash_offers_what_fits(stage: Stage, desktop: Page):
    stage.start()
    await stage.offer_commands()
    await desktop.goto(stage.url)
    field = desktop.get_by_role("textbox", name="Message")
    await field.press_sequentially("/s")
    options = desktop.get_by_role("option")
    await expect(options).to_have_count(3)
    await expect(options.nth(1)).to_contain_text("Queue a job")
    await field.press("ArrowDown")
    await expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    await field.press("Tab")
    await expect(field).to_have_value("/submit ")
    await expect(field).to_be_focused()
    await expect(options).to_have_count(0)
    await field.fill("")
    await field.press_sequentially("/sw")
    await field.press("Enter")
    await expect(field).to_have_value("/sweep ")
    await field.fill("")
    await field.press_sequentially("/status")
    await field.press("Enter")
    await expect(desktop.get_by_text("echo: /status")).to_be_visible()
    assert stage.said() == ["/start", "/status"]


async def test_slash_button_lists_all_and_sends_or_fills(stage: Stage, phone: Page):
    stage.start()
    await phone.goto(stage.url)
    slash = phone.get_by_role("button", name="Commands")
    await expect(slash).to_be_hidden()
    await stage.offer_commands()
    await slash.tap()
    await expect(phone.get_by_role("option")).to_have_count(len(COMMANDS))
    await phone.get_by_role("option", name="/submit").tap()
    await expect(phone.get_by_role("textbox", name="Message")).to_have_value("/submit ")
    await phone.get_by_role("textbox", name="Message").fill("")
    await slash.tap()
    await phone.get_by_role("button", name="Send /gpus").tap()
    await expect(phone.get_by_text("echo: /gpus")).to_be_visible()
    assert stage.said() == ["/start", "/gpus"]
