import os
from pathlib import Path

import pytest

from runner.config.env_file import is_variable_name, read_env_file
from runner.errors import UserError


def read(folder: Path, content: str | bytes) -> dict[str, str]:
    path = folder / "secrets.env"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_env_file(str(path))


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("K=v", "v"),
        ("  K=v  ", "v"),
        ("export K=v", "v"),
        ("K=", ""),
        ("K=''", ""),
        ("K='a b'", "a b"),
        ('K="a b"', "a b"),
        ("K=a b", "a b"),
        ("K=a=b", "a=b"),
        ("K=a#b", "a#b"),
        ("K=#b", "#b"),
        ("K=a # why it's so", "a"),
        ("K= # nothing", ""),
        ("K='a # b' # c", "a # b"),
        ("K=$HOME/`x`", "$HOME/`x`"),
        ("K='a\"b\\n'", 'a"b\\n'),
        (r'K="say \"hi\" \\ \$x \n"', r'say "hi" \ $x \n'),
        ("K=größe", "größe"),
    ],
)
def test_a_line_sets_a_variable(tmp_path: Path, line: str, value: str) -> None:
    assert read(tmp_path, f"# first\n\n{line}\n") == {"K": value}


def test_a_later_line_wins_and_foreign_line_ends_do_not_matter(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbfA=1\r\nB='2'\r\nA=3") == {"A": "3", "B": "2"}


def test_bytes_that_are_no_text_come_through(tmp_path: Path) -> None:
    assert os.fsencode(read(tmp_path, b"K=\xff\xfe")["K"]) == b"\xff\xfe"


@pytest.mark.parametrize(
    "line",
    [
        "hunter2",
        "=hunter2",
        "MY KEY=hunter2",
        "MY-KEY=hunter2",
        "1K=hunter2",
        "K='hunter2",
        'K="hunter2',
        'K="hunter2\\"',
        "K='hunter2'x",
        'K=hunter"2"',
        "K=it's hunter2",
        "K=hunter2\x00",
        "export hunter2",
    ],
)
def test_a_bad_line_is_named_but_never_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserError, match=r"secrets\.env, line 3") as refused:
        read(tmp_path, f"A=1\n# two\n{line}\n")
    assert "hunter" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_the_users_to_mend(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, reason in (("missing", "No such file"), ("a\0b", "not a file name"), (str(tmp_path), "directory")):
        with pytest.raises(UserError, match=f"cannot read the env file .*: .*{reason}"):
            read_env_file(path)
    assert read_env_file(str(pipe)) == {}
    assert read_env_file("/dev/null") == {}
    with pytest.raises(UserError, match="larger than 1 MiB"):
        read_env_file("/dev/zero")


@pytest.mark.parametrize(
    ("name", "good"), [("A_1", True), ("_", True), ("1A", False), ("", False), ("é", False), ("A-B", False)]
)
def test_variable_names(name: str, good: bool) -> None:
    assert is_variable_name(name) is good


def test_a_refused_file_is_not_kept_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in (str(tmp_path), "/dev/zero"):
        with pytest.raises(UserError):
            read_env_file(path)
    assert len(os.listdir("/proc/self/fd")) == before
