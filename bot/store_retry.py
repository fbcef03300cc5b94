"""A full disk passes: what must be written down is tried until it is."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from runner.api.chat import QueueLostError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

T = TypeVar("T")
TRY_AGAIN_S = 2.0


async def patiently(act: Callable[[], T]) -> T:
    """Do this with the database until it takes it; `act` must be all or nothing."""
    failing = False
    while True:
        try:
            return act()
        except QueueLostError:
            raise
        except StoreError as error:
            if not failing:
                log.error("%s", error)
            failing = True
            await asyncio.sleep(TRY_AGAIN_S)
