import json

import pytest

from runner.config.profiles import FILE, SHIPPED, Profile, check, named, parse_settings, read
from runner.errors import UserError

NANOGPT = Profile.from_json(SHIPPED["nanogpt"])


def test_nanogpt_has_the_blogs_values():
    settings = NANOGPT.settings()
    assert (settings.default, settings.margin, settings.round_to, settings.cap) == (8, 0.9, 8, 4096)
    assert settings.bounded
    assert settings.rounded(29) == 24
    probe = NANOGPT.arguments(8, "0badcafe", probing=True)
    assert probe == ["--max_tokens=1000000", "--wandb_log=False", "--batch_size=8", "--version=0badcafe"]
    assert NANOGPT.arguments(24, "3f9ede8c", probing=False) == ["--batch_size=24", "--version=3f9ede8c"]


def test_without_a_profile_nothing_is_added():
    plain = Profile(own=3)
    assert plain.arguments(24, "3f9ede8c", probing=True) == []
    settings = plain.settings()
    assert (settings.bounded, settings.margin, settings.fallback) == (False, 0.92, 3)


def test_what_a_placeholder_has_filled_in_is_not_added_again():
    assert NANOGPT.arguments(24, "x", probing=False, placed=["batch_size"]) == ["--version=x"]
    assert NANOGPT.arguments(24, "x", probing=False, placed=["run_id"]) == ["--batch_size=24"]


def test_an_argument_may_bring_its_own_sign():
    assert Profile(batch_arg="data.batch=").arguments(4, "x", probing=False) == ["data.batch=4"]


def test_own_profiles_are_read_from_the_state_folder(tmp_path):
    assert read(str(tmp_path)) == SHIPPED
    own = {"vision": {"batch_arg": "--batch-size", "probe_args": ["--max-steps=30"]}, "nanogpt": {"margin": 0.8}}
    (tmp_path / FILE).write_text(json.dumps(own))
    vision = Profile.from_json(named("vision", str(tmp_path)))
    assert vision.arguments(4, "x", probing=True) == ["--max-steps=30", "--batch-size=4"]
    assert named("nanogpt", str(tmp_path)) == {"margin": 0.8}
    with pytest.raises(UserError, match="nanogpt, vision"):
        named("audio", str(tmp_path))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"batch": 8}, "no setting 'batch'"),
        ({"default": "8"}, "default cannot be '8'"),
        ({"default": True}, "default cannot be True"),
        ({"margin": 3}, "margin of a batch size is 3"),
        ({"probe_args": "--x"}, "probe_args"),
        ({"probe_args": [1]}, "list of words"),
        ([], "object of settings"),
    ],
)
def test_what_is_wrong_with_a_profile_is_named(data, words):
    with pytest.raises(UserError, match=words):
        check("mine", data)


@pytest.mark.parametrize("text", ["{", "[]", '{"a/b": {}}', '"x"'])
def test_a_file_that_makes_no_sense_is_refused(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UserError):
        read(str(tmp_path))


def test_settings_as_they_are_typed():
    assert parse_settings("default=16, margin=85%,cap=512,limit=3m,quiet=500ms,round_from=8,round_loss=0.1") == {
        "default": 16, "margin": 0.85, "cap": 512, "limit_s": 180.0, "quiet_s": 0.5, "round_from": 8, "round_loss": 0.1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "margin=85%"),
        ("speed=3", "there is no setting 'speed'; choose from default, margin, .*limit, quiet"),
        ("batch_arg=--bs", "there is no setting"),
        ("margin=high", "margin cannot be 'high'"),
        ("cap", "cap cannot be ''"),
        ("margin=120%", "margin .* from 0.1 to 1"),
        ("limit=1s", "limit_s .* from 5"),
        ("quiet=soon", "soon"),
    ],
)
def test_settings_that_cannot_be(text, why):
    with pytest.raises(UserError, match=why):
        parse_settings(text)
