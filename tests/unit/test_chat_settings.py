"""The chat's settings, as people write them: in the environment, and in the file."""

import pytest

from bot import settings
from runner.errors import OperatorError


@pytest.fixture
def environ(monkeypatch, tmp_path):
    monkeypatch.setenv("NIGHTSHIFT_HOME", str(tmp_path))
    for name in ("ADMINS", "USERS", "GROUPS", "QUIET_HOURS"):
        monkeypatch.delenv(f"NIGHTSHIFT_{name}", raising=False)
    return monkeypatch


WRITTEN = [
    ("ADMINS", "1001", "admins", (1001,)),
    ("ADMINS", "1001, 1002", "admins", (1001, 1002)),
    ("GROUPS", "-1001234567890", "groups", (-1001234567890,)),
    ("QUIET_HOURS", "23-7", "quiet_hours", (1380, 420)),
]


@pytest.mark.parametrize(("name", "text", "field", "value"), WRITTEN)
def test_from_the_environment(name, text, field, value, environ):
    environ.setenv(f"NIGHTSHIFT_{name}", text)
    assert getattr(settings.load(), field) == value


@pytest.mark.parametrize(("name", "text", "field", "value"), WRITTEN)
def test_from_the_file(name, text, field, value, environ, tmp_path):
    (tmp_path / ".env").write_text(f"NIGHTSHIFT_{name}={text}\n")
    assert getattr(settings.load(), field) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("ADMINS", "ada", "is not an id"), ("GROUPS", "5", "is not an id"), ("QUIET_HOURS", "late", "23-7")],
)
def test_what_cannot_be_meant_is_answered_with_how_to_put_it(name, text, words, environ):
    environ.setenv(f"NIGHTSHIFT_{name}", text)
    with pytest.raises(OperatorError, match=words):
        settings.load()
