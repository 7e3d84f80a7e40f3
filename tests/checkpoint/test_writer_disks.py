"""Disks that refuse: the answer says why, nothing is left behind, the next save is tried again."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.holdfast_command import in_a_namespace

ON_A_DISK = """
import os, sys
from holdfast.checkpoint.messages import FilePiece, SaveOrder
from holdfast.checkpoint.writer_process import WriterProcess
folder, size = sys.argv[1], int(sys.argv[2])
fd = os.memfd_create("state")
os.posix_fallocate(fd, 0, size)
writer = WriterProcess()
for step in range(1, int(os.environ.get("SAVES", "3")) + 1):
    writer.ask(SaveOrder(folder=folder, step=step, token="0f", rank=0, world_size=1, keep=9,
                    pieces=(FilePiece(name="rank-0.safetensors", fd=fd, size=size),)), (fd,))
    answer = writer.answer(30)
    made = [*(answer.failed or answer.committed).made_room]
    print(answer.failed.errno if answer.failed else "committed", sorted(os.listdir(folder)), *made)
    if step == 2 and sys.argv[3]:
        os.unlink(os.path.join(folder, sys.argv[3]))
writer.close()
"""


def three_saves(
    folder: Path, inside: list[str], *, size: int = 5000, then_remove: str = "", saves: int = 3
) -> list[str]:
    command = [*inside, sys.executable, "-c", ON_A_DISK, str(folder), str(size), then_remove]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "SAVES": str(saves)},
    )
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.mark.lab
def test_a_full_disk_costs_one_save_and_leaves_nothing(tmp_path: Path) -> None:
    setup = (
        f"mount -t tmpfs -o size=8m tmpfs '{tmp_path}'; "
        f"head -c 3000000 /dev/zero > '{tmp_path}/ballast'"
    )
    inside = in_a_namespace("mount", setup=setup)
    assert three_saves(tmp_path, inside, size=3_500_000, then_remove="ballast") == [
        "committed ['ballast', 'step-000000001']",
        f"{errno.ENOSPC} ['ballast', 'step-000000001']",
        "committed ['step-000000001', 'step-000000003']",
    ]


@pytest.mark.lab
def test_a_disk_for_two_gets_every_save(tmp_path: Path) -> None:
    """keep=9, and no room for a third beside two: the oldest goes before, not after."""
    inside = in_a_namespace("mount", setup=f"mount -t tmpfs -o size=8m tmpfs '{tmp_path}'")
    assert three_saves(tmp_path, inside, size=3_500_000, saves=4) == [
        "committed ['step-000000001']",
        "committed ['step-000000001', 'step-000000002']",
        "committed ['step-000000002', 'step-000000003'] step-000000001",
        "committed ['step-000000003', 'step-000000004'] step-000000002",
    ]


@pytest.mark.lab
def test_a_read_only_disk_is_an_answer(tmp_path: Path) -> None:
    setup = f"mount -t tmpfs -o ro tmpfs '{tmp_path}'"
    inside = in_a_namespace("mount", setup=setup)
    assert three_saves(tmp_path, inside) == [f"{errno.EROFS} []"] * 3


@pytest.mark.lab
def test_a_folder_without_permission_is_an_answer(tmp_path: Path) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv (util-linux)")
    tmp_path.chmod(0o555)
    # Permissions do not count for root unless it gives this up.
    as_anybody = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    inside = as_anybody if os.geteuid() == 0 else []
    assert three_saves(tmp_path, inside) == [f"{errno.EACCES} []"] * 3
