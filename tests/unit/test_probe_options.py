"""What a submission asks for of a batch size."""

import json

import pytest

from runner.api.specs import job_spec, refuse_unrunnable
from runner.commands.placeholders import JobCommand, realised
from runner.config.option_reader import read_text, read_words
from runner.config.workspace import Workspace
from runner.errors import UserError
from tests.jobs import a_spec


def asked(command="python train.py", *words, **how):
    values, _, _ = read_words(words)
    return a_spec(command, **values, **how).probe


def test_nobody_who_did_not_ask_is_probed():
    assert asked() is None


def test_a_switch_a_placeholder_or_any_of_its_options_asks():
    assert asked("python train.py", "--probe") == {}
    assert asked("python train.py --bs {batch_size}") == {}
    assert asked(argv=["python", "train.py", "{batch_size}"]) == {}
    assert asked("python train.py", "--batch", "16") == {"own": 16}
    options = ("--probe", "--batch-arg=--bs", "--run-id-arg", "--version", "--effective-batch", "256", "--no-cache")
    assert asked("python train.py", *options) == {
        "batch_arg": "--bs", "run_id_arg": "--version", "effective": 256, "no_cache": True,
    }  # fmt: skip


def test_from_the_chat_too():
    values, command = read_text("--probe --batch-arg --batch_size python train.py --lr 1")
    assert (values, command) == ({"probe": {"batch_arg": "--batch_size"}}, "python train.py --lr 1")


def test_a_profile_brings_what_it_says_and_options_overrule_it(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path))
    found = asked("python train.py", "--profile", "nanogpt", "--batch-arg", "--bs")
    assert found["profile"] == "nanogpt"
    assert found["probe_args"] == ["--max_tokens=1000000", "--wandb_log=False"]
    assert (found["batch_arg"], found["run_id_arg"], found["margin"]) == ("--bs", "--version", 0.9)
    # its own even where they are the usual ones: a box may have settled on others
    assert (found["default"], found["round_to"], found["cap"]) == (8, 8, 4096)
    assert "limit_s" not in found
    assert json.loads(json.dumps(found)) == found
    with pytest.raises(UserError, match="there is no profile 'audio'"):
        asked("python train.py", "--profile", "audio")


@pytest.mark.parametrize(
    "command", ["python train.py | tee log", "python train.py &", "(python train.py)", "python a.py\npython b.py"]
)
def test_an_argument_is_not_added_where_it_would_go_astray(command):
    with pytest.raises(UserError, match="batch_size"):
        asked(command, "--batch-arg", "--bs")
    placed = command.replace(".py", ".py --bs {batch_size}")
    assert asked(placed, "--batch-arg", "--bs") == {"batch_arg": "--bs"}


@pytest.mark.parametrize("command", ["cd x && python train.py", "python train.py > log 2>&1", "a || b"])
def test_an_argument_is_added_to_the_last_command(command):
    assert asked(command, "--batch-arg", "--bs") == {"batch_arg": "--bs"}
    parts = JobCommand(text=command)
    assert realised(parts, "/run", {}, ["--bs=8", "a b"]) == (["bash", "-c", "--", f"{command} --bs=8 'a b'"], None)


def test_a_batch_is_found_on_a_gpu_only():
    with pytest.raises(UserError, match="asks for no GPU"):
        refuse_unrunnable(a_spec("true", probe={}, gpus=0))
    with pytest.raises(UserError, match="grad_accum"):
        refuse_unrunnable(a_spec("true {grad_accum}"))


@pytest.mark.parametrize("words", [["--batch", "0"], ["--batch", "many"], ["--batch-arg", " "], ["--probe=1"]])
def test_what_makes_no_sense_is_refused(words):
    with pytest.raises(UserError):
        read_words(words)


def test_a_script_is_filled_in_where_its_placeholders_are():
    parts = JobCommand(text="#!/bin/sh\ntrain {batch_size} ${x} {run_id}", script=True)
    argv, script = realised(parts, "/run", {"batch_size": "8", "run_id": "r"})
    assert (argv, script) == (["/run/script"], "#!/bin/sh\ntrain 8 ${x} r")


def test_what_is_settled_for_a_job_is_over_its_profile_is_over_its_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path))
    (tmp_path / "profiles.json").write_text('{"vision": {"margin": 0.8, "cap": 100, "batch_arg": "--bs"}}')

    def found(*words, **of_place):
        place = Workspace(name="lab", dir="/", probe=of_place)
        values, _, _ = read_words(words)
        asked = job_spec(
            values, command="python train.py", owner="x", folder="/", environment_key="", umask=0, workspace=place
        ).probe
        return asked and {name: asked.get(name) for name in ("profile", "margin", "cap", "default", "batch_arg")}

    assert found(margin=0.7) is None  # nothing is probed that was not asked for
    nobody = {"profile": None, "margin": None, "cap": None, "default": None, "batch_arg": None}
    assert found("--probe", margin=0.7) == {**nobody, "margin": 0.7}
    vision = {"profile": "vision", "margin": 0.8, "cap": 100, "default": None, "batch_arg": "--bs"}
    assert found("--probe", profile="vision") == vision
    assert found("--probe", profile="vision", cap=50) == {**vision, "cap": 50}
    assert found("--profile", "vision", margin=0.7, default=4) == {**vision, "default": 4}
    assert found("--profile", "vision", profile="nanogpt") == vision
    assert found("--profile", "vision", "--probe-with", "margin=60%", margin=0.7) == {**vision, "margin": 0.6}
