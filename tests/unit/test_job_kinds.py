import os

import pytest

from runner.commands.job_kinds import MOST_FILES, code_version, key, kind_of, words_of

PLAIN = ["python", "train.py", "--model", "gpt2", "--batch_size", "8", "--seed", "1"]


def kind(text):
    return kind_of(words_of(text), batch_arg="--batch_size", run_id_arg="--version")


@pytest.mark.parametrize(
    "other",
    [
        "python train.py --model gpt2 --batch_size 64 --seed 1",
        "python train.py --model gpt2 --batch-size=64 --seed=7",
        "python train.py --model gpt2 --version=3f9ede8c --lr 3e-4",
        "python train.py --model gpt2 --learning_rate=1e-3 --out-dir=/tmp/x --weight_decay -0.1",
        "python train.py --model gpt2 seed=4 lr=0.1",
        "python train.py --model gpt2",
    ],
)
def test_what_says_nothing_about_memory_is_left_out(other):
    assert kind(other) == ["python", "train.py", "--model", "gpt2"]


@pytest.mark.parametrize(
    "other",
    [
        "python train.py --model gpt2-xl",
        "python other.py --model gpt2",
        "python train.py --model gpt2 --block_size=2048",
        "python train.py --model gpt2 --version2",
        "python train.py --model gpt2 --name resnet50",
        "python train.py --model gpt2 experiment=large",
        "python train.py --model gpt2 seed",
    ],
)
def test_what_may_change_memory_stays(other):
    assert kind(other) != kind("python train.py --model gpt2")


def test_a_flag_does_not_swallow_the_option_after_it():
    assert kind("a --seed --layers 12") == ["a", "--layers", "12"]
    assert kind("a --lr -1e-4 b") == ["a", "b"]


def test_shell_text_that_does_not_parse_is_taken_by_its_spaces():
    assert words_of("echo 'x && y") == ["echo", "'x", "&&", "y"]
    assert words_of("ignored", ["a b", "c"]) == ["a b", "c"]


def made(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def version(folder, *words):
    return code_version(str(folder), words)


def test_code_that_changes_is_another_version(tmp_path):
    made(tmp_path, **{"train.py": "x", "lib__model.py": "y", "conf__a.yaml": "z"})
    before = version(tmp_path)
    assert version(tmp_path) == before
    for name in ("train.py", "lib/model.py", "conf/a.yaml"):
        (tmp_path / name).write_text("longer")
        after = version(tmp_path)
        assert after != before
        before = after


def test_the_same_size_at_another_time_is_another_version(tmp_path):
    made(tmp_path, **{"train.py": "x"})
    before = version(tmp_path)
    os.utime(tmp_path / "train.py", ns=(1, 1))
    assert version(tmp_path) != before


def test_results_are_no_code(tmp_path):
    made(tmp_path, **{"train.py": "x"})
    before = version(tmp_path)
    made(
        tmp_path,
        **{
            "wandb__run__config.yaml": "1",
            "outputs__a.yaml": "1",
            ".git__config.py": "1",
            "log.txt": "1",
            "__pycache__/a.py": "1",
            "v3__pyvenv.cfg": "",
            "v3__lib__big.py": "1",
        },
    )
    assert version(tmp_path) == before


def test_a_file_that_the_command_names_counts(tmp_path):
    made(tmp_path, **{"train.py": "x", "big.json": "1"})
    before = version(tmp_path, "train.py", "--config=big.json")
    (tmp_path / "big.json").write_text("22")
    assert version(tmp_path, "train.py", "--config=big.json") != before
    assert version(tmp_path, "\0", "x" * 5000) == version(tmp_path)


def test_too_much_code_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr("runner.commands.job_kinds.MOST_FILES", 3)
    made(tmp_path, **{f"m{n}.py": "x" for n in range(5)})
    assert version(tmp_path) is None
    monkeypatch.setattr("runner.commands.job_kinds.MOST_FILES", MOST_FILES)
    monkeypatch.setattr("runner.commands.job_kinds.MOST_ENTRIES", 3)
    assert version(tmp_path) is None


def test_a_folder_that_is_not_there_has_a_version_of_nothing(tmp_path):
    assert version(tmp_path / "gone") == version(tmp_path)


def test_the_key_depends_on_all_that_matters():
    base = {"words": PLAIN, "folder": "/w", "version": "v", "gpu": "RTX 3090", "batch_arg": "--batch_size"}
    one = key(**base)
    assert key(**{**base, "words": [*PLAIN[:-1], "2"]}) == one
    assert key(**base, env={"HOME": "/x"}) == one
    others = [
        {**base, "words": [*PLAIN, "--deep"]},
        {**base, "folder": "/other"},
        {**base, "version": "w"},
        {**base, "gpu": "A100"},
        {**base, "gpus": 2},
        {**base, "env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}},
    ]
    assert len({one, *(key(**other) for other in others)}) == 1 + len(others)
    assert key(**{**base, "gpu": None}) is None
    assert key(**{**base, "version": None}) is None
