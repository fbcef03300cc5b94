from datetime import datetime, timedelta, timezone

import pytest

from runner.lifecycle import REASONS
from runner.model import Job, JobSpec, Memory, Phase, Reason, State
from runner.text import words
from runner.text.table import Row, cells, print_table, shortened

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=timezone.utc)


def a_job(state=State.QUEUED, command="echo hi", **fields):
    values = {key: fields.pop(key) for key in ("name", "script", "gpus_wanted") if key in fields}
    spec = JobSpec(
        command=command,
        owner="somebody",
        dir="/",
        environment="k",
        name=values.get("name"),
        script=values.get("script", False),
        gpus=values.get("gpus_wanted", 1),
    )
    return Job(id=7, spec=spec, state=state, run_id="00000000", submitted_at=NOW, **fields)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (a_job(), "queued"),
        (a_job(State.STARTING), "starting"),
        (a_job(State.RUNNING, phase=Phase.RUNNING), "running"),
        (a_job(State.RUNNING, phase=Phase.STOPPING), "stopping"),
        (a_job(State.RUNNING, phase=Phase.PROBING), "probing"),
        (a_job(State.SUCCEEDED, reason=Reason.EXIT, exit_code=0), "succeeded"),
        (a_job(State.FAILED, reason=Reason.EXIT, exit_code=3), "failed, exit 3"),
        (a_job(State.FAILED, reason=Reason.SIGNAL, signal=11), "failed, SIGSEGV"),
        (a_job(State.FAILED, reason=Reason.SIGNAL, signal=99), "failed, signal 99"),
        (a_job(State.FAILED, reason=Reason.OOM, exit_code=1), "failed, out of memory"),
        (a_job(State.FAILED, reason=Reason.OOM, memory=Memory.GPU), "failed, the GPU ran out of memory"),
        (a_job(State.FAILED, reason=Reason.OOM, memory=Memory.HOST), "failed, the machine ran out of memory"),
        (a_job(State.CANCELLED, reason=Reason.TIMEOUT), "stopped, time limit"),
    ],
)
def test_where_a_job_is(job, said):
    assert words.state_words(job) == said


def test_every_final_outcome_has_words():
    for state, reasons in REASONS.items():
        for reason in reasons:
            said = words.outcome_words(state, reason, 1, 9)
            assert "," in said or said in ("succeeded", "cancelled")


def test_times_are_as_short_as_they_stay_clear(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert words.short_time(NOW - timedelta(hours=1), NOW) == "11:00"
    assert words.short_time(NOW - timedelta(days=2), NOW) == "Sat 12:00"
    assert words.short_time(NOW - timedelta(days=20), NOW) == "2026-10-27"
    assert words.short_time(NOW + timedelta(days=2), NOW) == "2026-11-18"


def test_what_a_job_holds_or_wants():
    indices = {"GPU-a": 0, "GPU-b": 3}
    assert words.gpu_words(a_job(State.RUNNING, gpus=("GPU-a", "GPU-b")), indices) == "0,3"
    assert words.gpu_words(a_job(State.RUNNING, gpus=("GPU-unknown-one",)), indices) == "GPU-unknown-"
    assert words.gpu_words(a_job(gpus_wanted=2), indices) == "(2)"
    assert words.gpu_words(a_job(gpus_wanted=0), indices) == "cpu"
    assert words.gpu_words(a_job(State.CANCELLED), indices) == "–"


def test_a_script_is_not_squeezed_into_a_line():
    job = a_job(command="#!/usr/bin/python3\nprint(1)\n", script=True)
    assert words.as_one_line(job) == "# job 7 is a script; again: nightshift rerun 7"


def test_an_event_of_a_kind_not_known_here_is_still_told():
    event = {"kind": "warned", "data": {"idle": "30 s"}}
    assert words.event_words(event, {}) == "warned: idle '30 s'"


def test_texts_are_cut_by_the_room_they_take():
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdef", 4) == "abc…"
    assert (cells("日本"), cells("e\u0301")) == (4, 1)
    assert shortened("日本語", 5) == "日本…"
    assert cells(shortened("日本語", 4)) <= 4


def test_a_table_gives_way_where_it_may(monkeypatch, capsys):
    monkeypatch.setattr("runner.text.table.terminal_width", lambda: 30)
    print_table(
        ["ID", "STATE", "JOB"], [Row(["1", "running", "x" * 100]), Row(["12", "ok", "y"])], cut=(2,), right=(0,)
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == " 1  running  " + "x" * 16 + "…"
    assert lines[2] == "12  ok       y"
    assert all(len(line) <= 30 for line in lines)
