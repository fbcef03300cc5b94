"""All buttons: their labels, who may press them, and how long they are good."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Right(Enum):
    """Who may press a button. Admins may press them all."""

    VIEWER = auto()
    USER = auto()
    OWNER = auto()  # of the button's job
    OWNER_OF_LISTED = auto()  # of one of the jobs in its data
    OWNER_OF_UNFINISHED = auto()  # of a job of its group that has not ended
    OWNER_OF_FAILED = auto()  # of a job of its group that failed
    RESUME = auto()  # as role_to_resume says
    ADMIN = auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """What is fixed for a button of one kind."""

    action: str  # as it is stored with the button
    label: str = ""
    right: Right = Right.VIEWER
    style: str | None = None
    question: bool = False  # it works once, and only for a few minutes
    while_unfinished: bool = False  # it does nothing once its job has ended
    not_twice: bool = False  # a double tap must not queue a second job


_of_owner = partial(Rule, right=Right.OWNER, while_unfinished=True)
_answer = partial(Rule, question=True)


class ButtonKind(Enum):
    """What a button does. `bot.handlers.button_taps` has a handler for each."""

    STATUS = Rule("status", "Status")
    GPUS = Rule("gpus", "GPUs")
    QUEUE = Rule("queue", "Queue")
    DETAILS = Rule("details", "Details")
    LOG = Rule("log", "Log")
    LOG_AGAIN = Rule("log again", "Refresh")
    LOG_PAGE = Rule("log page")  # an older or newer page, the lines about the error, or those with a word
    LIVE = Rule("live", "Live")
    STOP_LIVE = Rule("stop live", "Stop")
    WHOLE_LOG = Rule("document", "Whole log")
    FIT = Rule("fit", "Fit")
    HELP = Rule("help")
    NOISE = Rule("noise")
    PICK = Rule("pick", not_twice=True)  # runs a command with this job, as if its number had been sent
    PRESET = Rule("preset", "Run", Right.USER, not_twice=True)
    DELETE_PRESET = Rule("delete preset", "Delete", Right.USER)
    RERUN = Rule("rerun", "Rerun", Right.USER, not_twice=True)
    RERUN_WITH = Rule("rerun with", "Rerun with…", Right.USER)
    ARGUMENT = Rule("argument", right=Right.USER)
    IN_WORKSPACE = Rule("in workspace", right=Right.USER)
    CANCEL = Rule("cancel", "Cancel")  # of a question that waits for a typed answer
    KILL = _of_owner("kill", "Kill", style="danger")
    KILL_NOW = _of_owner("kill now", "Kill now", style="danger")
    KEEP = _of_owner("keep", "Keep for good")
    EXTEND = _of_owner("extend", "Extend")
    EDIT = _of_owner("edit", "Edit")
    CHOOSE = Rule("choose")  # shows one waiting job, with what can be done to it
    FRONT = _of_owner("front", "First")
    UP = _of_owner("up", "Sooner")
    DOWN = _of_owner("down", "Later")
    HOLD = _of_owner("hold", "Hold")
    RELEASE = _of_owner("release", "Release")
    RELEASE_ALL = Rule("release all", "Release them", Right.OWNER_OF_LISTED)
    YES_KILL = _answer("killed", "Yes, kill", style="danger")
    NO_KILL = _answer("back", "No")
    GROUP = Rule("group", "Results")
    GROUP_CSV = Rule("group csv", "CSV")
    KILL_GROUP = Rule("kill group", "Kill all", Right.OWNER_OF_UNFINISHED, style="danger")
    RERUN_FAILED = Rule("rerun failed", "Rerun failed", Right.OWNER_OF_FAILED, not_twice=True)
    LINES = _answer("lines", "Jobs", Right.USER)
    SCRIPT = _answer("script", "One script", Right.USER)
    DISMISS = _answer("dismiss", "No")
    RESUME = Rule("resume", "Resume", Right.RESUME, style="success")
    DRAIN = _answer("drain", "Drain now", Right.ADMIN, style="danger")
    CANCEL_WHEN_EMPTY = Rule("cancel when empty", "Do not run it", Right.ADMIN, style="danger")
    PEOPLE = Rule("people", "No", Right.ADMIN)
    REVOKE = Rule("revoke", "Revoke", Right.ADMIN, style="danger")
    YES_REVOKE = _answer("revoked", "Yes, revoke", Right.ADMIN, style="danger")
    CANCEL_LINKS = Rule("cancel links", "Cancel open links", Right.ADMIN)


BY_ACTION = {kind.value.action: kind for kind in ButtonKind}  # a button from an older version may have another action


@dataclass(frozen=True, slots=True)
class Press:
    """A button that does something. Its `text` replaces the label of its kind."""

    kind: ButtonKind
    job_id: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def rule(self) -> Rule:
        """Return what is fixed for its kind."""
        return self.kind.value


@dataclass(frozen=True, slots=True)
class Link:
    """A button that opens a URL."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class CopyKey:
    """A button that copies something."""

    text: str
    copied: str


Key = Press | Link | CopyKey
