"""Settings: one truth for the quick client and the runner."""

import os

import pytest

from runner.config import home, settings
from runner.errors import OperatorError


@pytest.fixture
def environ(monkeypatch, tmp_path):
    for key in [key for key in os.environ if key.startswith("NIGHTSHIFT_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path))
    home.use_env_file(None)
    yield monkeypatch
    home.use_env_file(None)


def test_the_environment_wins_over_the_file_and_the_file_over_defaults(environ, tmp_path):
    (tmp_path / ".env").write_text("NIGHTSHIFT_BOX=filed\nNIGHTSHIFT_STOP_GRACE='30s'\nOTHER=1\n")
    environ.setenv("NIGHTSHIFT_BOX", "typed")
    loaded = settings.load()
    assert (loaded.box, loaded.stop_grace, loaded.slots_per_gpu) == ("typed", 30.0, 1)
    assert (home.setting("BOX"), home.setting("STOP_GRACE")) == ("typed", "30s")
    assert loaded.home == home.state_folder() == str(tmp_path)


def test_a_named_file_is_read_instead(environ, tmp_path):
    (tmp_path / ".env").write_text("NIGHTSHIFT_BOX=one\n")
    other = tmp_path / "other.env"
    other.write_text(f"NIGHTSHIFT_BOX=two\nNIGHTSHIFT_HOME={tmp_path}/elsewhere\n")
    environ.delenv("NIGHTSHIFT_HOME")
    home.use_env_file(str(other))
    assert settings.load().box == "two"
    assert settings.load().home == home.state_folder() == f"{tmp_path}/elsewhere"


def test_the_current_folder_is_not_our_configuration(environ, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / ".env").write_text("NIGHTSHIFT_BOX=theirs\n")
    environ.chdir(project)
    assert settings.load().box != "theirs"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SLOTS_PER_GPU", "0", "greater than or equal to 1"),
        ("SLOTS_PER_GPU", "two", "integer"),
        ("STOP_GRACE", "10", "unit"),
        ("LOG_LIMIT", "lots", "20G"),
        ("FREE_MEMORY", "120%", "less than or equal to 100"),
    ],
)
def test_a_bad_value_is_named_with_what_would_be_right(environ, name, value, said):
    environ.setenv(f"NIGHTSHIFT_{name}", value)
    with pytest.raises(OperatorError, match=f"NIGHTSHIFT_{name}={value}") as refusal:
        settings.load()
    assert said in str(refusal.value)


def test_an_empty_variable_is_none(environ, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    environ.setenv("NIGHTSHIFT_HOME", "")
    environ.setenv("NIGHTSHIFT_BACKUP_DIR", "")
    assert settings.load().home == home.state_folder() == f"{tmp_path}/.nightshift"
    assert settings.load().backup_dir is home.backup_folder() is None


def test_the_backup_folder_is_the_same_for_client_and_runner(environ, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    environ.setenv("NIGHTSHIFT_BACKUP_DIR", "~/volume")
    assert settings.load().backup_dir == home.backup_folder() == f"{tmp_path}/volume"


def test_a_misspelt_setting_in_the_file_is_not_passed_over(environ, tmp_path):
    (tmp_path / ".env").write_text("NIGHTSHIFT_SLOTS_PER_GPUS=2\n")
    with pytest.raises(OperatorError, match="did you mean NIGHTSHIFT_SLOTS_PER_GPU"):
        settings.load()


def test_the_runner_knows_the_names_of_the_chats_settings():
    from bot.settings import ChatSettings

    assert set(ChatSettings.model_fields) - {"home", "box"} == settings.CHAT_SETTINGS
