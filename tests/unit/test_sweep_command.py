"""The words of `nightshift sweep`, and its commands beside those of the original."""

import shlex
import subprocess
import sys

import pytest

from runner.errors import UserError
from runner.terminal import sweep

ORIGINAL = [sys.executable, "-c", "from simple_gpu_scheduler.hypersearch import generate_commands as g; g()"]
COMMAND = ["python3 train_dnn.py --lr {lr} --batch_size {bs}", "-p", "lr", "0.001", "0.0005", "0.0001"]
COMMAND += ["-p", "bs", "32", "64", "128"]


def printed(capsys, *words):
    assert sweep.main([*words, "--print"] if "--" not in words else ["--print", *words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "words",
    [
        [*COMMAND, "--seed", "7"],
        [*COMMAND, "--n-samples", "5", "--seed", "-3"],
        ["--sampling-mode", "grid", *COMMAND],
        ["--sampling-mode=grid", "--n-samples=4", *COMMAND],
        [
            "x {a} {{b}} ${{c}}",
            "--parameter",
            "a",
            "-1",
            "-.5",
            "'q r'",
            "--sampling-mode",
            "shuffled_grid",
            "--seed=1",
        ],
        [*COMMAND, "--n-samples", "50", "--seed", "0"],
    ],
)
def test_the_same_words_make_the_same_commands_in_the_same_order(capsys, words):
    original = subprocess.run([*ORIGINAL, *words], capture_output=True, text=True, check=True)
    assert printed(capsys, *words) == original.stdout.splitlines()


def test_without_a_seed_all_of_them_come_in_some_order(capsys):
    grid = printed(capsys, *COMMAND, "--sampling-mode", "grid")
    orders = [printed(capsys, *COMMAND) for _ in range(4)]
    assert all(sorted(order) == sorted(grid) for order in orders)
    assert any(order != grid for order in orders)


def test_an_argument_list_stays_one(capsys):
    words = ["-p", "who", "it's", "a b", "--sampling-mode", "grid", "--", "echo", "-p", "{who}"]
    assert [shlex.split(line) for line in printed(capsys, *words)] == [["echo", "-p", "it's"], ["echo", "-p", "a b"]]


def test_ranges_are_drawn_from(capsys):
    lines = printed(capsys, "t {lr}", "-p", "lr", "log:1e-5..1e-2", "-n", "6", "--seed", "1")
    assert len(set(lines)) == 6
    assert all(1e-5 <= float(line.split()[1]) <= 1e-2 for line in lines)


def test_more_samples_than_there_are_is_said(capsys):
    assert sweep.main(["x {a}", "-p", "a", "1", "2", "-n", "3", "--print"]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert "only 2 different combinations" in told.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no parameters"),
        (["-p", "a", "1", "x {a}"], "There is no command.*before the first -p"),
        (["x {a}"], "no parameters"),
        (["x {a}", "-p"], "-p needs a name"),
        (["x {a}", "-p", "a"], "a has no values"),
        (["x {a}", "-pa"], "-p: write the name"),
        (["x {a}", "-p", "low"], "--priority low"),
        (["x {a}", "-p", "a", "1", "-p", "a", "2"], "given twice"),
        (["x {a}", "-p", "2", "1"], "not the name"),
        (["x {a} {b}", "-p", "a", "1"], "no values for {b}"),
        (["x", "-p", "a", "1"], "no {a} in the command"),
        (["x", "{a}", "-p", "a", "1"], "one word too many"),
        (["x {a}", "-p", "a", "1", "-n", "0"], "-n 0 asks for nothing"),
        (["x {a}", "-p", "a", "1", "-n", "many"], "-n: 'many' is not a whole number"),
        (["x {a}", "-p", "a", "1", "--sampling-mode", "random"], "grid or shuffled_grid"),
        (["x {a}", "-p", "a", "1", "--sample", "3"], "no option --sample; did you mean"),
        (["-t", "6h", "x {a}", "-p", "a", "1", "--print"], "-t to the command that you pipe"),
        (["x {a}", "-p", "a", "1\n2", "--print"], "several lines"),
        (["-g", "0", "x {a}", "-p", "a", "1", "--on", "0"], "--gpus 0 asks for no GPU"),
        (["x {a}", "-p", "a", "lin:0..1"], "how many"),
    ],
)
def test_slips_are_refused_with_what_to_type(words, said):
    with pytest.raises(UserError, match=said):
        sweep.main(words)
