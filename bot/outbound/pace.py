"""How often cards may be sent and changed in each chat, so that Telegram always has room for answers and alerts."""

from __future__ import annotations

from runner.api.chat import clock

# Telegram takes about one call a second in a private chat, and 20 a minute in a group. Cards use a third and a half.
GAP_S, GROUP_GAP_S = 3.0, 6.0
SLOWER, SLOWEST = 4, 16  # times the gap
LEAST_SLOW_S = 1.0
SLOW_FOR_S = 600.0  # after Telegram said that it was too much


class CardPace:
    """Counts the calls to each chat. Times are those of the monotonic clock."""

    def __init__(self) -> None:
        self.gap_s, self.group_gap_s = GAP_S, GROUP_GAP_S
        self._called_at: dict[int, float] = {}
        self._slow: dict[int, tuple[float, int]] = {}  # until when, and how many times slower

    def note_call(self, chat: int) -> None:
        """Note that Telegram is called about this chat now."""
        self._called_at[chat] = clock.monotonic()

    def free_at(self, chat: int) -> float:
        """Return when the chat has been left alone long enough for a card."""
        called_at = self._called_at.get(chat)
        return 0.0 if called_at is None else called_at + self._gap_s(chat)

    def _gap_s(self, chat: int) -> float:
        times = self._times(chat)
        return max((self.gap_s if chat > 0 else self.group_gap_s) * times, LEAST_SLOW_S if times > 1 else 0.0)

    def _times(self, chat: int) -> int:
        until, times = self._slow.get(chat, (0.0, 1))
        return times if until > clock.monotonic() else 1

    def slow_down(self, chat: int) -> None:
        """Leave more time between cards in this chat, for a while."""
        self._slow[chat] = clock.monotonic() + SLOW_FOR_S, min(SLOWER * self._times(chat), SLOWEST)
