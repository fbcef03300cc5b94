"""`/submit` without a command: offers the usual ones, or waits for one to be typed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bot.text.buttons import ButtonKind, Press
from bot.text.html import bold, code, printable, shorten
from runner.api.chat import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.inbound.turn import Turn
    from runner.model import Job

LOOKED_AT, LATEST_OFFERED, USUAL_OFFERED, PRESETS_OFFERED = 100, 3, 6, 4
ASK_COMMAND = "What should it run? Send the command, like `python train.py --lr 3e-4`."


def ask_command(turn: Turn, options: str = "") -> None:
    """Ask for a command, and offer the caller's latest and most used ones. The first time, say where it will run."""
    latest = turn.chat.queue.listing.latest_of(turn.caller.actor, LOOKED_AT)
    rows = [] if options else _offers(turn, latest)
    html = f"{ASK_COMMAND} Or tap one you ran before." if rows else ASK_COMMAND
    if not latest:
        where, others = _where(turn, options)
        html, rows = f"{where}\n{html}", [*rows, *others]
    turn.ask(html, "submit", f"{options} ".lstrip(), verbatim=True, rows=rows)


def _offers(turn: Turn, latest: Sequence[Job]) -> list[list[Press]]:
    """Return buttons for presets, and for the caller's usual commands."""
    names = list(dict.fromkeys(one.name for one in turn.queue.presets.all()))[:PRESETS_OFFERED]
    commands = {job.id: turn.chat.shown(job).spec.command.strip() for job in _usual(latest)}
    return [
        *([[Press(ButtonKind.PRESET, data={"preset": name}, text=name) for name in names]] if names else []),
        *([Press(ButtonKind.RERUN, number, text=shorten(printable(text), 40))] for number, text in commands.items()),
    ]


def _usual(jobs: Sequence[Job]) -> list[Job]:
    """Return one job for each of the latest and the most used commands."""
    alone = [job for job in jobs if not job.spec.parameters and not job.spec.script]
    newest = {job.spec.command: job for job in reversed(alone)}
    counts = Counter(job.spec.command for job in alone)
    latest = list(dict.fromkeys(job.spec.command for job in alone))[:LATEST_OFFERED]
    most = [command for command, _ in counts.most_common() if command not in latest]
    return [newest[command] for command in [*latest, *most][:USUAL_OFFERED]]


def _where(turn: Turn, options: str) -> tuple[str, list[list[Press]]]:
    """Return where a first job would run, and buttons for the other workspaces."""
    workspaces = turn.chat.queue.workspaces
    named = read_text(options)[0].get("workspace")
    chosen = workspaces.get(named) if named else workspaces.default()
    others = [workspace.name for workspace in workspaces.all() if chosen is None or workspace.name != chosen.name]
    where = f"in {bold(chosen.name)}: {code(chosen.dir)}" if chosen else "in your home folder (/ws shows more)"
    choices = [Press(ButtonKind.IN_WORKSPACE, data={"workspace": name}, text=f"In {name}") for name in others]
    return f"It will run {where}.", [choices[at : at + 2] for at in range(0, min(len(choices), USUAL_OFFERED), 2)]
