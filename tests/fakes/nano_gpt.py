"""Stands in for nanoGPT's train.py on simulated GPUs: takes what that takes, and refuses what that refuses.

Words are `--name=value` for the globals below, of their type, or the path of a Python file that sets them. A run ends
when `max_tokens` were seen; then it is validated, which takes more memory, and saves `ckpt-<version>.pt`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from ast import literal_eval
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from runner.gpu.sim.load import SimulatedOutOfMemoryError, hold

TRAINING_S, VALIDATION_S = 0.3, 2.0  # the latter is seen by a sampler that is late, too
GLOBALS = {
    "out_dir": "out",
    "batch_size": 8,
    "block_size": 1024,
    "n_layer": 12,
    "learning_rate": 6e-4,
    "max_tokens": 3_000_000,
    "wandb_log": True,
    "version": "",
}
FIXED_MIB, TRAINING_MIB, VALIDATION_MIB = 2000, 590, 40  # the latter two for each sample


def configured(words: list[str]) -> dict:
    given = dict(GLOBALS)
    for word in words:
        if not word.startswith("--"):
            found: dict = {}
            exec(Path(word).read_text(), found)
            given |= {name: found[name] for name in GLOBALS if name in found}
            continue
        name, _, text = word.removeprefix("--").partition("=")
        if name not in given:
            raise ValueError(f"Unknown config key: {name}")
        try:
            value = literal_eval(text)
        except (SyntaxError, ValueError):
            value = text
        if name == "version":
            value = text  # eight hex digits may look like a number
        assert type(value) is type(given[name]), word
        given[name] = value
    return given


def main() -> int:
    given = configured(sys.argv[1:])
    batch = given["batch_size"]
    steps = max(given["max_tokens"] // (batch * given["block_size"]), 1)
    with open("runs.jsonl", "a") as file:
        file.write(json.dumps({"words": sys.argv[1:], "probing": "NIGHTSHIFT_PROBE" in os.environ, **given}) + "\n")
    try:
        with hold(memory_mib=FIXED_MIB + TRAINING_MIB * batch, load=95) as gpu:
            time.sleep(TRAINING_S)
            gpu.resize(FIXED_MIB + (TRAINING_MIB + VALIDATION_MIB) * batch)
            time.sleep(VALIDATION_S)
    except SimulatedOutOfMemoryError as error:
        print(f"torch.OutOfMemoryError: {error}", flush=True)
        return 1
    folder = Path(os.environ.get("NIGHTSHIFT_SCRATCH", "."), given["out_dir"])
    folder.mkdir(exist_ok=True)
    (folder / f"ckpt-{given['version']}.pt").write_text(json.dumps(given))
    print(f"iter {steps}: saved ckpt-{given['version']}.pt", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
