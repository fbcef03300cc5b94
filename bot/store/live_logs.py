"""Messages that show a job's output as it comes. They are stored, so that they go on after a restart of the bot."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from runner.api.chat import BoxKey, clock
from runner.errors import UserError

if TYPE_CHECKING:
    from runner.api.chat import Box

LIVE_S = 300.0
MOST = 10  # at once, in all chats: Telegram takes some 30 messages a second from a bot


def _end() -> str:
    return clock.text(clock.now() + timedelta(seconds=LIVE_S))


@dataclass(frozen=True, slots=True)
class LiveLog:
    """A message that shows the end of one attempt's output, for whom and until when."""

    chat: int
    person: int
    message: int
    job_id: int
    attempt: int
    keyboard: list[list[dict[str, str]]]
    until: str = field(default_factory=_end)


class LiveLogs:
    """All live logs, at most one in a chat."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def all(self) -> list[LiveLog]:
        """Return the live logs."""
        return [LiveLog(**stored) for stored in self._box.get(BoxKey.LIVE_LOGS, ())]

    def start(self, live: LiveLog) -> None:
        """Add a live log. One that is already in the chat ends now."""
        others = [each for each in self.all() if each.message != live.message or each.chat != live.chat]
        if len(others) >= MOST:
            raise UserError(f"There are already {MOST} live logs on this box. Try again in some minutes.")
        now = clock.text(clock.now())
        ended = [{**asdict(each), "until": now} if each.chat == live.chat else asdict(each) for each in others]
        self._box.set(BoxKey.LIVE_LOGS, [*ended, asdict(live)])

    def stop(self, chat: int, message: int) -> bool:
        """Remove a live log. Return False if there was none."""
        before = self.all()
        others = [asdict(live) for live in before if (live.chat, live.message) != (chat, message)]
        if len(others) < len(before):
            self._box.set(BoxKey.LIVE_LOGS, others)
        return len(others) < len(before)
