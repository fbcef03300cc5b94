"""The terminal itself: who is at it, and what it can show."""

from __future__ import annotations

import os
import sys


def user() -> str:
    """Return the name of the user at the terminal, or the uid if it has no name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def show_any_character() -> None:
    """Print what the terminal cannot show as an escape: … as \\u2026."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
