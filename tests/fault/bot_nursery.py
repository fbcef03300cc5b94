"""Bots for chaos: all is imported once, each bot is a fork of this. A line on stdin asks for one; its pid comes back.

What is shot at is the bot's life from its first line on, not half a second of imports.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    from bot import app, settings
    from bot.secrets import quiet_log  # noqa: F401 - so that no fork has to

    token, found = os.environ.pop("CHAOS_TOKEN"), settings.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are nobody's
    for _ in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            app.main(found, token)
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
