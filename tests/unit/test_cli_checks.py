import os
import time

import pytest

from runner.terminal.checks import check, host, setup


def only(findings):
    [found] = list(findings)
    return found


def test_a_network_mount_is_refused_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(setup, "filesystem_of", lambda *_: "nfs4")
    found = only(setup.disk(str(tmp_path)))
    assert found.level == "fail"
    assert f"NIGHTSHIFT_BACKUP_DIR={tmp_path}" in found.fix


@pytest.mark.parametrize(("free_mib", "level"), [(10, "fail"), (500, "warn"), (5000, "ok")])
def test_a_full_disk_is_told(tmp_path, monkeypatch, free_mib, level):
    usage = os.statvfs(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free_mib << 20}))
    assert usage.f_favail > 1000 or usage.f_files == 0
    assert only(setup.free_space(str(tmp_path))).level == level


def test_anothers_folder_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    assert only(setup.owner(str(tmp_path))).level == "fail"


def test_an_sqlite_that_can_damage_a_queue_is_told(monkeypatch):
    monkeypatch.setattr(setup, "SOUND_SQLITE", (99, 0, 0))
    found = only(setup.sqlite())
    assert (found.level, "pysqlite3" in found.fix) == ("warn", True)


def test_a_folder_where_no_socket_can_be(monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr(setup, "Doorbell", refuse)
    assert only(setup.sockets(str(tmp_path))).level == "fail"


@pytest.mark.parametrize(
    ("installed", "level"),
    [
        ({"nvidia-ml-py": "12.535.108"}, "ok"),
        ({"nvidia-ml-py": "13.580.65"}, "ok"),
        ({"nvidia-ml-py": "12.535.77"}, "fail"),
        ({"nvidia-ml-py": "13.580.65", "pynvml": "11.5.0"}, "fail"),
        ({}, "fail"),
    ],
)
def test_the_binding_must_be_nvidias_own(monkeypatch, installed, level):
    monkeypatch.setattr(host, "_version_of", installed.get)
    assert only(host.binding()).level == level


def test_an_orphan_that_goes_elsewhere_is_told(monkeypatch):
    assert host.orphans_come_to_us()
    monkeypatch.setattr("runner.processes.linux.become_subreaper", lambda: None)
    assert not host.orphans_come_to_us()
    assert only(host.subreaper()).level == "fail"


def test_a_clock_that_is_set_back_is_told(monkeypatch):
    readings = iter([1000.0, 940.0])
    monkeypatch.setattr(time, "time", lambda: next(readings))
    found = only(host.clock_steps())
    assert (found.level, "-60" in found.text) == ("warn", True)


def test_changes_that_are_not_told(monkeypatch, tmp_path):
    class Deaf:
        def __init__(self, *_):
            pass

        def wait(self, timeout_s):
            time.sleep(timeout_s)

        def close(self):
            pass

    monkeypatch.setattr(host, "Changes", Deaf)
    assert only(host.inotify(str(tmp_path))).level == "warn"
    assert list(tmp_path.iterdir()) == []


def test_no_bash_and_no_pidfd(monkeypatch):
    def refuse(_):
        raise OSError

    monkeypatch.setattr("os.pidfd_open", refuse)
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert only(host.pidfd()).level == "fail"
    assert only(host.bash()).level == "fail"


@pytest.mark.parametrize("name", ["token", "API_KEY", "password"])
def test_secrets_are_hidden(name):
    assert setup.without_secret(name, "canary") == "(hidden)"


def test_an_env_file_others_can_read_is_told(tmp_path):
    file = tmp_path / ".env"
    file.write_text("NIGHTSHIFT_TOKEN=1:x")
    file.chmod(0o644)
    found = only(setup.env_file_rights(str(file)))
    assert (found.level, found.fix) == ("fail", f"chmod 600 {file}")
    assert list(setup.env_file_rights(str(tmp_path / "none"))) == []


def test_a_check_that_breaks_is_a_finding():
    def broken():
        raise RuntimeError("oh")

    found = only(check("thing")(broken)())
    assert (found.level, found.text) == ("fail", "could not be checked: oh")


def test_limits_say_whether_they_are_enforced_and_how_they_would_be(tmp_path, monkeypatch):
    from runner.supervisor import cgroup

    assert "known when a runner is up" in only(host.limits(str(tmp_path))).text
    monkeypatch.setattr("runner.processes.process_lock.holder", lambda *_: os.getpid())
    monkeypatch.setattr("runner.processes.linux.CGROUPS", str(tmp_path))
    found = only(host.limits(str(tmp_path)))
    assert (found.level, "not enforced: this host has no unified" in found.text) == ("info", True)
    assert "DelegateSubgroup=nightshift" in found.fix
    monkeypatch.setattr(cgroup, "delegated", lambda pid: {os.getpid(): str(tmp_path)}[pid])
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert only(host.limits(str(tmp_path))).text == "--cpus and --ram of jobs are enforced by control groups"
