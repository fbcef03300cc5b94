"""A throw-away Slurm cluster on this host: three nodes with two pretended GPUs each, for the time of one command.

    python -m tests.slurm.cluster FOLDER COMMAND...

runs the command inside the cluster as an ordinary account. Slurm's daemons listen on all addresses, so everything is in
network and process namespaces of its own: nothing can be reached from outside, and when the command ends, the kernel
ends whatever is left. The account exists only in there. All state is in FOLDER; nothing of the host is changed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
NODES, GPUS, CPUS = ("n0", "n1", "n2"), 2, 8
ACCOUNT, ACCOUNT_ID = "nightlab", 47_110
NAMESPACES = ("--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "ip", "unshare", "runuser", "mount")
INSIDE = "SLURM_CLUSTER_FOLDER"  # set for everything that runs in a cluster: its folder

CONF = """
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=64
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
PriorityType=priority/basic
GresTypes=gpu
AccountingStorageType=accounting_storage/none
MinJobAge=300
SlurmdTimeout=20
SlurmctldTimeout=20
KillWait=2
SlurmdParameters=config_overrides
{nodes}
PartitionName=gpu Nodes={names} Default=YES MaxTime=INFINITE DefaultTime=01:00:00 State=UP
PartitionName=first Nodes=n0 MaxTime=02:00:00 State=UP
PartitionName=second Nodes=n1 MaxTime=02:00:00 State=UP
PartitionName=third Nodes=n2 MaxTime=02:00:00 State=UP
"""


def missing() -> str | None:
    """Why there can be no cluster here; None if there can."""
    if os.getuid() != 0:
        return "only root can make the namespaces that the cluster runs in"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}; on Debian: apt-get install slurmctld slurmd slurm-client munge"
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces can be made here: {tried.stderr.strip()}" if tried.returncode else None


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a new cluster and return what it printed. When it has ended, so has the cluster."""
    words = ["unshare", *NAMESPACES, sys.executable, "-m", "tests.slurm.cluster", str(folder), *command]
    return subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main(folder: Path, command: list[str]) -> int:
    """Bring the cluster up in the namespaces that this process is alone in, and run the command."""
    _open_way((Path(sys.base_prefix), Path(sys.prefix), ROOT, folder.parent))
    os.environ.update(SLURM_CONF=str(folder / "slurm.conf"), **{INSIDE: str(folder)})
    for name in ("ctld", "log", "home", "tmp"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    _be_alone(folder)
    _configure(folder)
    start_munge(folder)
    start_controller(folder)
    for name in NODES:
        start_node(folder, name)
    _until(lambda: _count_idle() == len(NODES), f"the nodes do not come up; see {folder}/log")
    environ = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "USER": ACCOUNT, "LOGNAME": ACCOUNT}
    for name in ("home", "tmp"):
        os.chown(folder / name, ACCOUNT_ID, ACCOUNT_ID)
    words = ["runuser", "-u", ACCOUNT, "--", *command]
    return subprocess.run(words, env={**os.environ, **environ}, check=False).returncode


def _open_way(needed: Sequence[Path]) -> None:
    """Let every account reach these folders, in this namespace alone, even if they are below one that is closed."""
    for number, path in enumerate(dict.fromkeys(needed)):
        closed = next((above for above in reversed(path.parents) if not above.stat().st_mode & 1), None)
        if closed is None:
            continue
        below = [other for other in dict.fromkeys(needed) if closed in other.parents]
        aside = [Path(tempfile.mkdtemp(prefix=f"open{number}-", dir="/run")) for _ in below]
        for there, here in zip(below, aside, strict=True):
            subprocess.run(["mount", "--bind", str(there), str(here)], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(closed)], check=True)
        for there, here in zip(below, aside, strict=True):
            there.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "--move", str(here), str(there)], check=True)
            here.rmdir()


def _be_alone(folder: Path) -> None:
    """Have only the loopback device, a host name, and an account that nobody else sees."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "addr", "add", "10.99.0.1/32", "dev", "lo"], check=True)  # one that is not 127.*, for lookups
    Path("/proc/sys/kernel/hostname").write_text("cluster")
    passwd, hosts = folder / "passwd", folder / "hosts"
    entry = f"{ACCOUNT}:x:{ACCOUNT_ID}:{ACCOUNT_ID}::{folder}/home:/bin/sh\n"
    passwd.write_text(Path("/etc/passwd").read_text() + entry)
    hosts.write_text(Path("/etc/hosts").read_text() + "127.0.0.1 cluster\n")
    for private, public in ((passwd, "/etc/passwd"), (hosts, "/etc/hosts")):
        subprocess.run(["mount", "--bind", str(private), public], check=True)
    pwd.getpwnam(ACCOUNT)


def _configure(folder: Path) -> None:
    nodes = "\n".join(
        f"NodeName={name} NodeHostname=cluster NodeAddr=127.0.0.1 Port={17000 + number} CPUs={CPUS} RealMemory=4000"
        f" Gres=gpu:a5000:{GPUS} Feature={'fast' if number else 'slow'} State=UNKNOWN"
        for number, name in enumerate(NODES)
    )
    conf = CONF.format(host="cluster", folder=folder, nodes=nodes, names=",".join(NODES))
    (folder / "slurm.conf").write_text(conf)
    for number in range(GPUS):
        subprocess.run(["mknod", "-m", "666", folder / f"gpu{number}", "c", "1", "3"], check=True)  # as /dev/null
    gres = "".join(f"NodeName={name} Name=gpu Type=a5000 File={folder}/gpu[0-{GPUS - 1}]\n" for name in NODES)
    (folder / "gres.conf").write_text(gres)
    version = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    disabled = tuple(map(int, version.split(".")[:2])) >= (23, 2)  # before, v1 does no harm, and v2 wants systemd
    (folder / "cgroup.conf").write_text(f"CgroupPlugin={'disabled' if disabled else 'cgroup/v1'}\n")


def start_munge(folder: Path) -> None:
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    places = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munged.pid",
              "seed-file": folder / "munge.seed", "log-file": folder / "log" / "munged.log"}  # fmt: skip
    options = [f"--{name}={path}" for name, path in places.items()]
    subprocess.run(["munged", "--force", *options], check=True)


def start_controller(folder: Path) -> None:
    subprocess.run(["slurmctld"], check=True)
    _until(lambda: "UP" in _said("scontrol", "ping"), f"slurmctld does not come up; see {folder}/log")


def start_node(folder: Path, name: str) -> None:
    (folder / f"spool.{name}").mkdir(exist_ok=True)
    subprocess.run(["slurmd", "-N", name], check=True)


def _count_idle() -> int:
    return _said("sinfo", "-h", "-N", "-p", "gpu", "-o", "%t").split().count("idle")


def _said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _until(holds: Callable[[], bool], complaint: str, within_s: float = 40.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(complaint)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
