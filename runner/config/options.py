"""The options of a job, defined once for the terminal, the chat, the help and the docs. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.config.env_file import is_variable_name
from runner.errors import UserError
from runner.units import parse_duration, parse_size_mib

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Patterns are compiled when used: most calls need only one, and compiling all would slow down every client.
_NAME = r"[\w.-]{1,64}"
_GPU = r"[0-9]{1,4}|(?:GPU|MIG)-[A-Za-z0-9_-]{1,80}"
_PRIORITIES = ("low", "normal", "high")
RETRY_REASONS = ("HOST", "SUPERVISOR", "EXIT", "SIGNAL", "OOM", "SPAWN", "TIMEOUT", "IDLE", "HUNG")


class Option(NamedTuple):
    """One option. Its key is the field of JobSpec that it fills."""

    flags: tuple[str, ...]
    metavar: str  # empty for a switch, which takes no value
    key: str
    help: str
    parse: Callable[[str], Any]
    repeatable: bool = False  # each use adds to the earlier ones: parse returns a dict or a tuple


def parse_name(text: str) -> str:
    """Return a name for a job or a workspace. Raise UserError if it is not one."""
    if not re.fullmatch(_NAME, text):
        raise UserError(f"{text!r} is not a name: use 1 to 64 letters, digits, '.', '_' or '-'")
    return text


def parse_group(text: str) -> str:
    """Return the name of a group. It must not look like a job number, because `kill` takes both."""
    if not re.fullmatch(_NAME, text) or not text[0].isalpha():
        raise UserError(f"{text!r} is not a group's name: a letter first, then letters, digits, '.', '_' or '-'")
    if text.lower() in ("all", "mine", "failed"):
        raise UserError(f"{text!r} means something else already: choose another name for the group")
    return text


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise UserError(f"{text!r} is not a count: write 0, 1, 2 …")
    return int(text)


def _gpus(text: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not re.fullmatch(_GPU, part):
            raise UserError(f"{part!r} is not a GPU: write indices or UUIDs, like 0,1 or GPU-8f2e…")
    chosen = tuple(str(int(part)) if part.isdigit() else part for part in parts)
    if len(set(chosen)) < len(chosen):
        raise UserError(f"{text!r} names a GPU twice")
    return chosen


def _time_limit(text: str) -> float:
    seconds = parse_duration(text)
    if seconds == 0:
        raise UserError("a time limit of 0 would stop the job at once; leave it out for no limit")
    return seconds


def _priority(text: str) -> str:
    # Plain text that equals model.Priority: importing the model costs a client 20 ms.
    if text.lower() not in _PRIORITIES:
        raise UserError(f"{text!r} is not a priority: choose low, normal or high")
    return text.lower()


def _cores(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise UserError(f"{text!r} is not a number of CPU cores: write 1, 2, 3 …")
    return int(text)


def _memory(text: str) -> int:
    mib = parse_size_mib(text)
    if mib == 0:
        raise UserError("0 is no memory; leave it out if you do not know")
    return mib


def _gpu_type(text: str) -> str:
    if not re.search(r"\w", text) or len(text) > 64:
        raise UserError(f"{text!r} is not a type of GPU: write a part of its name, like a5000")
    return text


def _jobs(text: str) -> tuple[int, ...]:
    parts = [part.strip().removeprefix("#") for part in text.split(",")]
    for part in parts:
        if not re.fullmatch(r"[1-9][0-9]{0,15}", part):
            raise UserError(f"{part!r} is not a job's number: write them like 12,13")
    return tuple(sorted({int(part) for part in parts}))


def parse_reasons(text: str) -> tuple[str, ...]:
    """Return the reasons listed for `--retry-on`, in upper case."""
    parts = [part.strip().upper() for part in text.split(",")]
    for part in parts:
        if part not in RETRY_REASONS:
            raise UserError(f"{part!r} is no reason to try again: choose among {', '.join(RETRY_REASONS).lower()}")
    return tuple(dict.fromkeys(parts))


def _begin(text: str) -> str:
    from runner import clock
    from runner.config.times import parse_moment

    return clock.text(parse_moment(text, clock.now().astimezone()))


def _folder(text: str) -> str:
    if not text or "\0" in text:
        raise UserError("the folder has no name")
    return text


def parse_variable(text: str) -> dict[str, str]:
    """Return a variable and its value, from K=V."""
    name, equals, value = text.partition("=")
    if not equals or not is_variable_name(name) or "\0" in value:
        # The text after the name may be a secret. Without a "=", all of it may be.
        raise UserError("write KEY=VALUE, with letters, digits and '_' in KEY")
    return {name: value}


def _idle(text: str) -> str:
    from runner.idle import format_policy, parse_policy

    return format_policy(parse_policy(text))


def _hung(text: str) -> str:
    from runner.idle.hung_rule import format_policy, parse_policy

    return format_policy(parse_policy(text))


def _asks_for_probe(_: str) -> dict[str, Any]:
    return {}


def _profile(text: str) -> dict[str, Any]:
    return {"profile": parse_name(text)}


def _argument(key: str) -> Callable[[str], dict[str, Any]]:
    def parse(text: str) -> dict[str, Any]:
        if not text.strip() or "\0" in text:
            raise UserError("the argument has no name: write it as the program takes it, like --batch_size")
        return {key: text}

    return parse


def _batch(key: str) -> Callable[[str], dict[str, Any]]:
    def parse(text: str) -> dict[str, Any]:
        if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
            raise UserError(f"{text!r} is not a batch size: write 1, 2, 3 …")
        return {key: int(text)}

    return parse


def _settings(text: str) -> dict[str, Any]:
    from runner.config.profiles import parse_settings

    return parse_settings(text)


def _no_cache(_: str) -> dict[str, Any]:
    return {"no_cache": True}


OPTIONS: tuple[Option, ...] = (
    Option(("-g", "--gpus"), "N", "gpus", "how many GPUs, 0 for none (default 1)", _count),
    Option(("--on",), "0,1", "on", "use these GPUs (index or UUID); with -g, that many of them", _gpus),
    Option(("-v", "--gpu-type"), "a5000", "gpu_type", "GPUs with this in their name", _gpu_type),
    Option(("--gpu-mem",), "20G", "gpu_mem_mib", "reserve this much memory on each GPU", _memory),
    Option(("-c", "--cpus"), "N", "cpus", "reserve CPU cores", _cores),
    Option(("-m", "--ram"), "32G", "ram_mib", "reserve memory of the host", _memory),
    Option(("-t", "--time"), "6h", "time_limit_s", "stop it after this long: 90s, 10m, 6h, 3d", _time_limit),
    Option(("-p", "--priority"), "low|normal|high", "priority", "priority (default normal)", _priority),
    Option(("--preemptible",), "", "preemptible", "other jobs may preempt it; it is queued again", bool),
    Option(("--begin",), "23:00", "begin_at", "start no earlier: 23:00, +2h, 2026-12-24T18:00", _begin),
    Option(("--after-ok",), "12,13", "after_ok", "start after these jobs succeed", _jobs, repeatable=True),
    Option(
        ("--after", "--after-any"), "12,13", "after", "start after these jobs end, well or not", _jobs, repeatable=True
    ),
    Option(("--group",), "NAME", "group", "one message for the group when its last job is done", parse_group),
    Option(("--name",), "NAME", "name", "name of the job", parse_name),
    Option(("-w", "--workspace"), "NAME", "workspace", "workspace: the folder and environment to run in", parse_name),
    Option(("--dir",), "FOLDER", "dir", "folder to run in", _folder),
    Option(("--snapshot",), "", "snapshot", "run from a copy of the code as it is now", bool),
    Option(("--env",), "K=V", "env", "set a variable; repeat for more", parse_variable, repeatable=True),
    Option(("--retries",), "N", "retries", "retry up to N times if the host goes down", _count),
    Option(("--retry-on",), "exit,oom", "retry_on", "retry if it ends for these reasons", parse_reasons),
    Option(("--idle",), "5%:5s:60:12|off", "idle", "stop it if its GPUs stay below 5 % for 60 × 5 s", _idle),
    Option(("--hung",), "yield|alert|kill|off", "hung", "what to do if it looks hung (default yield)", _hung),
    Option(("--grace",), "30s", "stop_grace_s", "time between SIGTERM and SIGKILL", parse_duration),
    Option(("--probe",), "", "probe", "find the largest batch that fits (also: {batch_size})", _asks_for_probe, True),
    Option(("--profile",), "NAME", "probe", "probe settings of a program: nanogpt, or your own", _profile, True),
    Option(
        ("--batch-arg",),
        "--batch_size",
        "probe",
        "argument of your program for the batch",
        _argument("batch_arg"),
        True,
    ),
    Option(
        ("--run-id-arg",), "--version", "probe", "the argument that takes the run's id", _argument("run_id_arg"), True
    ),
    Option(("--batch",), "N", "probe", "batch to use if nothing can be measured", _batch("own"), True),
    Option(("--effective-batch",), "N", "probe", "total batch you want; sets {grad_accum}", _batch("effective"), True),
    Option(("--probe-with",), "margin=85%,cap=512", "probe", "probe settings: see docs/batch.md", _settings, True),
    Option(("--no-cache",), "", "probe", "probe even if the batch is already known", _no_cache, True),
)


class _WordList:
    """Words as a shell passes them. A position counts words."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def starts_option(self, at: int) -> bool:
        return at < len(self._words) and self._words[at].startswith("-") and self._words[at] != "-"

    def word(self, at: int) -> tuple[str, int] | None:
        return (self._words[at], at + 1) if at < len(self._words) else None


class _RawText:
    """A chat message. A position counts characters, so that the command stays exactly as typed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def starts_option(self, at: int) -> bool:
        start = self._text[at:].lstrip()[:2]
        return start[:1] in ("-", "—", "–") and not (start[:1] == "-" and start[1:].strip() == "")

    def word(self, at: int) -> tuple[str, int] | None:
        from io import StringIO
        from shlex import shlex

        stream = StringIO(self._text[at:])
        lexer = shlex(stream, posix=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            word = lexer.get_token()
        except ValueError:
            raise UserError("a quote or a backslash among the options is left open") from None
        return None if word is None else (word, at + stream.tell())


def _typed_dashes(word: str) -> str:
    # Phones turn a typed "--" into one long dash.
    return "--" + word[1:] if word.startswith(("—", "–")) else word


def read_words(words: Sequence[str], extra: Sequence[Option] = ()) -> tuple[dict[str, Any], list[str], bool]:
    """Return the options before a command, the words of the command, and whether `--` stood between them."""
    values, at, separated = _read(_WordList(words), (*OPTIONS, *extra))
    return values, list(words[at:]), separated


def read_text(text: str, extra: Sequence[Option] = ()) -> tuple[dict[str, Any], str]:
    """Return the options at the start of a message, and the rest of it unchanged as shell text."""
    values, at, _ = _read(_RawText(text), (*OPTIONS, *extra))
    return values, text[at:].lstrip()


def take_lists(words: Sequence[str], *flags: str) -> tuple[list[list[str]], list[str]]:
    """Return the words after each of these flags up to the next option, and the remaining words.

    Like argparse, this takes a negative number as a value, not as an option. It ignores everything behind `--`.
    """
    found: list[list[str]] = []
    rest: list[str] = []
    taking = False
    for at, word in enumerate(words):
        if word == "--":
            return found, [*rest, *words[at:]]
        flag, glued, value = word.partition("=")
        if flag in flags:
            found.append([value] if glued else [])
            taking = True
        elif taking and (not word.startswith("-") or _is_number(word)):
            found[-1].append(word)
        else:
            rest.append(word)
            taking = False
    return found, rest


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def help_rows(options: Sequence[Option] = OPTIONS) -> list[tuple[str, str]]:
    """Return how each option is written, and what it does."""
    return [(f"{', '.join(option.flags)} {option.metavar}".rstrip(), option.help) for option in options]


def _read(source: _WordList | _RawText, options: Sequence[Option]) -> tuple[dict[str, Any], int, bool]:
    table = {flag: option for option in options for flag in option.flags}
    values: dict[str, Any] = {}
    at = 0
    while source.starts_option(at) and (found := source.word(at)):
        word, at = _typed_dashes(found[0]), found[1]
        if word == "--":
            return _agreeing(values), at, True
        flag, text = _split(word, table)
        if text is None and table[flag].metavar:
            text, at = _value_after(flag, table, source.word(at))
        _add(values, table[flag], flag, text)
    return _agreeing(values), at, False


def _split(word: str, table: dict[str, Option]) -> tuple[str, str | None]:
    """Return the flag of a word, and its value if it is attached: `--gpus=2`, `-g2`, `-g=2`. Otherwise None."""
    flag, equals, text = word.partition("=")
    if not word.startswith("--"):
        flag, text = word[:2], word[2:].removeprefix("=")
    if flag not in table:
        raise UserError(_unknown(flag if word.startswith("--") else word, table))
    glued = bool(equals) if word.startswith("--") else len(word) > 2
    if glued and not table[flag].metavar:
        raise UserError(f"{flag} takes no value")
    return flag, text if glued else None


def _unknown(word: str, table: dict[str, Option]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, table, n=1)
    meant = f"; did you mean {near[0]}?" if near else "."
    return f"there is no option {word}{meant} If the command itself begins with it, put -- before the command."


def _value_after(flag: str, table: dict[str, Option], found: tuple[str, int] | None) -> tuple[str, int]:
    if found is None or found[0] == "--" or found[0].partition("=")[0] in table:
        raise UserError(f"{flag} needs a value, like {flag} {table[flag].metavar}")
    return found


def _add(values: dict[str, Any], option: Option, flag: str, text: str | None) -> None:
    """Add one option. Unless it is repeatable, the last use wins, so that an alias can be overridden."""
    try:
        value: Any = option.parse(text or "") if text is not None or option.repeatable else True
    except UserError as error:
        raise UserError(f"{flag}: {error}") from None
    if option.repeatable and option.key in values:
        before = values[option.key]
        value = {**before, **value} if isinstance(value, dict) else (*before, *value)
    values[option.key] = value


def _agreeing(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values. Raise UserError if `--on` and `--gpus` contradict each other."""
    on, gpus = values.get("on"), values.get("gpus")
    if on is None or gpus is None:
        return values
    if gpus == 0:
        raise UserError("--gpus 0 asks for no GPU, yet --on names some: leave one of them out")
    if gpus > len(on):
        raise UserError(f"--gpus {gpus} asks for more GPUs than --on names ({','.join(on)})")
    return values
