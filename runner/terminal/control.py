"""Commands about the whole queue: pause, resume, drain, stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from runner.terminal.session import (
    counted,
    open_queue,
    say,
    warn_without_runner,
)

if TYPE_CHECKING:
    from runner.api import Queue


@click.command("pause")
def pause() -> None:
    """Start nothing more until `nightshift resume`; running jobs go on.

    While the queue is paused, the command for an empty queue (NIGHTSHIFT_WHEN_EMPTY) does not run either.
    """
    with open_queue() as queue:
        queue.pause()
        print(f"Paused: nothing more starts until `nightshift resume`. {_standing(queue)}")


@click.command("resume")
def resume() -> None:
    """Start jobs again after a pause or a drain."""
    with open_queue() as queue:
        held = queue.box.get("paused") or queue.box.get("draining")
        queue.resume()
        print(f"{'Resumed' if held else 'Nothing was paused'}. {_standing(queue)}")
        warn_without_runner(queue, "nothing starts")


@click.command("drain")
@click.option("--wait", "wait_for_end", is_flag=True, help="Return when nothing runs any more.")
def drain(wait_for_end: bool) -> None:
    """Let running jobs finish and start no more until `nightshift resume`."""
    from runner.terminal.wait_for_jobs import wait_until

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
            print("It is not run this time.")
            return 0
        say("no command is due.")
        return 1


def _standing(queue: Queue) -> str:
    """Return which jobs run and how many wait, in one sentence."""
    from runner.model import State

    live = queue.jobs.live()
    named = ", ".join(f"#{job.id}" for job in live[:10]) + (" …" if len(live) > 10 else "")
    running = f"{counted(len(live), 'job')} running ({named})" if live else "No job is running"
    return f"{running}, {queue.jobs.count(State.QUEUED):,} queued."
