import dataclasses
import subprocess
import sys

import pytest

from runner.config.option_reader import read_text, read_words
from runner.config.options import OPTIONS, Option, help_rows
from runner.errors import UserError
from runner.model import JobSpec, Priority

UUID = "GPU-5e1f0c3a-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["-g", "2"], {"gpus": 2}),
        (["-g2"], {"gpus": 2}),
        (["-g=2"], {"gpus": 2}),
        (["--gpus=2"], {"gpus": 2}),
        (["--gpus", "0"], {"gpus": 0}),
        (["--on", "0,1"], {"on": ("0", "1")}),
        (["--on", f"{UUID}, 07"], {"on": (UUID, "7")}),
        (["--on", "0,1,2", "-g1"], {"on": ("0", "1", "2"), "gpus": 1}),
        (["-t", "6h"], {"time_limit_s": 21600.0}),
        (["-p", "HIGH"], {"priority": "high"}),
        (["--name", "größe.v2_a-b"], {"name": "größe.v2_a-b"}),
        (["--name=--time"], {"name": "--time"}),
        (["-w", "vision"], {"workspace": "vision"}),
        (["--dir", "~/a b"], {"dir": "~/a b"}),
        (["--env", "A=1", "--env=B=x=y", "--env", "A="], {"env": {"A": "", "B": "x=y"}}),
        (["--retries", "3"], {"retries": 3}),
        (["--grace", "0s"], {"stop_grace_s": 0.0}),
        (["-g", "1", "-g", "4"], {"gpus": 4}),
    ],
)
def test_options_are_read(words: list[str], values: dict[str, object]) -> None:
    assert read_words([*words, "python", "-g", "9"]) == (values, ["python", "-g", "9"], False)


def test_two_dashes_end_the_options() -> None:
    assert read_words(["-g", "1", "--", "--gpus", "2"]) == ({"gpus": 1}, ["--gpus", "2"], True)
    assert read_words(["--", "--", "x"]) == ({}, ["--", "x"], True)


def test_a_single_dash_is_a_word() -> None:
    assert read_words(["-g1", "-"]) == ({"gpus": 1}, ["-"], False)
    assert read_text("- x") == ({}, "- x")


def test_nothing_is_nothing() -> None:
    assert read_words([]) == ({}, [], False)
    assert read_text(" \n ") == ({}, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "2", "x"], r"no option --gpu; did you mean --gpus\?.*put -- before"),
        (["-name", "x"], r"no option -name; did you mean --name\?"),
        (["--xyzzy=1"], r"no option --xyzzy\. .*put -- before"),
        (["-g"], "-g needs a value, like -g N"),
        (["--name", "--", "x"], "--name needs a value"),
        (["--name", "-t", "6h"], "--name needs a value"),
        (["--name", "--time=6h"], "--name needs a value"),
        (["-g", "two"], "-g: 'two' is not a count"),
        (["-g", "-1"], "-g: '-1' is not a count"),
        (["-g", "٣"], "is not a count"),
        (["-g", "0", "--on", "0"], "--gpus 0 .*--on"),
        (["--on", "0,1", "--gpus", "3"], r"more GPUs than --on names \(0,1\)"),
        (["--on", "0,00"], "twice"),
        (["--on", f"{UUID},{UUID}"], "twice"),
        (["--on", ""], "not a GPU"),
        (["--on", "0,"], "not a GPU"),
        (["--on", "cuda:0"], "'cuda:0' is not a GPU"),
        (["-t", "6"], "-t: '6' has no unit"),
        (["-t", "0s"], "time limit of 0"),
        (["--begin", "9999-12-31T23:59"], "more than ten years away: write 23:00"),
        (["--begin", "9999-12-31T23:59-12:00"], "more than ten years away"),
        (["--begin", "0001-01-01T00:00"], "0001-01-01T00:00 is in the past"),
        (["--begin", "0001-01-01T00:00+14:00"], "is in the past"),
        (["-p", "urgent"], "low, normal or high"),
        (["--name", "a b"], "'a b' is not a name"),
        (["--name", "a\n"], "is not a name"),
        (["--name", "x" * 65], "is not a name"),
        (["-w", "a/b"], "is not a name"),
        (["--dir", ""], "folder"),
        (["--dir=a\0b"], "folder"),
    ],
)
def test_slips_are_refused_with_what_to_type(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_words(words)


@pytest.mark.parametrize("text", ["hunter2", "=hunter2", "MY-KEY=hunter2", "K=hunter2\0"])
def test_a_bad_variable_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(UserError, match="KEY=VALUE") as refused:
        read_words(["--env", text])
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "values", "rest"),
    [
        ("-g 2 python a.py", {"gpus": 2}, "python a.py"),
        ("  -g2\n--name x   a  &&\n  b 'c", {"gpus": 2, "name": "x"}, "a  &&\n  b 'c"),
        ("""--dir "/a b" --env K='v "w"' cmd""", {"dir": "/a b", "env": {"K": 'v "w"'}}, "cmd"),
        ("-g 1 --   -x --gpus 3", {"gpus": 1}, "-x --gpus 3"),
        ("python -g 2", {}, "python -g 2"),
        ("'unclosed", {}, "'unclosed"),
        ("# a comment\n-g 2", {}, "# a comment\n-g 2"),
        ("—gpus 2 –name x — ls", {"gpus": 2, "name": "x"}, "ls"),
        ("--dir —x — ls", {"dir": "—x"}, "ls"),
        ("-g 0", {"gpus": 0}, ""),
        ("--env A=x\\ y cmd \\ z", {"env": {"A": "x y"}}, "cmd \\ z"),
    ],
)
def test_a_message_is_options_and_then_raw_shell_text(text: str, values: dict[str, object], rest: str) -> None:
    assert read_text(text) == (values, rest)


@pytest.mark.parametrize("text", ["--name 'x cmd", '--dir="x cmd', "--name x\\"])
def test_a_quote_left_open_among_the_options_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="open quote"):
        read_text(text)


def test_a_caller_may_add_options_and_switches_of_its_own() -> None:
    extra = (
        Option(("--json",), "", "json", "as JSON", str),
        Option(("--after",), "N", "after", "later", lambda text: (int(text),), repeatable=True),
    )
    words = ["--json", "--after", "1", "-g1", "--after=2", "x"]
    assert read_words(words, extra) == ({"json": True, "after": (1, 2), "gpus": 1}, ["x"], False)
    assert read_text("--json x", extra) == ({"json": True}, "x")
    with pytest.raises(UserError, match="--json takes no value"):
        read_words(["--json=1"], extra)


def test_every_option_fills_a_field_of_the_job() -> None:
    fields = {field.name for field in dataclasses.fields(JobSpec)}
    assert {option.key for option in OPTIONS} <= fields
    assert read_words(["-p", "low"])[0]["priority"] == Priority.LOW


def test_no_flag_means_two_things() -> None:
    flags = [flag for option in OPTIONS for flag in option.flags]
    assert len(flags) == len(set(flags))


def test_help_has_a_row_for_every_option() -> None:
    rows = help_rows()
    assert rows[0][0] == "-g, --gpus N"
    assert len(rows) == len(OPTIONS)
    assert all(text and "\n" not in text for row in rows for text in row)


def test_a_client_that_reads_options_loads_nothing_heavy() -> None:
    modules = [
        "config.option_reader",
        "units",
        "commands.background_check",
        "config.job_environment",
        "config.env_file",
    ]
    code = f"import sys; {'; '.join(f'import runner.{m}' for m in modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "click", "sqlite_utils", "pathlib", "logging", "subprocess", "inspect", "difflib"}
    assert "runner.commands.background_check" in done.stdout.split()
    assert not heavy & set(done.stdout.split())
