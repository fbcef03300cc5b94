"""Shows how a job's batch was found: what was measured, the line through it, the limit, the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.chat import Picture
from bot.pictures import plots
from bot.text import keyboards
from bot.text.html import CAPTION_UNITS, escape, pre
from bot.text.html import fit as fitted
from bot.text.job_words import heading, sign
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.inbound.turn import Turn
    from runner.model import Job


async def fit(turn: Turn, rest: str) -> None:
    """Show the fit of the job named, or of the one whose message this replies to."""
    show(turn, turn.job(turn.numbers(rest, "`/fit 12`")[0]))


def show(turn: Turn, job: Job) -> None:
    """Show a job's fit as a picture, or as bars of text if none can be drawn."""
    report = turn.chat.queue.view.probe(job.id)
    if report is None:
        if job.spec.probe is None:
            raise UserError(f"#{job.id} was submitted without --probe, so nothing was measured.")
        raise UserError(f"#{job.id} has not started yet. Its batch is found when it starts.")
    head = f"{sign(job)} {heading(job)}\n{escape(report['said'])}"
    plot = plots.of_fit(report)
    not_drawn = [line for line in report["detail"] if line.startswith(("line:", "chosen:", "not used:"))]
    caption = "\n".join([head, *map(escape, not_drawn)])
    picture = Picture(plot, fitted([caption], CAPTION_UNITS)) if plot else None
    bars = [pre("\n".join(report["bars"]))] if report["bars"] else []
    html = fitted(["\n".join([head, *bars, *map(escape, report["detail"])])])
    turn.reply(html, keyboards.of_job(job), job_id=job.id, picture=picture)
