"""What each person may do: viewer, user, admin. Pure."""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """What somebody may do; each may do what those below may."""

    VIEWER = 1
    USER = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """As it is written."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """As it is said of somebody."""
        return f"an {self.word}" if self is Role.ADMIN else f"a {self.word}"


ROLES = {role.word: role for role in Role}
