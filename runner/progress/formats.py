"""Reads one line of output: the counter in it, of how many, the phase, and the metrics beside it. Pure.

A counter is read only if the line says clearly what is counted: a bar as tqdm, Keras, rich or fastprogress draw it, a
word like `epoch` or `step` in front of the number, or one of a few forms of boosting and reinforcement learning. All
other numbers are ignored. docs/progress.md has the table of formats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

LONGEST_LINE = 4096
LARGEST = 1e15
MOST_METRICS = 32
EXPLICIT = "nightshift: progress "


class WorkPhase(str, Enum):
    """What the program does at this line."""

    TRAIN = "train"
    EVAL = "eval"
    PREPARE = "prepare"
    DOWNLOAD = "download"

    @property
    def is_work(self) -> bool:
        """Return whether counters of this phase say how far the job is."""
        return self in (WorkPhase.TRAIN, WorkPhase.EVAL)


@dataclass(frozen=True, slots=True)
class Count:
    """A number that counts up, and where it ends if the line says so."""

    n: float
    total: float | None = None


@dataclass(frozen=True, slots=True)
class LineReading:
    """What one line says. `label` and `total` tell several bars apart."""

    steps: Count | None = None
    epoch: Count | None = None
    phase: WorkPhase = WorkPhase.TRAIN
    label: str = ""
    unit: str = "step"
    metrics: dict[str, float] = field(default_factory=dict)
    zero_based: bool = False  # this program counts its epochs from 0
    last_epoch: bool = False  # it prints the number of the last epoch, not how many there are
    priority: int = 0  # what a person says explicitly comes first


# -- metrics ---------------------------------------------------------------------------------------------------------

NUMBER = r"[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?|[-+]?(?i:nan|inf(?:inity)?)(?![A-Za-z])"
NAME_START = r"(?<![\w./@:-])"
_METRIC = re.compile(
    rf"{NAME_START}([A-Za-z_][\w./@-]{{0,63}})[\"']?(\s?[=:])?\s{{0,12}}[\"'\[(]{{0,2}}({NUMBER})(?!\.?\w|:\d|/|,\d{{3}}(?!\d))"
)
_SECOND_WORD = re.compile(r"(?:loss|rate|norm|scale|error|acc|accuracy|ppl|perplexity|reward)", re.IGNORECASE)
_FIRST_WORD = re.compile(r"(?:^|[^\w./@'-])([A-Za-z][\w']{0,20}) $")
_TELLING = re.compile(
    r"loss|acc|lr$|learning|ppl|perplex|grad|norm|reward|return|rmse|mae$|mse$|auc|f1|map|iou|bleu|rouge|psnr|error"
    r"|nll|bpb|mfu|tok|reward|samples|entropy|^l[12]$|logl|elbo|^kl|fid$",
    re.IGNORECASE,
)
_COUNTERS = re.compile(
    r"(?:(?:num|global|micro|total|max)_)?(?:epochs?|steps?|iter(?:ation)?s?|batch(?:es)?|updates?|timesteps?|episode)"
    r"|rank|eta|info|it|at|\w{1,50}\.py",
    re.IGNORECASE,
)


def read_metrics(line: str) -> dict[str, float]:
    """Return the numbers of a line that have a name in front, like `loss=2.31`, `'loss': 2.31` or `lm loss: 2.31`.

    Without `=` or `:`, only names that are known for metrics count, like `loss 2.31`.
    """
    metrics: dict[str, float] = {}
    for match in _METRIC.finditer(line):
        name = match[1]
        if _COUNTERS.fullmatch(name) or not (match[2] or (line[match.end(1)] == " " and _TELLING.search(name))):
            continue
        first = _FIRST_WORD.search(line, max(match.start() - 24, 0), match.start())
        if first and (first[1].endswith("'s") or _SECOND_WORD.fullmatch(name)) and not _COUNTERS.fullmatch(first[1]):
            name = name if len(first[1]) > 1 and first[1].isupper() else f"{first[1]} {name}"
        if len(metrics) < MOST_METRICS:
            metrics.setdefault(name, float(match[3]))
    return metrics


# -- phases ----------------------------------------------------------------------------------------------------------

_EVAL = re.compile(
    r"\b(?:val|valid|validat\w{0,5}|eval\w{0,8}|test|testing|predict\w{0,4}|mAP50)(?![A-Za-z])", re.IGNORECASE
)
_DOWNLOAD = re.compile(
    r"download|fetch|upload|\bpull|extract|unpack|install|clon(?:e|ing)|receiving|"
    r"\.(?:safetensors|bin|json|txt|model|parquet|arrow|zip|tar|gz|xz|h5|hdf5|pth?|ckpt|msgpack|gguf|onnx|whl|jar|npz)\b",
    re.IGNORECASE,
)
_PREPARE = re.compile(
    r"\b(?:load|map\b|filter|tokeniz|generating \w{1,40} split|casting|sav(?:e|ing)|resolving|checksum|preproc|prepar"
    r"|sanity|cach|scan|index|flatten|group|concat|convert|pack|shuffl|captur|initial|warm.?up|build|compil|quantiz|import"
    r"|read|creating|verif|copy|merg|shard|sort|collect|batches:|running tokenizer|computing|profil|autotun)",
    re.IGNORECASE,
)
_BYTES = re.compile(r"(?:[kKMGTP]i?)?(?:B|bytes|bits?)")


def _phase_of(label: str, unit: str = "") -> WorkPhase:
    if _BYTES.fullmatch(unit) or _DOWNLOAD.search(label):
        return WorkPhase.DOWNLOAD
    if _EVAL.search(label):
        return WorkPhase.PREPARE if "anity" in label else WorkPhase.EVAL
    return WorkPhase.PREPARE if _PREPARE.search(label) else WorkPhase.TRAIN


# -- bars ------------------------------------------------------------------------------------------------------------

_SIZE = r"(\d{1,18}(?:\.\d{1,6})?)([kKMGTP]?)"
_CLOCK = r"(?:\d{1,4}:)?\d{1,4}:\d\d"
_BARS = (
    # tqdm:  12%|█▏        | 120/1000 [00:12<01:30,  9.80it/s, loss=2.3]
    re.compile(rf"(?<!\d)\d{{1,3}}%\|[^|]{{0,300}}\|\s{{0,8}}{_SIZE}/{_SIZE}\s?([A-Za-z]{{0,12}})\s?\[[\d?]{{1,4}}"),
    # fastprogress: |████------| 40.00% [4/10 00:01<00:02 0.31]
    re.compile(rf"\|[█-]{{1,300}}\|\s?\d{{1,3}}\.\d\d% \[{_SIZE}/{_SIZE}()\s{_CLOCK}<"),
    # Keras, Paddle: 12/938 ━━━━━━ 1s 2ms/step - loss: 0.3;  12/938 [====>.....] - ETA: 1s
    re.compile(
        rf"(?<![\w/.]){_SIZE}/{_SIZE}()\s{{1,4}}(?:━{{3,200}}\s{{1,4}}\d{{1,6}}(?:s|:\d\d)|\[[=>.]{{5,200}}\] -)"
    ),
    # rich, pip, Ultralytics: ━━━━━━╸─── 12/100 0:00:03 • 0:00:20
    re.compile(
        rf"(?<![━─╸╺])[━─╸╺]{{3,400}}\s{{1,4}}(?:\d{{1,3}}%\s{{1,4}})?{_SIZE}/{_SIZE}\s?([A-Za-z]{{0,12}})(?![\w/])"
    ),
)
# tqdm without a total: 120it [00:12,  9.80it/s]
_OPEN_BAR = re.compile(rf"(?<![\w.]){_SIZE}\s?([A-Za-z]{{1,12}}) \[{_CLOCK}, ")
# rich with a percentage alone: Working... ━━━━━━╸─── 45% 0:00:12
_PERCENT_BAR = re.compile(rf"(?<![━╸╺])[━╸╺]{{3,400}}\s{{1,4}}(\d{{1,3}})%\s{{1,4}}(?:{_CLOCK}|-:--:--)")
_RATE_UNIT = re.compile(
    r"(?<![\w.])(?:\d{1,18}(?:\.\d{1,6})?|\?)\s?([A-Za-z]{1,12})/s(?![\w/])|s/([A-Za-z]{1,12})(?!\w)"
)
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_STEP_UNITS = {"it", "its", "iter", "iters", "step", "steps", "batch", "batches", "update", "updates", "ms", "s"}
_EPOCH_LABEL = re.compile(r"epochs?\W{0,4}$", re.IGNORECASE)
_TABLE_EPOCH = re.compile(r"\s{0,20}(\d{1,6})/(\d{1,6})\s{1,12}[\d.]{1,8}[GM]B?\s")
_DIGITS = re.compile(r"\d{1,20}")


def _read_bar(line: str) -> LineReading | None:
    match = next((match for pattern in _BARS if (match := pattern.search(line))), None)
    if match:
        n, total = float(match[1]) * _SCALE[match[2]], float(match[3]) * _SCALE[match[4]]
        return _bar(line, match, Count(n, total if n <= total else None), match[5])
    if match := _OPEN_BAR.search(line):
        return _bar(line, match, Count(float(match[1]) * _SCALE[match[2]]), match[3])
    if match := _PERCENT_BAR.search(line):
        return _bar(line, match, Count(float(match[1]), 100.0), "%") if int(match[1]) <= 100 else None
    return None


def _bar(line: str, match: re.Match[str], count: Count, unit: str) -> LineReading:
    label, after = line[: match.start()].strip(" ╸╺━─|")[-200:], line[match.end() :]
    rate = _RATE_UNIT.search(after)
    unit = unit or (rate and (rate[1] or rate[2])) or "step"
    phase = _phase_of(label, unit)
    unit = "step" if unit in _STEP_UNITS else unit
    if phase.is_work and (row := _TABLE_EPOCH.match(line)):  # Ultralytics, YOLOv5: 1/100  2.61G  1.153 ...
        now = Count(float(row[1]), float(row[2]))
        return LineReading(count, now, phase, "table", unit, {}, zero_based=now.n == 0, last_epoch=now.n == 0)
    if _EPOCH_LABEL.fullmatch(label):
        return LineReading(count, None, phase, label, "epoch", read_metrics(after))
    words = _counters(label)
    epoch = next((word.count for word in words if word.is_epoch), None)
    rich = "•" in after
    label = _DIGITS.sub("#", label) or ("rich" if rich else "")
    metrics = read_metrics(f"{line[: match.start()]} {after}")
    zero_based = rich or (epoch is not None and epoch.total is None)
    return LineReading(count, epoch, phase, label, unit, metrics, zero_based, last_epoch=rich)


# -- words -----------------------------------------------------------------------------------------------------------

_WORD = re.compile(
    r"(?<![A-Za-z_.])((?:(?:global|train|training|optimizer|optim|micro|num)[_ ])?)"
    r"(epochs?|steps?|iter(?:ation)?s?|batch|mini-?batch|updates?|episode|timesteps?|total_timesteps|image|frame|sample)"
    r"(?: ?\((?:train|val|test)\))?[\"']?\s{0,3}(?:[:=#]\s{0,12})?[\[(\"']?\s{0,12}(\d{1,15}(?:\.\d{1,6})?)"
    r"(?:\s{0,12}(?:/|of|out of)\s{0,12}(\d{1,15}))?(?![\w.]|\s?%)",
    re.IGNORECASE,
)
_BESIDE = re.compile(r"[\s\]\[|,:)-]{0,16}(?<!\d)(\d{1,15})\s{0,12}/\s{0,12}(\d{1,15})(?![\w/.])")
_TOTAL_KEY = re.compile(r"(?:total|max)_(?:train_)?(?:steps|iter(?:ation)?s|batches|updates)[\"']?\s?[:=]\s?(\d{1,15})")
_PHASE_COUNT = re.compile(
    r"(?<![\w.])(Train|Test|Val|Valid|Validate|Validation|Eval)(?: \(\w{1,12}\))?: {1,3}(?:(\d{1,7}) )?"
    r"\[ {0,9}(\d{1,12})/ {0,9}(\d{1,12})"
)
_LEADING = re.compile(
    r"[\[(]?\s{0,12}(\d{1,15})\s{0,12}/\s{0,12}(\d{1,15})(?: ?\( {0,2}\d{1,3}(?:\.\d{1,3})?%\))?"
    r"[\])]?(?=[\s,:|-])(?!\s\d{1,2}:\d\d)"
)
_ROUND = re.compile(r"(?:^|\] )\[(\d{1,12})\]\s{1,4}(?=\S{0,40}(?:train|valid|eval|test|loss|learn|acc))")
_LEARN = re.compile(r"(\d{1,12}):\s{1,4}(?:learn|test): ")
_TABLE_ROW = re.compile(r"\|\s{1,8}(?:time/)?\s{0,8}total_timesteps\s{1,30}\|\s{0,30}(\d{1,15})\s{0,30}\|")
_NOT_COUNTED = re.compile(
    r"(?:best|checkpoints?|ckpts?|resum\w{0,6}|load\w{0,4}|restor\w{0,5}|sav(?:e|ed|es|ing)|skip\w{0,5}|warm\w{0,6}|every|each"
    r"|num|max|min|total|from|until|attempt|retry|patience|remaining|improv\w{0,6}|deploy\w{0,4}|build\w{0,4}|usage|docker"
    r"|log\w{0,4}|last|first|next|per|only|has|have|will|should|than|the)",
    re.IGNORECASE,
)
_SETTINGS = re.compile(r"Namespace\(|batch_size|weight_decay|=None\b|: null\b|\bargs?\b", re.IGNORECASE)
_LABEL_WORD = re.compile(r"(?<!\S)[A-Za-z][a-z]{1,30}[:,]?(?!\S)")
_LETTERS = re.compile(r"[A-Za-z]{2}")
MOST_LABEL_WORDS = 4
SMALL_LIST = 20  # `Step 3/8: install` is a list of things to do, unless metrics stand beside it


@dataclass(frozen=True, slots=True)
class _Counter:
    word: str
    count: Count
    start: int
    end: int
    is_global: bool
    in_parts: bool  # 0.03 of an epoch

    @property
    def is_epoch(self) -> bool:
        return self.word.startswith("epoch")


def _counters(line: str) -> list[_Counter]:
    """Return the numbers that stand behind a word for something counted."""
    found = []
    for match in _WORD.finditer(line):
        n, total = float(match[3]), float(match[4]) if match[4] else None
        count = Count(n, total if total and n <= total else None)
        is_global = match[1].lower().startswith("global")
        found.append(_Counter(match[2].lower(), count, match.start(), match.end(), is_global, "." in match[3]))
    return found


def _read_words(line: str) -> LineReading | None:
    counters = _counters(line)
    if not counters or not _may_count(line, line[: counters[0].start]):
        return None
    epoch = next((one for one in counters if one.is_epoch), None)
    others = sorted((one for one in counters if not one.is_epoch), key=lambda one: not one.is_global)
    steps = next((one for one in others if one.count.total), others[0] if others else None)
    metrics = read_metrics(line)
    if not _is_clear(line, epoch, steps, metrics):
        return None
    within = steps.count if steps else None
    if within is None or within.total is None:
        within = _beside(line, epoch) or within
    if within and within.total is None and (total := _TOTAL_KEY.search(line)) and within.n <= float(total[1]):
        within = Count(within.n, float(total[1]))
    phase = WorkPhase.EVAL if _EVAL.search(line[: counters[0].end]) else WorkPhase.TRAIN
    if epoch and epoch.in_parts:  # Hugging Face: 'epoch': 0.03
        return LineReading(within or epoch.count, None, phase, "words" if within else "part", "epoch", metrics)
    unit = _unit(steps.word) if steps else "step"
    return LineReading(within, epoch.count if epoch else None, phase, "words", unit, metrics)


def _may_count(line: str, label: str) -> bool:
    """Return whether the words in front of a counter, and the rest of the line, do not speak against it."""
    words = [word.strip(":,") for word in _LABEL_WORD.findall(label)]
    return len(words) <= MOST_LABEL_WORDS and not any(map(_NOT_COUNTED.fullmatch, words)) and not _SETTINGS.search(line)


def _unit(word: str) -> str:
    return word if word in {"episode", "image", "frame", "sample"} else "step"


def _beside(line: str, epoch: _Counter | None) -> Count | None:
    """Return the counter in `Epoch: [3] [ 100/5004]`, `epoch 001: 100 / 1500` or `Epoch 3/10 | 100/938`."""
    match = _BESIDE.match(line, epoch.end) if epoch else None
    return Count(float(match[1]), float(match[2])) if match and 0 < float(match[2]) >= float(match[1]) else None


def _is_clear(line: str, epoch: _Counter | None, steps: _Counter | None, metrics: dict[str, float]) -> bool:
    """Return whether a counter is meant: it has a total, or metrics stand beside it."""
    telling = any(map(_TELLING.search, metrics)) or (bool(metrics) and "loss" in line.lower())
    if telling:
        plural = steps is not None and steps.word.endswith("s")
        return not plural or any("loss" in name.lower() for name in metrics) or bool(steps and steps.count.total)
    if epoch:
        alone = epoch.word == "epoch" and not (line[: epoch.start] + line[epoch.end :]).strip(" :-=[]*()")
        return alone or bool(epoch.count.total or _beside(line, epoch))
    if steps is None or steps.count.total is None:
        return False
    around = line[: steps.start] + line[steps.end :]
    return steps.count.total >= SMALL_LIST or not _LETTERS.search(around)


def _read_special(line: str) -> LineReading | None:
    if match := _PHASE_COUNT.search(line):  # timm
        phase = WorkPhase.TRAIN if match[1] == "Train" else WorkPhase.EVAL
        line = line[match.end() :]
        epoch = Count(float(match[2])) if match[2] else None
        return _checked(Count(float(match[3]), float(match[4])), epoch, phase, line, zero_based=True)
    if match := _ROUND.search(line):  # XGBoost, LightGBM, clu
        return _checked(Count(float(match[1])), None, WorkPhase.TRAIN, line[match.end() :])
    if match := _LEARN.match(line):  # CatBoost
        return _checked(Count(float(match[1])), None, WorkPhase.TRAIN, line[match.end() - 7 :])
    if match := _TABLE_ROW.match(line):  # Stable-Baselines3
        return LineReading(Count(float(match[1])), label="table row")
    return None


def _read_leading(line: str) -> LineReading | None:
    """Read `[100/1000] loss: 2.31`."""
    match = _LEADING.match(line.lstrip())
    if match and any("loss" in name.lower() for name in read_metrics(line)):
        return _checked(Count(float(match[1]), float(match[2])), None, WorkPhase.TRAIN, line)
    return None


def _checked(
    count: Count, epoch: Count | None, phase: WorkPhase, text: str, *, zero_based: bool = False
) -> LineReading | None:
    metrics = read_metrics(text)
    if count.total is not None and not 0 < count.total >= count.n:
        return None
    return LineReading(count, epoch, phase, "special", "step", metrics, zero_based) if metrics else None


# -- the line itself -------------------------------------------------------------------------------------------------

_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
_RANK = re.compile(
    r"\s?(?:\[(?:rank ?|default)(\d{1,5})\]:?|\[\d{1,3},(\d{1,5})\]<std(?:out|err)>:|rank ?(\d{1,5}):)\s?",
    re.IGNORECASE,
)
_HINT = re.compile(
    r"\d[kKMGTP]?\s{0,12}/\s{0,12}\d|\d%|epoch|step|iter|batch|update|episode|\[\d|learn|\d\s?[a-z]{1,12} \[\d",
    re.IGNORECASE,
)
_EXPLICIT = re.compile(rf"{EXPLICIT}\s{{0,8}}(\d{{1,15}}(?:\.\d{{1,6}})?)(?:\s?(%)|\s?/\s?(\d{{1,15}}))?(?=\s|$)(.*)")
_LOG_HEAD = re.compile(r"[^\"'$]{0,120}[\]:|>-]\s{1,3}$")


def clean_line(line: str) -> str:
    """Return the line without colours and control characters. Of a long line, keep the two ends."""
    if len(line) > LONGEST_LINE:
        line = f"{line[: LONGEST_LINE // 2]} … {line[-LONGEST_LINE // 2 :]}"
    return _ESCAPES.sub("", line) if not line.isprintable() else line


def split_rank(line: str) -> tuple[int | None, str]:
    """Return the rank that a launcher wrote in front of the line, and the rest of it."""
    match = _RANK.match(line)
    return (int(match[1] or match[2] or match[3]), line[match.end() :]) if match else (None, line)


def read_line(line: str) -> LineReading | None:
    """Return what a clean line says about progress, or None if it says nothing that is clear."""
    if EXPLICIT in line and (said := _read_explicit(line)):
        return said
    if not _HINT.search(line) or line.startswith("wandb:"):
        return None
    reading = _read_bar(line) or _read_special(line) or _read_words(line) or _read_leading(line)
    return reading if reading is None or _in_range(reading) else None


def _read_explicit(line: str) -> LineReading | None:
    start = line.index(EXPLICIT)
    match = _EXPLICIT.match(line, start)
    if not match or not (start == 0 or not line[:start].strip() or _LOG_HEAD.match(line[:start])):
        return None
    total = 100.0 if match[2] else float(match[3]) if match[3] else None
    count = Count(float(match[1]), total if total and float(match[1]) <= total else None)
    return LineReading(
        count, unit="%" if match[2] else "step", label="said", metrics=read_metrics(match[4]), priority=2
    )


def read_match(match: Any, line: str) -> LineReading | None:
    """Return what a match of a person's own pattern says: group n, perhaps total, other groups are metrics."""
    groups = {name: _number(text) for name, text in match.groupdict().items()}
    n, total = groups.pop("n", None), groups.pop("total", None)
    if n is None or not 0 <= n <= LARGEST:
        return None
    count = Count(n, total if total and n <= total <= LARGEST else None)
    metrics = {name: value for name, value in groups.items() if value is not None}
    return LineReading(count, label="own", metrics={**read_metrics(line), **metrics}, priority=1)


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _in_range(reading: LineReading) -> bool:
    numbers = [count for count in (reading.steps, reading.epoch) if count]
    return all(count.n <= LARGEST and (count.total is None or 0 < count.total <= LARGEST) for count in numbers)
