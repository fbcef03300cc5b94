"""What the texts of notices need to know besides the notice itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.api.groups import Results, Standing
    from runner.model import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeContext:
    """The box that it happened on."""

    box: str
    indices: Mapping[str, int]  # of the GPUs, by UUID
    name_of: Callable[[str], str]  # people's names


class JobOutput(NamedTuple):
    """What to show of an ended job's output. A job stopped by a watchdog has the watchdog's evidence instead."""

    excerpt: str = ""
    wandb: str | None = None
    evidence: Mapping[str, Any] | None = None


NO_OUTPUT = JobOutput()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(NoticeContext):
    """The job that a notice is about, without its secrets."""

    job: Job
    quoted: bool = False  # the message is a reply to one that has the command
    output: JobOutput = NO_OUTPUT
    probe: str | None = None  # how the batch of the attempt was found

    @property
    def is_live(self) -> bool:
        """Return whether the job has neither ended nor been stopped."""
        return not self.job.state.final and self.job.stop is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext(NoticeContext):
    """The results of a group that is done. It has no standing if the group is no longer stored."""

    results: Results
    standing: Standing | None = None
