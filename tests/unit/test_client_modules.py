"""`submit` and `ls` are typed all day. Most of their time is the loading of modules, so these are the only ones."""

import os
import subprocess
import sys
import sysconfig

import pytest

from runner import clock
from runner.config import home
from runner.gpu.published import line_of, publish
from runner.model import Gpu, Snapshot
from runner.processes import linux, process_lock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BOTH = """
    errors model file_lock digests clock units config config.home terminal terminal.console
    api api.queue api.specs api.pause_words config.options config.env_file
    gpu gpu.published gpu.availability gpu.attribution
    processes processes.linux processes.doorbell processes.process_lock
    schedule schedule.request schedule.room
    store store.schema store.connection store.box store.audit store.notices store.dependencies store.jobs
    commands commands.job_kinds lifecycle
"""
OF_SUBMIT = "terminal.submit config.job_environment config.option_reader schedule.feasibility"
OF_SHELL_TEXT = "commands.background_check commands.shell_parser"
OF_LS = """
    terminal.job_table text text.table text.words api.waiting_reasons api.view api.outlook
    forecast forecast.estimates forecast.simulation schedule.choice schedule.free_rooms schedule.order
    schedule.quotas schedule.running_jobs schedule.cpu_slots schedule.ranking schedule.backoff
    store.listing store.scheduling_queries store.breaker_trials store.durations store.measurements store.watchdog_state
"""
HEAVY = """
    argparse asyncio click ctypes difflib gettext hashlib importlib.metadata logging pathlib pydantic random re2 secrets
    shutil signal socket sqlite_utils subprocess tempfile threading unicodedata urllib uuid
"""
LOADED = """
import atexit, sys
sys.path.append({packages!r})
sys.argv = ["nightshift", *{words!r}]
atexit.register(lambda: print("loaded:", *sys.modules))
import nightshift
nightshift.main()
"""


@pytest.fixture
def box(tmp_path):
    """The state folder of a box with a GPU, on which a runner is up."""
    folder = str(tmp_path / "home")
    os.mkdir(folder, 0o700)
    gpu = Gpu(
        index=0, uuid="GPU-0", memory_total_mib=24_000, memory_used_mib=0, utilization=0, sampled_at=clock.monotonic()
    )
    now = Snapshot(at=clock.text(clock.now()), boot_id=linux.boot_id(), simulated=True, gpus=(gpu,))
    publish(folder, line_of(now))
    loaded_by(folder, "submit", "--", "true")  # makes the queue
    with process_lock.held(folder, home.RUNNER_LOCK):
        yield folder


def loaded_by(folder, *words):
    """Run a command and return the modules that it has loaded. Without `site`, which may load some itself."""
    code = LOADED.format(packages=sysconfig.get_paths()["purelib"], words=words)
    env = {"NIGHTSHIFT_HOME": folder, "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    *_, last = done.stdout.splitlines()
    assert last.startswith("loaded: ")
    return set(last.split()[1:])


def own(modules):
    return {name.removeprefix("runner.") for name in modules if name.startswith(("runner.", "bot"))}


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["submit", "--", "python", "train.py"], BOTH + OF_SUBMIT),
        (["submit", "--", "python train.py"], BOTH + OF_SUBMIT + " " + OF_SHELL_TEXT),
        (["ls"], BOTH + OF_LS),
    ],
)
def test_a_command_typed_all_day_loads_only_what_it_needs(box, words, needed):
    loaded = loaded_by(box, *words)
    assert own(loaded) - set(needed.split()) == set()
    assert loaded & set(HEAVY.split()) == set()
