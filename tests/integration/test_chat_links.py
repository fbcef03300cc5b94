"""Taps do what the text says: every room of the suite is searched for stray links when it closes, this one is full."""

import ast
import re
from pathlib import Path

from bot.commands import BY_NAME, COMMANDS
from tests.room import ARGUMENT, in_room, stray_links

ROOT = Path(__file__).parents[2]
AT_THE_TERMINAL = {
    "bot/terminal/doctor.py",
    "bot/cli.py",
    "bot/commands.py",
    "bot/terminal/people.py",
    "bot/outbound/telegram_client.py",
    "runner/terminal/cli.py",
}
FOLDERS_AT_THE_TERMINAL = ("bot/local_chat/", "runner/terminal/", "runner/idle_command/")
NAMES = ["train.py", "run.sh", "model.pt", "data.zip"]
WRONG = ["12 13 nonsense", "--nonsense", "train.py", "1 nonsense train.py"]


@in_room()
async def test_no_command_and_no_name_of_a_file_becomes_a_stray_link(room):
    for name in NAMES:
        await room.ask(room.uma, f"/submit -g 0 --name {name} true")
    await room.ask(room.uma, "/sweep -g 0 --group eval.py true {x} ; x=a.py,b.sh")
    for command in COMMANDS:
        for rest in ("", " 1", *(f" {wrong}" for wrong in WRONG)):
            await room.ask(room.ada, f"/{command.name}{rest}")
    for name in ("/data", "/kil 3", "train.py", "status 1"):
        await room.ask(room.ada, name)
    said = [message for person in (room.ada, room.uma) for message in room.said(person)]
    assert len(said) > 100
    assert {one for message in said for one in stray_links(message)} == set()
    assert all(message.link_preview == {"is_disabled": True} for message in said if message.text.text)


@in_room()
async def test_the_hint_for_a_held_job_is_whole_when_it_is_copied(room):
    await room.ask(room.uma, "/submit -g 0 true")
    (said,) = await room.ask(room.uma, "/hold 1")
    assert said.text.text == "Job 1 is held: it does not start before /release 1."
    (hint,) = [one for one in said.text.entities if one.type == "code"]
    assert said.text.text[hint.offset : hint.end] == "/release 1"


@in_room()
async def test_a_file_that_is_no_longer_there_is_told_without_links(room):
    await room.ask(room.uma, "/sweep -g 0 --group eval.py true {x} ; x=1,2")
    shown = room.said(room.uma)[-1]
    room.chat.queue.store.execute("DELETE FROM groups")
    await room.tap(room.uma, shown, "CSV")
    assert room.said(room.uma)[-1].text.text == "There is no group eval.py any more."


def sentences(path):
    """All text in a file but docstrings, and what is marked as code already; an unknown part is a 12."""
    tree = ast.parse(path.read_text())
    marked = {
        id(inner)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"code", "pre"}
        for inner in ast.walk(call)
    }
    marked |= {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    marked |= {id(part) for one in ast.walk(tree) if isinstance(one, ast.JoinedStr) for part in one.values}
    for one in ast.walk(tree):
        if id(one) in marked:
            continue
        if isinstance(one, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "12" for part in one.values)
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def chat_files():
    files = [path for folder in ("bot", "runner") for path in (ROOT / folder).rglob("*.py")]
    named = {str(path.relative_to(ROOT)): path for path in files}
    skipped = AT_THE_TERMINAL | {name for name in named if name.startswith(FOLDERS_AT_THE_TERMINAL)}
    return [named[name] for name in sorted(named.keys() - skipped)]


def test_every_hint_that_names_a_command_with_an_argument_marks_it():
    command = re.compile(rf"(?<![\w/`])/(?:{'|'.join(BY_NAME)})(?={ARGUMENT.pattern})")
    bare = [
        f"{path.name}: {text}"
        for path in chat_files()
        for text in sentences(path)
        if command.search(re.sub(r"`[^`]*`|<code>.*?</code>", "", text))
    ]
    assert bare == []
