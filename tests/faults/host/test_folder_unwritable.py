from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import MachineFacts, Unread
from tests.analysis.logs.patterns.made import traceback, wreckage
from tests.faults.machines import a_folder, a_machine
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)


def folder(**changes: Any) -> MachineFacts:
    return a_machine(folders=(a_folder(**changes),))


test_check = check_table(
    "folder-unwritable",
    speaks(
        "error",
        folder(read_only=True, write_error="EROFS"),
        saying=[
            "/home/kim/ckpts (checkpoints) is not writable: its mount is read-only",
            "EROFS on ext4, mounted read-only",
            "`findmnt -T /home/kim/ckpts`",
            "first save",
        ],
    ),
    speaks("error", folder(read_only=True), saying=["its mount is read-only"]),
    speaks(
        "error",
        folder(exists=False, looked_at="/home", write_error="EACCES"),
        saying=["cannot be created in /home: this user has no write permission", "`ls -ld /home`"],
    ),
    speaks("error", folder(write_error="EPERM"), saying=["immutable", "`lsattr -d"]),
    speaks(
        "error",
        folder(is_directory=False, write_error="ENOTDIR"),
        saying=["a file has the name of the folder", "/home/kim/ckpts is a file"],
    ),
    speaks("error", folder(write_error="ESTALE"), saying=["NFS server"]),
    speaks("error", folder(write_error="EIO"), saying=["I/O error", "dmesg"]),
    speaks(
        "error",
        folder(write_error="ENODEV"),
        saying=["the kernel returned ENODEV", "findmnt -T /h"],
    ),
    speaks(
        "warning",  # the run is kept elsewhere
        folder(purpose="logs", write_error="EACCES"),
        saying=["in a temporary folder instead", "holdfast run --runs DIR"],
    ),
    speaks(
        "error",
        folder(exists=False, write_error="EEXIST"),
        saying=["cannot be created", "a dangling symbolic link", "`ls -ld /"],
    ),
    silent(a_machine()),
    silent(folder(write_error="ENOSPC")),  # disk-full has the words
    silent(folder(write_error="EDQUOT")),
    skips(folder(write_error="EOPNOTSUPP", filesystem="nfs4"), saying=["nfs4", "unnamed"]),
    skips(a_machine(folders=Unread(why="NFS hangs")), saying=["NFS hangs"]),
    not_applicable(a_machine(folders=()), saying=["no checkpoint or log folder"]),
)

DENIED = "PermissionError: [Errno 13] Permission denied: '/ckpt/step-1/model.pt'"


test_explain = explain_table(
    "folder-unwritable",
    recognises(
        wreckage("[rank0]: OSError: [Errno 30] Read-only file system: '/ckpt/step-1'"),
        sure=0.92,
        rank=0,
        what="/ckpt/step-1",
        saying=["could not write /ckpt/step-1: its file system is mounted read-only", "findmnt"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: Parent directory /ckpt/run7 does not exist."),
        sure=0.85,
        rank=0,
        what="/ckpt/run7",
        saying=["mkdir -p"],
    ),
    recognises(
        wreckage("[rank0]: OSError: [Errno 116] Stale file handle: '/nfs/ckpt/latest'"),
        sure=0.9,
        rank=0,
        saying=["NFS server no longer knows"],
    ),
    recognises(
        wreckage(*traceback(DENIED, "/work/train.py:57 save_checkpoint", rank=0)),
        sure=0.8,
        rank=0,
        saying=["could not write /ckpt/step-1/model.pt"],
    ),
    recognises(
        wreckage(*traceback(DENIED, "/work/train.py:57 load_dataset", rank=0)),
        sure=0.5,
        rank=0,
        saying=["could not use"],
    ),
    passes_over(wreckage("sh: can't create /proc/sys/net/core/somaxconn: Read-only file system")),
    passes_over(wreckage("PermissionError: [Errno 13] Permission denied")),
)
