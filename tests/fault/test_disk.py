"""A disk that fills up, or is wiped."""

import contextlib
import os
import shutil
import signal
import subprocess

import pytest

from tests.probing import notes, nothing_is_left, probed, remembered
from tests.wait import eventually


@pytest.fixture
def small_disk(tmp_path):
    """A real filesystem of 24 MB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "none", str(mount)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"a small filesystem cannot be mounted here: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(disk):
    """To the last byte."""
    filler = os.open(disk / "filler", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for size in (65536, 512):
        with contextlib.suppress(OSError):
            while os.write(filler, b"x" * size):
                pass
    os.close(filler)


def test_the_disk_is_full_while_a_job_prints(box, small_disk, tmp_path):
    box.use_home(small_disk / "home")
    box.start_runner()
    job_id = box.submit(
        f"echo first; while [ ! -e {tmp_path}/full ]; do sleep 0.02; done; seq 2000000; echo last; exit 6"
    )
    eventually(lambda: "first" in box.log(job_id))
    fill(small_disk)
    (tmp_path / "full").touch()
    exit_file = small_disk / "home" / "runs" / str(job_id) / "1" / "exit.json"
    eventually(exit_file.exists, what="the exit record is written on a full disk")
    (small_disk / "filler").unlink()
    job = box.wait_state(job_id, "FAILED")
    assert job["exit_code"] == 6
    assert box.log(job_id).startswith("first\n")
    assert "no room" in box.run("show", str(job_id)).stdout
    assert box.wait_state(box.submit("exit 0"), "SUCCEEDED")


def test_submitting_on_a_full_disk_says_so_and_nothing_is_half_done(box, small_disk):
    box.use_home(small_disk / "home")
    first = box.submit("true")
    fill(small_disk)
    refused = box.run("submit", "--", "echo " + "x" * 60000)
    assert refused.returncode == 2
    assert "full" in refused.stderr
    assert "Traceback" not in refused.stderr
    (small_disk / "filler").unlink()
    assert box.submit("true") == first + 1


def test_the_state_folder_is_wiped_and_a_backup_is_set(box, tmp_path):
    volume = tmp_path / "volume"
    box.environ["NIGHTSHIFT_BACKUP_DIR"] = str(volume)
    box.start_runner(gpus="sim:1x24GiB")
    done = box.submit("exit 3")
    box.wait_state(done, "FAILED")
    running = box.submit("echo $$; sleep 300")
    eventually(lambda: box.log(running))
    box.wait_state(running, "RUNNING")
    queued = [box.submit(f"exit {n}") for n in range(3)]
    box.stop_runner(signal.SIGTERM)  # as a pod that is being stopped does
    for pid in box.processes():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not box.processes())
    shutil.rmtree(box.home)

    box.start_runner(gpus="sim:1x24GiB")
    assert [box.wait_state(job_id, "SUCCEEDED", "FAILED")["exit_code"] for job_id in queued] == [0, 1, 2]
    assert box.job(done)["exit_code"] == 3
    assert box.wait_state(running, "LOST")["reason"] == "SUPERVISOR"  # the host itself has not restarted here


def test_a_wipe_without_warning_loses_seconds_at_most(box, tmp_path):
    volume = tmp_path / "volume"
    box.environ["NIGHTSHIFT_BACKUP_DIR"] = str(volume)
    box.start_runner()
    box.run("pause")
    job_id = box.submit("exit 9")

    def copied():
        if not (volume / "nightshift.db").exists():
            return False
        seen = subprocess.run(
            ["grep", "-c", "exit 9", str(volume / "nightshift.db")], capture_output=True, text=True, check=False
        )
        return seen.returncode == 0

    eventually(copied)
    box.stop_runner(signal.SIGKILL)
    eventually(lambda: not box.processes())
    shutil.rmtree(box.home)
    box.start_runner()
    box.run("resume")
    assert box.wait_state(job_id, "FAILED")["exit_code"] == 9


def test_the_disk_is_full_while_a_batch_is_probed(box, small_disk):
    """No reading can be left there, so the user's batch is run; what could not be told is told at the end.

    What is freed meanwhile is filled again: one page is enough for a reading, and then the probe is repeated.
    """
    box.use_home(small_disk / "home")
    driver = box.folder / "driver"
    driver.mkdir()
    box.home.mkdir(mode=0o700)
    (box.home / "sim").symlink_to(driver)
    box.start_runner(gpus="sim:1x24GiB", probe_quiet="4s", probe_limit="6s")
    job_id = probed(box, "--until", str(box.folder / "seen"), options=("--batch", "3"))
    eventually(lambda: box.job(job_id)["phase"] == "probing" and notes(box), what="a probe runs")
    eventually(lambda: fill(small_disk) or not notes(box)[-1]["probing"], 60, "the real run runs")
    (small_disk / "filler").unlink()
    (box.folder / "seen").touch()
    job = box.wait_state(job_id, "SUCCEEDED", timeout=30)
    assert (job["batch_size"], notes(box)[-1]["batch"]) == (3, 3)
    assert [notice.kind for notice in box.notices(job_id)] == ["started", "ended"]
    nothing_is_left(box, job_id)
    assert remembered(box) == []
