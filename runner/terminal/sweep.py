"""`nightshift sweep`: makes commands like simple_hypersearch, and queues them or prints them for a pipe."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

from runner.config import options
from runner.errors import UserError
from runner.sweep import sweep_options, sweeps
from runner.terminal import submit
from runner.terminal.session import counted, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.sweep.sweeps import Values

USAGE = """\
Usage: nightshift sweep [options] "COMMAND with {name}" -p name VALUES… -p …
       nightshift sweep [options] -p name VALUES… -- COMMAND…

Queue a command once for each combination of the values of its parameters, in random order:

  nightshift sweep "python3 train_dnn.py --lr {lr} --batch_size {bs}" -p lr 0.001 0.0005 -p bs 32 64

They are one group, of a name of its own (sweep-1) or of --group: `nightshift group sweep-1` shows how far it is and,
with --metric, which values are best; `kill --group` and `rerun --group` act on it.

With -n a value may be a range to draw from: -p lr log:1e-5..1e-2 -p dropout lin:0..0.5
Values are put in as they are. {{name}} stands for {name}; every other brace is the shell's.

Options:
"""
EXAMPLE = 'nightshift sweep "python train.py --lr {lr}" -p lr 0.1 0.01'


def _single(text: str) -> str:
    raise UserError(f"write the name and then the values: -p {text or 'lr'} 0.1 0.01")


OWN = (
    options.Option(("-p", "--parameter"), "NAME VALUES…", "parameter", "a parameter; once for each", _single),
    *sweep_options.CHOOSING,
    *sweep_options.OF_A_GROUP,
    options.Option(("--print",), "", "print", "print the commands instead, for a pipe", bool),
    *(option for option in submit.OWN if option.key != "script"),
)
SHOWN = (*OWN, *(one._replace(flags=tuple(flag for flag in one.flags if flag != "-p")) for one in options.OPTIONS))


def main(words: Sequence[str]) -> int:
    """Queue or print the commands that the words describe. Return the exit code."""
    given, rest = options.take_lists(words, "-p", "--parameter")
    values, command = _read(rest)
    if values.get("help"):
        print(submit.usage(USAGE, SHOWN), end="")
        return 0
    parameters = _parameters(given)
    if not command:
        raise UserError(f"There is no command. It stands before the first -p, or behind --: {EXAMPLE}")
    metric = sweep_options.metric_in(values)
    commands = _commands(command, parameters, values)
    if values.get("print"):
        return _print([one for one, _ in commands], values)
    from runner.api import Queue
    from runner.api.groups import Template, kept_values

    sweep = Template(
        group=values.get("group"), command=command[0] if len(command) == 1 else shlex.join(command),
        parameters=kept_values(parameters), at_most=values.get("at_most"), metric=metric,
    )  # fmt: skip
    with Queue(actor=submit.user()) as queue:
        submission = submit.Submission(queue, values)
        submission.submit_sweep(commands, sweep)
        return submission.finish()


def _read(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the options, which may be on both sides of the command, and the command: one word, or all after `--`."""
    values, rest, separated = options.read_words(words, OWN)
    if separated or not rest:
        return values, rest
    template, behind = rest[0], rest[1:]
    # parse both sides together once more, to find options that do not fit together
    values, rest, _ = options.read_words([*words[: len(words) - len(rest)], *behind], OWN)
    if rest:
        raise UserError(f"{rest[0]!r} is one word too many: put the command into quotes, or behind --. {EXAMPLE}")
    return values, [template]


def _parameters(given: list[list[str]]) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for words in given:
        if not words:
            raise UserError(f"-p needs a name and values: {EXAMPLE}")
        name = words[0]
        if name in found:
            raise UserError(f"The parameter {name} is given twice: put all its values behind one -p.")
        if len(words) == 1 and name in ("low", "normal", "high"):
            raise UserError(f"-p is a parameter here, and {name} has no values. For the priority: --priority {name}")
        found[name] = sweeps.values_of(name, words[1:])
    if not found:
        raise UserError(f"There are no parameters: {EXAMPLE}")
    return found


def _commands(
    command: list[str], parameters: dict[str, Values], values: dict[str, Any]
) -> list[tuple[str | list[str], dict[str, str]]]:
    """Return the command for each combination, as text or argument list as it was given, and the combination."""
    sweeps.check(command, parameters)
    samples = values.get("samples")
    chosen = sweeps.combinations(
        parameters, samples=samples, shuffled=values.get("mode") != sweep_options.GRID, seed=values.get("seed")
    )
    if samples is not None and len(chosen) < samples:
        say(f"there are only {counted(len(chosen), 'different combination')}: all of them are taken.")
    if len(command) == 1:
        return [(sweeps.filled(command[0], one), one) for one in chosen]
    return [([sweeps.filled(word, one) for word in command], one) for one in chosen]


def _print(commands: Sequence[str | list[str]], values: dict[str, Any]) -> int:
    queued = (*options.OPTIONS, *sweep_options.OF_A_GROUP)
    for_jobs = {option.key: option.flags[0] for option in queued if option.key in values}
    if for_jobs:
        flag = next(iter(for_jobs.values()))
        raise UserError(f"--print only prints the commands: {flag} belongs to the command that they are piped into.")
    for command in commands:
        line = command if isinstance(command, str) else shlex.join(command)
        if "\n" in line:
            raise UserError("The command has several lines, and a pipe takes one for each job: leave out --print.")
        sys.stdout.write(f"{line}\n")
    return 0
