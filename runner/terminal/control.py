"""Commands about the whole queue: pause, resume, drain, stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from runner.model import State
from runner.store.box import BoxKey
from runner.terminal.session import counted, open_queue, say, warn_without_runner
from runner.terminal.wait import wait_until

if TYPE_CHECKING:
    from runner.api import Queue


@click.command("pause")
def pause() -> None:
    """Start no more jobs until `nightshift resume`. Running jobs go on.

    While the queue is paused, the command for an empty queue (NIGHTSHIFT_WHEN_EMPTY) does not run either.
    """
    with open_queue() as queue:
        queue.pause()
        print(f"Paused: nothing more starts until `nightshift resume`. {_standing(queue)}")


@click.command("resume")
def resume() -> None:
    """Start jobs again after a pause or a drain."""
    with open_queue() as queue:
        stopped = queue.box.get(BoxKey.PAUSED) or queue.box.get(BoxKey.DRAINING)
        queue.resume()
        print(f"{'Resumed' if stopped else 'Nothing was paused'}. {_standing(queue)}")
        warn_without_runner(queue, "nothing starts")


@click.command("drain")
@click.option("--wait", "wait_for_end", is_flag=True, help="Return when no job is running any more.")
def drain(wait_for_end: bool) -> None:
    """Let running jobs finish and start no more until `nightshift resume`."""
    with open_queue() as queue:
        queue.drain()
        print(f"Draining: running jobs finish, no more start until `nightshift resume`. {_standing(queue)}", flush=True)
        if wait_for_end:
            if queue.jobs.live():
                warn_without_runner(queue, "this waits until one is")
            wait_until(queue.home, lambda: not queue.jobs.under_way())
            print("Drained: nothing runs.")


@click.command("stay")
def stay() -> int:
    """Do not run the command for an empty queue (NIGHTSHIFT_WHEN_EMPTY) this time.

    It is due again after the next jobs. `nightshift pause` prevents it for as long as the queue is paused.
    """
    with open_queue() as queue:
        if queue.cancel_when_empty():
            print("Cancelled: the command for an empty queue is not run this time.")
            return 0
        say("no command is due, so there is nothing to cancel.")
        return 1


def _standing(queue: Queue) -> str:
    """Return which jobs run and how many wait, in one sentence."""
    live = queue.jobs.live()
    named = ", ".join(f"#{job.id}" for job in live[:10]) + (" …" if len(live) > 10 else "")
    running = f"{counted(len(live), 'job')} running ({named})" if live else "No job is running"
    return f"{running}, {queue.jobs.count(State.QUEUED):,} queued."
