"""Nothing that anybody writes is run, and who has no secret sees nothing."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from bot.local_chat.bot_api.formatted_text import Entity, FormattedText
from tests.browser.stage import Stage, buttons

EVIL = (
    '<img src=x onerror="window.ran=1">',
    "<script>window.ran=1</script>",
    "<svg/onload=window.ran=1>",
    "javascript:window.ran=1",
    "data:text/html,<script>window.ran=1</script>",
    '"><iframe src="javascript:parent.ran=1">',
    "{{constructor.constructor('window.ran=1')()}}",
)


async def test_hostile_text_stays_text(stage: Stage, desktop: Page):
    stage.start()
    markup = buttons([(text[:60], "x", "") for text in EVIL[:3]])
    for text in EVIL:
        stage.api.people.send_text(stage.ada, None, text)
        await stage.ask("sendMessage", text=text, reply_markup=markup)
        await stage.ask(
            "sendMessage", text=text, entities=[{"type": "pre", "offset": 0, "length": 9, "language": text}]
        )
    # links that the strict API would never let in
    message = list(stage.chat.messages.values())[-1]
    for scheme in (
        "javascript:window.ran=1",
        "data:text/html,<script>opener.ran=1</script>",
        " javascript:1",
        "vbscript:x",
    ):
        link = Entity("text_link", 0, 4, (("url", scheme),))
        message.text = FormattedText("link that is none", (link,))
        stage.api.world.tell_message("message", message, by_bot=True)
        stage.api.people.send_document(
            stage.ada, None, f'{scheme}"><img src=x onerror=ran=1>.html', b"x", caption=scheme
        )
    stage.status["box"] = EVIL[0]
    await desktop.goto(stage.url)
    await expect(desktop.locator(".mine .text").nth(1)).to_contain_text(EVIL[0])
    await expect(desktop.locator("#box")).to_have_text(EVIL[0])
    for text in EVIL:
        assert await desktop.get_by_text(text, exact=False).count() >= 2
    assert await desktop.locator("#log img, #log iframe, #log script, #log svg[onload]").count() == 0
    assert await desktop.locator("#log a").count() == 0
    await desktop.get_by_text("link that is none").click()
    for button in await desktop.locator(".key").all():
        await button.click()
    assert await desktop.evaluate("window.ran") is None


async def test_policy_forbids_what_the_page_does_not_do(stage: Stage, browser: Browser):
    page = await browser.new_page()
    await page.goto(stage.url)
    await expect(page.locator("#empty")).to_be_visible()
    refused = """() => { try { document.body.innerHTML = "<b>x</b>"; return false } catch { return true } }"""
    assert await page.evaluate(refused)
    assert await page.evaluate("fetch('https://example.org/').then(() => false, () => true)")
    assert await page.evaluate("window.ran") is None
    await page.close()


@pytest.mark.parametrize("fragment", ["", "#test-secret-behind-the-hasH"])
async def test_without_the_secret_there_is_nothing_to_see(stage: Stage, phone: Page, fragment: str):
    stage.start()
    await stage.say("private")
    await phone.goto(stage.url.partition("#")[0] + fragment)
    await expect(phone.get_by_role("heading", name="This link is no longer valid")).to_be_visible()
    await expect(phone.locator("#app")).to_be_hidden()
    assert "private" not in await phone.content()


async def test_secret_is_in_no_address_the_server_sees(stage: Stage, desktop: Page):
    addresses: list[str] = []
    desktop.on("request", lambda request: addresses.append(request.url.partition("#")[0]))
    desktop.on("websocket", lambda socket: addresses.append(socket.url))
    stage.start()
    await desktop.goto(stage.url)
    await expect(desktop.locator(".message")).to_have_count(1)
    assert addresses
    assert all(address.startswith((stage.url.partition("/#")[0], "ws://127.0.0.1:")) for address in addresses)
    assert not [address for address in addresses if "test-secret" in address]
