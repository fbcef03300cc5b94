"""Work that must not stop the bot's loop: done by one of our modules in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING

from bot.within import within
from runner.api.chat import python_command

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)


async def answer_of(
    module: str, question: str, *, within_s: float, environ: Mapping[str, str] | None = None, what: str
) -> bytes | None:
    """What the module's `main` writes when it reads this; None, and a word in the log, if it fails.

    It is given what it needs and nothing else, and is ended if it takes too long.
    """
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            *python_command(module), env={"PATH": os.environ.get("PATH", os.defpath), **(environ or {})},
            cwd="/", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        answer, said = await within(within_s, process.communicate(question.encode()))
    except (OSError, asyncio.TimeoutError) as problem:
        log.warning("%s: %r", what, problem)
        return None
    finally:
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        log.warning("%s: %s", what, said.decode(errors="replace")[-500:])
        return None
    return answer
