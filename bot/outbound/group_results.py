"""The results of a group of jobs, read from their output in a separate process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bot.waiting import answer_of
from runner.api import groups

if TYPE_CHECKING:
    from bot.chat import Chat

READ_S = 20.0
START_S = 10.0  # a process may take this long to start on a busy box


async def results_of(chat: Chat, name: str) -> groups.Results:
    """Compare a group's jobs; without numbers if output must stay on the box or cannot be read in time."""
    stored = groups.find(chat.queue, name).metric if chat.settings.log_text else None
    metric = groups.Metric.from_json(stored)
    jobs = [chat.shown(job) for job in groups.members(chat.queue, name)]
    metric_values = groups.MetricValues({})
    if metric is not None and (folders := groups.folders(chat.queue, jobs)):
        question = json.dumps({"pattern": metric.pattern, "folders": folders, "within_s": READ_S})
        within_s = READ_S + START_S
        answer = await answer_of("runner.sweep.metrics", question, within_s=within_s, what="results could not be read")
        metric_values = _values(answer)
    return groups.compared(jobs, metric_values.values, metric, metric_values.trouble)


def _values(answer: bytes | None) -> groups.MetricValues:
    if answer is None:
        return groups.MetricValues({}, "the output of these jobs could not be read")
    read, trouble = json.loads(answer)
    return groups.MetricValues({int(number): groups.MetricValue(*value) for number, value in read.items()}, trouble)
