import pytest

from bot.inbound.parse import belong_together, command_of, job_numbers, lines, straighten, suggestion
from bot.text.quiet_hours import quiet_hours
from runner.errors import UserError


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("python train.py —lr 3e-4", "python train.py --lr 3e-4"),
        ("python train.py –lr 3e-4", "python train.py --lr 3e-4"),
        ("—name “my run”", '--name "my run"'),
        ("echo ‘a’ „b“ «c» don’t", 'echo \'a\' "b" "c" don\'t'),
        ("seeds 1–5", "seeds 1-5"),
        ("a–b", "a-b"),
        ("a—b", "a--b"),
        ("submit — python x.py", "submit -- python x.py"),
        ("submit – python x.py", "submit -- python x.py"),
        ("——lr —-bs -–wd", "--lr --bs --wd"),
        ("-v --x ---", "-v --x ---"),
        ("“—lr”", '"--lr"'),
        ("a=–1", "a=--1"),
        ("wait…", "wait..."),
        ("a\u00a0b\u202fc\u3000d", "a b c d"),
        ("py\u200bthon\ufeff \u2060x\u00ad", "python x"),
        ("a\u2028b", "a\nb"),
        ("rm\u202e -rf", "rm -rf"),
        ("−1 non‑breaking", "-1 non-breaking"),
        ("👨\u200d👩 a\u200db", "👨\u200d👩 ab"),
        ("", ""),
    ],
)
def test_straighten(typed: str, meant: str) -> None:
    assert straighten(typed) == meant
    assert straighten(meant) == meant


def test_code_is_left_as_typed() -> None:
    text = "/submit 🚀 —x “a” “b” —y"
    inside = text.index("“a”")
    before = len(text[:inside].encode("utf-16-le")) // 2
    assert straighten(text, [("code", before, 3)]) == '/submit 🚀 --x “a” "b" --y'
    assert straighten(text, [("pre", 0, 1000)]) == text
    assert straighten(text, [("bold", 0, 1000)]) == straighten(text)
    assert straighten(text, [("code", before, 3), ("pre", before + 1, 4)]) == '/submit 🚀 --x “a” “b" --y'


@pytest.mark.parametrize("entity", [("code", -5, 3), ("code", 3, -1), ("pre", 10**9, 10**9), ("code", 0, 0)])
def test_odd_entities_do_no_harm(entity: tuple[str, int, int]) -> None:
    assert straighten("“a” 🚀", [entity]) == '"a" 🚀'


def test_a_dash_right_after_code_knows_what_stands_before_it() -> None:
    assert straighten("ab–c", [("code", 0, 2)]) == "ab-c"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/submit python x.py", ("submit", "python x.py")),
        ("/submit@mybot python x.py", ("submit", "python x.py")),
        ("/SUBMIT@MyBot python X.py", ("submit", "python X.py")),
        ("/submit\npython a.py\n\npython b.py\n", ("submit", "python a.py\n\npython b.py\n")),
        ("/ls", ("ls", "")),
        ("/ls ", ("ls", "")),
        ("/ls@mybot", ("ls", "")),
        ("/submit@otherbot x", None),
        ("/submit@ x", None),
        ("/usr/bin/python x", None),
        ("/", None),
        ("/ls!", None),
        ("submit x", None),
        ("", None),
        ("x /ls", None),
    ],
)
def test_command_of(text: str, found: tuple[str, str] | None) -> None:
    assert command_of(text, "mybot") == found


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("12", [12]),
        ("#12", [12]),
        (" 12 13,14\n#15 ", [12, 13, 14, 15]),
        ("12-15", [12, 13, 14, 15]),
        ("12 – 14", [12, 13, 14]),
        ("#12—#13", [12, 13]),
        ("3..5", [3, 4, 5]),
        ("5 3 5 3-4", [5, 3, 4]),
        ("007", [7]),
        ("1-100", list(range(1, 101))),
    ],
)
def test_job_numbers(text: str, numbers: list[int]) -> None:
    assert job_numbers(text) == numbers


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ,",
        "abc",
        "12 x",
        "0",
        "-5",
        "12-",
        "15-12",
        "1-101",
        "1-100 200",
        "1e9",
        "٣",
        "9" * 30,
        "\x00",
        "\ud800",
        "1-2-3",
    ],
)
def test_what_are_no_job_numbers_is_told_kindly(text: str) -> None:
    with pytest.raises(UserError) as error:
        job_numbers(text)
    assert len(str(error.value)) < 200
    assert str(error.value).encode()


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a\nb", ["a", "b"]),
        ("a\r\n\r\n  b  \r\n", ["a", "b"]),
        ("# why\na # not this\n  # nor that", ["a # not this"]),
        ("python x.py \\\n  --lr 1 \\\n  --bs 2\nb", ["python x.py   --lr 1   --bs 2", "b"]),
        ("a \\\r\n b", ["a  b"]),
        ("a \\", ["a"]),
        ("a \\ \n b", ["a  b"]),
        ("echo \\\\\nb", ["echo \\\\", "b"]),
        ("a \\\n# part of a", ["a # part of a"]),
        ("", []),
        ("\n#\n", []),
        ("a\x0bb\x1cc", ["a\x0bb\x1cc"]),
    ],
)
def test_lines(text: str, commands: list[str]) -> None:
    assert lines(text) == commands


KNOWN = ["submit", "ls", "show", "log", "kill", "rerun", "gpus", "pause", "prune"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("sumbit", "submit"),
        ("SUB", "submit"),
        ("kil", "kill"),
        ("logs", "log"),
        ("re", "rerun"),
        ("xyz", None),
        ("", None),
    ],
)
def test_suggestion(word: str, meant: str | None) -> None:
    assert suggestion(word, KNOWN) == meant


def test_a_huge_word_has_no_suggestion() -> None:
    assert suggestion("x" * 1_000_000, KNOWN) is None


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("23-7", (23 * 60, 7 * 60)),
        ("23:30-07:00", (23 * 60 + 30, 7 * 60)),
        ("23.30 – 7", (23 * 60 + 30, 7 * 60)),
        ("22 to 6:15", (22 * 60, 6 * 60 + 15)),
        ("22--6", (22 * 60, 6 * 60)),
        ("11pm-7am", (23 * 60, 7 * 60)),
        ("12am - 12 PM", (0, 12 * 60)),
        ("22-24", (22 * 60, 0)),
        ("0-6", (0, 360)),
        (" OFF ", None),
        ("never", None),
    ],
)
def test_quiet_hours(text: str, hours: tuple[int, int] | None) -> None:
    assert quiet_hours(text) == hours


@pytest.mark.parametrize(
    "text", ["", "23", "25-7", "24:30-7", "23:60-7", "7-7", "0-24", "13pm-7am", "-5-7", "a-b", "\x00", "٣-٤"]
)
def test_what_are_no_hours(text: str) -> None:
    with pytest.raises(UserError, match="23-7"):
        quiet_hours(text)


@pytest.mark.parametrize(
    "script",
    [
        "cat > a.py <<EOF\nprint(1)\nEOF\npython a.py", "for i in 1 2; do\n  python t\ndone", "if true\nthen\nls\nfi",
        "cd a\npython x.py", "LR=1\npython x $LR", "export A=1\npython x.py", "python a.py |\ntee log", "f() {\nls\n}",
        "python a.py &&\npython b.py", "def f():\n    pass", "set -e\nmake",
    ],
)  # fmt: skip
def test_lines_that_belong_together(script):
    assert belong_together(script)


@pytest.mark.parametrize(
    "commands",
    [
        "python a.py\npython b.py", "python a.py \\\n  --lr 3\npython b.py", "cd a && python x.py\ncd b && python x.py",
        "LR=1 python a.py\nLR=2 python a.py", "for i in 1; do a; done\nfor i in 2; do a; done", "cat <<< a\ncat <<< b",
        "  python a.py\n  python b.py", "python -c '1<<2'\nls", "set_lr 3\nfi3",
    ],
)  # fmt: skip
def test_lines_that_are_commands_of_their_own(commands):
    assert not belong_together(commands)


def test_a_range_leaves_out_what_is_not_there():
    assert job_numbers("1-5 9", exists={2, 4}.__contains__) == [2, 4, 9]
    with pytest.raises(UserError, match="There are no jobs 6-8"):
        job_numbers("6-8", exists={2, 4}.__contains__)
