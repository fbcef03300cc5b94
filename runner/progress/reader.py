"""Follows the counters in a job's output and says how far the job is. Pure.

Several counters may run at once. The outermost one that says where it ends is the job's position; an evaluation or an
inner bar does not replace it. An epoch and the steps within it are combined into one count of steps, if the output
shows that the steps start again with each epoch. Downloads, installs and other preparation never count.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from runner.errors import UserError
from runner.progress.formats import (
    LONGEST_LINE,
    Count,
    LineReading,
    WorkPhase,
    clean_line,
    read_line,
    read_match,
    split_rank,
)
from runner.progress.pace import Pace, Progress, metrics_to_json
from runner.progress.stop_rules import broken_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.progress.stop_rules import StopRule

LONGEST_PATTERN = 300
MOST_TRACKS = 32
LINES_EACH_S = 50.0  # more are skipped, except the last ones of each block
LINES_AT_LEAST, LINES_AT_MOST = 2, 400
TAIL_BYTES = 64 << 10
COMPLETE = 0.95
_PLAIN_STATE = ("main", "outer", "basis", "phase", "rank", "advanced_at")
_MOST_PATTERN_BYTES = 4 << 20
_FORM = r"write one like 'step (?P<n>\d+)/(?P<total>\d+)': (?P<n>…) around the position, (?P<total>…) around the end"


def compile_pattern(pattern: str) -> Any:
    """Compile a person's own pattern with RE2, which is never slow. Raise UserError that says what to write instead."""
    import re2

    options = re2.Options()
    options.log_errors, options.max_mem = False, _MOST_PATTERN_BYTES
    if len(pattern) > LONGEST_PATTERN:
        raise UserError(f"a pattern for progress may have at most {LONGEST_PATTERN} characters: {_FORM}")
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError):
        raise UserError(
            f"{pattern!r} is not a pattern that can be searched for (lookahead and the like do not work): {_FORM}"
        ) from None
    if "n" not in compiled.groupindex:
        raise UserError(f"{pattern!r} has no (?P<n>…): {_FORM}")
    return compiled


class LineSplitter:
    """Cuts bytes at line ends. Keeps a line until it ends, but only the two ends of a long one."""

    def __init__(self) -> None:
        self.rest = b""

    def whole_lines(self, data: bytes) -> bytes:
        """Return all lines that end in this block, as one text with their ends."""
        data = self.rest + data if self.rest else data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self.rest = data[end:]
        if len(self.rest) > 2 * LONGEST_LINE:
            self.rest = self.rest[:LONGEST_LINE] + self.rest[-LONGEST_LINE:]
        return data[:end]


def last_lines(text: bytes, most: int) -> list[bytes]:
    """Return the last lines of a text, and in front of them the last line that was left out and names an epoch."""
    tail = text[-TAIL_BYTES:].replace(b"\r", b"\n").rstrip(b"\n")
    before, *lines = tail.rsplit(b"\n", most) if tail.count(b"\n") >= most else [b"", *tail.split(b"\n")]
    at = before.rfind(b"poch")
    if at >= 0:
        lines.insert(0, before[before.rfind(b"\n", 0, at) + 1 :].partition(b"\n")[0])
    return [line for line in lines if line]


@dataclass(slots=True)
class _Track:
    """One counter: where it is, and how often it began again."""

    key: str
    phase: WorkPhase
    unit: str
    priority: int
    n: float
    total: float | None
    first: float  # where its first pass began
    by: float = 1.0  # the usual advance
    passes: int = 0
    late: float | None = None  # where the last pass ended: another rank may still print it
    stale: bool = False  # a new epoch began since its last line
    nested: bool = False  # it begins again with each epoch
    outer_at: float = 0.0  # where the outer counter was when this one began
    lines: int = 0

    @property
    def complete(self) -> bool:
        """Return whether it has reached its end."""
        return self.total is not None and self.n >= COMPLETE * self.total

    def move(self, count: Count) -> bool:
        """Go to a new count. Return whether it moved."""
        n, old = count.n, self.n
        if self.late is not None and n >= 0.98 * self.late and n - old > 20 * self.by:
            return False
        restarts = self._restarts(n)
        if n == old or (n < old <= n + 3 * self.by and not restarts):
            self.total = count.total or self.total
            return False
        if n > old:
            self.by = n - old if old == self.first and not self.passes else self.by
            self.nested = self.nested and not self.stale
        elif restarts:
            self.passes += 1 if self.complete or self.stale else 0
            self.nested = self.nested or self.stale
            self.late = old
        if self.late is not None and n > 3 * self.by:
            self.late = None
        self.n, self.total, self.stale = n, count.total, False
        return True

    def _restarts(self, n: float) -> bool:
        """Return whether the counter begins again. A small step back is a rank that is late."""
        from_start = n < self.n and n <= max(self.first, self.by, 1.0)
        return from_start and (self.complete or self.stale or self.n - n > 3 * self.by)


@dataclass(slots=True)
class _Epochs:
    """The outer counter: the epoch it is in, or how many are done."""

    n: float = 0.0
    total: float | None = None
    done: bool = False  # n counts complete epochs, as a bar does
    zero_based: bool = False
    last: bool = False  # total is the number of the last one

    def before(self) -> float:
        """Return how many epochs are complete."""
        return self.n if self.done or self.zero_based else max(self.n - 1, 0.0)

    def count(self) -> float | None:
        """Return how many epochs there are."""
        if self.total is None:
            return None
        more = 1.0 if self.last or (self.zero_based and not self.done and self.n >= self.total) else 0.0
        return self.total + more


@dataclass(frozen=True, slots=True)
class _Place:
    """A position, where it ends, and how much of the printed position is not done yet."""

    position: float
    total: float | None
    unit: str
    ahead: float = 0.0


class ProgressReader:
    """Reads what a job prints, line by line or in blocks. Times are seconds of any clock that only moves forward."""

    def __init__(self, pattern: str | None = None, rules: Sequence[StopRule] = ()) -> None:
        self._own = compile_pattern(pattern) if pattern else None
        self._rules = rules
        self.broken: tuple[StopRule, str] | None = None  # the first rule that a block broke, and the metric
        self._splitter = LineSplitter()
        self._tracks: dict[str, _Track] = {}
        self._main: str | None = None
        self._outer: str | None = None  # a bar without a name around the main one
        self._epochs: _Epochs | None = None
        self._pace = Pace()
        self._basis: list[Any] = []
        self._phase: WorkPhase | None = None
        self._rank: int | None = None
        self._advanced_at: float | None = None
        self._budget, self._budget_at = float(LINES_AT_MOST), 0.0
        self.metrics: dict[str, float] = {}

    def go_on(self, rules: Sequence[StopRule]) -> None:
        """Forget the broken rule and go on with these."""
        self._rules, self.broken = rules, None

    # -- feed --

    def feed_block(self, data: bytes, at: float) -> None:
        """Read the next block of output. In a flood, only the last lines of each block are read."""
        self._budget = min(self._budget + LINES_EACH_S * max(at - self._budget_at, 0.0), LINES_AT_MOST)
        self._budget_at = at
        whole = self._splitter.whole_lines(data)
        if self._rules and self.broken is None:
            self.broken = broken_in(self._rules, whole)
        lines = last_lines(whole, max(int(self._budget), LINES_AT_LEAST))
        if self._splitter.rest.endswith(b"]"):  # a bar, which ends with the next one
            lines.append(self._splitter.rest)
        self._budget = max(self._budget - len(lines), 0.0)
        for line in lines:
            self.feed(line.decode("utf-8", "replace"), at)

    def feed(self, line: str, at: float) -> None:
        """Read one line."""
        rank, text = split_rank(clean_line(line))
        reading = self._read(text)
        if reading is None:
            return
        if rank is not None:  # several ranks print the same: follow the first
            self._rank = rank if self._rank is None else self._rank
            if rank != self._rank:
                return
        if not reading.phase.is_work:
            self._phase = reading.phase
            return
        self.metrics = {**self.metrics, **reading.metrics} if len(self.metrics) < 64 else dict(reading.metrics)
        self._take(reading, at)

    def _read(self, text: str) -> LineReading | None:
        if self._own is None:
            return read_line(text)
        match = self._own.search(text)
        reading = read_match(match, text) if match else None
        if reading is None and (said := read_line(text)):
            return said if said.priority else None
        return reading

    def _take(self, reading: LineReading, at: float) -> None:
        moved = False
        if reading.epoch and not reading.steps and self._counts_parts():
            reading = replace(reading, steps=reading.epoch, epoch=None, label="part", unit="epoch")
        if reading.epoch and reading.phase is WorkPhase.TRAIN:
            moved = self._take_epoch(reading, reading.epoch, done=False)
        track = self._track(reading)
        if reading.unit == "epoch" and reading.steps and reading.label != "part":
            moved = self._take_epoch(reading, reading.steps, done=True) or moved
        if track is not None:
            born = track.lines == 0
            track.lines += 1
            count = reading.steps or reading.epoch
            assert count is not None
            moved = track.move(count) or born or moved
            if track.phase is WorkPhase.EVAL:
                self._pace.interrupted = True
            self._choose(track, nested=bool(reading.epoch and reading.steps))
        self._phase = self._phase_now(reading, track)
        if moved:
            self._advanced_at = at
        self._measure(at)

    def _counts_parts(self) -> bool:
        """Return whether epochs are printed in parts, like 0.03: then 3 means that three are done."""
        return f"{WorkPhase.TRAIN.value}|part|epoch|None|0" in self._tracks

    def _take_epoch(self, reading: LineReading, epoch: Count, *, done: bool) -> bool:
        """Note the epoch. Return whether it is a new one."""
        old = self._epochs
        if not epoch.n.is_integer() or (old and old.done and not done):
            return False
        zero_based = reading.zero_based or epoch.n == 0 or bool(old and old.zero_based)
        total = epoch.total if epoch.total is not None else (old.total if old else None)
        last = reading.last_epoch or bool(old and old.last)
        if old and not done and epoch.n < old.n and epoch.n > (0 if zero_based else 1) and old.n - epoch.n <= 1:
            return False  # another rank is late
        self._epochs = _Epochs(epoch.n, total, done, zero_based, last)
        if old is None or old.n == epoch.n:
            return old is None
        for track in self._tracks.values():
            track.stale = True
        return True

    def _track(self, reading: LineReading) -> _Track | None:
        """Return the counter that the line belongs to, new or known."""
        count = reading.steps or reading.epoch
        if count is None:
            return None
        unit = reading.unit if reading.steps else "epoch"
        total = count.total if not reading.label or reading.label == "words" else None
        key = f"{reading.phase.value}|{reading.label}|{unit}|{total}|{reading.priority}"
        if key not in self._tracks:
            if len(self._tracks) >= MOST_TRACKS:
                self._forget_one()
            outer = self._tracks.get(self._main or "")
            track = _Track(key, reading.phase, unit, reading.priority, count.n, count.total, count.n)
            track.nested = self._epochs is not None and unit != "epoch"
            track.outer_at = outer.n if outer else 0.0
            self._tracks[key] = track
        return self._tracks[key]

    def _forget_one(self) -> None:
        spare = next(key for key in self._tracks if key not in (self._main, self._outer))
        del self._tracks[spare]

    # -- state --

    def to_state(self) -> dict[str, Any]:
        """Return all that from_state needs to go on, in JSON's own types. The last unfinished line is left out."""
        return {
            "tracks": [asdict(track) for track in self._tracks.values()],
            "epochs": asdict(self._epochs) if self._epochs else None,
            "pace": self._pace.to_json(),
            "metrics": metrics_to_json(self.metrics),
            **{name: getattr(self, f"_{name}") for name in _PLAIN_STATE},
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], pattern: str | None = None, rules: Sequence[StopRule] = ()
    ) -> ProgressReader:
        """Go on where another reader stopped."""
        reader = cls(pattern, rules)
        tracks = [_Track(**{**track, "phase": WorkPhase(track["phase"])}) for track in state["tracks"]]
        reader._tracks = {track.key: track for track in tracks}
        reader._epochs = _Epochs(**state["epochs"]) if state["epochs"] else None
        reader._pace = Pace.from_json(state["pace"])
        reader.metrics = {name: float(value) for name, value in state["metrics"].items()}
        for name in _PLAIN_STATE:
            setattr(reader, f"_{name}", state[name])
        reader._phase = WorkPhase(reader._phase) if reader._phase else None
        return reader

    # -- which counter counts --

    def _choose(self, track: _Track, *, nested: bool) -> None:
        main = self._tracks.get(self._main or "")
        if track is main:
            return
        if track.lines == 1 and nested:
            track.nested = True
        if main is None or self._replaces(track, main):
            self._main, self._outer = track.key, None
        elif self._is_inside(track, main):
            self._main, self._outer = track.key, main.key
            track.nested = True
        if self._outer == track.key:
            self._epochs = _Epochs(track.n, track.total, done=True)
            for other in self._tracks.values():
                other.stale = True

    def _replaces(self, track: _Track, main: _Track) -> bool:
        if track.key == self._outer:
            return False
        ours, theirs = _rank_of(track), _rank_of(main)
        if ours != theirs:
            return ours > theirs
        if main.unit == "epoch" and track.unit != "epoch":
            return track.nested or main.total is None
        if track.unit == "epoch" or track.total is None:
            return False
        return track.lines == 1 and main.complete and not (main.nested and track.nested)

    def _is_inside(self, track: _Track, main: _Track) -> bool:
        """Return whether a bar begins again each time the main bar advances by one."""
        if track.phase is not main.phase or track.passes < 1 or None in (track.total, main.total):
            return False
        inside = main.n - track.outer_at == track.passes
        if inside:
            self._epochs = _Epochs(main.n, main.total, done=True)
        return inside

    def _phase_now(self, reading: LineReading, track: _Track | None) -> WorkPhase:
        main = self._tracks.get(self._main or "")
        if track and main and track is not main and track.passes and main.n - track.outer_at > track.passes + 1:
            return WorkPhase.EVAL  # an unnamed bar that runs while the main one waits
        return reading.phase

    # -- where it is --

    def _place(self) -> _Place | None:
        main, epochs = self._tracks.get(self._main or ""), self._epochs
        if main is None:
            return None
        if main.unit == "epoch":
            total = epochs.count() if epochs and main.total is not None else main.total
            is_header = epochs is not None and not epochs.done and not self.metrics
            return _Place(main.n, total, "epoch", 1.0 if is_header and epochs and not epochs.zero_based else 0.0)
        n, each = (0.0 if main.stale and main.nested else main.n), main.total
        if main.nested and epochs and each is not None:
            count = epochs.count()
            total = count * each if count is not None else None
            position = epochs.before() * each + n
            return _Place(position, total if total and position <= total else None, main.unit)
        if main.passes and each is not None:
            return _Place(main.passes * each + n, None, main.unit)
        return _Place(n, each, main.unit)

    def _measure(self, at: float) -> None:
        place, main = self._place(), self._tracks.get(self._main or "")
        if place is None or main is None:
            return
        basis = [self._main, main.nested, place.unit]
        if basis != self._basis:
            self._basis, self._pace = basis, Pace()
        self._pace.advance(place.position, at)

    def progress(self, at: float) -> Progress | None:
        """Return how far the job is at this time; None if nothing was read yet."""
        place, pace = self._place(), self._pace
        if place is None:
            return Progress(phase=self._phase.value, at=at) if self._phase else None
        step_s, estimate = pace.step_s, None
        if place.total:
            estimate = pace.estimate(max(place.total - place.position + place.ahead, 0.0), at)
        return Progress(
            position=place.position,
            total=place.total,
            unit=place.unit,
            rate=1 / step_s if step_s else None,
            eta_s=estimate.eta_s if estimate else None,
            metrics=dict(self.metrics),
            phase=self._phase_words(),
            at=at,
            eta_low_s=estimate.low_s if estimate else None,
            eta_high_s=estimate.high_s if estimate else None,
            advanced_at=self._advanced_at,
            step_s=step_s,
            gap_s=pace.gap_s,
            longest_pause_s=pace.longest_pause_s,
            pauses=pace.pauses,
            evaluated=pace.evaluated,
            work=True,
        )

    def _phase_words(self) -> str | None:
        epochs, main = self._epochs, self._tracks.get(self._main or "")
        phase = self._phase.value if self._phase else None
        if epochs is None or main is None or not (main.nested or main.unit == "epoch") or main.priority:
            return phase
        now, count = epochs.before() + 1, epochs.count()
        return f"{phase}, epoch {now:g}" if count is None else f"{phase}, epoch {min(now, count):g} of {count:g}"


def _rank_of(track: _Track) -> tuple[int, bool, bool]:
    return track.priority, track.phase is WorkPhase.TRAIN, track.total is not None
