"""A probed job in the chat: its batch in every message about it, and the fit drawn for whoever asks."""

from __future__ import annotations

import asyncio

from bot.pictures import plots
from runner import clock
from runner.batch import BatchPlan, BatchSettings, Measured, Unmeasured
from runner.model import Phase
from runner.supervisor.probe_records import MemoryKind, ProbeReport
from tests.attempts import end
from tests.room import in_room, labels
from tests.telegram.photo import dimensions

GPU = "GPU-0a1b2c3d-1111"
TOTAL_MIB = 24_576
USED = {"peak_memory_mib": 22_364, "memory_total_mib": TOTAL_MIB, "mean_utilization": 87.4}
SUBMIT = "/submit --name night --probe --batch-arg --batch_size python train.py"


def measured() -> BatchPlan:
    plan = BatchPlan.start(BatchSettings(), 24_164).after(Measured(8910, seconds=7))
    return plan.after(Measured(2350 + 820 * plan.step.batch, seconds=7))


async def probed(room, plan: BatchPlan, said: str = "found") -> int:
    """A job of Uma's whose real run has begun."""
    await room.ask(room.uma, SUBMIT)
    queue = room.chat.queue
    number = max(job.id for job in queue.jobs.find())
    queue.jobs.claim(number, [(GPU, 0)], "boot")
    queue.jobs.started(queue.job(number), clock.text(clock.now()), Phase.PROBING)
    report = ProbeReport(plan=plan, about=MemoryKind(total_mib=TOTAL_MIB))
    queue.jobs.probed(queue.job(number), report, plan.step.batch, said)
    await room.settle()
    return number


def without_pictures(monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)


@in_room()
async def test_the_end_tells_the_batch_with_what_the_run_took_of_the_memory(room):
    number = await probed(room, measured())
    end(room.chat.queue, number, USED, duration_s=63.0)
    await room.settle()
    assert room.said(room.uma)[-1].text.text.splitlines()[2:] == [
        "GPU 0a1b2c3d · 87 % busy",
        "batch 24, 91 % of 24 GiB, probed in 14 s",
    ]
    (details,) = await room.ask(room.uma, f"/status {number}")
    assert "batch 24, 91 % of 24 GiB, probed in 14 s" in details.text.text
    assert labels(details) == ["Copy command", "Copy run id", "Log", "Fit", "Rerun"]


@in_room()
async def test_why_nothing_was_measured_is_told_at_the_start_and_not_again_at_the_end(room):
    plan = BatchPlan.start(BatchSettings(own=12), 24_164).after(
        Unmeasured("its memory cannot be told from that of others")
    )
    number = await probed(room, plan)
    (now,) = await room.ask(room.vic, f"/fit {number}")
    assert "batch 12, your own, because its memory cannot be told from that of others" in now.text.text
    end(room.chat.queue, number, USED)
    await room.settle()
    ended = room.said(room.uma)[-1].text.text
    assert "batch 12, 91 % of 24 GiB, your own, not probed" in ended
    assert "because" not in ended


def test_the_fit_is_drawn_in_bars_where_there_are_no_pictures(tmp_path, monkeypatch):
    without_pictures(monkeypatch)

    @in_room()
    async def scene(room):
        number = await probed(room, measured())
        (details,) = await room.ask(room.uma, f"/status {number}")
        (said,) = await room.tap(room.uma, details, "Fit")
        first, second, *rest = said.text.text.splitlines()
        assert (first, second) == ("▶️ #1 night", "batch 24, 90 % of 24 GiB, probed in 14 s")
        assert rest[1:5] == [
            "     8 █████▉            8.7 GiB",
            "    19 ███████████▉     17.5 GiB",
            "    24 ██████████████▋  21.5 GiB ◀",
            " limit ░░░░░░░░░░░░░░   21.7 GiB",
        ]
        assert "line: 2.3 GiB + 820 MiB per sample" in rest
        assert labels(said) == ["Log", "Details", "Kill"]

    scene(tmp_path)


@in_room()
async def test_the_fit_is_a_picture_where_one_can_be_drawn(room):
    number = await probed(room, measured())
    (said,) = await room.ask(room.uma, f"/fit {number}")
    assert said.photo is not None
    assert said.caption.text.splitlines() == [
        "▶️ #1 night",
        "batch 24, 90 % of 24 GiB, probed in 14 s",
        "line: 2.3 GiB + 820 MiB per sample",
        "chosen: batch 24, because it is the largest within 92 % by a line through 2 points",
    ]


def test_every_kind_of_fit_can_be_drawn(tmp_path):
    """Known from before there are no points; a batch may have been too large."""
    plot = {"points": [], "line": [1500.0, 9.5], "budget_mib": 11_000.0, "margin": 0.9, "batch": 512, "too_large": None}
    plots._drawn.clear()
    for other in (plot, plot | {"points": [[1, 1510.0], [900, 10_050.0]], "too_large": 901}):
        assert dimensions(asyncio.run(plots.drawn(other, str(tmp_path)))) == (800, 400)


@in_room()
async def test_a_job_without_a_fit_says_why(room):
    await room.ask(room.uma, "/submit python a.py")
    (said,) = await room.ask(room.uma, "/fit 1")
    assert said.text.text == "⚠️ #1 was submitted without --probe, so nothing was measured."
    await room.ask(room.uma, SUBMIT)
    (said,) = await room.ask(room.uma, "/fit 2")
    assert said.text.text == "⚠️ #2 has not started yet. Its batch is found when it starts."
