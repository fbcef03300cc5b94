"""A test that fails leaves nothing behind: its processes are ended, and what its frames hold is let go at once.

Otherwise the next test, which is innocent, would share the machine with them and meet their warnings of what was not
closed: pytest keeps the frames of a failure until then. A test that passes pays for one look at its own children.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import nursery

_failed = pytest.StashKey[bool]()
_before = pytest.StashKey[set[int]]()
LAST = ("last_type", "last_value", "last_traceback", "last_exc")


@pytest.fixture(autouse=True)
def children_before(request: pytest.FixtureRequest) -> None:
    """What fixtures of a wider scope have started by now is theirs to end."""
    request.node.stash[_before] = children()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tidy up outside all its phases: by then nothing of it is in use."""
    result = yield
    if item.stash.get(_failed, False):
        end(children() - item.stash.get(_before, children()))
        let_go()
    return result


def children() -> set[int]:
    """The processes that this one has started and not yet waited for; the nursery serves all tests."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # that thread has ended
            found.update(map(int, path.read_bytes().split()))
    return found - nursery.pids


def end(pids: set[int]) -> None:
    """Kill these and all below them, and wait for them where they are awaited."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for one in (*process.children(recursive=True), process):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
    for started in [one for one in gc.get_objects() if isinstance(one, subprocess.Popen) and one.pid in pids]:
        started.wait()
        for stream in filter(None, (started.stdin, started.stdout, started.stderr)):
            with contextlib.suppress(OSError):  # what was still to be written
                stream.close()
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def let_go() -> None:
    """Drop the frames of the failure; what complains that it was not closed has been told by the failure itself."""
    for name in LAST:
        if hasattr(sys, name):
            delattr(sys, name)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
