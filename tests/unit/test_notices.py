"""Every kind of notice has a payload and a form, and what older and newer versions wrote can be told."""

from __future__ import annotations

import json

import pytest

from bot.handlers.people import NOISE
from bot.text.box_notices import NoticeContext
from bot.text.job_notices import in_few_words
from bot.text.notice_forms import FORMS, LEAST_NEWS, News, To, form_of
from runner import clock
from runner.notices import PAYLOADS, Ended, Notice, NoticeKind, Payload, Unknown, payload_of

NEEDED = {
    "ended": {"state": "FAILED", "reason": "EXIT"},
    "requeued": {"state": "LOST", "reason": "HOST"},
    "trial failed": {"state": "FAILED", "reason": "EXIT"},
    "group done": {"group": "night"},
    "goes on": {"trial": 9},
    "disk low": {"free_mib": 12},
    "disk back": {"free_mib": 12},
}
FULL = {
    "ended": {**NEEDED["ended"], "attempt": 2, "gpus": ["GPU-1"], "usage": {"mean_utilization": 3.0}, "exit_code": 1},
    "idle warning": {"why": "idle", "gpus": ["0"], "samples": [[-1.0, None], [0.0, 3.0]], "stops_at": "2026-01-01"},
    "paused": {"why": "x", "jobs": [1, 1, 2], "again": True, "tries": 1, "try_at": None},
    "queue restored": {"from": "/mnt/copy.db"},
    "group done": {"group": "night", "counts": {"FAILED": 1}, "in_all": {"FAILED": 1}, "after": 3, "last": 4},
}
STORED = {
    "started", "ended", "requeued", "paused", "goes on", "queue empty", "when empty ran", "drained", "gpu lost",
    "gpu back", "gpu held", "idle warning", "looks hung", "time warning", "disk low", "disk back", "backup failing",
    "backup back", "new queue", "queue restored", "group done", "no runner", "runner back",
}  # fmt: skip
AT_LAB = NoticeContext(box="lab1", indices={}, name_of=str)


def test_every_stored_kind_is_still_known():
    assert set(PAYLOADS) >= STORED


def through_the_store(payload):
    return payload_of(str(payload.kind.value), json.loads(json.dumps(payload.to_json())))


@pytest.mark.parametrize("kind", NoticeKind)
def test_every_kind_has_a_payload_and_a_form(kind):
    assert PAYLOADS[kind.value].kind is kind
    assert FORMS[kind].text


@pytest.mark.parametrize("kind", NoticeKind)
def test_a_payload_comes_back_from_the_store_as_it_was(kind):
    """Also one that an older version wrote, with fewer fields."""
    for data in (NEEDED.get(kind.value, {}), FULL.get(kind.value, NEEDED.get(kind.value, {}))):
        payload = payload_of(kind.value, data)
        assert isinstance(payload, Payload)
        assert through_the_store(payload) == payload
        assert {name: payload.to_json()[name] for name in data} == data


@pytest.mark.parametrize("kind", [kind for kind in NoticeKind if FORMS[kind].to is To.ADMINS])
def test_a_notice_about_the_box_has_text_even_without_its_optional_fields(kind):
    payload = payload_of(kind.value, NEEDED.get(kind.value, {}))
    form = form_of(payload)
    assert "lab1" in form.text(payload, AT_LAB)
    assert form.buttons(payload, AT_LAB) is not None
    assert form.news(payload) in News


def test_fields_of_a_newer_version_are_ignored():
    assert payload_of("drained", {"by": "root", "moon": "full"}) == payload_of("drained", {"by": "root"})


@pytest.mark.parametrize(("kind", "data"), [("fog", {"height": 3}), ("ended", {}), ("ended", {"state": "UPSIDE DOWN"})])
def test_what_this_version_cannot_read_is_told_in_a_few_words(kind, data):
    payload = payload_of(kind, data)
    assert payload == Unknown(kind=kind, data=data)
    assert form_of(payload) is None
    notice = Notice(id=1, job_id=7, payload=payload, created_at=clock.now())
    assert in_few_words(notice, "lab1") == f"<b>lab1</b> <b>#7</b>: {kind}"


def test_the_choices_of_notify_leave_out_more_and_more():
    assert set(LEAST_NEWS) == set(NOISE) - {"none"}
    assert list(LEAST_NEWS.values()) == sorted(LEAST_NEWS.values())
    assert set(LEAST_NEWS.values()) == set(News)
    good = Ended.from_json({"state": "SUCCEEDED", "reason": "EXIT"})
    bad = Ended.from_json({"state": "FAILED", "reason": "EXIT"})
    assert (form_of(good).news(good), form_of(bad).news(bad)) == (News.GOOD, News.TROUBLE)


def test_what_is_silent_is_never_trouble():
    for kind, form in FORMS.items():
        payload = payload_of(kind.value, NEEDED.get(kind.value, {}))
        assert not form.silent(payload) or form.news(payload) < News.TROUBLE
