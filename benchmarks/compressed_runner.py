"""The runner of a compressed night: times of the stall rule are a tenth as long too, though they are no settings."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from runner.idle import stall_rule

FASTER = 10.0


def main() -> None:
    for name in ("LONGEST_GAPS_S", "EXCUSED_AT_LEAST_S", "STALLED_AT_LEAST_S", "SAVES_AT_MOST_S"):
        setattr(stall_rule, name, getattr(stall_rule, name) / FASTER)
    sys.argv[1:] = ["runner"]
    runpy.run_path(str(Path(__file__).parents[1] / "nightshift.py"), run_name="__main__")


if __name__ == "__main__":
    main()
