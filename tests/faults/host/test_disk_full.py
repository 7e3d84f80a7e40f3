from __future__ import annotations

import msgspec

from holdfast.analysis.machine import CheckpointItem, Folder, MachineFacts, Unread
from holdfast.analysis.scene.checkpoints import CheckpointAccount, SaveFailed
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import GIB, a_folder, a_machine
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import a_rank, a_scene, ended, lost_its_peer, words


def checkpoint(size: int, path: str = "/home/kim/ckpts/step-10.pt") -> CheckpointItem:
    return CheckpointItem(path=path, kind="torch-file", size=size, age=60.0, problem="")


def holding(folder: Folder, *checkpoints: CheckpointItem) -> MachineFacts:
    return a_machine(folders=(folder,), checkpoints=checkpoints)


test_check = check_table(
    "disk-full",
    speaks(
        "error",
        holding(a_folder(free=0, write_error="ENOSPC")),
        saying=["nothing can be written to /home/kim/ckpts (checkpoints): no space", "du -xsh"],
    ),
    speaks(
        "error",  # df shows room, the quota says no
        holding(a_folder(write_error="EDQUOT")),
        saying=["the quota is used up", "writing a small file there failed", "ext4: 500 GiB of"],
    ),
    speaks("error", holding(a_folder(inodes_free=0)), saying=["no inodes are left", "inodes 0 of"]),
    speaks("error", holding(a_folder(free=0)), saying=["no space is left for this user"]),
    speaks(
        "warning",
        holding(a_folder(free=GIB // 2)),
        saying=["only 512 MiB is free for /home/kim/ckpts", "100 million parameters"],
    ),
    speaks(
        "warning",
        a_machine(folders=(a_folder(purpose="logs", free=50 << 20),)),
        saying=["logs of a long run"],
    ),
    speaks(
        "warning",
        holding(a_folder(free=90 * GIB), checkpoint(100 * GIB), checkpoint(GIB)),
        saying=["may not fit into /home/kim/ckpts", "takes 100 GiB, and 90 GiB is free"],
    ),
    speaks(
        "warning",  # 4 % free: once is not enough
        holding(a_folder(free=40 * GIB), checkpoint(30 * GIB)),
        saying=["may not fit"],
    ),
    speaks(
        "warning",  # bytes enough, but a file needs a name as well
        holding(a_folder(inodes_free=3), checkpoint(GIB)),
        saying=["takes 4 inodes, and room for 3 files is free"],
    ),
    silent(a_machine()),
    silent(holding(a_folder(free=150 * GIB), checkpoint(100 * GIB))),
    silent(holding(a_folder(free=40 * GIB), checkpoint(15 * GIB))),
    silent(holding(a_folder(free=90 * GIB), checkpoint(100 * GIB, "/home/kim/ckpts-old/a.pt"))),
    silent(holding(a_folder(inodes=0, inodes_free=0))),  # btrfs counts none
    silent(holding(a_folder(size=0, free=0))),  # a network mount that does not tell
    silent(a_machine(folders=(a_folder(purpose="logs", free=GIB // 2),))),
    silent(holding(a_folder(write_error="EACCES"))),  # folder-unwritable has the words
    not_applicable(
        holding(a_folder(read_only=True, free=0, write_error="EROFS")), saying=["unwritable"]
    ),
    not_applicable(a_machine(folders=()), saying=["no checkpoint or log folder"]),
    skips(a_machine(folders=Unread(why="NFS hangs")), saying=["NFS hangs"]),
    skips(
        a_machine(folders=(a_folder(),), checkpoints=Unread(why="too many files")),
        saying=["too many files"],
    ),
)

NO_SPACE = words("OSError", "[Errno 28] No space left on device: 'ckpt/last.pt'")
MASKED = words(
    "RuntimeError", "[enforce fail at inline_container.cc:664] . unexpected pos 576 vs 534"
)

test_run = run_table(
    "disk-full",
    notices(
        a_scene([ended(0, 1, said=NO_SPACE), lost_its_peer(1)]),
        ranks=[0],
        victims=[1],
        certain=True,
        saying=["rank 0 (pid 4000) found no space left on the disk", "ckpt/last.pt", "df -h"],
    ),
    notices(
        a_scene([ended(0, 1, said=MASKED), a_rank(1)]),
        ranks=[0],
        certain=True,
        saying=["could not write a file (usually a full disk)"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene([a_rank(0, words=words("OSError", "[Errno 13] Permission denied"))])),
)

test_explain = explain_table(
    "disk-full",
    recognises(
        wreckage("[rank0]: OSError: 12582912 requested and 4431872 written"),
        sure=0.7,
        rank=0,
        saying=["could not finish writing"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: basic_ios::clear: iostream error"),
        sure=0.5,
        rank=0,
        saying=["any failed write looks like this"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: write(): fd 29 failed with Input/output error"),
        sure=0.5,
        rank=0,
        saying=["could not finish"],
    ),
    recognises(
        wreckage("sqlite3.OperationalError: database or disk is full"),
        sure=0.8,
        saying=["no space left"],
    ),
    recognises(
        wreckage(
            "OSError: Not enough disk space. Needed: 1.78 TiB (download: 1.2 GiB, generated: 2 GiB)"
        ),
        sure=0.8,
        saying=["no space left"],
    ),
    passes_over(
        wreckage("Error: ENOSPC: System limit for number of file watchers reached, watch '/app'")
    ),
    passes_over(wreckage("2 GPUs requested and 2 allocated")),
    recognises(
        wreckage("[rank0]: OSError: [Errno 28] No space left on device: '/ckpt/step-1/model.pt'"),
        sure=0.95,
        rank=0,
        what="/ckpt/step-1/model.pt",
        saying=["no space left on the disk (/ckpt/step-1/model.pt)", "df -h /ckpt/step-1;"],
    ),
    recognises(
        wreckage("[rank0]: OSError: [Errno 122] Disk quota exceeded"),
        sure=0.95,
        rank=0,
        saying=["used up its quota", "quota -s"],
    ),
    recognises(
        wreckage("[rank0]: OSError: [Errno 28] No space left on device"),
        sure=0.8,
        rank=0,
        saying=["no space left on the disk"],
    ),
    recognises(
        wreckage(
            "RuntimeError: [enforce fail at inline_container.cc:626] . unexpected pos 576 vs 470"
        ),
        sure=0.7,
        saying=["usually a full disk"],
    ),
    recognises(
        wreckage("The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi"),
        sure=0.95,
        saying=["no space left"],
    ),
    passes_over(
        wreckage("failed to extend /dev/shm/nccl-x to 9 bytes, error: No space left on device")
    ),
    passes_over(wreckage("OSError: [Errno 28] inotify watch limit reached")),
)


FAILURE = SaveFailed(
    attempt=0,
    step=200,
    why="No space left on device",
    errno=28,
    where="/ckpts",
    safe=40,
    unsaved=160.0,
)
OTHER_ERROR = msgspec.structs.replace(FAILURE, errno=5)

test_saves = run_table(
    "disk-full",
    notices(
        a_scene(checkpoints=CheckpointAccount(saves_failed=9, last_failure=FAILURE)),
        ranks=[],
        certain=False,
        saying=["step 200 could not be saved", "/ckpts; last safe step 40, 160 steps ago"],
    ),
    notices(
        a_scene(checkpoints=CheckpointAccount(saves_failed=0, last_failure=FAILURE)),
        ranks=[],
        certain=False,
        saying=["step 200 could not be saved", "a later save went well"],
    ),
    overlooks(
        msgspec.structs.replace(
            a_scene(checkpoints=CheckpointAccount(last_failure=FAILURE)), attempt=1
        )
    ),
    overlooks(a_scene(checkpoints=CheckpointAccount(saves_failed=1, last_failure=OTHER_ERROR))),
)
