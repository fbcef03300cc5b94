import shlex
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.config.env_file import is_variable_name
from runner.config.option_reader import read_text, read_words
from runner.errors import UserError

FLAGS = {
    "gpus": ("-g", "--gpus"),
    "on": ("--on",),
    "time_limit_s": ("-t", "--time"),
    "priority": ("-p", "--priority"),
    "name": ("--name",),
    "workspace": ("-w", "--workspace"),
    "dir": ("--dir",),
    "retries": ("--retries",),
    "stop_grace_s": ("--grace",),
}
SWITCHES = {"preemptible": "--preemptible", "trial": "--try"}
NO_NUL = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
NAMES = st.text("aZ09._-éß", min_size=1, max_size=64)
VARIABLES = st.text("aZ_09", min_size=1, max_size=8).filter(is_variable_name)
MILLISECONDS = st.integers(1, 10**10).map(lambda ms: ms / 1000)


@st.composite
def valid_values(draw: st.DrawFn) -> dict[str, Any]:
    optional = {
        "time_limit_s": MILLISECONDS,
        "stop_grace_s": MILLISECONDS,
        "priority": st.sampled_from(["low", "normal", "high"]),
        "name": NAMES,
        "workspace": NAMES,
        "dir": NO_NUL.filter(bool),
        "retries": st.integers(0, 99),
        "env": st.dictionaries(VARIABLES, NO_NUL, min_size=1, max_size=3),
        "gpus": st.integers(0, 16),
        **dict.fromkeys(SWITCHES, st.just(True)),
    }
    values = draw(st.fixed_dictionaries({}, optional=optional))
    if draw(st.booleans()):
        on = draw(st.lists(st.integers(0, 99).map(str), min_size=1, max_size=4, unique=True))
        values |= {"on": tuple(on), "gpus": draw(st.integers(1, len(on)))}
    return values


def typed(key: str, value: Any) -> str:
    if key == "on":
        return ",".join(value)
    return f"{value:.3f}s" if key.endswith("_s") else str(value)


Typed = list[tuple[str, str, str]]  # flag, what joins the two, value


@st.composite
def ways_to_type(draw: st.DrawFn, values: dict[str, Any]) -> Typed:
    pairs = [("--env", f"{name}={value}") for name, value in values.get("env", {}).items()]
    pairs += [(flag, "") for key, flag in SWITCHES.items() if key in values]
    others = sorted(values.keys() - {"env", *SWITCHES})
    pairs += [(draw(st.sampled_from(FLAGS[key])), typed(key, values[key])) for key in others]
    chosen: Typed = []
    for flag, text in draw(st.permutations(sorted(pairs))):
        if flag in SWITCHES.values():
            chosen.append((flag, "", ""))
            continue
        joints = ["="] if flag.startswith("--") else ["", "="]
        chosen.append((flag, draw(st.sampled_from(joints + ([] if text.startswith("-") else [" "]))), text))
    return chosen


def as_words(options: Typed) -> list[str]:
    parts = [[flag, text] if joint == " " else [flag + joint + text] for flag, joint, text in options]
    return [word for part in parts for word in part]


def as_text(options: Typed) -> str:
    return "".join(f"{flag}{joint}{shlex.quote(text) if joint or text else ''} " for flag, joint, text in options)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), values=valid_values())
def test_what_is_typed_for_values_is_read_as_these_values(data: st.DataObject, values: dict[str, Any]) -> None:
    options = data.draw(ways_to_type(values))
    command = ["run", "--gpus", "x"]
    assert read_words([*as_words(options), *command]) == (values, command, False)
    assert read_words([*as_words(options), "--", *command]) == (values, command, True)
    raw = """run "$x" 'and  so on' \\"""
    assert read_text(as_text(options) + raw) == (values, raw)
    assert read_text(f"{as_text(options)}--\t{raw}") == (values, raw)


@settings(deadline=None, max_examples=200)
@given(words=st.lists(st.text("-—gtpon=,0 1'\"\\\nx", max_size=10), max_size=6))
def test_any_words_are_read_or_refused_as_the_users_slip(words: list[str]) -> None:
    with suppress(UserError):
        _, rest, _ = read_words(words)
        assert rest == words[len(words) - len(rest) :]
    with suppress(UserError):
        _, raw = read_text(" ".join(words))
        assert " ".join(words).endswith(raw)
        assert raw == raw.lstrip()
