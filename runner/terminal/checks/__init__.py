"""What `nightshift doctor` checks, one file per subject, and the result of one check."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    Answer: TypeAlias = "str | Iterable[Finding] | None"

P = ParamSpec("P")
OK, INFO, WARN, FAIL = "ok", "info", "warn", "fail"


class Finding(NamedTuple):
    """What was checked, what was found, and how to fix it."""

    level: str
    name: str
    text: str
    fix: str | None = None


class Problem(Exception):  # noqa: N818 - no error of the program
    """What a check found wrong, and how to fix it."""

    def __init__(self, text: str, fix: str | None = None, level: str = FAIL) -> None:
        super().__init__(text)
        self.fix, self.level = fix, level


def check(name: str) -> Callable[[Callable[P, Answer]], Callable[P, Iterator[Finding]]]:
    """Make a check of a function that returns what is fine, raises Problem, or yields findings itself.

    If the function fails in any other way, that is a finding too.
    """

    def decorate(examine: Callable[P, Answer]) -> Callable[P, Iterator[Finding]]:
        def findings(*arguments: P.args, **options: P.kwargs) -> Iterator[Finding]:
            try:
                answer = examine(*arguments, **options)
                yield from [Finding(OK, name, answer)] if isinstance(answer, str) else answer or ()
            except Problem as problem:
                yield Finding(problem.level, name, str(problem), problem.fix)
            except Exception as error:
                yield Finding(FAIL, name, f"could not be checked: {error}", "fix what it names, then run this again")

        return findings

    return decorate
