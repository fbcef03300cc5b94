"""A night on a box of four GPUs, made from a number: what is submitted, and all that goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

GPUS, TOTAL_MIB = 4, 24_000
NIGHT_S = 10 * 3600.0
BOOT_S = 180.0
JOBS = 210
OWNERS = ("ada", "bo", "cy")

OK, CRASH, OOM, IDLES, SPINS = "ok", "crash", "oom", "idles", "spins"


@dataclass(frozen=True)
class Printing:
    """How a job prints its progress: a line for each step, and a pause to evaluate at the end of each epoch."""

    step_s: float
    epochs: int
    pause: float  # share of an epoch


@dataclass(frozen=True)
class Job:
    """What it asks for, and what will become of it."""

    id: int
    at_s: float  # when it is submitted
    work_s: float  # on all the GPUs it asks for
    gpus: int = 1
    mib: int = 8_000  # on each GPU; its owner has not said so
    owner: str = "ada"
    rank: int = 0
    limit_s: float | None = None
    retries: bool = False  # asked for, where the host takes it
    saves_every_s: float | None = None  # goes on from its last checkpoint when it is started again
    probes: bool = False  # its batch is looked for
    filler: bool = False  # low priority, may be pushed aside, saves when told to stop
    fault: str = OK
    fault_s: float = 0.0  # after so much work
    exit_code: int = 1
    kind: int = 0  # jobs of one kind are the same program; 0 for one of its own
    prints: Printing | None = None  # its progress


@dataclass(frozen=True)
class Night:
    """The same for everybody."""

    number: int
    jobs: tuple[Job, ...]
    neighbours: tuple[tuple[int, float, float, int], ...]  # GPU, from, until, memory
    reboot_s: float
    length_s: float = NIGHT_S
    boot_s: float = BOOT_S

    @classmethod
    def of(cls, number: int, stretch: float = 1.0) -> Night:
        """Always the same for the same number; or the same jobs, so many times as long, in as much more time."""
        night = cls._of(number)
        if stretch == 1:
            return night
        return cls(
            number,
            tuple(_longer(job, stretch) for job in night.jobs),
            tuple(
                (gpu, start * stretch, start * stretch + end - start, mib) for gpu, start, end, mib in night.neighbours
            ),
            night.reboot_s * stretch,
            night.length_s * stretch,
        )

    @classmethod
    def _of(cls, number: int) -> Night:
        chance = Random(f"night {number}")
        jobs = [_job(chance, place + 1) for place in range(JOBS)]
        for kind in (OOM, CRASH, IDLES, SPINS):  # each happens in every night
            if not any(job.fault == kind for job in jobs):
                at = chance.randrange(JOBS)
                jobs[at] = _with_fault(chance, jobs[at], kind)
        jobs += _broken_sweep(chance, len(jobs) + 1)
        first = len(jobs) + 1
        jobs += [
            Job(
                first + n, 0.0, 10 * NIGHT_S, mib=6_000, owner="di", rank=-1, retries=True, saves_every_s=600.0,
                filler=True,
            )
            for n in range(GPUS)
        ]  # fmt: skip
        comes_s = chance.uniform(0.05, 0.7) * NIGHT_S
        neighbour = (
            chance.randrange(GPUS),
            comes_s,
            comes_s + chance.uniform(1800, 7200),
            chance.randrange(9_000, 19_000),
        )
        return cls(number, tuple(jobs), (neighbour,), chance.uniform(0.2, 0.8) * NIGHT_S)

    def with_progress(self, share: float) -> Night:
        """Return the same night in which this share of the jobs prints its progress."""
        return replace(self, jobs=tuple(_printing(job, self.number, share) for job in self.jobs))

    def foreign_mib(self, gpu: int, at_s: float) -> int:
        return sum(mib for index, start, end, mib in self.neighbours if index == gpu and start <= at_s < end)

    def crowded_at_s(self, gpus: tuple[int, ...], mib: int, start_s: float) -> float | None:
        """When a job that runs there from then on finds no memory because of a neighbour."""
        times = [
            max(start, start_s)
            for index, start, end, held in self.neighbours
            if index in gpus and end > start_s and held + mib > TOTAL_MIB
        ]
        return min(times, default=None)


def _job(chance: Random, number: int) -> Job:
    work_s = min(max(chance.lognormvariate(5.9, 0.8), 45.0), 5400.0)
    at_s = 0.0 if chance.random() < 0.6 else chance.uniform(0, NIGHT_S / 2)
    job = Job(
        number,
        at_s,
        work_s,
        gpus=chance.choices((1, 2, 4), (84, 12, 4))[0],
        mib=chance.randrange(3_000, 23_000),
        owner=chance.choice(OWNERS),
        rank=chance.choices((-1, 0, 1), (15, 75, 10))[0],
        limit_s=_limit(work_s) if chance.random() < 0.4 else None,
        retries=chance.random() < 0.25,
        saves_every_s=300.0 if chance.random() < 0.3 else None,
        probes=chance.random() < 0.2,
    )
    roll = chance.random()
    if roll < 0.05:
        return _with_fault(chance, job, OOM)
    if roll < 0.11:
        return _with_fault(chance, job, CRASH)
    if roll < 0.14:
        return _with_fault(chance, job, IDLES)
    if job.gpus > 1 and roll < 0.20:
        return _with_fault(chance, job, SPINS)
    return job


def _printing(job: Job, night: int, share: float) -> Job:
    chance = Random(f"progress {night} {job.id}")
    if chance.random() >= share:
        return job
    step_s = min(max(chance.lognormvariate(-0.3, 1.0), 0.05), 20.0)
    return replace(job, prints=Printing(step_s, chance.randint(3, 20), chance.uniform(0.03, 0.2)))


def _longer(job: Job, stretch: float) -> Job:
    """What fails at once still does."""
    at_once = job.fault == CRASH and job.fault_s < 10
    return replace(
        job,
        at_s=job.at_s * stretch,
        work_s=job.work_s * stretch,
        fault_s=job.fault_s if at_once else job.fault_s * stretch,
        limit_s=job.limit_s and _limit(job.work_s * stretch),
    )


def _limit(work_s: float) -> float:
    """People ask for about twice what they need, in whole half hours."""
    return max(1, round(2 * work_s / 1800)) * 1800.0 + 1800.0


def _with_fault(chance: Random, job: Job, kind: str) -> Job:
    gpus = max(job.gpus, 2) if kind == SPINS else job.gpus  # a dead-lock between GPUs needs two
    at_once = kind == CRASH and chance.random() < 0.5
    fault_s = chance.uniform(1, 8) if at_once else chance.uniform(0.05, 0.9) * job.work_s
    if kind == IDLES and chance.random() < 0.4:
        fault_s = 0.0  # a notebook that somebody forgot
    return replace(job, gpus=gpus, fault=kind, fault_s=fault_s, exit_code=chance.choice((1, 1, 1, 2)))


def _broken_sweep(chance: Random, first: int) -> list[Job]:
    """In one night of three somebody submits a sweep whose program does not even start."""
    if chance.random() > 1 / 3:
        return []
    at_s, owner = chance.uniform(0, NIGHT_S / 2), chance.choice(OWNERS)
    return [
        Job(first + n, at_s, 600.0, owner=owner, fault=CRASH, fault_s=chance.uniform(2, 5), kind=1)
        for n in range(chance.randint(3, 6))
    ]
