"""The roles: viewer, user, admin. Pure."""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """What a person may do. Each role includes the ones before it."""

    VIEWER = 1
    USER = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The role's name in lower case."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The role with its article, like "an admin"."""
        return f"an {self.word}" if self is Role.ADMIN else f"a {self.word}"


ROLES = {role.word: role for role in Role}
