"""What `/help` shows: the commands of a role on one screen, and more about a topic or a command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.commands import ALIASES, Command, menu
from bot.text.buttons import ButtonKind, Press
from bot.text.html import bold, code, escape, fit, italic
from runner.api.chat import OPTION_SECTIONS, PRESET, help_rows
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.commands import Role

TOPICS = {
    "Run": ("submit", "rerun", "preset", "save", "batch", "sweep"),
    "Look": ("status", "queue", "gpus", "log", "group", "fit"),
    "Change": ("kill", "edit", "move", "hold", "release", "keep", "extend"),
    "Box": ("pause", "resume", "drain", "ws", "pair", "audit"),
    "You": ("notify", "whoami", "help"),
}
WITHOUT_NUMBER = (
    "Name a job by its number or its name. Or name none: then I offer the jobs there are. A reply to a job's message"
    " is about that job. Tap for more, or send `/help submit`"
)
_OPTIONAL = re.compile(r"(?:\[[^]]*\] ?)+")


def overview(role: Role) -> tuple[str, list[list[Press]]]:
    """Return the commands of this role, one line for each topic, with a button for more about each."""
    lines, topics = [], []
    for topic in TOPICS:
        if names := [f"/{command.name}" for command in _of_topic(role, topic)]:
            lines.append(f"{bold(topic)}: {' '.join(names)}")
            topics.append(Press(ButtonKind.HELP, data={"about": topic.lower()}, text=topic))
    return fit(["\n".join([*lines, "", escape(WITHOUT_NUMBER)])]), [topics[:3], topics[3:]]


def about(role: Role, word: str) -> str:
    """Return more about a topic or a command. Raise UserError if there is no such thing for this role."""
    word = word.lower().removeprefix("/")
    if commands := _of_topic(role, word.capitalize()):
        return fit(["\n".join(_help_line(command) for command in commands)])
    command = next((one for one in menu(role) if one.name == ALIASES.get(word, word)), None)
    if command is None:
        raise UserError(f"There is no help about that. Send /help, or `/help {next(iter(TOPICS)).lower()}`")
    parts = [_help_line(command), *([f"like {code(command.example)}"] if command.example else [])]
    if command.name == "submit":
        parts += ["", bold("Options of /submit")]
        for title, options in {**OPTION_SECTIONS, "Saved": (PRESET,)}.items():
            parts += [italic(title), *(f"{code(flags)} {escape(text)}" for flags, text in help_rows(options))]
    return fit(["\n".join(parts)])


def _of_topic(role: Role, topic: str) -> list[Command]:
    return [command for command in menu(role) if command.name in TOPICS.get(topic, ())]


def _help_line(command: Command) -> str:
    """Return one command's line. A tap sends a command without arguments, so one that needs them is shown as code."""
    shown = f"/{command.name}"
    if _OPTIONAL.fullmatch(command.usage):
        shown += f" {code(command.usage)}"
    elif command.usage:
        shown = code(f"/{command.name} {command.usage}")
    return f"{shown} — {escape(command.help)}"
