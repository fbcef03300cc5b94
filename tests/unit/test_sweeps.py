"""Sweeps: what is put where, which combinations, and what is refused."""

import pytest

from runner.errors import UserError
from runner.sweep import sweeps
from runner.sweep.sweeps import Range, Sweep, combinations, filled, parse_range, parse_text, values_of

COMMAND = "python3 train_dnn.py --lr {lr} --batch_size {bs}"
GRID = {"lr": ("0.001", "0.0005", "0.0001"), "bs": ("32", "64", "128")}


@pytest.mark.parametrize(
    ("template", "command"),
    [
        (COMMAND, "python3 train_dnn.py --lr 0.1 --batch_size 8"),
        ("{lr}{lr} x{bs}y", "0.10.1 x8y"),
        ("cp {a,b} x{1..3} {} ${lr} ${lr:-1} { ls; } {lr", "cp {a,b} x{1..3} {} ${lr} ${lr:-1} { ls; } {lr"),
        ("awk '{print $1}' '{{print}}' ${{lr}} {{lr}}", "awk '{print $1}' '{print}' ${lr} {lr}"),
        ("--id {run_id} --job {job_id} --bs {batch_size}", "--id {run_id} --job {job_id} --bs {batch_size}"),
    ],
)
def test_only_the_sweeps_own_names_are_replaced(template, command):
    assert filled(template, {"lr": "0.1", "bs": "8"}) == command


def test_a_value_is_put_in_as_it_is_and_never_looked_into():
    assert filled("{a} '{b}'", {"a": "x y {b}", "b": "{a} $HOME"}) == "x y {b} '{a} $HOME'"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["x {lr} {bs} {epochs}"], r"no values for \{epochs\}.*\{\{epochs\}\}"),
        (["x {lr}"], r"values for bs, but no \{bs\} in the command\.$"),
        (["x {lr} ${bs}"], r"no \{bs\} in the command\. \$\{bs\} is a variable of the shell"),
        (["x {lr} {{bs}}"], r"no \{bs\}"),
        (["x", "{lr} {BS}"], r"no values for \{BS\}"),
    ],
)
def test_names_and_values_that_do_not_belong_together_are_refused(texts, said):
    with pytest.raises(UserError, match=said):
        sweeps.check(texts, GRID)


def test_names_that_a_job_fills_in_later_and_braces_of_the_shell_are_none_of_ours():
    sweeps.check(["x {lr}", "{bs} {run_id} {job_id} {batch_size} {a,b} ${HOME} {{print}} {1..3} {a..c} {}"], GRID)
    sweeps.check(["x {batch_size}"], {"batch_size": ("8",)})


def test_the_grid_in_order():
    found = combinations(GRID, shuffled=False)
    assert [tuple(one.values()) for one in found[:4]] == [
        ("0.001", "32"), ("0.001", "64"), ("0.001", "128"), ("0.0005", "32"),
    ]  # fmt: skip
    assert len(found) == 9
    assert combinations(GRID, shuffled=False, samples=4) == found[:4]


def test_all_of_the_grid_or_a_sample_each_once_and_by_seed_the_same_again():
    everything = {tuple(one.values()) for one in combinations(GRID, shuffled=False)}
    assert {tuple(one.values()) for one in combinations(GRID)} == everything
    five = combinations(GRID, samples=5, seed=7)
    assert len({tuple(one.values()) for one in five}) == 5
    assert five == combinations(GRID, samples=5, seed=7) != combinations(GRID, samples=5, seed=8)
    assert len(combinations(GRID, samples=1000)) == 9


def test_a_value_given_twice_counts_once():
    assert values_of("lr", ["1", "2", "1"]) == ("1", "2")


def test_a_sample_of_a_grid_that_no_memory_would_hold():
    for names in ("abcdefgh", "abcdefghijklmnopqrstuvwxyz"):
        huge = {name: tuple(map(str, range(20))) for name in names}
        found = combinations(huge, samples=200, seed=1)
        assert len({tuple(one.values()) for one in found}) == 200
        assert all(list(one) == list(huge) for one in found)


def test_what_is_too_many_or_none_is_refused():
    with pytest.raises(UserError, match="1,000,000 commands"):
        combinations({name: tuple(map(str, range(100))) for name in "abc"})
    with pytest.raises(UserError, match="-n 0 asks for nothing"):
        combinations(GRID, samples=0)


def test_ranges_are_drawn_from_evenly():
    found = combinations({"lr": Range(1e-5, 1e-2, True), "opt": ("adam", "sgd")}, samples=30, seed=3)
    assert list(found[0]) == ["lr", "opt"]
    assert sum(one["opt"] == "adam" for one in found) == 15
    decades = [sum(low <= float(one["lr"]) < low * 10 for one in found) for low in (1e-5, 1e-4, 1e-3)]
    assert decades == [10, 10, 10]


def test_a_range_stands_alone():
    with pytest.raises(UserError, match="is a range, so it must be the only value"):
        sweeps.values_of("lr", ["0.5", "lin:1..2"])
    assert sweeps.values_of("level", ["log:debug", "log:info"]) == ("log:debug", "log:info")


def test_a_range_wants_a_number_of_samples():
    for given, said in (({}, "how many"), ({"samples": 3, "shuffled": False}, "no grid")):
        with pytest.raises(UserError, match=said):
            combinations({"lr": Range(0, 1)}, **given)
    with pytest.raises(UserError, match="too narrow"):
        combinations({"lr": Range(1, 1 + 4e-16)}, samples=20)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lin:0..1", Range(0, 1)),
        ("log:1e-5..1e-2", Range(1e-5, 1e-2, True)),
        ("lin:-1.5...5", Range(-1.5, 0.5)),
    ],
)
def test_ranges_are_read(text, found):
    assert parse_range(text) == values_of("x", [text]) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("log:0..1", "above 0"),
        ("log:-1..1", "above 0"),
        ("lin:2..1", "from low to high"),
        ("lin:1..1", "from low to high"),
        ("lin:0-1", "not a range"),
        ("lin:a..b", "not a range"),
        ("lin:0..inf", "not a range"),
        ("lin:nan..1", "not a range"),
        ("log:", "not a range"),
    ],
)
def test_what_is_no_range_is_refused_with_what_to_write(text, said):
    with pytest.raises(UserError, match=said):
        values_of("x", [text])


@pytest.mark.parametrize(
    ("text", "sweep"),
    [
        ("python train.py --lr {lr} --bs {bs} ; lr=1e-3,5e-4 bs=32,64",
         Sweep("python train.py --lr {lr} --bs {bs}", {"lr": ("1e-3", "5e-4"), "bs": ("32", "64")})),
        ("cd x; t {lr};lr=log:1e-5..1e-2", Sweep("cd x; t {lr}", {"lr": Range(1e-5, 1e-2, True)})),
        ("t {a} ; a='x, y',\"z\",w\\ v,''", Sweep("t {a}", {"a": ("x, y", "z", "w v", "")})),
        ("t {a}\n{b} ;\n a=1, 2,\n3 b=4 ", Sweep("t {a}\n{b}", {"a": ("1", "2", "3"), "b": ("4",)})),
        ("t {a} ; a=k=v", Sweep("t {a}", {"a": ("k=v",)})),
    ],
)  # fmt: skip
def test_a_message_is_read(text, sweep):
    assert parse_text(text) == sweep


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "after a semicolon"),
        ("t {a} a=1", "after a semicolon"),
        ("t {a} ;", "after a semicolon"),
        (" ; a=1", "after a semicolon"),
        ("t {a} ; a=1 32", "'32' is not a parameter"),
        ("t {a} ; a=", "empty value"),
        ("t {a} ; a=1,,2", "empty value"),
        ("t {a} ; a=1,", "empty value"),
        ("t {a} ; a=1 a=2", "given twice"),
        ("t {a} ; 2a=1", "not the name"),
        ("t {a} ; a='1", "open quote"),
        ("t {a} ; a=1\\", "open quote"),
        ("t {a} ; b=1", "no values for {a}"),
        ("t {a} ; a=lin:3..2", "from low to high"),
    ],
)
def test_a_message_that_is_none_is_refused_with_what_to_write(text, said):
    with pytest.raises(UserError, match=said):
        parse_text(text)


@pytest.mark.parametrize("word", ["1..9", "1e-5..1e-2", "0.1...0.5", "-1..1", "1..100:1"])
def test_a_range_that_is_not_called_one_is_not_run_as_a_single_value(word):
    with pytest.raises(UserError, match=r"is one value, not a range: .* lin:[-0-9.e]+ or log:"):
        values_of("lr", [word])


@pytest.mark.parametrize("word", ["..", "../data", "a..b", "v1..2", "1.2.3"])
def test_dots_alone_make_no_range(word):
    assert values_of("x", [word]) == (word,)


def test_several_values_with_dots_are_meant_as_they_are():
    assert values_of("x", ["1..9", "2..8"]) == ("1..9", "2..8")
