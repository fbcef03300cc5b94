"""The handler of each chat command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.handlers import control, edit, groups, kill, limits, log, people, presets, queue_order, rerun, submit, view

if TYPE_CHECKING:
    from bot.inbound.routing import Handler

HANDLERS: dict[str, Handler] = {
    "start": view.start,
    "help": view.help_,
    "submit": submit.submit,
    "batch": submit.batch,
    "status": view.status,
    "queue": view.queue,
    "gpus": view.gpus,
    "log": log.log,
    "fit": view.batch_fit,
    "kill": kill.kill,
    "edit": edit.edit,
    "move": queue_order.move,
    "hold": queue_order.hold,
    "release": queue_order.release,
    "keep": limits.keep,
    "extend": limits.extend,
    "rerun": rerun.rerun,
    "save": presets.save,
    "preset": presets.preset,
    "sweep": groups.sweep,
    "group": groups.group,
    "pause": control.pause,
    "resume": control.resume,
    "drain": control.drain,
    "ws": view.workspaces,
    "notify": people.notify,
    "whoami": view.whoami,
    "pair": people.pair,
    "audit": people.audit,
}
