"""Shows how a job's batch was found: what was measured, the line through it, the limit, the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.chat import Picture
from bot.pictures import plots
from bot.telegram_html import CAPTION_UNITS, escape, pre
from bot.telegram_html import fit as fitted
from bot.text import keyboards
from bot.text.job_words import heading, sign
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.inbound.turn import Turn
    from runner.model import Job


async def fit(turn: Turn, rest: str) -> None:
    """Show the fit of the job named, or of the one whose message this replies to."""
    show(turn, turn.job(turn.numbers(rest, "`/fit 12`")[0]))


def show(turn: Turn, job: Job) -> None:
    """Show a job's fit as a picture, or as bars of text if none can be drawn."""
    found = turn.chat.queue.probe(job.id)
    if found is None:
        if job.spec.probe is None:
            raise UserError(f"#{job.id} was submitted without --probe: nothing was measured.")
        raise UserError(f"#{job.id} has not started yet: its batch is found when it does.")
    head = f"{sign(job)} {heading(job)}\n{escape(found['said'])}"
    plot = plots.of_fit(found)
    caption = "\n".join([head, *map(escape, _about_the_line(found))])
    picture = Picture(plot, fitted([caption], CAPTION_UNITS)) if plot else None
    drawing = pre("\n".join(found["bars"])) if found["bars"] else ""
    html = fitted(["\n".join(part for part in (head, drawing, *map(escape, found["detail"])) if part)])
    turn.reply(html, keyboards.of_job(job), job_id=job.id, picture=picture)


def _about_the_line(found: Mapping[str, Any]) -> list[str]:
    """Return the details that the picture does not show."""
    return [line for line in found["detail"] if line.startswith(("line:", "chosen:", "not used:"))]
