"""Errors are named by who must act.

NightshiftError
├── UserError        the person who asked: shown word for word, exit code 1
│   └── NoSuchJobError
├── OperatorError    whoever runs the box: the process exits 2, the message holds the way out
├── JobError         nobody: this one job ends
└── TransientError   nobody: it is tried again
"""


class NightshiftError(Exception):
    """Anything nightshift raises on purpose."""

    exit_code = 1


class UserError(NightshiftError):
    """The request cannot be met as it was put; the message says what to put instead."""


class NoSuchJobError(UserError):
    """There is no job of that number, or none any more."""


class OperatorError(NightshiftError):
    """The box must be mended before this can work; the message says how."""

    exit_code = 2


class JobError(NightshiftError):
    """This job cannot go on; the others can."""


class TransientError(NightshiftError):
    """It failed now and may well work in a moment."""
