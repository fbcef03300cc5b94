"""Copies of the code as it was: what is in them, when they are shared, and that none is ever half there."""

import errno
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from runner.errors import UserError
from runner.snapshot import code_copy, file_reader, project_files
from runner.store import retention
from runner.store.connection import open_store
from runner.store.jobs import Jobs
from runner.store.retention import Rules, prune
from tests.jobs import a_spec


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with code, data, results, changes that are not committed, and links."""
    folder = tmp_path / "project"
    write(folder, "train.py", "print(1)")
    write(folder, "pkg/model.py", "layers = 2")
    write(folder, "removed.py", "")
    write(folder, ".gitignore", "data/\n*.pt\n__pycache__/\n.env\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=somebody", "-c", "user.email=a@b", "commit", "-qm", "first")
    write(folder, "pkg/model.py", "layers = 3")
    write(folder, "new.py", "not added")
    write(folder, "data/images.bin", "x" * 1000)
    write(folder, "out/last.pt", "weights")
    write(folder, ".env", "KEY=secret")
    write(folder, "pkg/__pycache__/model.pyc", "stale")
    (folder / "results").mkdir()
    (folder / "removed.py").unlink()
    (folder / "train.py").chmod(0o755)
    (folder / "entry.py").symlink_to("train.py")
    (folder / "abroad").symlink_to("../elsewhere")
    (folder / "by_full_path.py").symlink_to(folder / "train.py")
    return folder


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def frozen_tree(folder: Path, home: Path) -> Path:
    (spec,) = code_copy.with_copies([a_spec(folder=str(folder), snapshot=True)], str(home))
    return Path(code_copy.work_folder(str(home), spec))


def copies(home: Path) -> list[str]:
    return sorted(os.listdir(home / "snapshots")) if (home / "snapshots").exists() else []


def test_code_is_copied_as_it_stands_and_stays_so(project: Path, home: Path) -> None:
    tree = frozen_tree(project, home)
    write(project, "train.py", "print('edited')")
    assert (tree / "train.py").read_text() == "print(1)"
    assert (tree / "pkg/model.py").read_text() == "layers = 3"
    assert (tree / "new.py").read_text() == "not added"
    assert os.access(tree / "train.py", os.X_OK)
    assert not (tree / "removed.py").exists()
    assert not (tree / ".git").exists()
    assert not (tree / "pkg/__pycache__").exists()


def test_times_of_files_are_kept(project: Path, home: Path) -> None:
    assert (frozen_tree(project, home) / "new.py").stat().st_mtime_ns == (project / "new.py").stat().st_mtime_ns


def test_data_and_results_are_the_real_ones(project: Path, home: Path) -> None:
    tree = frozen_tree(project, home)
    assert {path.name for path in tree.iterdir() if path.is_symlink() and os.readlink(path).startswith("/")} == {
        "data", "out", "results", ".env", "abroad"
    }  # fmt: skip
    (tree / "out/last.pt").write_text("better")
    (tree / "results/table.csv").write_text("1")
    assert (project / "out/last.pt").read_text() == "better"
    assert (project / "results/table.csv").read_text() == "1"


def test_links_lead_to_the_copy_within_the_tree_and_to_where_they_led_outside(project: Path, home: Path) -> None:
    tree = frozen_tree(project, home)
    assert (tree / "entry.py").resolve() == (tree / "by_full_path.py").resolve() == (tree / "train.py").resolve()
    assert os.readlink(tree / "abroad") == str(project.parent / "elsewhere")


def test_an_empty_cache_is_left_out_and_the_copy_is_shared_all_the_same(project: Path, home: Path) -> None:
    write(project, ".gitignore", "data/\n*.pt\n.env\n")
    for place in ("__pycache__", "tools/__pycache__"):
        (project / place).mkdir(parents=True)
    write(project, "tools/sub/run.py", "")
    tree = frozen_tree(project, home)
    assert not any(os.path.lexists(tree / place) for place in ("__pycache__", "tools/__pycache__"))
    assert frozen_tree(project, home) == tree


def test_links_by_another_name_of_the_project_lead_to_the_copy_too(project: Path, home: Path) -> None:
    (project.parent / "alias").symlink_to(project)
    (project / "by_alias.py").symlink_to(project.parent / "alias" / "train.py")
    (project / "dangling").symlink_to(project.parent / "alias" / "not there")
    tree = frozen_tree(project, home)
    assert [os.readlink(tree / name) for name in ("by_alias.py", "dangling")] == ["train.py", "not there"]


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("python train.py --out /elsewhere", False),
        ("python {}/train.py", True),
        ("cd {} && python train.py", True),
        ("cd '{}'; python train.py", True),
        ("python train.py --config={}/a.yaml", True),
        ("PYTHONPATH=/x:{} python train.py", True),
        ("cd {}/../alias && python train.py", True),
        ("python {}-old/train.py", False),
        ("python train.py --out out{}", False),
    ],
)
def test_a_command_that_names_the_project_itself_is_told_of(
    project: Path, home: Path, command: str, names: bool
) -> None:
    (project.parent / "alias").symlink_to(project)
    wanted = a_spec(command.format(project), folder=str(project), snapshot=True)
    (spec,) = code_copy.with_copies([wanted], str(home))
    assert ("which is not the copy" in code_copy.announcement(spec, str(home))) is names


def test_a_folder_within_the_project_is_at_the_same_place_in_the_copy(project: Path, home: Path) -> None:
    folder = frozen_tree(project / "pkg", home)
    assert (folder.name, (folder / "../train.py").read_text()) == ("pkg", "print(1)")


def test_jobs_of_one_state_share_a_copy(project: Path, home: Path) -> None:
    first = frozen_tree(project, home)
    write(first, "__pycache__/train.pyc", "made by running it")
    assert frozen_tree(project, home) == first
    write(project, "new.py", "changed")
    assert frozen_tree(project, home) != first


@pytest.mark.parametrize("spoil", ["train.py", "written.txt"])
def test_a_copy_that_a_job_has_changed_is_not_given_to_the_next(project: Path, home: Path, spoil: str) -> None:
    first = frozen_tree(project, home)
    write(first, spoil, "by a job")
    second = frozen_tree(project, home)
    assert second != first
    assert (second / "train.py").read_text() == "print(1)"
    assert not (second / "written.txt").exists()


def test_a_repository_in_a_repository(project: Path, home: Path) -> None:
    git(project, "init", "-q", "inner")
    write(project, "inner/lib.py", "inner")
    write(project, "inner/.gitignore", "cache/")
    write(project, "inner/cache/big", "x")
    tree = frozen_tree(project, home)
    assert (tree / "inner/lib.py").read_text() == "inner"
    assert (tree / "inner/cache").is_symlink()


def test_a_folder_that_its_repository_ignores_is_a_project_of_its_own(project: Path, home: Path) -> None:
    write(project, "data/tool/run.py", "tool")
    tree = frozen_tree(project / "data/tool", home)
    assert (tree / "run.py").read_text() == "tool"
    assert not (tree / "run.py").is_symlink()


def test_without_git_names_tell_what_is_data(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "plain"
    write(folder, "train.py", "print(1)")
    write(folder, "sub/checkpoints/big", "x")
    write(folder, "myenv/pyvenv.cfg", "")
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")
    (spec,) = code_copy.with_copies([a_spec(folder=str(folder), snapshot=True)], str(home))
    tree = Path(code_copy.work_folder(str(home), spec))
    assert (tree / "train.py").is_file()
    assert all((tree / name).is_symlink() for name in ("sub/checkpoints", "myenv", "empty"))
    links = "links to empty, myenv, sub/checkpoints"
    assert code_copy.words(spec) == f"1 file; {links}; skipped (pipes, sockets or devices): pipe"


# -- what must not be waited for ---------------------------------------------------------------------------------------


def make_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFSOCK | 0o600)  # to bind one here, the path would have to be short


def test_pipes_and_sockets_that_took_the_place_of_files_are_skipped_and_named(project: Path, home: Path) -> None:
    make_pipe(project / "train.py")
    git(project, "init", "-q", "inner")
    write(project, "inner/lib.py", "inner")
    git(project / "inner", "add", ".")
    make_socket(project / "inner/lib.py")
    (spec,) = code_copy.with_copies([a_spec(folder=str(project), snapshot=True)], str(home))
    assert code_copy.words(spec).endswith("; skipped (pipes, sockets or devices): inner/lib.py, train.py")
    tree = Path(code_copy.work_folder(str(home), spec))
    assert (tree / "pkg/model.py").read_text() == "layers = 3"
    assert not any(os.path.lexists(tree / name) for name in ("train.py", "inner/lib.py"))


def test_a_pipe_that_takes_a_files_place_while_the_tree_is_read(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = code_copy.tree_of

    def then_replaced(folder: str, without: str) -> Any:
        found = listed(folder, without)
        make_pipe(project / "new.py")
        return found

    monkeypatch.setattr(code_copy, "tree_of", then_replaced)
    tree = frozen_tree(project, home)
    assert sorted(os.listdir(tree)).count("new.py") == 0
    assert (tree / "train.py").exists()


@pytest.mark.parametrize("replaced_by", ["link", "socket", "larger"])
def test_a_file_that_is_another_than_the_one_listed_is_not_read(tmp_path: Path, replaced_by: str) -> None:
    write(tmp_path, "file", "four")
    os.symlink(tmp_path / "file", tmp_path / "link")
    write(tmp_path, "larger", "five!")
    make_socket(tmp_path / "socket")
    assert file_reader.content(str(tmp_path / "file"), None, 4).size == 4
    with pytest.raises(file_reader.ChangingError):
        file_reader.content(str(tmp_path / replaced_by), None, 4)


def test_a_file_that_grows_as_fast_as_it_is_read_is_given_up(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, grown = file_reader._write, 0

    def written(descriptor: int, data: bytes) -> None:
        nonlocal grown
        grown += 1
        assert grown < 1000, "it is read for ever"
        with (project / "new.py").open("ab") as file:
            file.write(data)
        real(descriptor, data)

    monkeypatch.setattr(file_reader, "_write", written)
    with pytest.raises(UserError, match=r"new\.py keeps changing while the code is copied"):
        frozen_tree(project, home)
    assert copies(home) == []


@pytest.mark.parametrize("at", ["reading", "copying"])
def test_a_copy_that_takes_too_long_is_given_up_whole(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    class Passed(file_reader.CopyLimits):
        asked = 0

        def refuse_too_long(self, root: str) -> None:
            self.asked += 1
            if at == "reading" or self.asked > 10:
                self._until = 0.0
            super().refuse_too_long(root)

    monkeypatch.setattr(code_copy, "CopyLimits", Passed)
    with pytest.raises(UserError, match=r"takes longer than 120 s.*Name what is data in \.gitignore, or submit"):
        frozen_tree(project, home)
    assert copies(home) == []


def test_git_that_hangs_is_given_up(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_pipe(project / ".gitignore")  # git waits for somebody to write into it
    monkeypatch.setattr(project_files, "GIT_LIMIT_S", 0.5)
    with pytest.raises(UserError, match=r"git takes longer than .* Look whether `git status` ends there"):
        frozen_tree(project, home)


def test_the_state_folder_is_not_copied_into_itself(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "print(1)")
    for _ in range(2):
        tree = frozen_tree(tmp_path, tmp_path / "home")
        assert os.listdir(tree) == ["train.py"]


def test_too_much_is_refused_and_named(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTSHIFT_SNAPSHOT_LIMIT", "1M")
    write(project, "weights/model.bin", "x" * (1 << 20))
    with pytest.raises(UserError, match=r"may have at most 1 MiB.*weights \(1 MiB\), .*name it in \.gitignore"):
        frozen_tree(project, home)
    assert copies(home) == []
    write(project, ".gitignore", "weights/\n*.pt\ndata/\n")
    assert (frozen_tree(project, home) / "weights").is_symlink()


def test_what_cannot_be_read_is_named(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: str, *rest: Any, **more: Any) -> int:
        if str(path) == str(project / "new.py"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr("os.open", refuse)  # root may read everything
    with pytest.raises(UserError, match=r"new\.py cannot be read: Permission denied"):
        frozen_tree(project, home)
    assert copies(home) == []


def test_a_full_disk_leaves_nothing_behind(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(UserError, match=r"cannot be copied into .*snapshots: No space left on device"):
            frozen_tree(project, home)
    assert copies(home) == []
    assert (frozen_tree(project, home) / "train.py").exists()


@pytest.mark.parametrize("name", [".gitignore", "pkg/model.py"], ids=["copied already", "not yet copied"])
def test_files_that_change_meanwhile(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    edits = iter(range(100))
    real, most = os.chmod, 1

    def edited(copy: str, mode: int) -> None:  # the first file is .gitignore
        real(copy, mode)
        if (number := next(edits)) < most:
            write(project, name, f"# {number}\ndata/")
            os.utime(project / name, ns=(number, number))

    monkeypatch.setattr("os.chmod", edited)
    tree = frozen_tree(project, home)
    assert (tree / name).read_text() == "# 0\ndata/"
    assert copies(home) == [tree.parents[0].name]
    write(project, "new.py", "again")
    most = 100
    with pytest.raises(UserError, match=f"{name} keeps changing while the code is copied"):
        frozen_tree(project, home)
    assert copies(home) == [tree.parents[0].name]


def test_git_that_cannot_tell_is_heard(tmp_path: Path, home: Path) -> None:
    write(tmp_path, "project/.git", "gitdir: nowhere")
    with pytest.raises(UserError, match=r"git cannot list the files of .*not a git repository"):
        frozen_tree(tmp_path / "project", home)


# -- removing --------------------------------------------------------------------------------------------------------


def test_a_copy_goes_when_no_job_needs_it(project: Path, home: Path) -> None:
    store = open_store(str(home))
    jobs = Jobs(store)
    asked = [a_spec(folder=str(project), snapshot=True)]
    (waits,) = code_copy.with_copies(asked, store.home)
    write(project, "new.py", "changed")
    (ran,) = code_copy.with_copies(asked, store.home)
    write(project, "new.py", "and again")
    (unused,) = code_copy.with_copies(asked, store.home)
    jobs.add(waits)
    ran_id = jobs.add(ran)
    (home / "runs" / str(ran_id)).mkdir(parents=True)
    store.execute("UPDATE jobs SET state = 'SUCCEEDED', finished_at = '2026-01-01' WHERE id = ?", (ran_id,))
    names = [spec.snapshot["name"] for spec in (waits, ran, unused) if spec.snapshot]
    long_ago = time.time() - 3600
    assert prune(store, Rules()).snapshots == 0  # all are young
    for name in names:
        os.utime(home / "snapshots" / name, (long_ago, long_ago))
    assert prune(store, Rules(), dry_run=True).snapshots == 1
    assert copies(home) == sorted(names)
    assert prune(store, Rules()).snapshots == 1
    assert copies(home) == sorted(names[:2])
    assert prune(store, Rules(keep_runs=0.0)).snapshots == 1
    assert copies(home) == names[:1]
    assert (project / "out/last.pt").read_text() == "weights"  # what is linked is not removed
    store.close()


def test_a_disk_limit_counts_the_copies_of_what_has_run(project: Path, home: Path) -> None:
    store = open_store(str(home))
    jobs, long_ago = Jobs(store), time.time() - 3600
    for number in (1, 2, 3):
        write(project, "big.py", f"# {number}" + "#" * (2 << 20))
        (spec,) = code_copy.with_copies([a_spec(folder=str(project), snapshot=True)], store.home)
        assert spec.snapshot
        os.utime(home / "snapshots" / spec.snapshot["name"], (long_ago, long_ago))
        job_id = jobs.add(spec)
        (home / "runs" / str(job_id)).mkdir(parents=True)
        at = f"2026-01-0{number}"
        store.execute("UPDATE jobs SET state = 'SUCCEEDED', finished_at = ? WHERE id = ?", (at, job_id))
    prune(store, Rules(disk_limit=7))
    assert len(copies(home)) == 3
    prune(store, Rules(disk_limit=5))
    assert (len(copies(home)), sorted(os.listdir(home / "runs"))) == (2, ["2", "3"])
    store.close()


def test_a_copy_that_a_job_is_submitted_with_just_now_stays(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(home))
    (spec,) = code_copy.with_copies([a_spec(folder=str(project), snapshot=True)], store.home)
    assert spec.snapshot
    os.utime(home / "snapshots" / spec.snapshot["name"], (0, 0))
    needed = retention._needed_snapshots

    def then_submitted(*given: Any) -> Any:
        found = needed(*given)
        Jobs(store).add(spec)
        return found

    monkeypatch.setattr(retention, "_needed_snapshots", then_submitted)
    assert prune(store, Rules()).snapshots == 0
    assert copies(home) == [spec.snapshot["name"]]
    store.close()


def test_a_folder_that_is_removed_while_others_are_listed_is_not_there(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "passing").mkdir()
    (tmp_path / "train.py").write_text("new")
    listed = os.scandir

    def removed(folder: str) -> Any:
        if folder.endswith("passing"):
            (tmp_path / "passing").rmdir()
        return listed(folder)

    monkeypatch.setattr(os, "scandir", removed)
    taken = code_copy.take(str(tmp_path), str(home))
    assert (taken["files"], taken["shared"]) == (1, [])
