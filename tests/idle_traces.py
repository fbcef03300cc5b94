"""Traces of GPU utilisation, each labelled by hand: is the job to be stopped or kept? And four rules to decide.

`python -m tests.idle_traces` writes the table of docs/idle.md.

Ours is runner.idle as the runner uses it. The others are small models of what is documented or published:

- gpu_idle_timeout (varlogtim/tools): one reading at each tick, all GPUs below the threshold in the last n
  readings; a reading it cannot parse, such as `[N/A]`, raises, and whatever raises kills the process.
- dstack (`utilization_policy`; PR #2375, `_should_terminate_due_to_low_gpu_util`): "If any GPU has utilization below
  specified value during the whole time window, the run is terminated"; samples are those of the last `time_window` by
  the wall clock, and there must be one in its first minute.
- Princeton (job_defense_shield, docs/alert/cancel_gpu_jobs.md): "a GPU is said to have 0% utilization if all of the
  measurements made by the NVIDIA exporter are zero"; `gpu_frac_threshold` 1.0, its default, cancels for any one such
  GPU; "If there was a period of activity then it will not be canceled even if there is a long gap of inactivity"
  (jobstats #28). Its `cancel_minutes` (120) is taken as short as our delay and window together.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from runner.idle import hung_rule
from runner.idle.idle_rule import IdleAction, LoadReading, Window
from runner.idle.policy import DEFAULT, IdlePolicy
from runner.idle.stall_rule import Standstill, standstill
from runner.progress.pace import Pace, Progress
from runner.watchdogs.hung import Suspect

ROOT = Path(__file__).parents[1]
PRINTED = ROOT / "tests" / "data" / "idle" / "gpu_idle_timeout.json"
DOCUMENT = ROOT / "docs" / "idle.md"
BEGIN, END = "<!-- traces: made by python -m tests.idle_traces -->", "<!-- end of traces -->"

BOOT = "this boot"
Load = Callable[[float], float | None]


@dataclass(frozen=True)
class Moment:
    """What can be seen at one moment: all clocks, what the driver says, and what of it is the job's own."""

    at: float  # monotonic, from the start of the job
    wall: float
    asleep_s: float
    device: tuple[float | None, ...]  # as the driver tells it, others' load included
    own: tuple[float | None, ...]  # as our reader hands it on


@dataclass(frozen=True)
class Trace:
    """One job's life, and what a person who knows the job would do with it."""

    name: str
    label: str  # keep or kill
    story: str
    moments: tuple[Moment, ...]
    policy: IdlePolicy = DEFAULT
    keep_until: float | None = None
    restarts: tuple[float, ...] = ()  # of the runner, which hands its state to the next one
    expected_at: float | None = None  # when the stop is due, where that matters
    idle_from: float = 0.0
    advances: tuple[float, ...] = ()  # when its counter advances by one
    evaluates: tuple[float, ...] = ()  # when it prints the result of an evaluation
    total: float | None = None  # where the counter ends
    work: bool = True  # the counter is one of real work, not of a download
    prints: tuple[float, ...] = ()  # when it prints anything else
    writes: tuple[tuple[float, float], ...] = ()  # when its processes write a checkpoint
    power: Load | None = None  # share of the power limit, on each GPU; None: unknown
    own_rule: bool = False  # it was submitted with --idle and --hung
    advancing_s: float | None = None  # NIGHTSHIFT_IDLE_ADVANCING


# -- making traces -------------------------------------------------------------------------------------------------


def moments(
    until_s: float,
    *loads: Load,
    every_s: float = 1.0,
    missing: Iterable[tuple[float, float]] = (),
    own: Callable[[float, int, float | None], float | None] = lambda _at, _gpu, percent: percent,
) -> tuple[Moment, ...]:
    """A moment each second; `missing` are times without any reading."""
    holes = list(missing)
    made = []
    for step in range(1, int(until_s / every_s) + 1):
        at = step * every_s
        if any(begin <= at < end for begin, end in holes):
            continue
        device = tuple(load(at) for load in loads)
        made.append(Moment(at, at, 0.0, device, tuple(own(at, n, percent) for n, percent in enumerate(device))))
    return tuple(made)


def constant(percent: float | None) -> Load:
    return lambda _at: percent


def phases(*parts: tuple[float, float | None]) -> Load:
    """Until when, and then how busy; the last goes on."""

    def load(at: float) -> float | None:
        return next((percent for end, percent in parts if at < end), parts[-1][1])

    return load


def repeated(every_s: float, for_s: float, inside: float | None, outside: float, offset_s: float = 0.0) -> Load:
    return lambda at: inside if (at - offset_s) % every_s < for_s else outside


def noise(top: int, seed: int) -> Load:
    random = Random(seed)
    values = [random.randint(0, top) for _ in range(10_000)]
    return lambda at: float(values[int(at)])


def jittered(made: tuple[Moment, ...], by_s: float, seed: int) -> tuple[Moment, ...]:
    random = Random(seed)
    return tuple(replace(m, at=m.at + random.uniform(-by_s, by_s)) for m in made)


def wall_jumps(made: tuple[Moment, ...], at: float, by_s: float) -> tuple[Moment, ...]:
    return tuple(replace(m, wall=m.wall + by_s) if m.at >= at else m for m in made)


def asleep(made: tuple[Moment, ...], at: float, for_s: float) -> tuple[Moment, ...]:
    """The monotonic clock stands still while the machine sleeps; the others go on."""
    return tuple(replace(m, wall=m.wall + for_s, asleep_s=m.asleep_s + for_s) if m.at >= at else m for m in made)


def steps(*parts: tuple[float, float, float]) -> tuple[float, ...]:
    """Advances of a counter: from, until, and how many seconds apart."""
    return tuple(
        begin + n * every_s for begin, end, every_s in parts for n in range(1, int((end - begin) / every_s) + 1)
    )


def with_pauses(until_s: float, every_s: float, pause_s: float, step_s: float = 1.0) -> tuple[float, ...]:
    """Steps, and at the end of each `every_s` a pause."""
    starts = range(0, int(until_s), int(every_s))
    return steps(*((float(at), min(at + every_s - pause_s, until_s), step_s) for at in starts))


def printed(name: str) -> tuple[Moment, ...]:
    """The readings in the log lines that gpu_idle_timeout prints."""
    rows = json.loads(PRINTED.read_text())[name]["samples"]
    return tuple(Moment(row["at_s"], row["at_s"], 0.0, *(2 * [tuple(row["percent"])])) for row in rows)


FIRST_EXAMPLE = IdlePolicy(50.0, 6.0, 5, 3)
SECOND_EXAMPLE = IdlePolicy(20.0, 3.0, 7, 1)
WHOLE = (DEFAULT.delay + DEFAULT.window - 1) * DEFAULT.period_s  # 355 s: the earliest stop by the default

BUSY, IDLE = constant(95.0), constant(0.0)
STUCK = phases((300, 97.0), (1e9, 0.0))
NEIGHBOUR = constant(80.0)
SPINS = constant(100.0)


def low_power(*times: tuple[float, float]) -> Load:
    """At work, GPUs draw 80 % of what they may; while they wait for each other, 20 %."""
    return lambda at: 20.0 if any(begin <= at < end for begin, end in times) else 80.0


def _traces() -> list[Trace]:
    return [
        # -- to be stopped
        Trace("gpu_idle_timeout: grep foo", "kill", "its first example, as printed: 50%:6s:5:3", printed("grep"),
              FIRST_EXAMPLE, expected_at=42.13),
        Trace("gpu_idle_timeout: hang at step 700", "kill",
              "its second example, as printed: 20%:3s:7:1; one GPU stays at 1 %", printed("training"),
              SECOND_EXAMPLE, expected_at=36.261, idle_from=16.0),
        Trace("the same at 5 %", "kill", "the printed readings by our default threshold", printed("training"),
              replace(SECOND_EXAMPLE, threshold_percent=5.0), expected_at=36.261, idle_from=16.0),
        Trace("never touches its GPU", "kill", "forgot .cuda()", moments(600, IDLE), expected_at=WHOLE),
        Trace("stops at a debugger", "kill", "5 min of work, then a prompt nobody answers", moments(900, STUCK),
              expected_at=600.0, idle_from=300.0),
        Trace("one burst, then nothing", "kill", "a test kernel at the start, then idle for good",
              moments(700, phases((61, 0.0), (64, 80.0), (1e9, 0.0)))),
        Trace("both GPUs hang at 0 %", "kill", "a data loader that waits for ever", moments(900, STUCK, STUCK),
              idle_from=300.0),
        Trace("idle with a desktop on it", "kill", "0 to 3 % of noise, memory full", moments(600, noise(3, 1))),
        Trace("late and early readings", "kill", "idle; every reading comes up to 0.4 s off its second",
              jittered(moments(600, IDLE), 0.4, 2), expected_at=WHOLE),
        Trace("a hiccup of the sampler", "kill", "idle; 8 s without readings, less than two periods",
              moments(700, IDLE, missing=[(200, 208)])),
        Trace("the runner restarts twice", "kill", "idle; each restart costs 4 s of readings",
              moments(700, IDLE, missing=[(150, 154), (250, 254)]), restarts=(154.0, 254.0), expected_at=WHOLE),
        Trace("the clock is set back", "kill", "idle; the wall clock jumps back by an hour",
              wall_jumps(moments(800, IDLE), 200, -3600), expected_at=WHOLE),
        Trace("idle beside a busy neighbour", "kill", "a shared GPU; the driver tells by process: this job 0 %",
              moments(600, NEIGHBOUR, own=lambda _at, _n, _p: 0.0)),
        Trace("a GPU comes back", "kill", "idle; one GPU cannot be read for a minute; then a whole window",
              moments(900, IDLE, phases((200, 0.0), (260, None), (1e9, 0.0)))),
        Trace("asleep, then idle for a window", "kill", "the laptop sleeps 8 h in between; judged from then on",
              asleep(moments(900, IDLE), 200, 8 * 3600), expected_at=495.0),
        Trace("kept for 5 min, then idle on", "kill", "somebody pressed keep; a whole window after that it ends",
              moments(900, IDLE), keep_until=400.0),
        # -- to be kept
        Trace("checkpoints", "keep", "40 s of writing every 5 min", moments(1800, repeated(300, 40, 0.0, 96.0))),
        Trace("evaluation on the CPU", "keep", "4 min at 0 % after each epoch",
              moments(1800, repeated(600, 240, 0.0, 92.0, offset_s=360))),
        Trace("loads data at the start", "keep", "5 min 45 s before the first batch",
              moments(900, phases((345, 0.0), (1e9, 90.0)))),
        Trace("works on the CPU", "keep", "3 s of GPU in each minute", moments(1500, repeated(60, 3, 60.0, 0.0))),
        Trace("one of two GPUs idle", "keep", "a model that uses only the first", moments(900, BUSY, IDLE)),
        Trace("the two take turns", "keep", "a pipeline: each idle half of the time, never both",
              moments(1500, repeated(700, 350, 90.0, 0.0), repeated(700, 350, 0.0, 90.0))),
        Trace("utilisation is N/A", "keep", "the driver never tells (MIG, WSL)", moments(900, constant(None))),
        Trace("one GPU falls off the bus", "keep", "the other is at 0 %; nobody knows what the lost one did",
              moments(900, IDLE, phases((90, 90.0), (1e9, None)))),
        Trace("unknown now and then", "keep", "one reading in each two minutes is missing its value",
              moments(1500, repeated(120, 1, None, 0.0))),
        Trace("no telemetry", "keep", "idle as far as is known, but 100 s without any reading in mid-window",
              moments(500, IDLE, missing=[(200, 300)])),
        Trace("the sampler is replaced", "keep", "30 s without readings; a whole window has not passed since",
              moments(480, IDLE, missing=[(200, 230)])),
        Trace("the runner is away", "keep", "2 min between one runner and the next", restarts=(320.0,),
              moments=moments(600, IDLE, missing=[(200, 320)])),
        Trace("asleep", "keep", "idle for 3 min, 8 h of sleep, idle for 3 min", asleep(moments(400, IDLE), 200, 28800)),
        Trace("the clock is set forward", "keep", "idle for 4 min in truth; the wall clock jumps by an hour",
              wall_jumps(moments(300, IDLE), 200, 3600)),
        Trace("hangs at 100 %", "keep", "NCCL waits for a peer: not idle (runner.idle.hung_rule tells)",
              moments(900, constant(100.0))),
        Trace("a burst on one sample", "keep", "1 s of work every 4 min, on a tick",
              moments(1500, repeated(240, 1, 70.0, 0.0))),
        Trace("bursts between the ticks", "keep", "1 s of work in every 5 s, never on a tick",
              moments(900, repeated(5, 1, 70.0, 0.0, offset_s=2))),
        Trace("slow ramp", "keep", "1 % more each minute from the start: over 5 % in the sixth",
              moments(900, lambda at: min(60.0, at // 60 + 0.5))),
        Trace("exactly at the threshold", "keep", "5 % all the time: not below", moments(900, constant(5.0))),
        Trace("a neighbour, not told apart", "keep", "80 % on a shared GPU, whose nobody knows",
              moments(900, NEIGHBOUR, own=lambda _at, _n, _p: None)),
        Trace("ends just in time", "keep", "idle, and done by itself 1 s before the end of the window",
              moments(WHOLE - 1, IDLE)),
        Trace("somebody keeps it", "keep", "idle; the button was pressed", moments(900, IDLE), keep_until=math.inf),
    ]  # fmt: skip


def _with_counter() -> list[Trace]:
    """Traces of jobs that print how far they are, or seem to."""
    stuck_700 = phases((700, 95.0), (1e9, 0.0))
    short_pauses = with_pauses(700, 200, 10)  # the last before it stops is over at 600
    hung = {"power": low_power((700, 1e9)), "idle_from": 700.0}
    return [
        # -- to be stopped
        Trace("NCCL hang at step 700", "kill", "100 % at little power; pauses of 10 s before: 2 min are enough",
              moments(1800, SPINS, SPINS), advances=short_pauses, expected_at=820.0, **hung),
        Trace("NCCL hang after long pauses", "kill", "the same; pauses of 95 s before: 4 of them",
              moments(1800, SPINS, SPINS), advances=with_pauses(700, 300, 95), expected_at=1080.0, **hung),
        Trace("NCCL hang before its first pause", "kill", "the same; nobody knows how long its pauses are: 10 min",
              moments(1800, SPINS, SPINS), advances=steps((0, 700, 1)), expected_at=1300.0, **hung),
        Trace("NCCL hang after one hiccup", "kill", "the same after a single pause of 5 s: 4 min",
              moments(1800, SPINS, SPINS), advances=steps((0, 400, 1), (405, 700, 1)), expected_at=940.0, **hung),
        Trace("NCCL hang after one evaluation", "kill", "the same; the output says what the pause was: 2 min",
              moments(1800, SPINS, SPINS), advances=steps((0, 400, 1), (405, 700, 1)), evaluates=(405.0,),
              expected_at=820.0, **hung),
        Trace("hang before the first step", "kill", "100 % at little power from the start, no counter: 10 min",
              moments(1800, SPINS, SPINS), prints=(5.0,), power=low_power((0, 1e9)), expected_at=610.0),
        Trace("NCCL hang, the runner restarts", "kill", "as at step 700, with a new runner a minute later",
              moments(1800, SPINS, SPINS), advances=short_pauses, restarts=(760.0,), expected_at=820.0, **hung),
        Trace("NCCL hang, one rank at 0 %", "kill", "it has died, the others wait for it",
              moments(1800, SPINS, stuck_700), advances=short_pauses, expected_at=820.0, **hung),
        Trace("idle at step 700", "kill", "the loader is stuck; pauses of 10 s before: 2 min are enough",
              moments(1800, stuck_700), advances=short_pauses, expected_at=820.0, idle_from=700.0),
        Trace("idle before its first pause", "kill", "the same, without a pause before: the whole window",
              moments(1800, stuck_700), advances=steps((0, 700, 1)), expected_at=1000.0, idle_from=700.0),
        Trace("idle after short evaluations", "kill", "they are printed, but too short to be a pause: 2 min",
              moments(1800, stuck_700), advances=steps((0, 700, 1)), evaluates=steps((0, 700, 200)),
              expected_at=820.0, idle_from=700.0),
        Trace("idle after checkpoints of 40 s", "kill", "four of them are shorter than the window",
              moments(1800, stuck_700, stuck_700), advances=with_pauses(700, 200, 40), expected_at=860.0,
              idle_from=700.0),
        Trace("idle, the runner restarts", "kill", "as at step 700, with a new runner half a minute later",
              moments(1800, stuck_700), advances=short_pauses, restarts=(730.0,), expected_at=820.0, idle_from=700.0),
        Trace("idle at its end", "kill", "at step 500 of 500 an upload hangs: the whole window",
              moments(1800, phases((500, 95.0), (1e9, 0.0))), advances=with_pauses(520, 200, 10)[:500], total=500.0,
              idle_from=500.0),
        Trace("one print per epoch, then stuck", "kill", "an epoch takes 10 min: two of them without a print",
              moments(4200, phases((2450, 95.0), (1e9, 0.0))), advances=steps((0, 2400, 600)), expected_at=3600.0,
              idle_from=2450.0),
        Trace("only downloads", "kill", "a bar that counts bytes on GPUs that others wait for", moments(900, IDLE),
              advances=steps((0, 900, 1)), work=False, expected_at=WHOLE),
        Trace("installs, then nothing", "kill", "the bar of an install ends after 3 min", moments(900, IDLE),
              advances=steps((0, 180, 1)), work=False, expected_at=WHOLE),
        Trace("a rule of its own", "kill", "--idle wins over a counter that advances", moments(900, IDLE),
              advances=steps((0, 900, 1)), own_rule=True, expected_at=WHOLE),
        Trace("advances too long", "kill", "IDLE_ADVANCING=10m, and then a whole window", moments(1800, IDLE),
              advances=steps((0, 1800, 1)), advancing_s=600.0, expected_at=900.0),
        Trace("writes in a loop", "kill", "the counter stands still for half an hour, but the disk does not",
              moments(3600, stuck_700), advances=short_pauses, writes=((700.0, 3600.0),), idle_from=700.0),
        # -- to be kept
        Trace("works on the CPU, with a counter", "keep", "steps of 2 s, GPU at 2 % all the time",
              moments(3600, constant(2.0)), advances=steps((0, 3600, 2))),
        Trace("slow steps", "keep", "a step takes 4 min of CPU; GPU for a second each half hour",
              moments(7200, repeated(1800, 1, 60.0, 0.0)), advances=steps((0, 7200, 240))),
        Trace("one print per epoch", "keep", "epochs of 20 min with 8 min on the CPU from the third on",
              moments(7200, lambda at: 0.0 if at > 2400 and at % 1200 > 700 else 95.0),
              advances=steps((0, 7200, 1200))),
        Trace("one rank evaluates on the CPU", "keep", "the others wait at 100 % for 8 min",
              moments(1800, SPINS, lambda at: 0.0 if 700 <= at < 1180 else 100.0), power=low_power((700, 1180)),
              advances=steps((0, 700, 1), (1180, 1800, 1))),
        Trace("one rank evaluates ever longer", "keep", "8 min, and the next time 14",
              moments(3600, SPINS, SPINS), power=low_power((700, 1180), (1900, 2740)),
              advances=steps((0, 700, 1), (1180, 1900, 1), (2740, 3600, 1))),
        Trace("evaluates with a bar of its own", "keep", "12 min at 100 % and little power; the bar advances",
              moments(1800, SPINS, SPINS), power=low_power((700, 1420)),
              advances=steps((0, 700, 1), (700, 1420, 3), (1420, 1800, 1))),
        Trace("a checkpoint of ten minutes", "keep", "the first one; GPUs idle, its processes write",
              moments(1800, repeated(1e9, 600, 0.0, 95.0, offset_s=700)), writes=((700.0, 1300.0),),
              advances=steps((0, 700, 1), (1300, 1800, 1))),
        Trace("the same at 100 %", "keep", "one rank writes for ten minutes, the others wait",
              moments(1800, SPINS, SPINS), power=low_power((700, 1300)), writes=((700.0, 1300.0),),
              advances=steps((0, 700, 1), (1300, 1800, 1))),
        Trace("checkpoints that grow", "keep", "idle for 4 min, then for 7, and nobody sees it write",
              moments(2400, lambda at: 0.0 if 500 <= at < 740 or 1400 <= at < 1820 else 95.0),
              advances=steps((0, 500, 1), (740, 1400, 1), (1820, 2400, 1))),
        Trace("pauses that double", "keep", "5, 10, 20, 40, 80 and 160 s, idle each time",
              moments(1800, IDLE), advances=steps((0, 200, 1), (205, 400, 1), (410, 600, 1), (620, 800, 1),
                                                  (840, 1000, 1), (1080, 1200, 1), (1360, 1800, 1))),
        Trace("tries its evaluation before the first step", "keep", "then the first one takes 4 min on the CPU",
              moments(1800, lambda at: 0.0 if 700 <= at < 940 else 95.0), evaluates=(0.5, 940.0),
              advances=steps((0, 700, 1), (940, 1800, 1))),
        Trace("a last evaluation", "keep", "step 690 of 690, then 4 min on the CPU; pauses of 10 s before",
              moments(940, stuck_700), advances=short_pauses[:690], total=float(len(short_pauses[:690]))),
        Trace("prints while it evaluates", "keep", "4 min idle; lines without a counter; pauses of 10 s before",
              moments(1200, lambda at: 0.0 if 700 <= at < 940 else 95.0), prints=steps((700, 940, 30)),
              advances=(*short_pauses, *steps((940, 1200, 1)))),
        Trace("a long evaluation on the GPU", "keep", "the counter stands still for 20 min, the GPU works",
              moments(2400, BUSY), advances=(*short_pauses, *steps((1900, 2400, 1)))),
        Trace("stands still, GPU unknown", "keep", "one of the GPUs cannot be read",
              moments(1800, stuck_700, constant(None)), advances=short_pauses),
        Trace("downloads, then trains", "keep", "5 min of download, then steps", moments(1800, phases(
              (320, 0.0), (1e9, 95.0))), advances=steps((320, 1800, 1)), prints=steps((0, 300, 1))),
        Trace("somebody keeps the hung one", "keep", "as at step 700, but the button was pressed",
              moments(1800, stuck_700), advances=short_pauses, keep_until=math.inf),
        Trace("asleep with a counter", "keep", "idle steps; 8 h of sleep in between",
              asleep(moments(1200, constant(2.0)), 600, 28800), advances=steps((0, 1200, 5))),
    ]  # fmt: skip


TRACES = [*_traces(), *_with_counter()]


# -- the rules -----------------------------------------------------------------------------------------------------


@dataclass
class Watcher:
    """Ours, fed as the runner feeds it; writes itself down and comes back where the trace says so."""

    trace: Trace
    stopped_at: float | None = None
    warned_at: list[float] = field(default_factory=list)
    stops: int = 0

    def run(self) -> Watcher:
        trace = self.trace
        gpus = tuple(f"GPU-{n}" for n in range(len(trace.moments[0].own)))
        window, suspect, counter = Window(trace.policy, gpus, 0.0), Suspect(hung_rule.DEFAULT), Counter(trace)
        restarts = list(trace.restarts)
        for moment in trace.moments:
            if restarts and moment.at >= restarts[0]:
                restarts.pop(0)
                window = Window.from_json(json.loads(json.dumps(window.to_json(BOOT))), BOOT) or window
                suspect = Suspect.from_json(suspect.policy, json.loads(json.dumps(suspect.to_json(BOOT))), BOOT)
            unknown = "not told" if None in moment.own else None
            own = dict(zip(gpus, moment.own, strict=True))
            still = None if trace.own_rule else counter.at(moment.at, suspect.moving.at)
            if window.take(LoadReading(moment.at, own, unknown, moment.asleep_s)):
                self._act(window, moment.at, still)
            suspect.take(self._pulse(moment), moment.at - counter.printed_at, counter.moved_bytes(moment.at),
                         rests=still is not None and window.idle_since is not None)  # fmt: skip
            if trace.power is not None and self.stopped_at is None and self._is_hung(suspect, moment.at, still):
                self.stops, self.stopped_at = self.stops + 1, moment.at
        return self

    def _pulse(self, moment: Moment) -> hung_rule.Pulse:
        power = self.trace.power(moment.at) if self.trace.power else None
        watts = None if power is None else 4 * power
        return hung_rule.pulse(moment.at, [(percent, watts, 400.0) for percent in moment.device])

    def _is_hung(self, suspect: Suspect, now: float, still: Standstill | None) -> bool:
        """Return whether it would be stopped while another job waits for its GPUs."""
        verdict = hung_rule.judge(suspect.pulses, hung_rule.with_counter(suspect.policy, still))
        is_excused = still is not None and now < still.stops_at(suspect.policy.silent_s)
        return verdict.hung and verdict.plain and not is_excused

    def _act(self, window: Window, now: float, still: Standstill | None) -> None:
        verdict = window.judge(now, keep_until=self.trace.keep_until, counter=still, advancing_s=self.trace.advancing_s)
        if not window.is_news(verdict):
            return
        if verdict.action is IdleAction.WARN:
            self.warned_at.append(now)
        else:
            self.stops += 1
            self.stopped_at = self.stopped_at or now


class Counter:
    """What is read of a job's output, and what its processes write, while a trace goes on."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._pace, self._next = trace, Pace(), 0
        self._prints = sorted(trace.prints, reverse=True)
        self.printed_at = 0.0

    def at(self, now: float, moved_at: float) -> Standstill | None:
        trace, pace = self._trace, self._pace
        while self._next < len(trace.advances) and trace.advances[self._next] <= now:
            at, self._next = trace.advances[self._next], self._next + 1
            pace.interrupted |= any((pace.at or 0.0) < evaluated <= at for evaluated in trace.evaluates)
            pace.advance(float(self._next), at)
        while self._prints and self._prints[-1] <= now:
            self.printed_at = self._prints.pop()
        self.printed_at = max(self.printed_at, pace.at or 0.0)
        if pace.at is None:
            return None
        progress = Progress(
            position=pace.position, total=trace.total, unit="step", advanced_at=pace.at, step_s=pace.step_s,
            gap_s=pace.gap_s, longest_pause_s=pace.longest_pause_s, pauses=pace.pauses, evaluated=pace.evaluated,
            work=trace.work,
        )  # fmt: skip
        return standstill(progress, self.printed_at, moved_at)

    def moved_bytes(self, now: float) -> Callable[[], int]:
        return lambda: int(sum(max(0.0, min(now, end) - begin) for begin, end in self._trace.writes)) << 20


def ours(trace: Trace) -> float | None:
    return Watcher(trace).run().stopped_at


def gpu_idle_timeout(trace: Trace) -> float | None:
    policy = trace.policy
    due = policy.first_tick
    last: list[float] = []
    for moment in trace.moments:
        if moment.at < due * policy.period_s - 0.5:
            continue
        due = int((moment.at + 0.5) / policy.period_s) + 1
        known = [percent for percent in moment.device if percent is not None]
        if len(known) < len(moment.device):
            return moment.at  # it cannot be parsed, and what raises kills
        last = [*last, max(known)][-policy.window :]
        if len(last) == policy.window and max(last) < policy.threshold_percent:
            return moment.at
    return None


def dstack(trace: Trace) -> float | None:
    threshold = trace.policy.threshold_percent
    seen: list[tuple[float, float, Moment]] = []  # a heap: the earliest by the wall clock first
    for now in trace.moments:
        after = now.wall - trace.policy.window_s
        heapq.heappush(seen, (now.wall, now.at, now))
        while seen[0][0] <= after:
            heapq.heappop(seen)
        if seen[0][0] > after + 60:
            continue  # "not enough samples"
        for gpu in range(len(now.device)):
            told = (percent for *_, moment in reversed(seen) if (percent := moment.device[gpu]) is not None)
            latest = next(told, threshold)
            if latest < threshold and all(percent < threshold for percent in told):
                return now.at
    return None


def princeton(trace: Trace) -> float | None:
    cancel_s = (trace.policy.first_tick + trace.policy.window - 1) * trace.policy.period_s
    highest: dict[int, float] = {}
    for now in trace.moments:
        for gpu, percent in enumerate(now.device):
            if percent is not None:
                highest[gpu] = max(percent, highest.get(gpu, 0.0))
        if now.wall >= cancel_s and 0.0 in highest.values():
            return now.at
    return None


RULES: dict[str, Callable[[Trace], float | None]] = {
    "nightshift": ours,
    "gpu_idle_timeout": gpu_idle_timeout,
    "dstack": dstack,
    "Princeton": princeton,
}


def decided(rule: str, trace: Trace) -> str:
    """What a rule does with a job: keep, kill, or kill before it was idle at all."""
    at = RULES[rule](trace)
    if at is None:
        return "keep"
    return "kill" if at >= trace.idle_from else "kill too early"


# -- the table -----------------------------------------------------------------------------------------------------


def table() -> str:
    head = ["trace", "what happens", "by hand", *RULES]
    decisions = [[decided(rule, trace) for rule in RULES] for trace in TRACES]
    rows = [
        [trace.name, trace.story, trace.label, *(_cell(one, trace.label) for one in row)]
        for trace, row in zip(TRACES, decisions, strict=True)
    ]
    rights = [
        sum(one == t.label for one, t in zip(column, TRACES, strict=True)) for column in zip(*decisions, strict=True)
    ]
    rows.append(["**right**", "", str(len(TRACES)), *(f"**{count}**" for count in rights)])
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(decision: str, label: str) -> str:
    return decision if decision == label else f"**{decision}** ✗"


def with_table(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
