import shlex

import pytest

from runner.commands.argument_changes import changed
from runner.errors import UserError


@pytest.mark.parametrize(
    ("command", "changes", "expected"),
    [
        ("python train.py --lr 1e-3 --bs 32", "--lr 3e-4", "python train.py --lr 3e-4 --bs 32"),
        ("python train.py --lr=1e-3 --bs 32", "--lr 3e-4", "python train.py --lr=3e-4 --bs 32"),
        ("python train.py --lr 1e-3", "--lr=3e-4", "python train.py --lr 3e-4"),
        ("python train.py -lr 3", "-lr 4", "python train.py -lr 4"),
        ("python train.py --lr -1", "--lr -2", "python train.py --lr -2"),
        ("python train.py", "--lr 3e-4 --wandb", "python train.py --lr 3e-4 --wandb"),
        ("python train.py --wandb", "--wandb", "python train.py --wandb"),
        ("python train.py --lr 1", "--lr", "python train.py --lr 1"),
        ("python train.py --wandb", "--wandb online", "python train.py --wandb online"),
        ("python train.py --wandb --lr 1", "--wandb online", "python train.py --wandb online --lr 1"),
        ("python t.py lr=1e-3 bs=32", "lr=3e-4", "python t.py lr=3e-4 bs=32"),
        ("python t.py +lr=1e-3", "lr=3e-4", "python t.py +lr=3e-4"),
        ("python t.py lr=1e-3", "++lr=3e-4", "python t.py ++lr=3e-4"),
        ("python t.py model/net=a opt.lr=1", "opt.lr=2 model/net=b", "python t.py model/net=b opt.lr=2"),
        ("python t.py", "lr=3e-4", "python t.py lr=3e-4"),
        ("python t.py --lr 1", "lr=3e-4", "python t.py --lr 3e-4"),
        ("python t.py --max-steps=1", "max_steps=5", "python t.py --max-steps=5"),
        ("python t.py --lr 1 lr=2", "lr=3e-4", "python t.py --lr 1 lr=3e-4"),
        ("python t.py --set a=1", "--set a=2", "python t.py --set a=2"),
        ("python t.py", "--set a=2", "python t.py --set a=2"),
        ("LR=1 python t.py", "LR=2", "LR=2 python t.py"),
        ("LR=1 python t.py LR=5", "LR=2", "LR=1 python t.py LR=2"),
        ("python t.py --gpus 0 1 --x", "--gpus 2 3", "python t.py --gpus 2 3 --x"),
        ("python t.py --lr 1 data.yaml", "--lr 2", "python t.py --lr 2 data.yaml"),
        ("python t.py --name 'my run'", "--name 'your run'", "python t.py --name 'your run'"),
        ('python t.py --name="my run" --x', "--name your", "python t.py --name=your --x"),
        ("python t.py --data ./x", "--data ~/y", "python t.py --data ~/y"),
        ("python t.py --data ./x", "--data ~/", "python t.py --data ~/"),
        ("python t.py --data ./x", "--data '~/my data'", "python t.py --data ~/'my data'"),
        ("python t.py --lr 1 | tee log", "--lr 2", "python t.py --lr 2 | tee log"),
        ("python t.py --lr 1 | tee log", "--wandb", "python t.py --lr 1 --wandb | tee log"),
        (
            "python t.py --lr 1e-3 --bs 32 | tee log",
            "--lr 3e-4 --wandb",
            "python t.py --lr 3e-4 --bs 32 --wandb | tee log",
        ),
        ("cd x && python t.py", "--lr 2", "cd x && python t.py --lr 2"),
        ("cd x && ./run.sh --a", "--lr 2", "cd x && ./run.sh --a --lr 2"),
        ("python t.py > log 2>&1", "--lr 2", "python t.py --lr 2 > log 2>&1"),
        ("python t.py --a >log # why --lr 5", "--lr 2", "python t.py --a --lr 2 >log # why --lr 5"),
        ("A=1  B='x y' python  t.py   --lr  1  ", "--lr 2", "A=1  B='x y' python  t.py   --lr  2  "),
        ("python t.py \\\n  --lr 1 \\\n  --bs 2", "--lr 3 --x", "python t.py \\\n  --lr 3 \\\n  --bs 2 --x"),
        (
            "for s in 1 2; do python t.py --seed $s; done",
            "--lr 2",
            "for s in 1 2; do python t.py --seed $s --lr 2; done",
        ),
        ("echo $(cat --lr 5) && python t.py --lr 1", "--lr 2", "echo $(cat --lr 5) && python t.py --lr 2"),
        ("python t.py --note 'use --lr 5' --lr 1", "--lr 2", "python t.py --note 'use --lr 5' --lr 2"),
        ("torchrun --nproc 2 t.py --lr 1 &", "--lr 2 --x", "torchrun --nproc 2 t.py --lr 2 --x &"),
        ("python - --a 1 <<E\nprint('--lr')\nE\n", "--lr 2", "python - --a 1 --lr 2 <<E\nprint('--lr')\nE\n"),
        ("python t.py --bs {batch_size}", "--lr 1", "python t.py --bs {batch_size} --lr 1"),
        ("python t.py --x", "", "python t.py --x"),
        ("if (", "", "if ("),
    ],
)
def test_shell_text(command: str, changes: str, expected: str) -> None:
    assert changed(command, None, shlex.split(changes)) == (expected, None)


@pytest.mark.parametrize(
    ("command", "changes", "why"),
    [
        ("python t.py --lr 1 --lr 2", "--lr 3", "is in this command 2 times"),
        ("python a.py --lr 1; python b.py --lr=2", "--lr 3", "is in this command 2 times"),
        ("python t.py lr=1 lr=2", "lr=3", "is in this command 2 times"),
        ("python a.py --x && python b.py --y", "--lr 3", "not clear"),
        ("python a.py && python b.py", "--lr 3", "not clear"),
        ("./a && ./b", "--lr 3", "not clear"),
        ("bash -c 'python t.py --lr 1'", "--lr 3", "another shell"),
        ("/bin/bash -lc 'python t.py'", "lr=3", "another shell"),
        ("python t.py 'open", "--lr 3", "cannot be read"),
        ("", "--lr 3", "not clear"),
        ("python t.py", "foo", "neither a flag nor a setting"),
        ("python t.py", "lr=1 foo", "neither a flag nor a setting"),
        ("python t.py", "--lr 1 --lr 2", "given twice"),
        ("python t.py", "--", "not a flag"),
        ("python t.py", "-", "not a flag"),
        ("python t.py --gpus 0 1 2", "--gpus 0 1", "You sent 2 values for --gpus, but it has 3"),
        ("python t.py --lr=1", "--lr 1 2", "it has 1 in this command"),
    ],
)
def test_what_is_unclear_is_refused(command: str, changes: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        changed(command, None, shlex.split(changes))


@pytest.mark.parametrize(
    ("argv", "changes", "expected"),
    [
        (["python", "t.py", "--lr", "1"], ["--lr", "2"], ["python", "t.py", "--lr", "2"]),
        (["python", "t.py", "--lr=1"], ["--lr=2"], ["python", "t.py", "--lr=2"]),
        (["python", "t.py"], ["--name", "a b", "--x"], ["python", "t.py", "--name", "a b", "--x"]),
        (["python", "a|b", ">", "lr=1", ""], ["lr=2; rm -rf /"], ["python", "a|b", ">", "lr=2; rm -rf /", ""]),
        (["python", "t.py", "--note", "it's"], ["--note", "$HOME `x`"], ["python", "t.py", "--note", "$HOME `x`"]),
        (["python", "t.py"], [], ["python", "t.py"]),
    ],
)
def test_an_argument_list(argv: list[str], changes: list[str], expected: list[str]) -> None:
    command, words = changed(shlex.join(argv), argv, changes)
    assert words == expected
    assert command == shlex.join(expected)


def test_an_argument_list_that_runs_a_shell_is_not_added_to() -> None:
    with pytest.raises(UserError, match="another shell"):
        changed("bash -c x", ["bash", "-c", "python t.py"], ["--lr", "1"])


def test_a_value_is_a_value_whatever_is_in_it() -> None:
    text, _ = changed("python t.py --name x", None, ["--name", "a'; rm -rf / #"])
    assert shlex.split(text) == ["python", "t.py", "--name", "a'; rm -rf / #"]
