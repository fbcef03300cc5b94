"""Errors, named by who must act.

NightshiftError
├── UserError        the person who asked: shown word for word, exit code 1
│   └── NoSuchJobError
├── OperatorError    the person who runs the box: the process exits with 2, the message says what to do
├── JobError         nobody: this one job ends
└── TransientError   nobody: it is retried
"""


class NightshiftError(Exception):
    """Anything nightshift raises on purpose."""

    exit_code = 1


class UserError(NightshiftError):
    """The request cannot be met as written. The message says what to write instead."""


class NoSuchJobError(UserError):
    """No job has this number, or it has been removed."""


class OperatorError(NightshiftError):
    """Somebody must fix the box before this can work. The message says how."""

    exit_code = 2


class JobError(NightshiftError):
    """This job cannot go on. Other jobs can."""


class TransientError(NightshiftError):
    """It failed now and may work if it is tried again."""
