"""Times in the reader's own zone: shown by Telegram, typed in the zone that a person has set."""

import json
from datetime import datetime, timezone

import pytest

from bot.outbound.notifier import is_quiet
from bot.text.zones import box_zone, zone_name, zone_of
from runner import clock
from runner.config.times import parse_moment
from runner.errors import UserError
from tests import attempts
from tests.room import in_room


def text(messages):
    return "\n".join(message.text.text for message in messages)


def begins(room, number):
    return clock.moment(room.chat.queue.job(number).spec.begin_at)


@in_room()
async def test_a_time_is_read_in_the_zone_that_was_set(room):
    said = text(await room.ask(room.uma, "/notify zone asia/tokyo"))
    assert "Times that you type count in Asia/Tokyo" in said
    said = text(await room.ask(room.uma, "/submit -g 0 --begin 2036-01-05T09:30 true"))
    assert begins(room, 1) == datetime(2036, 1, 5, 0, 30, tzinfo=timezone.utc)
    assert "begins at 09:30 on 05 Jan 2036\n" in said + "\n"
    await room.ask(room.uma, "/submit -g 0 --begin 23:00 true")
    assert (begins(room, 2).hour, begins(room, 2).minute) == (14, 0)
    assert "begin 2036-01-05T09:30" in text(await room.ask(room.uma, "/edit 1")).replace("--begin", "begin")


@in_room()
async def test_without_one_the_zone_of_the_box_counts_and_is_named(room):
    said = text(await room.ask(room.una, "/submit -g 0 --begin 2036-01-05T09:30 true"))
    assert f"begins at 09:30 on 05 Jan 2036 ({box_zone()})" in said
    assert begins(room, 1) == datetime(2036, 1, 5, 9, 30).astimezone()
    assert f"by the box's clock ({box_zone()})" in text(await room.ask(room.una, "/notify"))


@in_room()
async def test_a_zone_that_nobody_knows_is_refused_with_the_likely_one(room):
    assert "/notify zone Europe/Berlin" in text(await room.ask(room.uma, "/notify zone Europe/Berln"))
    assert room.chat.people.get(room.uma.id).zone is None
    await room.ask(room.uma, "/notify ends quiet 23-7 zone berlin")
    person = room.chat.people.get(room.uma.id)
    assert (person.noise, person.quiet, person.zone) == ("ends", (23 * 60, 7 * 60), "Europe/Berlin")
    await room.ask(room.uma, "/notify zone off")
    assert room.chat.people.get(room.uma.id).zone is None
    audit = [row["data"] for row in room.chat.queue.audit.rows() if row["action"] == "notify"]
    assert {"zone": "Europe/Berlin"} in audit


def test_quiet_hours_are_in_the_persons_zone():
    now = datetime(2026, 7, 1, 22, 0, tzinfo=timezone.utc)  # 07:00 in Tokyo, midnight in Berlin
    night = (23 * 60, 6 * 60)
    from zoneinfo import ZoneInfo

    assert is_quiet(night, now, ZoneInfo("Europe/Berlin"))
    assert not is_quiet(night, now, ZoneInfo("Asia/Tokyo"))


def test_summer_time_is_that_of_the_zone():
    from zoneinfo import ZoneInfo

    berlin = datetime(2026, 10, 24, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))  # the clocks change in the night
    assert parse_moment("2026-10-24T18:00", berlin) == datetime(2026, 10, 24, 16, 0, tzinfo=timezone.utc)
    assert parse_moment("2026-10-26T18:00", berlin) == datetime(2026, 10, 26, 17, 0, tzinfo=timezone.utc)
    assert parse_moment("11:00", berlin) == datetime(2026, 10, 25, 10, 0, tzinfo=timezone.utc)


def test_names_of_zones():
    assert zone_name("europe/berlin") == "Europe/Berlin"
    assert zone_name("New York") == "America/New_York"
    assert zone_name("UTC") == "UTC"
    assert zone_name("off") is None
    for wrong in ("", "../../etc/passwd", "x" * 1000, "Europe/"):
        with pytest.raises(UserError):
            zone_name(wrong)


@in_room()
async def test_telegram_is_told_when_and_shows_it_in_the_readers_zone(room):
    await room.ask(room.uma, "/submit -g 0 true")
    attempts.begin(room.chat.queue, 1)
    attempts.end(room.chat.queue, 1)
    await room.settle()
    (said,) = await room.ask(room.uma, "/status 1")
    job = room.chat.queue.job(1)
    times = [dict(entity.extra) for entity in said.text.entities if entity.type == "date_time"]
    at = [job.submitted_at, job.started_at, job.finished_at]
    assert [time["unix_time"] for time in times] == [round(each.timestamp()) for each in at]
    assert times[0]["date_time_format"] == "t"
    status = (await room.ask(room.uma, "/status"))[-1]
    assert "date_time" in {entity.type for entity in status.text.entities}


@in_room()
async def test_a_zone_that_the_box_lost_counts_as_none(room):
    room.chat.people.set_zone(room.uma.id, "Moon/Base")
    assert zone_of(room.chat.people.get(room.uma.id)) is None
    assert json.dumps(text(await room.ask(room.uma, "/status")))
