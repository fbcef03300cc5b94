"""Simulated trainers: memory, pace and mishaps of a training, in compressed time.

A trainer takes `start_s` (imports, data) without the GPU, then the driver's context, its weights over `load_s`, perhaps
`compile_s` with the GPU idle, then steps. Its memory is `fixed + batch part × (1 + noise)`; the optimiser's state comes
after the first step. One step takes `step_s + sample_s × batch`: samples per second grow with the batch and saturate.
What comes late is a part of the batch's own memory: a first evaluation, longer samples, fragmentation, an hourly spike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

CONTEXT_MIB = 420.0
NIGHT_S = 8 * 3600.0
SAMPLE_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Gpu:
    total_mib: float
    reserved_mib: float

    @property
    def usable_mib(self) -> float:
        return self.total_mib - self.reserved_mib


GB16 = Gpu(total_mib=16384, reserved_mib=320)
GB24 = Gpu(total_mib=24564, reserved_mib=400)
GB80 = Gpu(total_mib=81920, reserved_mib=600)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    name: str
    gpu: Gpu = GB24
    fixed_mib: float
    sample_mib: float
    step_s: float
    sample_s: float
    start_s: float = 12.0
    load_s: float = 2.0
    compile_s: float = 0.0  # for each new shape
    reload_s: float = 2.0  # a data loader with its workers, made anew
    checkpoint_s: float = 2.0  # to write, or to read
    linear: bool = True
    curve: Callable[[float], float] | None = None  # the batch part, where it is not a line
    noise: float = 0.06  # of the batch part: each start draws its own, evenly from 0
    late: float = 0.03  # of the batch part: each night draws its own, and its hour
    eval_growth: float = 0.0  # of the batch part, at the first evaluation, and kept by the allocator
    eval_at_s: float = 900.0
    spike: float = 0.0  # of the batch part, once an hour
    bounded_s: float | None = None  # the probe's arguments end it after so much work, evaluation included
    breaks_above: int | None = None  # fails, and not for memory
    broken: bool = False
    neighbour_mib: tuple[float, float] = (0.0, 0.0)  # at first, and after two hours
    preallocates: float | None = None  # of the total
    pytorch: bool = True
    slots: int = 1
    resumes_every_s: float | None = None  # takes up its own checkpoint after a restart

    def batch_mib(self, batch: float) -> float:
        return self.curve(batch) if self.curve else self.sample_mib * batch

    def need_mib(self, batch: int, noise: float = 0.0) -> float:
        return self.fixed_mib + self.batch_mib(batch) * (1 + noise)

    def step_of_s(self, batch: int) -> float:
        return self.step_s + self.sample_s * batch

    def rate(self, batch: int) -> float:
        return batch / self.step_of_s(batch)

    @property
    def room_mib(self) -> float:
        """What this job may have, at the start."""
        share = self.gpu.usable_mib / self.slots
        return min(share, self.gpu.usable_mib - self.neighbour_mib[0])

    def room_at(self, at_s: float) -> float:
        neighbour = self.neighbour_mib[at_s >= 2 * 3600]
        room = min(self.gpu.usable_mib / self.slots, self.gpu.usable_mib - neighbour)
        return min(room, self.preallocates * self.gpu.total_mib) if self.preallocates else room

    def best(self, margin: float, cap: int) -> int:
        """The largest batch within the margin, with all that is sure to come and nothing that is chance."""
        batch = 0
        while batch < cap and self.sure_mib(batch + 1) <= margin * self.room_mib:
            batch += 1
        return batch

    def sure_mib(self, batch: int) -> float:
        growth = self.eval_growth if self.bounded_s else 0.0
        return self.fixed_mib + self.batch_mib(batch) * (1 + growth)

    def calm(self) -> Trainer:
        """Its twin without chance."""
        return replace(self, noise=0.0, late=0.0)


@dataclass(frozen=True)
class Night:
    """One night with one trainer: what chance brings, the same for every way of choosing."""

    trainer: Trainer
    late: float
    late_at_s: float

    @classmethod
    def of(cls, trainer: Trainer, number: int) -> Night:
        chance = Random(f"{trainer.name}/{number}")
        return cls(trainer, chance.uniform(0, trainer.late), chance.uniform(600, 4 * 3600))

    def growth_at(self, trained_s: float) -> float:
        """The part by which the batch's memory has grown after so much training."""
        trainer = self.trainer
        grown = self.late if trained_s >= self.late_at_s else 0.0
        return grown + (trainer.eval_growth if trained_s >= trainer.eval_at_s else 0.0)

    def falls_at_s(self, batch: int, noise: float, clock_s: float) -> float | None:
        """When a run that begins to train at this time runs out of memory; None where it does not."""
        trainer = self.trainer
        moments = {0.0, self.late_at_s, trainer.eval_at_s, max(2 * 3600 - clock_s, 0.0)}
        hours = [3600.0 * hour for hour in range(1, 9)]
        for trained_s in sorted(moments | set(hours)):
            spike = trainer.spike if trained_s in hours else 0.0
            grown = (1 + noise) * (1 + self.growth_at(trained_s) + spike)
            if trainer.fixed_mib + trainer.batch_mib(batch) * grown > trainer.room_at(clock_s + trained_s):
                return trained_s
        return None

    def peak_mib(self, batch: int, noise: float) -> float:
        """The most that a run has taken at the end of the night."""
        grown = (1 + noise) * (1 + self.growth_at(NIGHT_S) + self.trainer.spike)
        return self.trainer.fixed_mib + self.trainer.batch_mib(batch) * grown

    def readings(self, batch: int, noise: float) -> Iterator[tuple[float, float, int]]:
        """Time, memory and utilisation of a probe, as a sampler sees them. It ends only if its arguments say so."""
        trainer = self.trainer
        loaded = trainer.start_s + trainer.load_s
        ready = loaded + trainer.compile_s
        ends = ready + trainer.bounded_s / trainer.rate(batch) if trainer.bounded_s else math.inf
        at = 0.0
        while at <= ends:
            yield at, self._seen_mib(at, batch, noise, ready), 97 if at >= ready else 0
            at += SAMPLE_S

    def _seen_mib(self, at: float, batch: int, noise: float, ready: float) -> float:
        trainer = self.trainer
        if at < trainer.start_s:
            return 0.0
        if trainer.preallocates:
            return trainer.preallocates * trainer.gpu.total_mib
        weights = max(trainer.fixed_mib * 0.4 - CONTEXT_MIB, 0.0)
        if at < ready:
            loaded = min((at - trainer.start_s) / max(trainer.load_s, 0.1), 1.0)
            return min(CONTEXT_MIB + weights * loaded, trainer.fixed_mib)
        need = trainer.need_mib(batch, noise)
        if at < ready + trainer.step_of_s(batch):
            return need - 0.3 * trainer.fixed_mib
        # a bounded probe evaluates after two thirds of its time
        ends = ready + (trainer.bounded_s or math.inf) / trainer.rate(batch)
        if trainer.bounded_s and at > ready + (ends - ready) * 2 / 3:
            return need + trainer.batch_mib(batch) * (1 + noise) * trainer.eval_growth
        return need


def _steps(batch: float) -> float:
    """A convolution that picks a faster, hungrier algorithm from time to time."""
    return 88 * batch + 700 * math.floor(math.log2(max(batch, 1) / 4) if batch >= 4 else 0)


def _gpt2(name: str, **more: Any) -> Trainer:
    base: dict[str, Any] = {"fixed_mib": 2350, "sample_mib": 820, "step_s": 0.03, "sample_s": 0.025}
    return Trainer(name=name, **{**base, **more})


def _resnet(name: str, **more: Any) -> Trainer:
    base: dict[str, Any] = {"fixed_mib": 1250, "sample_mib": 88, "step_s": 0.04, "sample_s": 0.0028, "reload_s": 4.0}
    return Trainer(name=name, **{**base, **more})


def _seven_b(name: str, **more: Any) -> Trainer:
    base: dict[str, Any] = {"fixed_mib": 13600, "start_s": 25.0, "load_s": 15.0, "checkpoint_s": 12.0}
    return Trainer(name=name, **{**base, **more})


TRAINERS = [
    _gpt2("GPT-2 124M, 24 GB"),
    _gpt2("GPT-2 124M, bounded probe", bounded_s=977.0),
    _resnet("ResNet-50, 24 GB"),
    _resnet("ResNet-50, 80 GB", gpu=GB80, fixed_mib=1300),
    _seven_b("7B LoRA s2048, 80 GB", gpu=GB80, sample_mib=1450, step_s=0.25, sample_s=0.22),
    _seven_b("7B QLoRA s2048, 24 GB", fixed_mib=4750, sample_mib=1450, step_s=0.5, sample_s=0.9, checkpoint_s=5.0),
    _seven_b("7B LoRA s512, 80 GB", gpu=GB80, sample_mib=380, step_s=0.25, sample_s=0.055),
    Trainer(name="BERT-base s128, 16 GB", gpu=GB16, fixed_mib=2150, sample_mib=55, step_s=0.05, sample_s=0.0022),
    Trainer(name="tiny CNN, 24 GB", fixed_mib=470, sample_mib=0.05, step_s=0.004, sample_s=0.00003, start_s=5),
    _resnet("evaluation +5 %, late", eval_growth=0.05, late=0.0, noise=0.02),
    _resnet("evaluation +30 %, late", eval_growth=0.30),
    _gpt2("evaluation +30 %, in a bounded probe", eval_growth=0.30, bounded_s=977.0),
    _resnet("allocator noise 12 %", noise=0.12),
    _resnet("memory in jumps", curve=_steps, linear=False),
    _resnet("memory above linear", curve=lambda b: 60 * b + 0.15 * b * b, linear=False),
    _resnet("memory below linear", curve=lambda b: 400 * b**0.8, linear=False),
    _resnet("slow start, 90 s", start_s=90),
    _gpt2("compiles for 60 s", compile_s=60, start_s=15),
    _seven_b("default batch too large", fixed_mib=11000, sample_mib=3600, step_s=0.5, sample_s=0.8, late=0.02),
    _gpt2("too large even at batch 1", fixed_mib=24500),
    _gpt2("crashes in any run", broken=True),
    _resnet("fails above batch 100", breaks_above=100),
    _gpt2("neighbour that grows", neighbour_mib=(10000, 14500)),
    _gpt2("preallocates 75 %", preallocates=0.75, pytorch=False, sample_mib=600),
    _gpt2("two jobs on the GPU", slots=2, pytorch=False),
    _resnet("spike of 5 % once an hour", spike=0.05, noise=0.02, late=0.0),
    _resnet("spike of 15 % once an hour", spike=0.15),
    _resnet("spike of 15 %, resumes its checkpoint", spike=0.15, resumes_every_s=1800),
    _gpt2("91.6 % used at the default", fixed_mib=4000, sample_mib=2266, sample_s=0.06, noise=0.0, late=0.01),
]
