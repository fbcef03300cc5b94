import os
from dataclasses import replace
from pathlib import Path

import pytest

from runner.config.workspace import Workspace, environment_of, stamp, validate
from runner.errors import UserError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_a_workspace_is_written_out_in_full(home: Path) -> None:
    (home / "project" / ".env").write_text("KEY=1\n")
    (home / "project" / ".env").chmod(0o600)
    given = Workspace(name="vision", dir="~/project/", activate="  . x  ", env_file=".env", variables={"A": "1"})
    folder = str(home / "project")
    expected = Workspace(name="vision", dir=folder, activate=". x", env_file=f"{folder}/.env", variables={"A": "1"})
    assert validate(given) == expected
    assert validate(expected) == expected
    assert validate(Workspace(name="a", dir=folder, activate=" ", default=True)).activate is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a b"}, "not a name"),
        ({"dir": "project"}, "not a full path"),
        ({"dir": "~/missing"}, "there is no folder"),
        ({"dir": "/a\0b"}, "there is no folder"),
        ({"dir": "/etc/passwd"}, "there is no folder"),
        ({"env_file": "missing.env"}, "cannot read the env file"),
        ({"variables": {"A-B": "secret"}}, "'A-B' cannot be a variable"),
        ({"activate": "x\0y"}, "no shell can read"),
    ],
)
def test_what_cannot_work_is_refused(home: Path, change: dict[str, object], message: str) -> None:
    good = Workspace(name="a", dir="~/project")
    with pytest.raises(UserError, match=message) as refused:
        validate(replace(good, **change))  # type: ignore[arg-type]
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_an_env_file_that_others_can_open_is_refused_with_the_command_that_mends_it(home: Path, mode: int) -> None:
    path = home / "project" / "my keys.env"
    path.write_text("KEY=1\n")
    path.chmod(mode)
    with pytest.raises(UserError, match=f"chmod 600 '{path}'"):
        validate(Workspace(name="a", dir="~/project", env_file=str(path)))


def test_its_environment_is_the_login_the_activate_line_and_the_variables(home: Path) -> None:
    (home / ".profile").write_text("export A=profile B=profile C=profile\n")
    (home / "project" / "act.sh").write_text("export B=activate C=activate\n")
    env = environment_of(
        Workspace(name="a", dir=str(home / "project"), activate="source act.sh", variables={"C": "given"})
    )
    assert (env["A"], env["B"], env["C"]) == ("profile", "activate", "given")


def test_a_stamp_stays_while_nothing_changes(home: Path) -> None:
    workspace = Workspace(name="a", dir=str(home / "project"), activate=". act.sh")
    before = stamp(workspace)
    (home / "project" / "output.txt").write_text("a job wrote this")
    assert stamp(workspace) == before
    assert stamp(replace(workspace, name="b", default=True, env_file="/x")) == before


@pytest.mark.parametrize("name", [".profile", ".bash_profile", ".bash_login", ".bashrc"])
def test_a_stamp_changes_with_a_profile(home: Path, name: str) -> None:
    workspace = Workspace(name="a", dir=str(home / "project"))
    stamps = [stamp(workspace)]
    (home / name).write_text("export A=1\n")
    stamps.append(stamp(workspace))
    (home / name).write_text("export A=22\n")
    stamps.append(stamp(workspace))
    os.utime(home / name, (1, 1))
    stamps.append(stamp(workspace))
    assert len(set(stamps)) == 4


@pytest.mark.parametrize(
    "line",
    [
        "source act.sh",
        ". act.sh",
        ". 'act.sh' arg",
        "cd x && source ./act.sh",
        "source ~/project/act.sh; conda activate x",
        'true; . "$HOME/project/act.sh"',
        "export A=1\n. act.sh",
    ],
)
def test_a_stamp_changes_with_the_script_that_is_sourced(home: Path, line: str) -> None:
    workspace = Workspace(name="a", dir=str(home / "project"), activate=line)
    (home / "project" / "act.sh").write_text("one")
    before = stamp(workspace)
    (home / "project" / "act.sh").write_text("other")
    assert stamp(workspace) != before


def test_a_stamp_changes_with_the_profiles_of_the_box(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.config.workspace._PROFILE_FOLDER", str(tmp_path / "profile.d"))
    workspace = Workspace(name="a", dir=str(home / "project"))
    stamps = [stamp(workspace)]
    (tmp_path / "profile.d").mkdir()
    for content in ("", "export A=1"):
        (tmp_path / "profile.d" / "modules.sh").write_text(content)
        stamps.append(stamp(workspace))
    assert len(set(stamps)) == 3


def test_a_stamp_changes_with_what_the_workspace_says(home: Path) -> None:
    first = Workspace(name="a", dir=str(home / "project"))
    others = [replace(first, dir=str(home)), replace(first, activate=". x"), replace(first, variables={"A": "1"})]
    assert len({stamp(workspace) for workspace in (first, *others)}) == 4
