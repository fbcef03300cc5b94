"""Which filesystem a folder is on. SQLite's shared memory does not work on network mounts."""

from __future__ import annotations

import os

from runner.errors import OperatorError

NETWORK_TYPES = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "gpfs", "beegfs", "orangefs"]
)
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuseblk"})
MOUNTS = "/proc/self/mountinfo"


def filesystem_of(path: str, mounts: str = MOUNTS) -> str | None:
    """Return the type of the filesystem that a path is on, such as ext4; None if unknown."""
    path = os.path.realpath(path)
    best, kind = "", None
    try:
        with open(mounts) as file:
            lines = file.readlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def is_network(kind: str | None) -> bool:
    """Return whether this is a network filesystem, on which SQLite must not be used."""
    if kind is None:
        return False
    return kind in NETWORK_TYPES or (kind.startswith("fuse") and kind not in LOCAL_FUSE)


def refuse_network_mount(home: str, mounts: str = MOUNTS) -> None:
    """Raise OperatorError, with what to do instead, if the state folder is on a network mount."""
    kind = filesystem_of(home, mounts)
    if is_network(kind):
        raise OperatorError(
            f"The state folder {home} is on a network mount ({kind}), where the queue could be damaged.\n"
            "Keep it on the local disk and its copy on the mount:\n"
            "  NIGHTSHIFT_HOME=/var/tmp/nightshift\n"
            f"  NIGHTSHIFT_BACKUP_DIR={home}"
        )
