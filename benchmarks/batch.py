"""The batch size that is chosen, and the samples trained in the first eight hours: ours, the blog's, Lightning's.

`python -m benchmarks.batch` prints the table; `python -m benchmarks.batch --write` puts it into docs/batch.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import mean

from benchmarks.trainers import NIGHT_S, TRAINERS, Night, Trainer
from runner.batch import (
    BatchPlan,
    BatchSettings,
    Failed,
    Measured,
    MemoryHistory,
    OutOfMemory,
    Plateau,
    Probe,
    Run,
    Unmeasured,
    choose,
)
from runner.batch.steps import EndedBy

NIGHTS = 60
DOCUMENT = Path(__file__).parents[1] / "docs" / "batch.md"
BEGIN, END = "<!-- table: made by python -m benchmarks.batch --write -->", "<!-- end of table -->"
STOP_S = 2.0  # to end a probe, and to see its memory back
SETTINGS = BatchSettings()


@dataclass(frozen=True)
class Result:
    batch: int = 0  # of the last run; 0: it never trained
    lost_s: float = 0.0  # before the run that counts began to train
    samples: float = 0.0
    restarts: int = 0
    ended: bool = False  # memory ran out late, and nobody began again
    known: MemoryHistory | None = None
    probes: int = 0


# -- ours --------------------------------------------------------------------------------------------------------------


def ours(night: Night, chance: Random, known: MemoryHistory | None = None) -> Result:
    trainer = night.trainer
    settings = replace(SETTINGS, bounded=trainer.bounded_s is not None)
    plan = _begun(trainer, settings, known)
    clock_s = 0.0
    while isinstance(plan.step, Probe):
        outcome = _probe(night, plan.step, chance)
        clock_s += outcome.seconds + STOP_S
        plan = plan.after(outcome)
    return _run(night, plan, clock_s, chance)


def _begun(trainer: Trainer, settings: BatchSettings, known: MemoryHistory | None) -> BatchPlan:
    if trainer.neighbour_mib[0]:
        return BatchPlan.unprobed(settings, trainer.room_mib, "others use this GPU")
    if known is not None:
        run = choose(known, trainer.room_mib, settings)
        if run is not None:
            return BatchPlan.remembered(settings, trainer.room_mib, known.line, run)
    return BatchPlan.start(settings, trainer.room_mib)


def _probe(night: Night, probe: Probe, chance: Random) -> Measured | OutOfMemory | Failed | Unmeasured:
    trainer, noise = night.trainer, chance.uniform(0, night.trainer.noise)
    ready_s = trainer.start_s + trainer.load_s + trainer.compile_s
    if trainer.broken or (trainer.breaks_above and probe.batch > trainer.breaks_above):
        return Failed("exit code 1", "ValueError", seconds=trainer.start_s)
    if trainer.need_mib(probe.batch, noise) > trainer.room_at(0.0):
        return OutOfMemory(trainer.room_mib, seconds=ready_s)
    plateau, at = Plateau(least_s=probe.quiet_s, expected_s=probe.expected_s), 0.0
    for at, mib, utilization in night.readings(probe.batch, noise):
        if mib > trainer.room_at(0.0) and not trainer.preallocates:
            return OutOfMemory(trainer.room_mib, seconds=at)
        enough = plateau.add(at, mib, utilization)
        if at >= probe.limit_s:
            return _measured(plateau, at, "limit")
        if enough and probe.ends == "at plateau":
            return _measured(plateau, at, "plateau")
    return _measured(plateau, at, "itself")


def _measured(seen: Plateau, at: float, ended_by: EndedBy) -> Measured:
    return Measured(seen.peak_mib, 0.0, at, ended_by, seen.settled_s)


def _run(night: Night, plan: BatchPlan, clock_s: float, chance: Random) -> Result:
    """The real run, restarted where memory runs out; what it had trained is lost, unless it resumes."""
    trainer, kept = night.trainer, 0.0
    while isinstance(plan.step, Run):
        noise, batch = chance.uniform(0, trainer.noise), plan.step.batch
        clock_s += trainer.start_s + trainer.load_s + trainer.compile_s
        if trainer.breaks_above and batch > trainer.breaks_above:
            break
        falls_at = night.falls_at_s(batch, noise, clock_s)
        if falls_at is None or clock_s + falls_at >= NIGHT_S:
            samples = kept + max(NIGHT_S - clock_s, 0.0) * trainer.rate(batch)
            learned = MemoryHistory.of(plan)
            learned = learned.refined(batch, night.peak_mib(batch, noise), whole=True) if learned else None
            return Result(batch, clock_s, samples, plan.restarts, known=learned, probes=plan.probes)
        if trainer.resumes_every_s:
            kept += falls_at // trainer.resumes_every_s * trainer.resumes_every_s * trainer.rate(batch)
        clock_s += falls_at
        plan = plan.after(OutOfMemory(trainer.room_mib, seconds=trainer.start_s + falls_at))
    return Result(lost_s=clock_s, samples=kept, restarts=plan.restarts, ended=plan.restarts > 0)


# -- the blog's --------------------------------------------------------------------------------------------------------


def blog(night: Night, chance: Random) -> Result:
    """Twelve readings of all memory in use, ten seconds apart, while it runs at 8; then all of it scaled by the batch.

    As it is written, it then waits for the probe to end. That a probe without an end is stopped is our kindness.
    """
    trainer, noise = night.trainer, chance.uniform(0, night.trainer.noise)
    seen, at = [trainer.gpu.reserved_mib + trainer.neighbour_mib[0]], 0.0
    died = trainer.broken or trainer.need_mib(8, noise) > trainer.room_at(0.0)
    for at, mib, _ in night.readings(8, noise):
        if at > 110 and not trainer.bounded_s:
            break
        if at % 10 == 0 and at <= 110 and not died:
            seen.append(mib + trainer.gpu.reserved_mib + trainer.neighbour_mib[0])
    total = trainer.gpu.total_mib / trainer.slots
    batch = int(total * 8 * 9 // 10 // max(seen)) // 8 * 8
    if not 0 < batch <= 4096:
        batch = 8
    return _alone(night, batch, max(120.0, at) + trainer.start_s + trainer.load_s + trainer.compile_s, chance)


def _alone(night: Night, batch: int, clock_s: float, chance: Random) -> Result:
    """The real run as others leave it: when memory runs out, it is over. What it trained until then is counted."""
    trainer = night.trainer
    if batch < 1 or trainer.broken or (trainer.breaks_above and batch > trainer.breaks_above):
        return Result(lost_s=clock_s)
    falls_at = night.falls_at_s(batch, chance.uniform(0, trainer.noise), clock_s)
    trained_s = NIGHT_S - clock_s if falls_at is None else min(falls_at, NIGHT_S - clock_s)
    ended = falls_at is not None and clock_s + falls_at < NIGHT_S
    return Result(batch if trained_s else 0, clock_s, trained_s * trainer.rate(batch), ended=ended)


# -- PyTorch Lightning's BatchSizeFinder, 2.6 --------------------------------------------------------------------------


class Search:
    """Trials in the process that trains afterwards: three steps each, a new data loader, the checkpoint kept aside."""

    def __init__(self, night: Night, chance: Random) -> None:
        self.night, self.chance = night, chance
        trainer = night.trainer
        self.clock_s = trainer.start_s + trainer.load_s + 2 * trainer.checkpoint_s

    def fits(self, batch: int) -> bool:
        trainer = self.night.trainer
        noise = self.chance.uniform(0, trainer.noise)
        if trainer.broken or (trainer.breaks_above and batch > trainer.breaks_above):
            raise ValueError("not a matter of memory")
        fits = trainer.need_mib(batch, noise) <= trainer.room_at(self.clock_s)
        self.clock_s += trainer.reload_s + trainer.compile_s + (3 if fits else 1) * trainer.step_of_s(batch)
        return fits


def _power(search: Search) -> int:
    """Doubles until memory runs out, and goes back by one: `mode="power"`."""
    batch, ran = 2, False
    for _ in range(25):
        if search.fits(batch):
            ran = True
            if batch >= SETTINGS.cap:
                return batch
            batch = min(batch * 2, SETTINGS.cap)
        else:
            batch //= 2
            if ran or batch < 1:
                return batch
    return batch


def _binary(search: Search) -> int:
    """Doubles until memory runs out, bisects, and takes 5 % off: `mode="binsearch"`, `margin=0.05`."""
    low, high, batch = 1, 0, 2
    for _ in range(25):
        if search.fits(batch):
            low = batch
            if batch >= SETTINGS.cap or (high and high - low <= 1):
                break
            batch = (high + low) // 2 if high else min(batch * 2, SETTINGS.cap)
        else:
            high = batch
            batch = (high + low) // 2
            if high - low <= 1:
                break
    return max(int(low * 0.95), 1)


def _lightning(mode: Callable[[Search], int]) -> Callable[[Night, Random], Result]:
    def result(night: Night, chance: Random) -> Result:
        search = Search(night, chance)
        try:
            batch = mode(search)
        except ValueError:
            return Result(lost_s=search.clock_s)
        return _alone(night, batch, search.clock_s, chance)

    return result


# -- the tables --------------------------------------------------------------------------------------------------------

WAYS: dict[str, Callable[[Night, Random], Result]] = {
    "ours": ours,
    "blog": blog,
    "power": _lightning(_power),
    "binsearch": _lightning(_binary),
}
LIGHTNING = ("power", "binsearch")


@dataclass(frozen=True)
class Row:
    trainer: Trainer
    best: int  # the largest batch that the margin allows, where chance has no part
    nights: dict[str, list[Result]]  # by way; `again` is the second job of its kind
    calm: dict[str, Result]  # the same in a night without chance

    def samples(self, way: str) -> float:
        return mean(result.samples for result in self.nights[way])

    def share(self, way: str) -> float:
        """Of the samples that ours trained."""
        return self.samples(way) / self.samples("ours") if self.samples("ours") else 0.0

    def calm_share(self, way: str) -> float:
        return self.calm[way].samples / self.calm["ours"].samples if self.calm["ours"].samples else 0.0

    @property
    def behind(self) -> float:
        """How far ours is behind the first, as a part of its own samples."""
        return max(self.share(way) for way in WAYS if way in self.nights) - 1 if self.samples("ours") else 0.0


def row(trainer: Trainer, nights: int = NIGHTS) -> Row:
    ways = {way: go for way, go in WAYS.items() if trainer.pytorch or way not in LIGHTNING}
    results = {
        way: [go(Night.of(trainer, n), Random(f"{trainer.name}/{n}/{way}")) for n in range(nights)]
        for way, go in ways.items()
    }
    results["again"] = [
        ours(Night.of(trainer, nights + n), Random(f"{trainer.name}/{n}/again"), before.known)
        for n, before in enumerate(results["ours"])
    ]
    twin = trainer.calm()
    calm = {way: go(Night.of(twin, 0), Random(0)) for way, go in ways.items()}
    return Row(trainer, twin.best(SETTINGS.margin, SETTINGS.cap), results, calm)


def rows(nights: int = NIGHTS) -> list[Row]:
    return [row(trainer, nights) for trainer in TRAINERS]


def tables(made: list[Row]) -> str:
    nights = [
        f"Samples in the first eight hours, mean of {NIGHTS} nights; ours in thousands, the others beside it:\n",
        "| trainer | ours | second job | blog | power | binsearch | real run out of memory, nights |",
        "|---|---|---|---|---|---|---|",
        *(_line(*_night_cells(one)) for one in made),
    ]
    calm = [
        "\nA night without chance (no noise, no fragmentation):\n",
        "| trainer | best | ours | blog | power | binsearch | seconds before training | samples beside ours |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(*_calm_cells(one)) for one in made),
    ]
    return "\n".join([standing(made), "", *nights, *calm])


def standing(made: list[Row]) -> str:
    """On how many trainers ours trained the most samples, and by how much it did not."""
    trained = [one for one in made if any(one.samples(way) for way in WAYS if way in one.nights)]
    behind = sorted((one for one in trained if one.behind > 0), key=lambda one: one.behind)
    first = f"Ours is first on {len(trained) - len(behind)} of {len(made)} trainers"
    nobody = f"{len(made) - len(trained)} nobody can train"
    others = "; ".join(f"{one.trainer.name} ({100 * one.behind:.2f} %)" for one in behind)
    return f"{first}; {nobody}. It is behind on {len(behind)}: {others}."


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _night_cells(one: Row) -> list[str]:
    shares = [_percent(one.share(way)) if way in one.nights else "–" for way in ("again", "blog", *LIGHTNING)]
    late = [str(sum(_fell(result) for result in one.nights[way])) if way in one.nights else "–" for way in WAYS]
    return [one.trainer.name, f"{one.samples('ours') / 1000:,.0f}", *shares, " / ".join(late)]


def _calm_cells(one: Row) -> list[str]:
    batches = [str(one.calm[way].batch) if way in one.calm else "–" for way in WAYS]
    spent = [f"{one.calm[way].lost_s:.0f}" if way in one.calm else "–" for way in WAYS]
    shares = [_percent(one.calm_share(way)) if way in one.calm else "–" for way in WAYS if way != "ours"]
    return [one.trainer.name, str(one.best), *batches, " / ".join(spent), " / ".join(shares)]


def _fell(result: Result) -> bool:
    return result.ended or result.restarts > 0


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def written(document: str, made: list[Row]) -> str:
    """The document with these tables in it."""
    before, after = document.split(BEGIN, maxsplit=1)[0], document.split(END)[1]
    return f"{before}{BEGIN}\n\n{tables(made)}\n\n{END}{after}"


def main() -> None:
    made = rows()
    print(tables(made))
    if "--write" in sys.argv[1:]:
        DOCUMENT.write_text(written(DOCUMENT.read_text(), made))


if __name__ == "__main__":
    main()
