"""An ordinary PyTorch training: a small network learns to tell the direction of stripes in noise.

    nightshift submit --probe --batch-arg=--batch-size -- python examples/torch_train.py

It knows nothing of nightshift; all it needs is an argument for its batch. On a box with simulated GPUs it trains on the
CPU, and a wrapper lets its memory count as the GPU's, 48 times over:

    nightshift submit --probe --batch-arg=--batch-size -- \\
        nightshift sim-load --mirror 48 -- python examples/torch_train.py
"""

import argparse
import math
import time

import torch
from torch import nn

SIDE, CHANNELS, DIRECTIONS = 64, 8, 10


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn to tell the direction of stripes.")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--max-seconds", type=float, default=math.inf, help="end after so long, if that is sooner")
    parser.add_argument("--lr", type=float, default=3e-3)
    return parser.parse_args()


def stripes(count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures with noise, and the number of the direction that each shows."""
    kinds = torch.randint(DIRECTIONS, (count,), device=device)
    angles = (math.pi * kinds / DIRECTIONS)[:, None, None]
    axis = torch.arange(SIDE, device=device)
    across = torch.cos(angles) * axis[None, :, None] + torch.sin(angles) * axis[None, None, :]
    shift = 2 * math.pi * torch.rand(count, 1, 1, device=device)
    return (torch.sin(across + shift) + 0.5 * torch.randn(count, SIDE, SIDE, device=device))[:, None], kinds


def network() -> nn.Module:
    layers: list[nn.Module] = []
    for before in (1, CHANNELS, CHANNELS):
        layers += [nn.Conv2d(before, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS), nn.ReLU()]
    return nn.Sequential(*layers, nn.AvgPool2d(8), nn.Flatten(), nn.Linear(CHANNELS * (SIDE // 8) ** 2, DIRECTIONS))


def main() -> None:
    given = options()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = network().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=given.lr)
    began, first, last, right, step = time.monotonic(), math.nan, math.nan, 0.0, 0
    while step < given.steps and time.monotonic() - began < given.max_seconds:
        step += 1
        pictures, kinds = stripes(given.batch_size, device)
        said = model(pictures)
        loss = nn.functional.cross_entropy(said, kinds)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        last, right = loss.item(), (said.argmax(1) == kinds).float().mean().item()
        first = last if step == 1 else first
        if step == 1 or step % 20 == 0:
            print(f"step {step}: loss {last:.3f}, {right:.0%} right", flush=True)
    speed = step * given.batch_size / (time.monotonic() - began)
    print(
        f"batch {given.batch_size}: loss {first:.3f} -> {last:.3f} in {step} steps, {speed:.0f} samples/s", flush=True
    )


if __name__ == "__main__":
    main()
