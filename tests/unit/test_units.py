import pytest

from runner.errors import UserError
from runner.units import format_duration, format_mib, parse_duration, parse_size_mib


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2),
        ("10m", 600),
        ("6h", 21600),
        ("3d", 259200),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1d2h3m4s5ms", 93784.005),
        ("500ms", 0.5),
        ("1.5h", 5400),
        ("6H", 21600),
        (" 0s ", 0),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nan",
        "inf",
        "nans",
        "-1s",
        "+1s",
        "1e3s",
        "1h30",
        "30m1h",
        "1h1h",
        "h",
        "s5",
        "10 min",
        "10ſ",
        "٣s",
        "1..5s",
        "99999999999999999999s",
        "99999d",
    ],
)
def test_other_durations_are_refused_with_the_forms_that_are_read(text: str) -> None:
    with pytest.raises(UserError, match=r"6h.*1h30m"):
        parse_duration(text)


def test_a_duration_without_a_unit_is_asked_for_one() -> None:
    with pytest.raises(UserError, match=r"no unit: 30s, 30m or 30h\?"):
        parse_duration("30")


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("20G", 20480),
        ("20GiB", 20480),
        ("20GB", 20480),
        ("20gb", 20480),
        ("20", 20480),
        ("500M", 500),
        ("1T", 1048576),
        ("1.5G", 1536),
        ("1.5", 1536),
        ("20 G", 20480),
        ("0", 0),
        ("0.0001G", 1),
    ],
)
def test_sizes_are_read(text: str, mib: int) -> None:
    assert parse_size_mib(text) == mib


@pytest.mark.parametrize("text", ["", "G", "nan", "-1G", "1e3G", "20K", "20Gi", "20 apples", "9999T", "1" * 40])
def test_other_sizes_are_refused_with_the_forms_that_are_read(text: str) -> None:
    with pytest.raises(UserError, match=r"20G.*GiB"):
        parse_size_mib(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-3, "0 s"),
        (0.3, "0.3 s"),
        (2, "2 s"),
        (9.96, "10 s"),
        (14.2, "14 s"),
        (59.7, "1m 00s"),
        (125, "2m 05s"),
        (3599, "59m 59s"),
        (3600, "1h 00m"),
        (7500, "2h 05m"),
        (86399.9, "1d 0h"),
        (3 * 86400 + 4 * 3600, "3d 4h"),
    ],
)
def test_durations_are_shown(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("mib", "text"),
    [(0, "0 MiB"), (300, "300 MiB"), (1023.7, "1.0 GiB"), (1024, "1.0 GiB"), (24268, "23.7 GiB")],
)
def test_sizes_are_shown(mib: float, text: str) -> None:
    assert format_mib(mib) == text
