"""Stores how far jobs came, and tells people about metrics that are not numbers or break a rule of --stop-on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from runner.model import Reason, Ref
from runner.notices import BadMetric
from runner.progress.stop_rules import parse_rules
from runner.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.model import Exit, Job, State
    from runner.rundir import ProgressRecord
    from runner.step import Context

log = logging.getLogger(__name__)


class MetricWatch(Step):
    """Takes in what was read from the outputs of jobs, and hands it on to `record`."""

    def __init__(self, context: Context, record: Callable[[Ref, ProgressRecord], None]) -> None:
        self._context, self._jobs, self._record = context, context.jobs, record
        self._news: dict[Ref, ProgressRecord] = {}

    def read(self) -> None:
        """Take in which outputs were read to their end or hold a bad metric."""
        self._news.update(self._context.engine.progress_news())

    def tick(self) -> None:
        """Store them with their jobs. Tell of each bad metric once, and stop the job if it asked for that."""
        for ref, record in self._news.items():
            before = self._jobs.progress(ref)
            self._jobs.save_progress(ref, record)
            self._record(ref, record)
            for rule in record.broken.keys() - (before.broken if before else {}).keys():
                self._tell(ref, record, rule)

    def committed(self) -> None:
        """Forget what is stored now."""
        self._news.clear()

    def on_end(self, job: Job, state: State | None, end: Exit | None, gone_at: float) -> None:  # noqa: ARG002
        """Store what is known: the last lines may be read only after this runner is gone."""
        ref = Ref(job.id, job.attempt, job.run_id)
        if record := self._context.engine.progress_record(ref):
            self._jobs.save_progress(ref, record)

    def _tell(self, ref: Ref, record: ProgressRecord, rule: str) -> None:
        job = self._jobs.get(ref.job_id)
        if job is None or job.attempt != ref.attempt or not job.state.live:
            return
        stops = job.stop is None and rule in map(str, parse_rules(job.spec.stop_on) if job.spec.stop_on else ())
        warning = BadMetric(metric=record.broken[rule], rule=rule, stops=stops, where=_where(record))
        self._context.notices.add(warning, job.id)
        self._jobs.note(job.id, job.attempt, "bad metric", warning.to_json())
        log.info("job %s prints %s", job.id, warning.metric)
        if stops:
            self._jobs.ask_to_stop(job, Reason.USER, f"--stop-on {rule}")


def _where(record: ProgressRecord) -> str | None:
    progress = record.progress or {}
    if progress.get("position") is None:
        return None
    return f"{progress['unit'] or 'step'} {progress['position']:g}"
