"""What is concluded from Slurm's answers, and what sbatch is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import rundir
from runner.engines.base import Order
from runner.engines.slurm import commands, shared_folder
from runner.engines.slurm.batch_script import options_of
from runner.engines.slurm.cluster_gpus import cluster_gpus
from runner.engines.slurm.commands import QueueEntry, SlurmNode
from runner.engines.slurm.verdict import Sighting, judge
from runner.errors import JobError, OperatorError, TransientError
from runner.model import Exit, GpuHealth, Reason, Ref
from runner.rundir import AttemptSpec, StartRecord
from runner.schedule.choice import Waiting, choose
from runner.schedule.request import Request
from runner.schedule.room import CpuSlot

STARTED = StartRecord(run_id="a", pid=1, boot_id="b", at="2026-01-01T00:00:00+00:00")
ENDED = Exit(run_id="a", exit_code=0, started_at="", finished_at="", duration_s=1.0)
SEEN_AGAIN = {"gone_at": 100.0, "answered_at": 170.0}


def entry(state: str, reason: str = "None") -> QueueEntry:
    return QueueEntry("7", state, reason, "n0")


CASES = {
    "not asked yet": (Sighting(), None, "Slurm was not asked yet", False),
    "waits": (Sighting(entry=entry("PENDING", "Priority"), answered_at=1.0), True, "in Slurm's queue: Priority", False),
    "runs": (Sighting(entry=entry("RUNNING"), answered_at=1.0, started=STARTED), True, None, False),
    "no answer": (
        Sighting(entry=entry("RUNNING"), answered_at=1.0, started=STARTED, trouble="away"),
        None,
        "away",
        False,
    ),
    "ended while there is no answer": (Sighting(started=STARTED, exit=ENDED, trouble="away"), False, None, False),
    "forgotten, first look": (Sighting(gone_at=100.0, answered_at=100.0), None, "looking again", False),
    "forgotten, no second answer": (Sighting(gone_at=100.0, answered_at=120.0), None, "looking again", False),
    "forgotten, not started": (Sighting(**SEEN_AGAIN), None, None, True),
    "forgotten, can no longer start": (Sighting(**SEEN_AGAIN, revoked=True), False, "no longer knows it", False),
    "forgotten, signs of life": (Sighting(**SEEN_AGAIN, started=STARTED, beat_at=190.0), None, "looking again", False),
    "forgotten": (Sighting(**SEEN_AGAIN, started=STARTED, beat_at=99.0), False, "no longer knows it", False),
    "node failed": (
        Sighting(entry=entry("NODE_FAIL"), **SEEN_AGAIN, started=STARTED),
        False,
        "Slurm: NODE_FAIL",
        False,
    ),
    "cancelled while it waited": (Sighting(entry=entry("CANCELLED"), **SEEN_AGAIN), None, None, True),
    "refused": (Sighting(refused=ENDED, trouble="away"), None, None, True),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_known_of_an_attempt(case: str) -> None:
    seen, held, said, revoke = CASES[case]
    judgement = judge(seen, now=200.0, forgotten_after_s=60.0)
    assert (judgement.facts.held, judgement.revoke) == (held, revoke)
    assert said in str(judgement.facts.said) if said else judgement.facts.said is None
    if held is False and seen.exit is None and seen.started:
        assert judgement.facts.lost is (Reason.HOST if case == "node failed" else Reason.SUPERVISOR)


def test_ends_by_slurms_own_hand_are_told_with_its_word() -> None:
    for state in ("TIMEOUT", "PREEMPTED", "OUT_OF_MEMORY"):
        stopped = Sighting(entry=entry(state), gone_at=1.0, answered_at=1.0, started=STARTED, exit=ENDED)
        assert judge(stopped, now=2.0, forgotten_after_s=60.0).facts.said == f"Slurm: {state}"


NODES = (
    "NodeName=n0 CPUTot=8 Gres=gpu:a100:2(S:0-1),gpu:v100:1,nvme:1 GresUsed=gpu:a100:1(IDX:1),gpu:v100:0(IDX:N/A)"
    " RealMemory=4000 State=MIXED Partitions=gpu,long OS=Linux 6.1 #1\n"
    "NodeName=n1 CPUTot=4 Gres=gpu:2 GresUsed=gpu:2(IDX:0-1) RealMemory=100 State=DOWN+DRAIN Partitions=gpu\n"
    "NodeName=n2 CPUTot=4 Gres=(null) RealMemory=100 State=IDLE\n"
)


def test_nodes_and_gpus_are_read_from_scontrol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "call", lambda *_: NODES)
    n0, n1, n2 = commands.nodes()
    assert (n0.gpus, n0.used, n0.partitions, n0.cpus) == ((("a100", 2), ("v100", 1)), {1}, ("gpu", "long"), 8)
    assert (n1.gpus, n1.used, n1.usable, n2.gpus) == ((("", 2),), {0, 1}, False, ())
    gpus = cluster_gpus((n0, n1, n2), (), 5.0)
    assert [(gpu.node, gpu.index, gpu.name) for gpu in gpus[:3]] == [
        ("n0", 0, "a100"),
        ("n0", 1, "a100"),
        ("n0", 2, "v100"),
    ]
    assert [gpu.detail is not None for gpu in gpus] == [False, True, False, True, True]
    assert gpus[3].health is GpuHealth.UNKNOWN


def test_jobs_are_known_by_our_names_and_a_live_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "7|FAILED|None|n0|ns-1-12.1.a\n8|PENDING|Priority||ns-1-12.1.a\n10|FAILED|x|n|ns-1-13.1.b"
    lines = f"9|RUNNING|None|n1|odd|name\n{ours}"
    monkeypatch.setattr(commands, "call", lambda *_: lines)
    found = commands.queue("ns-1-")
    known = {name: (one.number, one.live) for name, one in found.items()}
    assert known == {"ns-1-12.1.a": ("8", True), "ns-1-13.1.b": ("10", False)}


REFUSALS = {
    "Batch job submission failed: Invalid partition name specified": JobError,
    "Batch job submission failed: Requested node configuration is not available": JobError,
    "Batch job submission failed: Unable to contact slurm controller (connect failure)": TransientError,
    "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, …)": TransientError,
}


@pytest.mark.parametrize("said", REFUSALS)
def test_what_slurm_never_takes_fails_and_the_rest_is_tried_again(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*_: str, **__: str) -> str:
        raise TransientError(said)

    monkeypatch.setattr(commands, "call", call)
    with pytest.raises(REFUSALS[said]):
        commands.submit([], "")


def test_what_sbatch_is_told() -> None:
    spec = AttemptSpec(job_id=1, attempt=2, run_id="a", time_limit_s=3600.0, cpus=4, ram_mib=2048, stop_grace_s=10.0)
    nodes = [SlurmNode("n0", "IDLE", ("gpu",), (("nvidia_a100_80gb", 2),), frozenset(), 8, 1)]
    order = Order(Ref(1, 2, "a"), spec, asks=Request(gpus=2, gpu_type="A100"), options={"qos": "long"})
    options = options_of(order, "ns-x-1.2.a", "/run", {"partition": "gpu", "qos": "short", "account": None}, nodes)
    assert "--gres=gpu:nvidia_a100_80gb:2" in options
    assert {"--time=66", "--cpus-per-task=4", "--mem=2048M", "--no-requeue", "--job-name=ns-x-1.2.a"} <= set(options)
    assert options[-4:] == ["-p", "gpu", "-q", "long"]


def test_an_attempt_that_is_revoked_can_never_start_and_a_started_one_cannot_be_revoked(tmp_path: Path) -> None:
    started, never = str(tmp_path / "1"), str(tmp_path / "2")
    (tmp_path / "1").mkdir()
    rundir.write_started(started, STARTED)
    assert not shared_folder.revoke(started, "a")
    assert shared_folder.revoke(started, "b")  # of another run: nothing of this one can start there
    assert shared_folder.revoke(never, "a")
    assert shared_folder.revoke(never, "a")
    with pytest.raises(FileExistsError):
        rundir.write_started(never, STARTED)


def test_a_shared_folder_serves_one_queue_and_hides_no_files(tmp_path: Path) -> None:
    home, other, shared = (tmp_path / name for name in ("home", "other", "shared"))
    (home / "runs").mkdir(parents=True)
    shared_folder.link(str(home), str(shared), "lineage")
    shared_folder.link(str(home), str(shared), "lineage")
    assert (home / "runs").resolve() == shared / "runs"
    other.mkdir()
    with pytest.raises(OperatorError, match="belongs to another queue"):
        shared_folder.link(str(other), str(shared), "another")
    (other / "runs" / "1").mkdir(parents=True)
    with pytest.raises(OperatorError, match="NIGHTSHIFT_HOME"):
        shared_folder.link(str(other), str(tmp_path / "shared2"), "another")


def test_where_the_engine_finds_the_gpus_each_job_takes_a_place_in_its_queue() -> None:
    queued = [Waiting(number, Request(gpus=number), number) for number in (1, 2, 3)]
    plan = choose(queued, (), [CpuSlot(0), CpuSlot(1)], slots_only=True)
    assert [start.job_id for start in plan.starts] == [1, 2]
    assert plan.waiting == {3: "waits for a place in the queue of the cluster"}
