"""What `/help` shows: the commands of a role, and the options of /submit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bot.commands import Command, menu
from bot.text.html import bold, code, escape, fit, italic
from runner.api.chat import OPTION_SECTIONS, help_rows

if TYPE_CHECKING:
    from bot.commands import Role

_OPTIONAL = re.compile(r"(?:\[[^]]*\] ?)+")


def help_text(role: Role) -> str:
    """List the commands of this role, and the options of /submit if it is among them."""
    shown = menu(role)
    parts = [_help_line(command) for command in shown]
    if any(command.name == "submit" for command in shown):
        parts += ["", bold("Options of /submit")]
        for title, options in OPTION_SECTIONS.items():
            parts += [italic(title), *(f"{code(flags)} {escape(text)}" for flags, text in help_rows(options))]
        parts += ["", "Reply to a job's message with /log, /kill or /rerun, and you need no number."]
    return fit(["\n".join(parts)])


def _help_line(command: Command) -> str:
    """Return one command's line. A tap sends a command without arguments, so one that needs them is shown as code."""
    shown = f"/{command.name}"
    if _OPTIONAL.fullmatch(command.usage):
        shown += f" {code(command.usage)}"
    elif command.usage:
        shown = code(f"/{command.name} {command.usage}")
    return f"{shown} — {escape(command.help)}"
