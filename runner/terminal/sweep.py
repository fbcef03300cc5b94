"""`nightshift sweep`: makes commands like simple_hypersearch, and queues them or prints them for a pipe."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

from runner.api.groups import Template, kept_values
from runner.config import options
from runner.config.option_reader import read_words, take_lists
from runner.errors import UserError
from runner.sweep import sweep_options, sweeps
from runner.terminal import submit
from runner.terminal.session import counted, open_queue, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.sweep.sweeps import Values

USAGE = """\
Usage: nightshift sweep [options] "COMMAND with {name}" -p name VALUES… [-p …]
       nightshift sweep [options] -p name VALUES… -- COMMAND…

Queue a command once for each combination of the values of its parameters, in
random order:

  nightshift sweep "python train.py --lr {lr} --bs {bs}" -p lr 0.1 1 -p bs 32 64

The jobs are one group, named sweep-1, sweep-2, … or by --group:

  nightshift group sweep-1           its progress; with --metric the best values
  nightshift kill --group sweep-1    stop it
  nightshift rerun --group sweep-1   run it again

With -n, a value may be a range to draw from:
  -p lr log:1e-5..1e-2 -p dropout lin:0..0.5

Values are inserted as they are, without quotes. {{name}} stands for {name}.
All other braces are left to the shell.
"""
EXAMPLE = 'nightshift sweep "python train.py --lr {lr}" -p lr 0.1 0.01'


def _single(text: str) -> str:
    raise UserError(f"write the name and then the values: -p {text or 'lr'} 0.1 0.01")


OWN_SECTIONS = {
    "The sweep": (
        options.Option(("-p", "--parameter"), "lr 1 2", "parameter", "a parameter and its values; repeat", _single),
        *sweep_options.CHOOSING,
        options.Option(("--print",), "", "print", "print the commands instead of queueing them", bool),
    ),
    "Its group": sweep_options.OF_A_GROUP,
    "This command": (submit.WAIT, submit.JSON, submit.HELP),
}
OWN = tuple(option for section in OWN_SECTIONS.values() for option in section)
SECTIONS = OWN_SECTIONS | submit.of_each_job(
    lambda option: option._replace(flags=tuple(flag for flag in option.flags if flag != "-p"))
)


def main(words: Sequence[str]) -> int:
    """Queue or print the commands that the words describe. Return the exit code."""
    lists, rest = take_lists(words, "-p", "--parameter")
    values, command = _read(rest)
    if values.get("help"):
        return submit.print_help(USAGE, SECTIONS)
    parameters = _parameters(lists)
    if not command:
        raise UserError(f"There is no command. Put it before the first -p, or after --: {EXAMPLE}")
    metric = sweep_options.metric_in(values)
    commands = _commands(command, parameters, values)
    if values.get("print"):
        return _print([filled for filled, _ in commands], values)
    sweep = Template(
        group=values.get("group"), command=command[0] if len(command) == 1 else shlex.join(command),
        parameters=kept_values(parameters), at_most=values.get("at_most"), metric=metric,
    )  # fmt: skip
    with open_queue() as queue:
        submission = submit.Submission(queue, values)
        submission.submit_sweep(commands, sweep)
        return submission.finish()


def _read(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the options, which may be on both sides of the command, and the command: one word, or all after `--`."""
    values, rest, separated = read_words(words, OWN)
    if separated or not rest:
        return values, rest
    template, behind = rest[0], rest[1:]
    # parse both sides together once more, to find options that do not fit together
    values, rest, _ = read_words([*words[: len(words) - len(rest)], *behind], OWN)
    if rest:
        raise UserError(f"{rest[0]!r} is one word too many. Put the command in quotes, or after --: {EXAMPLE}")
    return values, [template]


def _parameters(lists: list[list[str]]) -> dict[str, Values]:
    parameters: dict[str, Values] = {}
    for words in lists:
        if not words:
            raise UserError(f"-p needs a name and values: {EXAMPLE}")
        name = words[0]
        if name in parameters:
            raise UserError(f"The parameter {name} is given twice. Put all its values after one -p.")
        if len(words) == 1 and name in ("low", "normal", "high"):
            raise UserError(f"-p is a parameter here, and {name} has no values. For the priority: --priority {name}")
        parameters[name] = sweeps.values_of(name, words[1:])
    if not parameters:
        raise UserError(f"There are no parameters: {EXAMPLE}")
    return parameters


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
        say(f"there are only {counted(len(chosen), 'different combination')}: this queues all of them.")
    if len(command) == 1:
        return [(sweeps.filled(command[0], combination), combination) for combination in chosen]
    return [([sweeps.filled(word, combination) for word in command], combination) for combination in chosen]


def _print(commands: Sequence[str | list[str]], values: dict[str, Any]) -> int:
    queued = (*options.OPTIONS, *sweep_options.OF_A_GROUP)
    for_jobs = {option.key: option.flags[0] for option in queued if option.key in values}
    if for_jobs:
        flag = next(iter(for_jobs.values()))
        raise UserError(f"--print only prints the commands. Give {flag} to the command that you pipe them into.")
    for command in commands:
        line = command if isinstance(command, str) else shlex.join(command)
        if "\n" in line:
            raise UserError("The command has several lines, but a pipe takes one line per job. Leave out --print.")
        sys.stdout.write(f"{line}\n")
    return 0
