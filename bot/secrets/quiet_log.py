"""Keeps the bot's token out of the log, whichever library writes there and however it fails.

httpx logs every URL it requests, including the token. `repr(bot)`, the text of InvalidToken and tracebacks have it too.
A logger's filter does not see what its children log, so this one is on the handlers.
"""

from __future__ import annotations

import logging
import sys
import threading
from traceback import format_exception
from typing import TYPE_CHECKING

from bot.secrets.redact import Redactor

if TYPE_CHECKING:
    from types import TracebackType

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TALKATIVE = ("httpx", "httpcore", "telegram", "apscheduler")

log = logging.getLogger(__name__)


def install(token: str) -> None:
    """Set up logging so that nothing logged from now on shows this token or anything else that looks like a secret."""
    logging.basicConfig(level=logging.INFO, format=FORMAT)
    logging.captureWarnings(True)
    logging.raiseExceptions = False
    redaction = _Redaction(Redactor([token]))
    last = [logging.lastResort] if logging.lastResort else []
    for handler in [*logging.getLogger().handlers, *last]:
        handler.filters = [*(other for other in handler.filters if not isinstance(other, _Redaction)), redaction]
    for name in TALKATIVE:
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.WARNING))
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable


class _Redaction(logging.Filter):
    """Rewrites each record so that it has no secrets left for a handler to show."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through, without its secrets."""
        try:
            self._rewrite(record)
        except Exception:  # formatting an object may raise anything; logging must go on
            record.msg, record.args = "something that cannot be shown was logged", ()
            record.exc_info = record.exc_text = record.stack_info = None
        return True

    def _rewrite(self, record: logging.LogRecord) -> None:
        hide = self._redactor.text
        record.msg, record.args = hide(_message(record)), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = "".join(format_exception(*record.exc_info)).rstrip("\n")
        record.exc_info = None
        record.exc_text = hide(record.exc_text) if record.exc_text else None
        record.stack_info = hide(record.stack_info) if record.stack_info else None


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):  # the arguments do not fit the text
        return f"{record.msg} {record.args}"


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        log.warning("interrupted")
    else:
        log.critical("this should not have happened", exc_info=(kind, error, trace))


def _uncaught_in_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not issubclass(failed.exc_type, SystemExit):
        name = failed.thread.name if failed.thread else "?"
        log.error("thread %s failed", name, exc_info=(failed.exc_type, failed.exc_value, failed.exc_traceback))


def _unraisable(failed: sys.UnraisableHookArgs) -> None:
    error = failed.exc_value
    trace = None if error is None else (failed.exc_type, error, failed.exc_traceback)
    log.error("%s %r", failed.err_msg or "exception ignored in", failed.object, exc_info=trace)
