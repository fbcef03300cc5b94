"""The server goes and comes back: nothing is lost, nothing is doubled, nobody reloads."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser.stage import Stage


async def write(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.get_by_role("button", name="Send", exact=True).click()


async def test_what_is_written_meanwhile_arrives_once(stage: Stage, desktop: Page):
    stage.start()
    await desktop.goto(stage.url)
    await write(desktop, "before")
    await expect(desktop.get_by_text("echo: before")).to_be_visible()
    await stage.close()
    await expect(desktop.locator("#offline")).to_be_visible()
    await expect(desktop.locator("#state")).to_have_text("reconnecting…")
    await write(desktop, "first")
    await write(desktop, "second")
    await expect(desktop.get_by_role("img", name="Waiting to be sent")).to_have_count(2)
    await stage.say("meanwhile")
    await stage.open()
    await expect(desktop.get_by_text("echo: second")).to_be_visible()
    await expect(desktop.locator("#offline")).to_be_hidden()
    await expect(desktop.locator("#pending .message")).to_have_count(0)
    await expect(desktop.get_by_text("meanwhile")).to_have_count(1)
    await expect(desktop.locator(".mine")).to_have_count(4)
    assert stage.said() == ["/start", "before", "first", "second"]


async def test_what_happens_during_a_short_break_is_made_up_for(stage: Stage, phone: Page):
    stage.start()
    number = await stage.say("step 1")
    await phone.goto(stage.url)
    await expect(phone.get_by_text("step 1")).to_be_visible()
    await stage.cut_off()
    await stage.say("meanwhile")
    await stage.ask("editMessageText", message_id=number, text="step 2")
    await expect(phone.get_by_text("step 2")).to_be_visible()
    await expect(phone.get_by_text("meanwhile")).to_be_visible()
    await expect(phone.locator("#offline")).to_be_hidden()
    await expect(phone.locator(".message")).to_have_count(3)


async def test_new_server_with_another_history_is_taken_over_whole(stage: Stage, phone: Page):
    stage.start()
    await stage.say("of the old server")
    await phone.goto(stage.url)
    await expect(phone.get_by_text("of the old server")).to_be_visible()
    await stage.close()
    stage.new_world()
    stage.start()
    await stage.say("of the new server")
    await stage.open()
    await expect(phone.get_by_text("of the new server")).to_be_visible()
    await expect(phone.get_by_text("of the old server")).to_have_count(0)
    await expect(phone.locator(".message")).to_have_count(2)


async def test_message_that_the_lost_server_had_taken_is_not_sent_again(stage: Stage, desktop: Page):
    stage.start()
    await desktop.goto(stage.url)
    await expect(desktop.locator(".message")).to_have_count(1)
    # the server takes it and dies before it says so
    await desktop.evaluate(
        "WebSocket.prototype.real = WebSocket.prototype.send; WebSocket.prototype.send = () => {}; 0"
    )
    await write(desktop, "/submit once")
    stage.api.people.send_text(stage.ada, None, "/submit once")
    await stage.close()
    await expect(desktop.locator("#offline")).to_be_visible()
    await desktop.evaluate("WebSocket.prototype.send = WebSocket.prototype.real; 0")
    await stage.open()
    await expect(desktop.locator("#offline")).to_be_hidden()
    await expect(desktop.locator(".mine")).to_have_count(2)
    await expect(desktop.locator("#pending .message")).to_have_count(0)
    assert stage.said() == ["/start", "/submit once"]


async def test_two_pages_show_the_same(stage: Stage, desktop: Page, phone: Page):
    stage.start()
    await desktop.goto(stage.url)
    await phone.goto(stage.url)
    await write(phone, "from the phone")
    await expect(desktop.get_by_text("echo: from the phone")).to_be_visible()
    await expect(desktop.locator(".mine")).to_have_count(2)
    await expect(phone.locator(".mine")).to_have_count(2)


async def test_draft_survives_a_reload(stage: Stage, desktop: Page):
    stage.start()
    await desktop.goto(stage.url)
    await expect(desktop.locator(".message")).to_have_count(1)
    before = await desktop.evaluate("sessionStorage['nightshift.shelf']")
    await desktop.get_by_role("textbox", name="Message").fill("half a thought")
    await desktop.wait_for_function("before => sessionStorage['nightshift.shelf'] !== before", arg=before)
    await desktop.reload()
    await expect(desktop.get_by_role("textbox", name="Message")).to_have_value("half a thought")


async def test_title_counts_what_came_while_nobody_looked(stage: Stage, desktop: Page):
    stage.start()
    await desktop.goto(stage.url)
    await expect(desktop).to_have_title("ada-box · nightshift")
    await desktop.evaluate("Object.defineProperty(document, 'hidden', { get: () => window.away, configurable: true })")
    await desktop.evaluate("window.away = true")
    await stage.say("one")
    await stage.say("two")
    await expect(desktop).to_have_title("(2) ada-box · nightshift")
    await desktop.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    await expect(desktop).to_have_title("ada-box · nightshift")
