"""The options of a job, defined once for the terminal, the chat, the help and the docs. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.config.env_file import is_variable_name
from runner.errors import UserError
from runner.units import parse_duration, parse_size_mib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Patterns are compiled when used: most calls need only one, and compiling all would slow down every client.
_NAME = r"[\w.-]{1,64}"
_GPU = re.compile(r"[0-9]{1,4}|(?:GPU|MIG)-[A-Za-z0-9_-]{1,80}")
_JOB_NUMBER = re.compile(r"#?[1-9][0-9]{0,15}")
_PRIORITIES = ("low", "normal", "high")
_FLAGS_WIDTH = 26
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
        raise UserError(f"{text!r} has another meaning in commands: choose another name for the group")
    return text


def _number(what: str, *, least: int = 1, digits: int = 4) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= digits and int(text) >= least):
            raise UserError(f"{text!r} is not {what}: write {least}, {least + 1}, {least + 2} …")
        return int(text)

    return parse


def _parts(text: str, is_valid: Callable[[str], object], complaint: str) -> list[str]:
    """Return the parts between commas. Raise UserError for the first that is not valid."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not is_valid(part):
            raise UserError(f"{part!r} is {complaint}")
    return parts


def _gpus(text: str) -> tuple[str, ...]:
    parts = _parts(text, _GPU.fullmatch, "not a GPU: write indices or UUIDs, like 0,1 or GPU-8f2e…")
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


def _memory(text: str) -> int:
    mib = parse_size_mib(text)
    if mib == 0:
        raise UserError("0 would reserve nothing; leave the option out if you do not know how much")
    return mib


def _gpu_type(text: str) -> str:
    if not re.search(r"\w", text) or len(text) > 64:
        raise UserError(f"{text!r} is not a type of GPU: write a part of its name, like a5000")
    return text


def _jobs(text: str) -> tuple[int, ...]:
    parts = _parts(text, _JOB_NUMBER.fullmatch, "not a job number: write them like 12,13")
    return tuple(sorted({int(part.removeprefix("#")) for part in parts}))


def parse_reasons(text: str) -> tuple[str, ...]:
    """Return the reasons listed for `--retry-on`, in upper case."""
    complaint = f"not a reason to retry: choose from {', '.join(RETRY_REASONS).lower()}"
    return tuple(dict.fromkeys(_parts(text.upper(), RETRY_REASONS.__contains__, complaint)))


def _begin(text: str) -> str:
    from runner import clock
    from runner.config.times import parse_moment

    return clock.text(parse_moment(text, clock.local(clock.now())))


def _folder(text: str) -> str:
    if not text or "\0" in text:
        raise UserError("the name of the folder is empty")
    return text


def parse_variable(text: str) -> dict[str, str]:
    """Return a variable and its value, from K=V."""
    name, equals, value = text.partition("=")
    if not equals or not is_variable_name(name) or "\0" in value:
        # The text after the name may be a secret. Without a "=", all of it may be.
        raise UserError("write KEY=VALUE, with letters, digits and '_' in KEY")
    return {name: value}


def parse_idle(text: str) -> str:
    """Return a rule for idle jobs in its usual form. Raise UserError if it is not one."""
    from runner.idle.policy import format_policy, parse_policy

    return format_policy(parse_policy(text))


def parse_hung(text: str) -> str:
    """Return a rule for hung jobs in its usual form. Raise UserError if it is not one."""
    from runner.idle.hung_rule import format_policy, parse_policy

    return format_policy(parse_policy(text))


def parse_progress(text: str) -> str:
    """Return a pattern for progress. Raise UserError if it is not one."""
    from runner.progress.reader import compile_pattern

    compile_pattern(text)
    return text


def _stop_on(text: str) -> str:
    from runner.progress.stop_rules import format_rules, parse_rules

    return format_rules(parse_rules(text))


def _log_file(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise UserError("the name of the log file is empty: name the file that your program writes, like train.log")
    return text


def _argument(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise UserError("the name of the argument is empty: write it as your program takes it, like --batch_size")
    return text


def _probe_settings(text: str) -> dict[str, Any]:
    from runner.config.profiles import parse_settings

    return parse_settings(text)


def _probe(flag: str, metavar: str, help_text: str, parse: Callable[[str], Any], key: str = "") -> Option:
    """Return an option about probing. All of them fill one field; `key` is the name of the value in it."""
    return Option((flag,), metavar, "probe", help_text, (lambda text: {key: parse(text)}) if key else parse, True)


_SLURM_NAMES, _SLURM_FEATURES = re.compile(r"[\w.,-]{1,100}"), re.compile(r"[\w.,&|!*()\[\]-]{1,200}")


def _slurm(flag: str, metavar: str, help_text: str) -> Option:
    """Return an option that Slurm gets as it is."""
    pattern = _SLURM_FEATURES if flag == "--constraint" else _SLURM_NAMES

    def parse(text: str) -> dict[str, str]:
        if not pattern.fullmatch(text) or text.startswith("-"):
            raise UserError(f"{text!r} is nothing that Slurm takes for {flag}")
        return {flag.removeprefix("--"): text}

    return Option((flag,), metavar, "slurm", help_text, parse, repeatable=True)


_BATCH = _number("a batch size", digits=6)

# One line of help fits 80 columns: flags and metavar in 26 characters, the text in 50. A test checks it.
SECTIONS: dict[str, tuple[Option, ...]] = {
    "What it needs": (
        Option(("-g", "--gpus"), "N", "gpus", "how many GPUs; 0 for none (default 1)", _number("a count", least=0)),
        Option(("--on",), "0,1", "on", "use these GPUs (index or UUID), or -g N of them", _gpus),
        Option(("-v", "--gpu-type"), "a5000", "gpu_type", "use GPUs with this in their name", _gpu_type),
        Option(("--gpu-mem",), "20G", "gpu_mem_mib", "reserve this much memory on each GPU", _memory),
        Option(("-c", "--cpus"), "N", "cpus", "reserve this many CPU cores", _number("a number of CPU cores")),
        Option(("-m", "--ram"), "32G", "ram_mib", "reserve this much host memory", _memory),
    ),
    "When": (
        Option(("-p", "--priority"), "high", "priority", "low, normal or high (default normal)", _priority),
        Option(("--preemptible",), "", "preemptible", "other jobs may preempt it; then it is queued again", bool),
        Option(("--try",), "", "trial", "first try it briefly, as soon as a GPU is free", bool),
        Option(("--begin",), "23:00", "begin_at", "start no earlier: 23:00, +2h, 2026-12-24T18:00", _begin),
        Option(("--after-ok",), "12,13", "after_ok", "start after these jobs succeed", _jobs, repeatable=True),
        Option(("--after", "--after-any"), "12,13", "after", "start after these jobs end, even if they fail", _jobs,
               repeatable=True),
    ),
    "Limits": (
        Option(("-t", "--time"), "6h", "time_limit_s", "stop it after this long: 90s, 10m, 6h, 3d", _time_limit),
        Option(("--idle",), "5%:5s:60:12", "idle", "stop it if GPUs are below 5 % for 60 × 5 s; or off", parse_idle),
        Option(("--hung",), "kill", "hung", "if hung: kill, alert, off, or yield to other jobs", parse_hung),
        Option(("--grace",), "30s", "stop_grace_s", "time between SIGTERM and SIGKILL", parse_duration),
    ),
    "Progress": (
        Option(("--progress",), "PATTERN", "progress", r"what it prints: 'step (?P<n>\d+)/(?P<total>\d+)'",
               parse_progress),
        Option(("--log",), "FILE", "log", "read progress from this file, too", _log_file),
        Option(("--stop-on",), "nan,loss>9", "stop_on", "stop it if the loss is NaN or a metric goes wrong",
               _stop_on),
    ),
    "If it fails": (
        Option(("--retries",), "N", "retries", "retry up to N times if the host goes down",
               _number("a count", least=0)),
        Option(("--retry-on",), "exit,oom", "retry_on", "retry if it ends for one of these reasons", parse_reasons),
    ),
    "Name and place": (
        Option(("--name",), "NAME", "name", "name of the job", parse_name),
        Option(("--group",), "NAME", "group", "put it in this group; one message when all end", parse_group),
        Option(("-w", "--workspace"), "NAME", "workspace", "folder and environment to run in", parse_name),
        Option(("--dir",), "FOLDER", "dir", "run in this folder", _folder),
        Option(("--snapshot",), "", "snapshot", "run a copy of the code as it is now", bool),
        Option(("--env",), "K=V", "env", "set a variable; repeat for more", parse_variable, repeatable=True),
    ),
    "On Slurm": (
        _slurm("--partition", "NAME", "partition of Slurm"),
        _slurm("--account", "NAME", "account that Slurm charges"),
        _slurm("--qos", "NAME", "quality of service"),
        _slurm("--constraint", "a100&ib", "features that the node must have"),
    ),
    "Batch size": (
        _probe("--probe", "", "find the largest batch; implied by {batch_size}", lambda _: {}),
        _probe("--profile", "NAME", "use these probe settings: nanogpt or your own", parse_name, "profile"),
        _probe("--batch-arg", "--batch_size", "argument of your program for the batch size", _argument, "batch_arg"),
        _probe("--run-id-arg", "--version", "option of your program that takes the run id", _argument, "run_id_arg"),
        _probe("--batch", "N", "batch size to use if nothing can be measured", _BATCH, "own"),
        _probe("--effective-batch", "N", "total batch size you want; sets {grad_accum}", _BATCH, "effective"),
        _probe("--probe-with", "margin=85%", "set margin, cap, limit … (see docs/batch.md)", _probe_settings),
        _probe("--no-cache", "", "probe even if the batch size is already known", lambda _: True, "no_cache"),
    ),
}  # fmt: skip
PRESET = Option(("--preset",), "NAME", "preset", "queue a job you saved, with these changes", str)
OPTIONS = tuple(option for options in SECTIONS.values() for option in options)


def help_rows(options: Iterable[Option] = OPTIONS) -> list[tuple[str, str]]:
    """Return how each option is written, and what it does."""
    return [(f"{', '.join(option.flags)} {option.metavar}".rstrip(), option.help) for option in options]


def help_text(sections: Mapping[str, Iterable[Option]]) -> str:
    """Return the options for --help, under the titles of their sections."""
    parts = []
    for title, options in sections.items():
        parts += [f"\n{title}:\n", *(f"  {flags:<{_FLAGS_WIDTH}}  {text}\n" for flags, text in help_rows(options))]
    return "".join(parts)
