"""`nightshift save` and `nightshift preset`: jobs saved under a name, for `nightshift submit --preset NAME`."""

from __future__ import annotations

import click

from runner.api import presets
from runner.errors import UserError
from runner.terminal.session import JOB, open_queue
from runner.text.table import Row, print_table
from runner.text.words import printable


@click.command("save")
@click.argument("job_id", type=JOB, metavar="N")
@click.argument("words", nargs=-1, required=True, metavar="[as] NAME")
def save(job_id: int, words: tuple[str, ...]) -> None:
    """Save job N as a preset: its command, options, folder and environment.

    \b
    Example:
      nightshift save 12 as nano
      nightshift submit --preset nano -- --lr 3e-4
    """
    name = words[1:] if words[0] == "as" and len(words) > 1 else words
    if len(name) != 1:
        raise UserError("Under which name? Try: nightshift save 12 as nano")
    with open_queue() as queue:
        print(presets.save(queue, job_id, name[0]))


@click.command("preset")
@click.option("--delete", metavar="NAME", help="Delete this preset of yours.")
def preset(delete: str | None) -> None:
    """List the presets, or delete one. `nightshift submit --preset NAME` queues one."""
    with open_queue() as queue:
        if delete is not None:
            print(presets.remove(queue, delete))
            return
        saved = queue.presets.all()
        if not saved:
            print("There are no presets. Save a job as one: nightshift save 12 as nano")
            return
        rows = [Row([one.name, one.owner, printable(one.spec.command.strip())]) for one in saved]
        print_table(["NAME", "OWNER", "COMMAND"], rows, cut=(2,))
