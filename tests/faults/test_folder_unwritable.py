from __future__ import annotations

from typing import Any

from holdfast.facts import MachineFacts, Unread
from tests.faults.machines import a_folder, a_machine
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks


def folder(**changes: Any) -> MachineFacts:
    return a_machine(folders=(a_folder(**changes),))


test_foresee = foresee_table(
    "folder-unwritable",
    speaks(
        "error",
        folder(read_only=True, write_error="EROFS"),
        saying=[
            "/home/kim/ckpts (checkpoints) cannot be written: its mount is read-only",
            "EROFS on ext4, mounted read-only",
            "`findmnt -T /home/kim/ckpts`",
            "first save",
        ],
    ),
    speaks("error", folder(read_only=True), saying=["its mount is read-only"]),
    speaks(
        "error",
        folder(exists=False, looked_at="/home", write_error="EACCES"),
        saying=["cannot be made in /home: this user has no right", "`ls -ld /home`"],
    ),
    speaks("error", folder(write_error="EPERM"), saying=["immutable", "`lsattr -d"]),
    speaks(
        "error",
        folder(is_directory=False, write_error="ENOTDIR"),
        saying=["a file stands where a folder should be", "/home/kim/ckpts is a file"],
    ),
    speaks("error", folder(write_error="ESTALE"), saying=["NFS server"]),
    speaks("error", folder(write_error="EIO"), saying=["I/O error", "dmesg"]),
    speaks(
        "error", folder(write_error="ENODEV"), saying=["the kernel says ENODEV", "findmnt -T /h"]
    ),
    speaks("error", folder(purpose="logs", write_error="EACCES"), saying=["first line of log"]),
    speaks(
        "error",
        folder(exists=False, write_error="EEXIST"),
        saying=["cannot be made", "a link that leads nowhere", "`ls -ld /"],
    ),
    silent(a_machine()),
    silent(folder(write_error="ENOSPC")),  # disk-full has the words
    silent(folder(write_error="EDQUOT")),
    skips(folder(write_error="EOPNOTSUPP", filesystem="nfs4"), saying=["nfs4", "unnamed"]),
    skips(a_machine(folders=Unread(why="NFS hangs")), saying=["NFS hangs"]),
    not_applicable(a_machine(folders=()), saying=["no checkpoint or log folder"]),
)
