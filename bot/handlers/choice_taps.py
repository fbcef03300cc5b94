"""Buttons that choose: a job, a topic of the help, an argument, a preset, a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.handlers import job_picker, presets, rerun, submit, usual_commands, view
from bot.handlers.button_registry import HANDLERS, job_id, on
from bot.text import help_text, keyboards
from bot.text.buttons import ButtonKind
from runner.api.chat import Argument

if TYPE_CHECKING:
    from bot.inbound.turn import Turn
    from bot.store.buttons import Button


@on(ButtonKind.CHOOSE)
def show_chosen(turn: Turn, button: Button) -> None:
    """Show a job that was chosen from the queue, with what can be done to it."""
    job = turn.job(job_id(button))
    turn.edit(view.job_html(turn, job), keyboards.of_chosen(job, int(button.data.get("first", 0))), job_id=job.id)


@on(ButtonKind.HELP)
def _help(turn: Turn, button: Button) -> None:
    """Say more about a topic in the same message. The buttons stay for the other topics."""
    turn.edit(help_text.about(turn.caller.role, button.data["about"]), help_text.overview(turn.caller.role)[1])


@on(ButtonKind.RERUN_WITH)
def _rerun_with(turn: Turn, button: Button) -> None:
    rerun.choose_argument(turn, turn.job(job_id(button)))


@on(ButtonKind.ARGUMENT)
def _argument(turn: Turn, button: Button) -> None:
    turn.in_place = True
    argument = Argument(button.data["name"], button.data["value"], button.data["setting"])
    rerun.ask_value(turn, turn.job(job_id(button)), argument)


@on(ButtonKind.IN_WORKSPACE)
def _in_workspace(turn: Turn, button: Button) -> None:
    turn.in_place = True
    usual_commands.ask_command(turn, f"-w {button.data['workspace']}")


@on(ButtonKind.CANCEL)
def _cancel(turn: Turn, _: Button) -> str:
    """Drop the question that waits for a typed answer: any button does."""
    turn.settle("Nothing was done.")
    return "Nothing was done."


@on(ButtonKind.DELETE_PRESET)
def _delete_preset(turn: Turn, button: Button) -> str:
    outcome = presets.delete(turn, button.data["preset"])
    turn.edit(*presets.page(turn))
    return outcome


async def _pick(turn: Turn, button: Button) -> None:
    """Run the command that asked which job, and answer in place of the question."""
    turn.in_place = True
    await job_picker.run(turn, button.data["command"], job_id(button), button.data["rest"])


HANDLERS |= {
    ButtonKind.PICK: _pick,
    ButtonKind.PRESET: lambda turn, button: submit.queue_preset(turn, button.data["preset"], ""),
}
