"""Logs on a phone: pages, errors, words, live, as a file; over the strict Bot API with real run directories."""

import asyncio

import pytest

from bot.outbound import live_log_editor
from bot.store import live_logs
from runner import rundir
from tests import attempts
from tests.room import in_room, labels

TRACE = (
    'Traceback (most recent call last):\n  File "/home/ada/train.py", line 3, in <module>\n    main()\n'
    + "".join(f'  File "/home/ada/part{n}.py", line {n}, in part{n}\n    part{n + 1}()\n' for n in range(8))
    + "ValueError: the learning rate is negative\n"
)


async def running(room, output=b"", command="python train.py"):
    await room.ask(room.uma, f"/submit -g 0 {command}")
    return attempts.begin(room.chat.queue, 1, output=output)


def text_of(room, user, message):
    return next(each for each in room.said(user) if each.message_id == message.message_id)


async def page(room, user, message, label):
    await room.tap(user, message, label)
    return text_of(room, user, message)


@in_room()
async def test_older_and_newer_pages_come_in_the_same_message(room):
    await running(room, b"".join(b"line %03d\n" % n for n in range(100)))
    said = (await room.ask(room.vic, "/log 1"))[-1]
    assert said.text.text.endswith("line 099")
    assert "line 070\n" in said.text.text
    assert labels(said) == ["First", "Older", "Refresh", "Live", "Whole log", "Details"]
    older = await page(room, room.vic, said, "Older")
    assert "line 040\n" in older.text.text
    assert older.text.text.endswith("line 069")
    assert "at 70 %" in older.text.text
    assert labels(older)[:4] == ["First", "Older", "Newer", "Last"]
    first = await page(room, room.vic, older, "First")
    assert "line 000\n" in first.text.text
    assert labels(first)[:2] == ["Newer", "Last"]
    assert "line 030\n" in (await page(room, room.vic, first, "Newer")).text.text
    last = await page(room, room.vic, first, "Last")
    assert last.text.text.endswith("line 099")
    assert len(room.said(room.vic)) == 2  # the greeting, and one log


@in_room()
async def test_a_page_stays_where_it_is_while_the_job_goes_on(room):
    folder = await running(room, b"".join(b"line %03d\n" % n for n in range(60)))
    said = (await room.ask(room.vic, "/log 1"))[-1]
    with (folder / rundir.OUTPUT).open("ab") as output:
        output.writelines(b"line %03d\n" % n for n in range(60, 200))
    assert (await page(room, room.vic, said, "Older")).text.text.endswith("line 029")
    assert "line 030\n" in (await page(room, room.vic, said, "Newer")).text.text


@in_room()
async def test_the_lines_about_the_error_are_folded_below_the_error(room):
    await running(room, (TRACE + "\n" + "".join(f"wandb: closed {n}\n" for n in range(40))).encode())
    attempts.end(room.chat.queue, 1, exit_code=1)
    said = next(one for one in await room.ask(room.uma, "/log 1") if "Error" in labels(one))
    assert said.text.text.endswith("closed 39")  # the end, and above it why
    assert said.text.text.split("\n")[1] == "ValueError: the learning rate is negative"
    assert "Error" in labels(said)
    both = said.text.text
    error = await page(room, room.uma, said, "Error")
    assert error.text.text.split("\n")[1] == "ValueError: the learning rate is negative"
    assert "expandable_blockquote" in {entity.type for entity in error.text.entities}
    assert "closed" not in error.text.text
    asked = (await room.ask(room.uma, "/log 1 error"))[-1]
    assert asked.text.text == error.text.text
    assert (await page(room, room.uma, asked, "Log")).text.text == both


@in_room()
async def test_a_traceback_at_the_end_is_not_shown_twice(room):
    await running(room, b"epoch 1\nValueError: bad\n")
    attempts.end(room.chat.queue, 1, exit_code=1)
    said = (await room.ask(room.uma, "/log 1"))[-1]
    assert said.text.text.count("ValueError: bad") == 1


@in_room()
async def test_a_long_traceback_is_folded_in_the_message_about_the_end(room):
    await running(room, TRACE.encode())
    attempts.end(room.chat.queue, 1, exit_code=1)
    await room.settle()
    ended = room.said(room.uma)[-1]
    assert "failed" in ended.text.text
    assert {"expandable_blockquote", "pre"} <= {entity.type for entity in ended.text.entities}


@in_room()
async def test_lines_with_a_word(room):
    await running(room, b"".join(b"step %d\n" % n + b"val_loss %d\n" % n * (n % 10 == 0) for n in range(500)))
    said = (await room.ask(room.vic, "/log 1 VAL_loss"))[0]
    assert said.text.text.startswith("▶️ #1 · 20 lines with “VAL_loss”\nval_loss 300\n")
    assert said.text.text.endswith("val_loss 490")
    older = await page(room, room.vic, said, "Older")
    assert older.text.text.endswith("val_loss 290")
    assert "no lines with “nan”" in (await room.ask(room.vic, "/log 1 nan"))[0].text.text
    assert "1 line with “step 77”" in (await room.ask(room.vic, "/log 1 step 77"))[0].text.text
    replied = await room.ask(room.vic, "/log step 77", reply_to=said.message_id)
    assert "1 line with “step 77”" in replied[0].text.text


@in_room()
async def test_the_error_of_a_job_that_runs_is_a_search(room):
    await running(room, b"fine\nsome Error: 5\nfine\n")
    assert (await room.ask(room.vic, "/log 1 error"))[0].text.text.endswith("some Error: 5")


@in_room()
async def test_no_page_and_no_search_shows_a_secret(room):
    await running(room, b"API_KEY=hunter2hunter2\n" + b"x\n" + b"".join(b"line %d\n" % n for n in range(60)))
    said = (await room.ask(room.vic, "/log 1"))[-1]
    first = await page(room, room.vic, said, "First")
    assert "hunter2" not in first.text.text
    assert "API_KEY=[redacted]" in first.text.text
    assert "no lines" in (await room.ask(room.vic, "/log 1 hunter2"))[0].text.text


@in_room()
async def test_buttons_of_an_old_attempt_show_that_attempt(room):
    await running(room, b"".join(b"line %03d\n" % n for n in range(100)))
    said = (await room.ask(room.vic, "/log 1"))[-1]
    room.chat.queue.store.execute("UPDATE jobs SET attempt = 2 WHERE id = 1")
    assert (await page(room, room.vic, said, "Older")).text.text.endswith("line 069")


# -- live ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(live_log_editor, "EVERY_S", 0.02)
    monkeypatch.setattr(live_log_editor, "EVERY_ON_PAGE_S", 0.02)


async def shows(room, user, message, words):
    for _ in range(1000):
        if words in text_of(room, user, message).text.text:
            return text_of(room, user, message)
        await asyncio.sleep(0.01)
    raise AssertionError(text_of(room, user, message).text.text)


def append(folder, data):
    with (folder / rundir.OUTPUT).open("ab") as output:
        output.write(data)


@in_room()
async def test_a_live_log_follows_the_output_until_stop(room):
    folder = await running(room, b"one\n")
    said = (await room.ask(room.vic, "/log 1"))[-1]
    await room.tap(room.vic, said, "Live")
    assert labels(await shows(room, room.vic, said, "· live")) == ["Stop", "Whole log"]
    append(folder, b"two\n")
    await shows(room, room.vic, said, "two")
    append(folder, b"three\n")
    stopped = await page(room, room.vic, await shows(room, room.vic, said, "three"), "Stop")
    assert "· so far" in stopped.text.text
    assert "Live" in labels(stopped)
    assert room.chat.live_logs.all() == []
    rows = [row["data"] for row in room.chat.queue.audit.rows() if row["action"] == "log"]
    assert {"job": 1, "live": True} in rows


@in_room()
async def test_a_live_log_ends_with_its_job(room):
    folder = await running(room, b"one\n")
    said = (await room.ask(room.uma, "/log 1"))[-1]
    await room.tap(room.uma, said, "Live")
    await shows(room, room.uma, said, "· live")
    append(folder, b"last words\n")
    attempts.end(room.chat.queue, 1, exit_code=0)
    ended = await shows(room, room.uma, said, "✅")
    assert ended.text.text.endswith("last words")
    await room.settle()
    assert "Live" not in labels(ended)
    assert "Rerun" in labels(text_of(room, room.uma, said))
    assert "Stop" not in labels(text_of(room, room.uma, said))


@in_room()
async def test_live_after_the_end_shows_the_end(room):
    await running(room, b"one\n")
    said = (await room.ask(room.uma, "/log 1"))[-1]
    attempts.end(room.chat.queue, 1, exit_code=0)
    ended = await page(room, room.uma, said, "Live")
    assert ended.text.text.startswith("✅")
    assert room.chat.live_logs.all() == []


@in_room()
async def test_a_live_log_ends_by_itself(room):
    await running(room, b"one\n")
    said = (await room.ask(room.uma, "/log 1"))[-1]
    await room.tap(room.uma, said, "Live")
    await shows(room, room.uma, said, "· live")
    room.chat.queue.store.execute('UPDATE box SET value = replace(value, \'"until": "2\', \'"until": "1\')')
    assert "Live" in labels(await shows(room, room.uma, said, "so far"))


@in_room()
async def test_a_live_log_goes_on_after_a_restart(room):
    folder = await running(room, b"one\n")
    said = (await room.ask(room.uma, "/log 1"))[-1]
    await room.tap(room.uma, said, "Live")
    await shows(room, room.uma, said, "· live")
    await room.die()
    append(folder, b"two\n")
    await room.open()
    await shows(room, room.uma, said, "two")
    await page(room, room.uma, text_of(room, room.uma, said), "Stop")


@in_room()
async def test_one_live_log_in_a_chat_and_not_too_many_in_all(room):
    await running(room, b"one\n")
    first = (await room.ask(room.uma, "/log 1"))[-1]
    second = (await room.ask(room.uma, "/log 1"))[-1]
    await room.tap(room.uma, first, "Live")
    await shows(room, room.uma, first, "· live")
    await room.tap(room.uma, second, "Live")
    await shows(room, room.uma, second, "· live")
    await shows(room, room.uma, first, "so far")
    live_logs.MOST, most = 1, live_logs.MOST
    try:
        third = (await room.ask(room.una, "/log 1"))[-1]
        await room.tap(room.una, third, "Live")
        assert "already 1 live logs" in room.answers()[-1]
    finally:
        live_logs.MOST = most


@in_room()
async def test_a_live_log_ends_for_somebody_who_may_no_longer_look(room):
    folder = await running(room, b"one\n")
    code = room.chat.people.invite("viewer", "tg:1")
    room.people.send_text(room.sam, None, f"/start {code}")
    await room.settle()
    said = (await room.ask(room.sam, "/log 1"))[-1]
    await room.tap(room.sam, said, "Live")
    await shows(room, room.sam, said, "· live")
    room.chat.people.revoke(room.sam.id)
    append(folder, b"not for sam\n")
    for _ in range(1000):
        if not room.chat.live_logs.all():
            break
        await asyncio.sleep(0.01)
    await room.settle()
    assert "not for sam" not in text_of(room, room.sam, said).text.text


@in_room()
async def test_alerts_go_before_a_live_log(room):
    """While anything else waits in the chat, a live log is not edited."""
    folder = await running(room, b"one\n")
    said = (await room.ask(room.uma, "/log 1"))[-1]
    await room.tap(room.uma, said, "Live")
    await shows(room, room.uma, said, "· live")
    await room.settle()
    waiting = room.chat.outbox.add(room.uma.id, "sendMessage", {"text": "wait"}, person=room.uma.id)
    room.chat.outbox.again(waiting, 60.0, arrived_perhaps=False)
    append(folder, b"two\n")
    await asyncio.sleep(0.2)
    assert "two" not in text_of(room, room.uma, said).text.text
    room.chat.outbox.done(waiting)
    await shows(room, room.uma, said, "two")


@in_room(log_text=False)
async def test_where_output_is_not_to_be_shown_no_button_shows_it(room):
    await running(room, b"the secret of the lab\n")
    button = room.chat.buttons.make(room.uma.id, "live", 1)
    other = room.chat.buttons.make(room.uma.id, "log page", 1, {"find": "secret"})
    said = (await room.ask(room.uma, "/status 1"))[0]
    for nonce in (button, other):
        room.people.tap(room.uma, None, said.message_id, nonce)
        await room.settle()
        assert "NIGHTSHIFT_LOG_TEXT" in room.answers()[-1]
    assert room.chat.live_logs.all() == []


# -- files and copies ------------------------------------------------------------------------------


@in_room()
async def test_the_chat_shows_that_a_file_is_being_packed(room):
    await running(room, b"one\n")
    said = (await room.ask(room.vic, "/log 1"))[-1]
    sent = (await room.tap(room.vic, said, "Whole log"))[-1]
    assert sent.document.data == b"one\n"
    actions = [event for event in room.world.events.after(0, "chat_action") if event.chat_id == room.vic.id]
    assert [event.data["action"] for event in actions] == ["upload_document"]


@in_room()
async def test_commands_and_run_ids_can_be_copied(room):
    await room.ask(room.uma, "/submit -g 0 python train.py --lr 3e-4")
    said = (await room.ask(room.uma, "/status 1"))[0]
    buttons = [button for row in said.reply_markup["inline_keyboard"] for button in row]
    copied = {button["text"]: button["copy_text"]["text"] for button in buttons if "copy_text" in button}
    job = room.chat.queue.job(1)
    assert copied == {"Copy command": "python train.py --lr 3e-4", "Copy run id": job.run_id}
    await room.ask(room.uma, f"/submit -g 0 echo {'x' * 300}")
    assert "Copy command" not in labels((await room.ask(room.uma, "/status 2"))[0])
