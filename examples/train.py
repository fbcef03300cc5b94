"""A training to try nightshift with: it learns nothing, but looks like one that does.

    /submit python3 examples/train.py --steps 60 --lr 3e-4

On simulated GPUs it holds memory and keeps them busy; on real ones it only prints.
"""

import argparse
import math
import os
import random
import shutil
import subprocess
import sys
import time


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Pretend to train.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--bs", type=int, default=8, help="takes about 400 MiB of memory each")
    parser.add_argument("--seconds", type=float, default=0.5, help="per step")
    parser.add_argument("--fail-at", type=int, help="raise an error at this step")
    return parser.parse_args()


def busy_gpu(batch_size: int) -> subprocess.Popen[bytes] | None:
    """Load for the simulated GPU, until this process ends."""
    command = shutil.which("nightshift")
    if command is None or not os.environ.get("CUDA_VISIBLE_DEVICES"):
        return None
    words = [command, "sim-load", "--memory", f"{2000 + 400 * batch_size}M", "--load", "90"]
    return subprocess.Popen(words, stderr=subprocess.DEVNULL)


def train(given: argparse.Namespace) -> None:
    for step in range(1, given.steps + 1):
        time.sleep(given.seconds)
        loss = 4 * math.exp(-given.lr * 300 * step / given.steps) + random.uniform(0, 0.1)
        done = "█" * (20 * step // given.steps)
        sys.stdout.write(f"\r{100 * step // given.steps:3d}%|{done:<20}| {step}/{given.steps} loss={loss:.3f}")
        if step % 10 == 0:
            sys.stdout.write(f"\nstep {step}: loss {loss:.3f}, lr {given.lr:g}\n")
        sys.stdout.flush()
        if step == given.fail_at:
            raise RuntimeError(f"loss is NaN at step {step}")
    print("saved model.pt")


def main() -> None:
    given = options()
    load = busy_gpu(given.bs)
    try:
        train(given)
    finally:
        if load is not None:
            load.terminate()


if __name__ == "__main__":
    main()
