"""Waiting without blocking the bot's loop: time limits, retries while the disk is full, threads and processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from runner.api.chat import QueueLostError, StoreError, python_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
TRY_AGAIN_S = 2.0


async def within(seconds: float | None, awaited: Awaitable[T]) -> T:
    """Return the result, or raise asyncio.TimeoutError after this many seconds (None: no limit).

    asyncio.wait_for can swallow a cancellation before Python 3.12, and then never ends.
    """
    task = asyncio.ensure_future(awaited)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if not done:
        raise asyncio.TimeoutError
    return task.result()


async def patiently(act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `act` every two seconds until the database accepts it. `act` must be all or nothing. A lost queue raises."""
    failing = False
    while True:
        try:
            return act(*args, **kwargs)
        except QueueLostError:
            raise
        except StoreError as error:
            if not failing:
                log.error("%s", error)
            failing = True
            await asyncio.sleep(TRY_AGAIN_S)


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> list[Any]:
    """Cancel these tasks and wait until they have ended. Return their results or exceptions."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


class ThreadPerCall(ThreadPoolExecutor):
    """Runs each call in its own thread and waits for none of them at the end.

    A call may hang for ever, for example on a network folder. A few such calls would use up a
    pool, and asyncio.run would wait for them before the bot can end.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start the call at once in a new thread."""
        future: Future[T] = Future()
        threading.Thread(target=_settle, args=(future, partial(fn, *args, **kwargs)), daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Return at once: no thread is waited for."""


def _settle(future: Future[T], act: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = act()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


async def answer_of(
    module: str, question: str, *, within_s: float, environ: Mapping[str, str] | None = None, what: str
) -> bytes | None:
    """Run the module's `main` in its own process with this on stdin, and return its stdout.

    Returns None, and logs why, if it fails or takes too long (then it is killed). It gets only PATH and `environ`.
    """
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            *python_command(module), env={"PATH": os.environ.get("PATH", os.defpath), **(environ or {})},
            cwd="/", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        answer, errors = await within(within_s, process.communicate(question.encode()))
    except (OSError, asyncio.TimeoutError) as problem:
        log.warning("%s: %r", what, problem)
        return None
    finally:
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        log.warning("%s: %s", what, errors.decode(errors="replace")[-500:])
        return None
    return answer
