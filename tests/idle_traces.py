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

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from runner.idle.idle_rule import IdleAction, LoadReading, Window
from runner.idle.policy import DEFAULT, IdlePolicy

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


TRACES = _traces()


# -- the rules -----------------------------------------------------------------------------------------------------


@dataclass
class Watcher:
    """Ours, fed as the runner feeds it; writes itself down and comes back where the trace says so."""

    trace: Trace
    stopped_at: float | None = None
    warned_at: list[float] = field(default_factory=list)
    stops: int = 0

    def run(self) -> Watcher:
        gpus = tuple(f"GPU-{n}" for n in range(len(self.trace.moments[0].own)))
        window = Window(self.trace.policy, gpus, 0.0)
        restarts = list(self.trace.restarts)
        for moment in self.trace.moments:
            if restarts and moment.at >= restarts[0]:
                restarts.pop(0)
                window = Window.from_json(json.loads(json.dumps(window.to_json(BOOT))), BOOT) or window
            unknown = "not told" if None in moment.own else None
            own = dict(zip(gpus, moment.own, strict=True))
            if window.take(LoadReading(moment.at, own, unknown, moment.asleep_s)):
                self._act(window, moment.at)
        return self

    def _act(self, window: Window, now: float) -> None:
        verdict = window.judge(now, keep_until=self.trace.keep_until)
        if not window.is_news(verdict):
            return
        if verdict.action is IdleAction.WARN:
            self.warned_at.append(now)
        else:
            self.stops += 1
            self.stopped_at = self.stopped_at or now


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
    seen: list[Moment] = []
    for now in trace.moments:
        after = now.wall - trace.policy.window_s
        seen = [moment for moment in [*seen, now] if moment.wall > after]
        if min(moment.wall for moment in seen) > after + 60:
            continue  # "not enough samples"
        for gpu in range(len(now.device)):
            known = [percent for moment in seen if (percent := moment.device[gpu]) is not None]
            if known and max(known) < trace.policy.threshold_percent:
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
