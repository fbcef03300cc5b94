"""The folder for files that a probe or a trial writes."""

from __future__ import annotations

import contextlib
import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def scratch_folder(path: str) -> Iterator[None]:
    """Make an empty folder, and remove it with all that is in it afterwards."""
    with contextlib.suppress(OSError):  # disk full: the program fails by itself if it needs the folder
        os.makedirs(path, mode=0o700, exist_ok=True)
    try:
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)
