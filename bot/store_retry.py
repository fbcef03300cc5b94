"""Retry writes to the database while its disk is full or it is otherwise unavailable."""

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
    """Call `act` every two seconds until the database accepts it. `act` must be all or nothing. A lost queue raises."""
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
