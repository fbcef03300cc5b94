"""What came of a group of jobs, read from their output beside the bot's loop."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bot.apart import answer_of
from runner.api import groups

if TYPE_CHECKING:
    from bot.chat import Chat

READ_S = 20.0


async def results_of(chat: Chat, name: str) -> groups.Results:
    """Its jobs side by side; without numbers where output is to stay on the box, or cannot be read in time."""
    kept = groups.Metric.from_json(groups.find(chat.queue, name).metric)
    metric = kept if chat.settings.log_text else None
    jobs = [chat.shown(job) for job in groups.members(chat.queue, name)]
    found: dict[int, groups.Reading] = {}
    if metric is not None and (folders := groups.folders(chat.queue, jobs)):
        question = json.dumps({"pattern": metric.pattern, "folders": folders})
        # a pattern of somebody's own may search for ever
        answer = await answer_of("runner.sweep.metrics", question, within_s=READ_S, what="results could not be read")
        found = {int(number): groups.Reading(*reading) for number, reading in json.loads(answer or "{}").items()}
    return groups.compared(jobs, found, metric)
