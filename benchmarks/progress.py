"""What reading progress costs: MB/s, and the share of a core for a job that prints 100 MB a minute."""

from __future__ import annotations

import time

from runner.progress.reader import ProgressReader
from runner.progress.stop_rules import StopRule, parse_rules

MB_A_MINUTE = 100.0
ALLOWED_PERCENT = 2.0
BLOCK = 64 << 10
RULES = parse_rules("nan,loss>1000")


def main() -> None:
    print(f"\nReading progress, blocks of {BLOCK >> 10} KiB at {MB_A_MINUTE:.0f} MB a minute")
    for name, text in _outputs().items():
        for what, rules in (("position", ()), ("position and --stop-on nan,loss>1000", RULES)):
            _measure(f"{name}, {what}", text, rules)


def _measure(name: str, text: bytes, rules: tuple[StopRule, ...]) -> None:
    reader = ProgressReader(rules=rules)
    block_s = BLOCK / 1e6 / MB_A_MINUTE * 60
    begun = time.thread_time()
    for number, start in enumerate(range(0, len(text), BLOCK)):
        reader.feed_block(text[start : start + BLOCK], number * block_s)
    assert reader.broken is None
    used_s = time.thread_time() - begun
    speed = len(text) / 1e6 / used_s
    share = 100 * MB_A_MINUTE / 60 / speed
    print(f"  {name:62} {speed:7.0f} MB/s {share:6.2f} % of a core", end="")
    print(f" (required at most {ALLOWED_PERCENT:.0f}: {'yes' if share <= ALLOWED_PERCENT else 'NO'})")


def _outputs() -> dict[str, bytes]:
    noise = b"2026-01-05 10:00:00,123 DEBUG loader: fetched sample a1b2c3 from the cache in 0.8 ms\n"
    step = b"step %d/1000000 | loss 2.3456 | grad norm 1.2345 | lr 3.0e-04 | 120.12 ms | 4321 tok/s\n"
    bar = "\r 12%%|█▏        | %d/1000000 [00:12<01:30,  9.80it/s, loss=2.31]".encode()
    return {
        "debug lines": noise * 400_000,
        "a step on each line": b"".join(step % n for n in range(400_000)),
        "a bar": b"".join(bar % n for n in range(400_000)),
    }


if __name__ == "__main__":
    main()
