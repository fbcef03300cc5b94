"""The chat survives a restart."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.page import history
from tests.telegram.testing import Trial
from tests.telegram.world import World
from tests.wait import eventually

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x02\x00\x00\x00\x03"


def told(world: World, chat_id: int) -> list[dict[str, Any]]:
    return [message.for_page() for message in world.chats[chat_id].messages.values()]


def written_down(trial: Trial, path: Path) -> None:
    async def run() -> None:
        async with history.HistoryWriter(trial.world, trial.ada, str(path)):
            pass

    asyncio.run(run())


def loaded(path: Path) -> tuple[World, int]:
    world = World()
    ada = world.add_user("Ada", user_id=1001, username="ada")
    history.load(world, ada, str(path))
    return world, ada.id


def a_conversation() -> Trial:
    trial = Trial()
    asked = trial.people.send_text(trial.ada, None, "/submit 😀 x")
    markup = {"inline_keyboard": [[{"text": "Kill", "callback_data": "kill:1", "style": "danger"}]]}
    sent = trial.send(
        '<b>#1</b> 😀 <a href="https://x.org/">link</a> <pre><code class="language-python">x</code></pre>',
        parse_mode="HTML",
        reply_markup=markup,
        reply_parameters={"message_id": asked.message_id},
        disable_notification=True,
    )
    trial.ask(
        "editMessageText", chat_id=trial.ada.id, message_id=sent["message_id"], text="<i>now</i>", parse_mode="HTML"
    )
    files = {"document": Upload("a.log", b"log", "text/plain")}
    trial.ask(
        "sendDocument",
        chat_id=trial.ada.id,
        document="attach://document",
        caption="<b>c</b>",
        parse_mode="HTML",
        files=files,
    )
    trial.people.send_photo(trial.ada, None, PNG, caption="pic")
    return trial


def test_everything_one_sees_comes_back(tmp_path: Path):
    trial = a_conversation()
    written_down(trial, tmp_path / "chat.json")
    world, chat_id = loaded(tmp_path / "chat.json")
    assert told(world, chat_id) == told(trial.world, trial.ada.id)
    (document,) = [message.document for message in world.chats[chat_id].messages.values() if message.document]
    assert world.files.get(document.file_id) == document
    assert document.data == b"log"


def test_bot_goes_on_in_the_chat_it_had(tmp_path: Path):
    trial = a_conversation()
    written_down(trial, tmp_path / "chat.json")
    again = Trial()
    again.chat.messages.clear()
    history.load(again.world, again.ada, str(tmp_path / "chat.json"))
    last = max(trial.chat.messages)
    card = next(number for number, message in again.chat.messages.items() if message.text.text == "now")
    again.ask("editMessageText", chat_id=again.ada.id, message_id=card, text="later")
    assert again.send("new")["message_id"] == last + 1
    known = {message.document.file_id for message in again.chat.messages.values() if message.document}
    files = {"document": Upload("b.log", b"other", "text/plain")}
    sent = again.ask("sendDocument", chat_id=again.ada.id, document="attach://document", files=files)
    assert sent["document"]["file_id"] not in known


def test_nothing_kept_is_an_empty_chat(tmp_path: Path):
    world, chat_id = loaded(tmp_path / "chat.json")
    assert told(world, chat_id) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "messages": []}',
        '{"version": 1}',
        '{"version":1,"messages":[{"date":1}]}',
        "\x00",
    ],
)
def test_broken_file_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str):
    path = tmp_path / "chat.json"
    path.write_text(content)
    with caplog.at_level(logging.WARNING):
        world, chat_id = loaded(path)
    assert told(world, chat_id) == []
    assert not path.exists()
    assert (tmp_path / "chat.json.broken").read_text() == content
    assert "cannot be read" in caplog.text


def test_file_too_large_to_keep_is_said_to_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(history, "KEPT_FILE_BYTES", 2)
    trial = a_conversation()
    written_down(trial, tmp_path / "chat.json")
    world, chat_id = loaded(tmp_path / "chat.json")
    message = next(message for message in told(world, chat_id) if "a.log" in message.get("text", ""))
    assert message["text"] == "📎 a.log (no longer kept)\nc"
    assert message["entities"] == [
        {"type": "italic", "offset": 0, "length": 25},
        {"type": "bold", "offset": 26, "length": 1},
    ]


def test_only_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(history, "KEPT_MESSAGES", 3)
    trial = a_conversation()
    written_down(trial, tmp_path / "chat.json")
    first_files = set(os.listdir(tmp_path / "chat.json.files"))
    for number in range(5):
        trial.send(f"more {number}")
    written_down(trial, tmp_path / "chat.json")
    world, chat_id = loaded(tmp_path / "chat.json")
    assert [message["text"] for message in told(world, chat_id)] == ["more 2", "more 3", "more 4"]
    assert first_files
    assert os.listdir(tmp_path / "chat.json.files") == []


def test_only_the_owner_reads_it(tmp_path: Path):
    written_down(a_conversation(), tmp_path / "chat.json")
    for path in (tmp_path / "chat.json", *(tmp_path / "chat.json.files").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "chat.json.files").stat().st_mode) == 0o700


def test_changes_are_written_soon_and_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(history, "DELAY_S", 0.05)
    path = tmp_path / "chat.json"
    writes: list[str] = []
    real = history.HistoryWriter._write

    def counted(self: history.HistoryWriter, text: str, files: Any) -> None:
        writes.append(text)
        real(self, text, files)

    monkeypatch.setattr(history.HistoryWriter, "_write", counted)

    async def run() -> None:
        trial = Trial()
        async with history.HistoryWriter(trial.world, trial.ada, str(path)):
            for number in range(50):
                trial.people.send_text(trial.ada, None, f"message {number}")
            await asyncio.to_thread(eventually, path.exists)
            assert json.loads(path.read_text())["messages"][-1]["text"] == "message 49"
            assert len(writes) == 1

    asyncio.run(run())


def test_full_disk_is_said_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        written_down(a_conversation(), tmp_path / "file" / "chat.json")
    assert "cannot be written" in caplog.text
