"""Terminal commands about jobs."""

from __future__ import annotations


def main(words: list[str]) -> int:
    if words == ["runner"]:
        from runner import daemon, settings

        daemon.main(settings.load())
        return 0
    return 1
