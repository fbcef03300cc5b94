"""The box at a glance, and how it looks."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser.stage import Stage, a_gpu


async def test_gpus_are_shown_as_they_are_now(stage: Stage, phone: Page):
    await phone.goto(stage.url)
    cards = phone.locator(".gpu")
    await expect(cards).to_have_count(2)
    await expect(phone.locator("#box")).to_have_text("ada-box")
    await expect(phone.locator("#state")).to_have_text("1 running · 2 queued")
    await expect(cards.first).to_contain_text("#12")
    await expect(cards.first).to_contain_text("9.1/24 GiB")
    await expect(cards.first).to_contain_text("87 %")
    await expect(cards.first).to_contain_text("61 °C · 287 W")
    await expect(cards.last).to_contain_text("free")
    stage.status |= {"running": 2, "gpus": [a_gpu(0, utilization=13), a_gpu(1, jobs=[13, 14]), a_gpu(2)]}
    assert stage.page is not None
    stage.page.status_changed()
    await expect(cards).to_have_count(3)
    await expect(cards.first).to_contain_text("13 %")
    await expect(cards.nth(1)).to_contain_text("#13 #14")
    await expect(phone.locator("#state")).to_have_text("2 running · 2 queued")


async def test_what_is_unknown_is_a_dash_and_not_a_zero(stage: Stage, phone: Page):
    unknown = {"memory_used_mib": None, "utilization": None, "temperature_c": None, "power_w": None}
    stage.status |= {"running": None, "gpus": [a_gpu(0, state="unknown", jobs=[], **unknown)]}
    await phone.goto(stage.url)
    card = phone.locator(".gpu")
    await expect(card).to_contain_text("unknown")
    await expect(card).to_contain_text("–/24 GiB")
    await expect(card).to_contain_text("– °C · – W")
    await expect(card.locator(".use .bar-label")).to_have_text("–")
    await expect(card.locator(".level.unknown")).to_have_count(2)
    await expect(phone.locator("#state")).to_have_text("– running · 2 queued")


async def test_trouble_is_loud_and_goes_when_it_is_over(stage: Stage, phone: Page):
    stage.status |= {"runner_up": False, "simulated": True, "held": "the queue is paused, because 3 jobs failed"}
    await phone.goto(stage.url)
    down = phone.locator("#runner-down")
    await expect(down).to_be_visible()
    await expect(down).to_have_css("background-color", "rgb(192, 44, 51)")
    await expect(phone.get_by_text("SIMULATED")).to_be_visible()
    await expect(phone.get_by_text("The queue is paused, because 3 jobs failed")).to_be_visible()
    stage.status |= {"runner_up": True, "simulated": False, "held": None}
    await expect(down).to_be_hidden()
    await expect(phone.get_by_text("SIMULATED")).to_be_hidden()
    await expect(phone.get_by_text("The queue is paused")).to_be_hidden()


async def test_colours_follow_the_system_or_the_person(stage: Stage, phone: Page):
    await phone.emulate_media(color_scheme="dark")
    await phone.goto(stage.url)
    ground = phone.locator("body")
    await expect(ground).to_have_css("background-color", "rgb(13, 15, 19)")
    await phone.emulate_media(color_scheme="light")
    await expect(ground).to_have_css("background-color", "rgb(238, 240, 244)")
    await phone.get_by_role("button", name="Colours: as the system").tap()
    await phone.get_by_role("button", name="Colours: light").tap()
    await expect(ground).to_have_css("background-color", "rgb(13, 15, 19)")
    await phone.reload()
    await expect(ground).to_have_css("background-color", "rgb(13, 15, 19)")


async def test_strip_folds_and_stays_folded(stage: Stage, phone: Page):
    await phone.goto(stage.url)
    strip = phone.locator("#strip")
    await expect(strip).to_be_visible()
    before = (await strip.bounding_box())["height"]
    await phone.get_by_role("button", name="GPU details").tap()
    assert (await strip.bounding_box())["height"] < before
    await phone.reload()
    await expect(strip).to_have_class("strip folded")


async def test_phone_does_not_zoom_and_page_fills_the_screen(stage: Stage, phone: Page):
    await phone.goto(stage.url)
    field = phone.get_by_role("textbox", name="Message")
    assert await field.evaluate("(node) => parseFloat(getComputedStyle(node).fontSize)") >= 16
    box = await phone.locator("#composer").bounding_box()
    assert box["y"] + box["height"] == 844
