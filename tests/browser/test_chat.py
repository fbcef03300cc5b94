"""The chat as a person has it: writing, reading, pressing."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from bot.local_chat.bot_api.files import Upload
from tests.browser.stage import Stage, buttons, picture


async def test_first_message_starts_the_bot(stage: Stage, phone: Page):
    await phone.goto(stage.url)
    await phone.get_by_role("button", name="Start").tap()
    await expect(phone.locator(".mine .text")).to_contain_text("/start")
    await expect(phone.locator(".theirs .text")).to_contain_text("echo: /start")
    await expect(phone.locator("#empty")).to_be_hidden()
    assert stage.said() == ["/start"]


async def test_enter_sends_on_a_desktop_and_shift_enter_does_not(stage: Stage, desktop: Page):
    stage.start()
    await desktop.goto(stage.url)
    field = desktop.get_by_role("textbox", name="Message")
    await expect(field).to_be_focused()
    before = (await field.bounding_box())["height"]
    await field.press_sequentially("one")
    await field.press("Shift+Enter")
    await field.press_sequentially("two")
    assert (await field.bounding_box())["height"] > before
    await field.press("Enter")
    await expect(desktop.get_by_text("echo: one\ntwo")).to_be_visible()
    await expect(field).to_have_value("")
    await expect(desktop.locator(".mine")).to_have_count(2)
    await expect(desktop.locator("#pending .message")).to_have_count(0)
    await field.press("ArrowUp")
    await expect(field).to_have_value("one\ntwo")
    await field.press("ArrowDown")
    await expect(field).to_have_value("")
    assert stage.said() == ["/start", "one\ntwo"]


async def test_enter_is_a_new_line_on_a_phone(stage: Stage, phone: Page):
    stage.start()
    await phone.goto(stage.url)
    field = phone.get_by_role("textbox", name="Message")
    await field.press_sequentially("one")
    await field.press("Enter")
    await field.press_sequentially("two")
    await phone.get_by_role("button", name="Send", exact=True).tap()
    await expect(phone.get_by_text("echo: one\ntwo")).to_be_visible()


async def test_mine_are_right_and_the_bots_left_and_nothing_is_wider_than_the_phone(stage: Stage, phone: Page):
    stage.start()
    await stage.say(f"{'x' * 300} <code>{'y' * 300}</code><pre>{'z' * 300}</pre>")
    stage.api.people.send_text(stage.ada, None, "w" * 300)
    await phone.goto(stage.url)
    mine = await phone.locator(".mine .bubble").last.bounding_box()
    theirs = await phone.locator(".theirs .bubble").first.bounding_box()
    assert theirs["x"] < 20
    assert mine["x"] > theirs["x"] + 20
    assert mine["x"] + mine["width"] > 360
    assert await phone.evaluate("document.documentElement.scrollWidth") == 390
    assert await phone.evaluate("document.querySelector('#scroller').scrollWidth") <= 390
    code = phone.locator(".theirs pre")
    assert await code.evaluate("(node) => node.scrollWidth > node.clientWidth")


async def test_formatting(stage: Stage, desktop: Page):
    stage.start()
    await stage.say(
        "😀 <b>bold <i>both</i></b> <u>under</u> <s>gone</s> <code>a&lt;b</code> "
        '<a href="https://example.org/x">site</a> http://example.net /status@nightshift_bot\n'
        '<pre><code class="language-python">if x:\n    y()</code></pre><blockquote>quoted</blockquote>'
    )
    await desktop.goto(stage.url)
    text = desktop.locator(".theirs .text")
    await expect(text.locator("strong")).to_have_text("bold both")
    await expect(text.locator("strong em")).to_have_text("both")
    await expect(text.locator("u")).to_have_text("under")
    await expect(text.locator("s")).to_have_text("gone")
    await expect(desktop.locator(".theirs .text > code")).to_have_text("a<b")
    await expect(text.locator("blockquote")).to_have_text("quoted")
    await expect(text.locator("pre")).to_have_text("if x:\n    y()")
    await expect(text.locator(".language")).to_have_text("python")
    links = text.locator("a")
    assert [await link.get_attribute("href") for link in await links.all()] == [
        "https://example.org/x",
        "http://example.net/",
    ]
    await expect(links.first).to_have_attribute("rel", "noopener noreferrer")
    await expect(links.first).to_have_attribute("target", "_blank")
    await text.get_by_role("button", name="/status").click()
    await expect(desktop.get_by_text("echo: /status@nightshift_bot")).to_be_visible()


async def test_copy_button_copies_the_code(stage: Stage, desktop: Page):
    stage.start()
    await stage.say("<pre>nightshift up --detach</pre>")
    await desktop.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await desktop.goto(stage.url)
    await desktop.get_by_role("button", name="Copy").click()
    await expect(desktop.locator(".copy path")).to_have_attribute("d", re.compile("^M5 12"))
    assert await desktop.evaluate("navigator.clipboard.readText()") == "nightshift up --detach"


async def test_button_waits_for_its_answer(stage: Stage, phone: Page):
    stage.start()
    stage.echoes = False
    await stage.say("#7 runs", reply_markup=buttons([("Log", "log:7", ""), ("Kill", "kill:7", "danger")]))
    await phone.goto(stage.url)
    kill = phone.get_by_role("button", name="Kill")
    assert "danger" in await kill.get_attribute("class")
    await kill.tap()
    await expect(kill).to_have_attribute("aria-busy", "true")
    await kill.tap(force=True)
    (tap,) = stage.api.world.taps.values()
    assert tap.data == "kill:7"
    await stage.ask("answerCallbackQuery", callback_query_id=tap.id, text="Stopping #7")
    await expect(phone.locator(".toast")).to_have_text("Stopping #7")
    await expect(kill).not_to_have_attribute("aria-busy", "true")


async def test_alert_is_a_dialog(stage: Stage, desktop: Page):
    stage.start()
    await stage.say("Sure?", reply_markup=buttons([("Yes", "alert: no such job", "primary")]))
    await desktop.goto(stage.url)
    await desktop.get_by_role("button", name="Yes").click()
    dialog = desktop.get_by_role("dialog")
    await expect(dialog).to_contain_text("alert: no such job")
    await dialog.get_by_role("button", name="OK").click()
    await expect(dialog).to_be_hidden()


async def test_message_changes_under_the_readers_eyes(stage: Stage, desktop: Page):
    stage.start()
    await desktop.goto(stage.url)
    quote = "<blockquote expandable>1\n2\n3\n4\n5</blockquote>"
    number = await stage.say(f"step 1{quote}", disable_notification=True)
    message = desktop.locator(f'[data-id="{number}"]')
    await expect(message).to_contain_text("step 1")
    await expect(message.get_by_role("img", name="Sent silently")).to_be_visible()
    await expect(message).not_to_contain_text("edited")
    await message.get_by_role("button", name="Show all").click()
    await stage.ask("editMessageText", message_id=number, text=f"step 2{quote}", parse_mode="HTML")
    await expect(message).to_contain_text("step 2")
    await expect(message).to_contain_text("edited")
    await expect(message.get_by_role("button", name="Show less")).to_be_visible()


async def test_picture_is_shown_and_enlarged(stage: Stage, phone: Page):
    stage.start()
    await phone.goto(stage.url)
    upload = Upload("loss.png", picture(), "image/png")
    await stage.ask("sendPhoto", files={"photo": upload}, photo="attach://photo", caption="loss")
    image = phone.locator(".photo img")
    await expect(image).to_have_js_property("naturalWidth", 320)
    assert (await image.get_attribute("src")).startswith("blob:")
    await phone.get_by_role("button", name="Enlarge the picture").tap()
    large = phone.get_by_role("dialog", name="Picture")
    await expect(large.locator("img")).to_be_visible()
    await large.tap()
    await expect(large).to_be_hidden()


async def test_document_is_downloaded(stage: Stage, desktop: Page):
    stage.start()
    content = b"line\n" * 30_000
    await stage.ask(
        "sendDocument", files={"document": Upload("run 7.log", content, "text/plain")}, document="attach://document"
    )
    await desktop.goto(stage.url)
    button = desktop.get_by_role("button", name="Download run 7.log")
    await expect(button).to_contain_text("146 KB")
    async with desktop.expect_download() as started:
        await button.click()
    download = await started.value
    assert download.suggested_filename == "run 7.log"
    with open(await download.path(), "rb") as file:
        assert file.read() == content


async def test_file_goes_to_the_bot(stage: Stage, phone: Page):
    stage.start()
    await phone.goto(stage.url)
    await phone.get_by_role("textbox", name="Message").fill("run this")
    file = {"name": "night.sh", "mimeType": "text/x-sh", "buffer": b"echo hi\n"}
    await phone.locator("#file").set_input_files([file])
    sent = phone.locator(".mine", has_text="night.sh")
    await expect(sent.locator(".document")).to_be_visible()
    await expect(sent).to_contain_text("run this")
    await expect(phone.locator("#pending .message")).to_have_count(0)
    document = list(stage.chat.messages.values())[-1].document
    assert document is not None
    assert (document.name, document.data) == ("night.sh", b"echo hi\n")


async def test_reply_by_button_and_jump_back(stage: Stage, desktop: Page):
    stage.start()
    number = await stage.say("the first one")
    for count in range(40):
        await stage.say(f"filler {count}")
    await desktop.goto(stage.url)
    first = desktop.locator(f'[data-id="{number}"]')
    await first.hover()
    await first.get_by_role("button", name="Reply").click()
    await expect(desktop.locator("#replying")).to_contain_text("the first one")
    await desktop.keyboard.type("what about it?")
    await desktop.keyboard.press("Enter")
    answer = desktop.locator(".mine", has_text="what about it?")
    await expect(answer.locator(".quote")).to_contain_text("the first one")
    await expect(desktop.locator("#replying")).to_be_hidden()
    await expect(first).not_to_be_in_viewport()
    await answer.locator(".quote").click()
    await expect(first).to_be_in_viewport()
    replied = [message.reply_to for message in stage.chat.messages.values() if message.reply_to is not None]
    assert [message.message_id for message in replied if message is not None] == [number]


async def test_reply_by_swipe(stage: Stage, phone: Page):
    stage.start()
    await stage.say("swipe me")
    await phone.goto(stage.url)
    box = await phone.locator(".theirs .bubble").bounding_box()
    touch = await phone.context.new_cdp_session(phone)
    x, y = box["x"] + 40, box["y"] + 10
    await touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x + 100, "y": y}]})
    for step in range(1, 9):
        points = [{"x": x + 100 - 12 * step, "y": y}]
        await touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": points})
    await touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    await expect(phone.locator("#replying")).to_contain_text("swipe me")
    await phone.get_by_role("button", name="Cancel the reply").click()
    await expect(phone.locator("#replying")).to_be_hidden()


async def test_screen_stays_where_one_reads(stage: Stage, phone: Page):
    stage.start()
    early = [await stage.say(f"filler {count}") for count in range(40)][2]
    await phone.goto(stage.url)
    await expect(phone.locator(".theirs").last).to_be_in_viewport()
    await stage.say("at the end")
    await expect(phone.get_by_text("at the end")).to_be_in_viewport()
    await phone.evaluate("document.querySelector('#scroller').scrollTop = 100")
    read = phone.locator(f'[data-id="{early}"]')
    await expect(read).to_be_in_viewport()
    await expect(phone.locator("#pill")).to_be_visible()
    await stage.say("while away 1")
    await stage.say("while away 2")
    pill = phone.get_by_role("button", name="2 new messages")
    await expect(pill).to_be_visible()
    await expect(read).to_be_in_viewport()
    await pill.tap()
    await expect(phone.get_by_text("while away 2")).to_be_in_viewport()
    await expect(phone.locator("#pill")).to_be_hidden()


async def test_older_messages_come_when_one_scrolls_up(stage: Stage, desktop: Page):
    stage.start()
    for count in range(250):
        await stage.say(f"filler {count}")
    await desktop.goto(stage.url)
    await expect(desktop.locator(".theirs").last).to_be_in_viewport()
    await expect(desktop.locator(".message")).to_have_count(200)
    await desktop.evaluate("document.querySelector('#scroller').scrollTop = 0")
    await expect(desktop.locator(".message")).to_have_count(251)
    texts = await desktop.locator(".theirs .text").evaluate_all(
        "(all) => all.map((node) => node.firstChild.textContent)"
    )
    assert texts == [f"filler {count}" for count in range(250)]
