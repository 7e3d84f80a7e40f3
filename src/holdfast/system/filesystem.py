"""Which kind of file system a folder is on."""

from __future__ import annotations

import os

LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "overlay", "vfat"}
)
"""kinds that one machine has to itself: what it does not see there, it will not see later"""

REMOTE = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "9p", "afs", "fuse.sshfs",
     "fuse.glusterfs", "wekafs", "panfs", "virtiofs"}
)  # fmt: skip
"""kinds that several machines may have mounted"""


def filesystem_at(path: str) -> str:
    """By mount id, which also tells mounts apart that cover each other."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        with open(f"/proc/self/fdinfo/{handle}", encoding="utf-8") as file:
            fields = dict(line.split(":", 1) for line in file)
    finally:
        os.close(handle)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        return filesystem_of(fields["mnt_id"].strip(), file.read())


def filesystem_of(mount_id: str, mountinfo: str) -> str:
    """The type that mountinfo gives for a mount; '' when the mount is not ours to see."""
    for line in mountinfo.splitlines():
        mount, separator, device = line.partition(" - ")
        if separator and mount.split(" ", 1)[0] == mount_id:
            return device.split(" ", 1)[0]
    return ""
