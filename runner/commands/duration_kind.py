"""Finds jobs that are likely to take equally long, by command, folder and number of GPUs. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple

from runner.commands.memory_kind import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runner.model import JobSpec

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


class Kinds(NamedTuple):
    """Two keys of a job: `kind` is shared by nearly identical jobs, `shape` by similar ones."""

    kind: str  # the same command, except for seeds, learning rates, run names and output folders
    shape: str  # the same program with the same options, whatever their values


def kinds_of(spec: JobSpec) -> Kinds:
    """Return the two keys of a job."""
    words = spec.argv if spec.argv is not None else spec.command.split()
    where = (spec.dir, str(spec.gpus))
    return Kinds(_digest((*kind_of(words), *where)), _digest((*_shape(words), *where)))


def _shape(words: Sequence[str]) -> Iterator[str]:
    """Yield the words without the values of options and of `name=value`, and without bare numbers."""
    after_option = False
    for word in words:
        is_number = _NUMBER.fullmatch(word) is not None
        is_option = word.startswith("-") and not is_number
        if is_option or "=" in word:
            yield word.partition("=")[0]
        elif not (is_number or after_option):
            yield word
        after_option = is_option and "=" not in word


def _digest(words: Sequence[str]) -> str:
    return hashlib.blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
