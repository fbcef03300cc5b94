"""Series: readings of GPUs and metrics of jobs over time, at falling resolution, in a file of their own.

They are not in the queue's file: every change there is synced and copied to NIGHTSHIFT_BACKUP_DIR, while a series may
lose its last seconds. A damaged file is set aside and a new one begins. Nothing here stops the runner.

A point holds the lowest, mean and highest value of each name over some seconds, ten at first. Points of a GPU get wider
as they age. Points of a job get wider as they become more, so that a short job keeps its detail.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from array import array
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.store.connection import DatabaseError, connect, identity_of, is_damaged
from runner.store.restoring import create, remove

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    Spans = Mapping[str, "Span"]

log = logging.getLogger(__name__)

FILE = "series.db"
POINT_S = 10
NEW_POINTS = 128  # of one subject, until they are folded; a job has at most twice as many points
GPU_WIDTHS = ((2 * 86400, 600), (6 * 3600, 60))  # from which age on a point covers how many seconds
GPU_KEPT_S = 30 * 86400
NAMES_AT_MOST = 24  # of one subject; some programs print dozens of metrics
BUSY_MS = 50  # the runner does not wait longer for a process that prunes
POSITION = "position"
_GPU = "GPU "
_TABLES = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS subjects (id INTEGER PRIMARY KEY, subject TEXT NOT NULL UNIQUE, names TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS points (
    subject INTEGER NOT NULL, start INTEGER NOT NULL, seconds INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (subject, start)
) WITHOUT ROWID;
"""


class Span(NamedTuple):
    """The lowest, mean and highest of some values."""

    low: float
    mean: float
    high: float


class SeriesPoint(NamedTuple):
    """One value of a subject over some seconds, and the position that a job had reached; None if unknown."""

    at: int  # where it begins, in seconds since 1970
    seconds: int
    value: Span
    position: float | None


class NewPoint(NamedTuple):
    """What was read of a subject in POINT_S seconds."""

    subject: str
    start: int
    spans: Spans


def gpu_subject(uuid: str) -> str:
    """Return the name of a GPU in the series."""
    return _GPU + uuid


def job_subject(job_id: int, run_id: str) -> str:
    """Return the name of a job in the series. A later queue may have the same number, but not the same run."""
    return f"{job_id} {run_id}"


# -- reading -------------------------------------------------------------------------------------------------------


def names_of(home: str, subject: str) -> list[str]:
    """Return the names of everything that is kept of a GPU or a job."""
    rows = _read(home, "SELECT names FROM subjects WHERE subject = ?", (subject,))
    return json.loads(rows[0][0]) if rows else []


def points_of(home: str, subject: str, name: str, since: float = 0, until: float = math.inf) -> list[SeriesPoint]:
    """Return one series of a GPU or a job between two times (seconds since 1970), oldest first."""
    rows = _read(
        home,
        "SELECT names, start, seconds, body FROM subjects JOIN points ON points.subject = subjects.id"
        " WHERE subjects.subject = ? AND start < ? AND start + seconds > ? ORDER BY start",
        (subject, until, since),
    )
    names = json.loads(rows[0][0]) if rows else []
    points = [(start, seconds, _unpacked(body, names)) for _, start, seconds, body in rows]
    return [
        SeriesPoint(start, seconds, spans[name], spans[POSITION].high if POSITION in spans else None)
        for start, seconds, spans in points
        if name in spans
    ]


def _read(home: str, sql: str, values: Sequence[Any]) -> list[Any]:
    """Return the rows of a query. What cannot be read counts as nothing."""
    try:
        with contextlib.closing(connect(os.path.join(home, FILE))) as connection:
            return list(connection.execute(sql, values))
    except DatabaseError:
        return []


def prune(home: str, jobs: Collection[str]) -> None:
    """Delete the series of jobs that are not among these subjects, and points of GPUs that are too old."""
    if identity_of(os.path.join(home, FILE)) is None:
        return
    try:
        with contextlib.closing(connect(os.path.join(home, FILE), isolation_level=None)) as connection:
            for number, subject in list(connection.execute("SELECT id, subject FROM subjects")):
                is_gpu = subject.startswith(_GPU)
                before = time.time() - GPU_KEPT_S if is_gpu else math.inf
                if is_gpu or subject not in jobs:  # one at a time, so that the runner can write in between
                    connection.execute("DELETE FROM points WHERE subject = ? AND start < ?", (number, before))
                if not is_gpu and subject not in jobs:
                    connection.execute("DELETE FROM subjects WHERE id = ?", (number,))
    except DatabaseError as error:
        log.warning("old series were not deleted: %s", error)


# -- writing -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Subject:
    id: int
    names: list[str]
    new: int = NEW_POINTS  # since they were last folded; an earlier runner may have left that many


class SeriesFile:
    """The file as the runner writes it. No method raises; what cannot be written is left out."""

    def __init__(self, home: str) -> None:
        self._home, self._path = home, os.path.join(home, FILE)
        self._connection: Any = None
        self._identity: tuple[int, int] | None = None
        self._subjects: dict[str, _Subject] = {}  # of the last points
        self._trouble = ""

    def write(self, points: Iterable[NewPoint], begins: Callable[[str], bool]) -> None:
        """Add points in one transaction. `begins` says whether to keep a subject of which nothing is kept yet."""
        try:
            self._open()
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                known = {point.subject: self._add(point, begins) for point in points}
        except (DatabaseError, OSError) as error:
            self._fail(error)
        else:
            self._subjects, self._trouble = {name: one for name, one in known.items() if one}, ""

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._subjects = None, {}

    def _open(self) -> None:
        if self._connection is not None and identity_of(self._path) == self._identity:
            return
        self.close()
        if identity_of(self._path) is None:
            create(self._path)
        self._connection = connect(self._path, isolation_level=None)
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        self._connection.executescript(_TABLES)
        self._identity = identity_of(self._path)

    def _fail(self, error: Exception) -> None:
        """Log it once. Set a damaged file aside, so that the next points begin a new one."""
        self.close()
        if str(error) != self._trouble:
            log.warning("readings are not kept in %s now: %s", self._path, error)
        self._trouble = str(error)
        if isinstance(error, DatabaseError) and is_damaged(self._home, error):
            log.warning("%s is set aside as %s.damaged, and a new file begins", self._path, FILE)
            with contextlib.suppress(OSError):
                os.replace(self._path, self._path + ".damaged")
                remove(self._path)

    def _add(self, point: NewPoint, begins: Callable[[str], bool]) -> _Subject | None:
        known = self._subjects.get(point.subject) or self._stored(point.subject)
        if known is None and begins(point.subject):
            statement = "INSERT INTO subjects (subject, names) VALUES (?, '[]')"
            known = _Subject(self._connection.execute(statement, (point.subject,)).lastrowid, [])
        if known is None:
            return None
        self._name(known, point.spans)
        values = (known.id, point.start, POINT_S, _packed(point.spans, known.names))
        self._connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)", values)
        known.new += 1
        if known.new >= NEW_POINTS:
            known.new = 0
            self._widen(known.id, point)
        return known

    def _stored(self, subject: str) -> _Subject | None:
        row = self._connection.execute("SELECT id, names FROM subjects WHERE subject = ?", (subject,)).fetchone()
        return _Subject(row[0], json.loads(row[1])) if row else None

    def _name(self, known: _Subject, spans: Spans) -> None:
        room = NAMES_AT_MOST - len(known.names)
        if new := [name for name in spans if name not in known.names][:room]:
            known.names += new
            values = (json.dumps(known.names), known.id)
            self._connection.execute("UPDATE subjects SET names = ? WHERE id = ?", values)

    def _widen(self, number: int, last: NewPoint) -> None:
        """Fold a GPU's old points, or all points of a job that has too many."""
        if last.subject.startswith(_GPU):
            for age_s, width in GPU_WIDTHS:
                self._fold(number, last.start - age_s, width)
            return
        width = POINT_S
        while self._count(number, width) > NEW_POINTS:
            width *= 2
        self._fold(number, last.start, width)

    def _count(self, number: int, width: int) -> int:
        counted = "SELECT count(DISTINCT start / ?) FROM points WHERE subject = ?"
        return int(self._connection.execute(counted, (width, number)).fetchone()[0])

    def _fold(self, number: int, before: int, width: int) -> None:
        """Join all narrower points, up to the last whole width before this time."""
        where = "subject = ? AND start < ? AND seconds < ?"
        values = (number, before // width * width, width)
        chosen = f"SELECT start, seconds, body FROM points WHERE {where} ORDER BY start"
        rows = list(self._connection.execute(chosen, values))
        self._connection.execute(f"DELETE FROM points WHERE {where}", values)
        joined = [
            (number, place * width, width, _joined([(seconds, body) for _, seconds, body in group]))
            for place, group in groupby(rows, key=lambda row: row[0] // width)
        ]
        self._connection.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)", joined)


def _packed(spans: Spans, names: Sequence[str]) -> bytes:
    """Return three numbers for each name, NaN if it has none."""
    nothing = Span(math.nan, math.nan, math.nan)
    return array("f", (value for name in names for value in spans.get(name, nothing))).tobytes()


def _unpacked(body: bytes, names: Iterable[Any]) -> dict[Any, Span]:
    """Return the spans in a body. It may have fewer names than its subject has by now."""
    values = iter(array("f", body))
    spans = zip(names, map(Span, values, values, values), strict=False)
    return {name: span for name, span in spans if not math.isnan(span.mean)}


def _joined(parts: Sequence[tuple[int, bytes]]) -> bytes:
    """Join the bodies of several points, each with its seconds."""
    found: dict[int, list[tuple[int, Span]]] = {}
    for seconds, body in parts:
        for place, span in _unpacked(body, range(NAMES_AT_MOST)).items():
            found.setdefault(place, []).append((seconds, span))
    spans = {str(place): _mean(some) for place, some in found.items()}
    return _packed(spans, [str(place) for place in range(max(found, default=-1) + 1)])


def _mean(spans: Sequence[tuple[int, Span]]) -> Span:
    seconds = sum(weight for weight, _ in spans)
    mean = sum(weight * span.mean for weight, span in spans) / seconds
    return Span(min(span.low for _, span in spans), mean, max(span.high for _, span in spans))
