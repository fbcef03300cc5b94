"""`--snapshot`: people edit while their jobs wait."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.room import in_room


def test_a_job_runs_the_code_it_was_submitted_with_and_so_does_its_rerun(box):
    project = box.folder / "project"
    (project / "sub").mkdir(parents=True)
    (project / "data").mkdir()
    subprocess.run(["git", "-C", str(project), "init", "-q"], check=True)
    (project / ".git" / "info" / "exclude").write_text("data\n")
    (project / "data" / "set").write_text("numbers")
    (project / "sub" / "job.sh").write_text('echo old; cat ../data/set; echo "$NIGHTSHIFT_SUBMIT_DIR" > ../data/seen\n')
    said = box.run("submit", "-g", "0", "--snapshot", "--", "bash job.sh; pwd", cwd=project / "sub")
    assert said.returncode == 0
    assert "the code is copied as it is now: 1 file; links to data" in said.stderr
    assert box.run("submit", "-g", "0", "--snapshot", "--", "pwd", cwd=project / "sub").returncode == 0
    plain = box.submit("echo plain", "-g", "0")
    (project / "sub" / "job.sh").write_text("echo new\n")
    box.start_runner(gpus="none")
    box.wait_state(1, "SUCCEEDED")
    tree = box.home / "snapshots" / box.job(1)["snapshot"]["name"] / "tree"
    assert box.log(1) == f"old\nnumbers{tree}/sub\n"
    box.wait_state(2, "SUCCEEDED")
    assert box.log(2) == f"{tree}/sub\n"
    assert (project / "data" / "seen").read_text().strip() == str(project / "sub")
    assert box.wait_state(plain, "SUCCEEDED")["snapshot"] is None

    assert box.run("rerun", "1").returncode == 0
    box.wait_state(4, "SUCCEEDED")
    assert box.log(4) == box.log(1)
    assert f"as submitted: 1 file; links to data\n             {tree}\n" in box.run("show", "4").stdout
    assert json.loads(box.run("show", "4", "--json").stdout)["snapshot"]["folder"] == str(tree)
    assert box.run("shell", "4", "--", "pwd").stdout == f"{tree}/sub\n"

    with box.queue() as queue:
        queue.pause()
    assert box.run("rerun", "1").returncode == 0
    shutil.rmtree(tree.parent)
    with box.queue() as queue:
        queue.resume()
    assert box.wait_state(5, "FAILED")["reason"] == "SPAWN"
    refused = box.run("rerun", "1")
    assert (refused.returncode, "has been removed. Submit it again" in refused.stderr) == (1, True)

    with box.queue() as queue, queue.store.transaction():
        queue.pause()
    damaged, fine = box.submit("true", "-g", "0"), box.submit("true", "-g", "0")
    with box.queue() as queue:
        with queue.store.transaction():
            queue.store.execute("UPDATE jobs SET spec = json_set(spec, '$.snapshot', 7) WHERE id = ?", (damaged,))
        queue.resume()
    assert box.wait_state(damaged, "FAILED")["reason"] == "SPAWN"
    box.wait_state(fine, "SUCCEEDED")
    assert box.runner.poll() is None
    assert "as submitted: asked for, but never made" in box.run("show", str(damaged)).stdout
    assert json.loads(box.run("show", str(damaged), "--json").stdout)["snapshot"] == {"folder": None}
    assert "never made. Submit it again" in box.run("rerun", str(damaged)).stderr
    assert box.run("prune", "--disk-limit", "1G").returncode == 0


@in_room()
async def test_a_pipe_in_the_workspace_is_skipped_and_named_in_the_answer(room):
    folder = Path(room.chat.queue.workspaces.default().dir)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "old.py").write_text("")
    subprocess.run(["git", "-C", str(folder), "add", "train.py", "old.py"], check=True)
    (folder / "old.py").unlink()
    os.mkfifo(folder / "old.py")
    (said,) = await room.ask(room.uma, "/submit --snapshot python train.py")
    assert said.text.text.endswith("; skipped (pipes, sockets or devices): old.py")
    assert room.chat.queue.job(1).spec.snapshot["left_out"] == ["old.py"]


@in_room()
async def test_from_the_chat_the_workspace_is_copied(room):
    folder = room.chat.queue.workspaces.default().dir
    with open(os.path.join(folder, "train.py"), "w") as file:
        file.write("print(1)")
    (said,) = await room.ask(room.uma, "/submit --snapshot python train.py")
    assert "code as it is now: 1 file" in said.text.text
    job = room.chat.queue.job(1)
    assert job.spec.snapshot["of"] == os.path.realpath(folder)
    await room.ask(room.uma, "/submit -g 0 python train.py")
    (said,) = await room.ask(room.uma, "/edit 2 --snapshot")
    assert said.text.text == "Job 2 is edited: a copy of the code as it is now."
    assert room.chat.queue.job(2).spec.snapshot["name"] == job.spec.snapshot["name"]
    (details,) = await room.ask(room.uma, "/status 1")
    assert "code as submitted: 1 file" in details.text.text
