"""A trainer on simulated GPUs: its memory is `fixed + per sample × batch`, and it does as it is told."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from runner.gpu.sim.load import SimulatedOutOfMemoryError, hold

HOST_MIB = 10  # for each sample


def main() -> int:
    options = _options()
    probing = os.environ.get("NIGHTSHIFT_PROBE") == "1"
    batch = options.batch_size or int(os.environ["NIGHTSHIFT_BATCH_SIZE"])
    _note(options, batch, probing=probing)
    if options.crash:
        print("Traceback (most recent call last):\nValueError: the data is missing", flush=True)
        return 3
    memory = options.prealloc or options.fixed + options.per_sample * batch
    try:
        with hold(memory_mib=memory, load=90) as gpu, _more_on_second(options, memory):
            print(f"batch {batch} runs in {memory} MiB", flush=True)
            until = time.monotonic() + (1000 if probing and not options.max_steps else options.seconds)
            time.sleep(options.late_after)
            if options.host_group and not probing:
                Path(options.host_group, "cgroup.procs").write_text(str(os.getpid()))
                bytearray(HOST_MIB * batch << 20)
            if options.late and not probing:
                gpu.resize(memory + options.late * batch)
            while time.monotonic() < until or not (probing or _may_end(options)):
                time.sleep(0.02)
    except SimulatedOutOfMemoryError as error:
        print(f"torch.OutOfMemoryError: {error}", flush=True)
        return 1
    print("done", flush=True)
    return 0


def _more_on_second(options: argparse.Namespace, memory: int) -> contextlib.AbstractContextManager[object]:
    more = options.more_on_second * memory // 100
    return hold(memory_mib=more, gpu=1) if more else contextlib.nullcontext()


def _may_end(options: argparse.Namespace) -> bool:
    return options.until is None or Path(options.until).exists()


def _note(options: argparse.Namespace, batch: int, *, probing: bool) -> None:
    if options.notes:
        said = {
            "batch": batch,
            "probing": probing,
            "argv": sys.argv[1:],
            "accum": options.accum,
            "wandb": os.environ.get("WANDB_MODE"),
            "run_id": os.environ["NIGHTSHIFT_RUN_ID"],
            "variable": os.environ.get("NIGHTSHIFT_BATCH_SIZE"),
            "scratch": os.environ.get("NIGHTSHIFT_SCRATCH"),
            "pid": os.getpid(),
        }
        if said["scratch"]:
            Path(said["scratch"], "checkpoint").write_text("large")
        with Path(options.notes).open("a") as file:
            file.write(json.dumps(said) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--accum", type=int)
    parser.add_argument("--version")
    parser.add_argument("--fixed", type=int, default=2000)
    parser.add_argument("--per_sample", type=int, default=800)
    parser.add_argument("--prealloc", type=int, default=0)
    parser.add_argument("--late", type=int, default=0, help="MiB for each sample, after a while, in a real run")
    parser.add_argument("--late_after", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a run takes that has an end")
    parser.add_argument("--max_steps", "--max_tokens", type=int, default=0)
    parser.add_argument("--wandb_log")
    parser.add_argument("--host_group", help="a control group; there a real run takes host memory for each sample")
    parser.add_argument("--until", help="a real run lasts until there is this file")
    parser.add_argument("--more_on_second", type=int, default=0, help="percent more memory on the second GPU")
    parser.add_argument("--crash", action="store_true")
    parser.add_argument("--notes", help="a file for what was seen")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
