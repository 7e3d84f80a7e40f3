"""Machines whose 'same' folder is not the same, and files that cannot be read: for real."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.checkpoint.files import DISK
from tests.checkpoint.small_saves import save_all
from tests.cli.holdfast_command import in_a_namespace

RANK = """
import sys, torch.distributed as dist
import holdfast
dist.init_process_group("gloo")
ckpt = holdfast.Checkpoint(sys.argv[1], holdfast.State(note=1), every="1h")
try:
    print("resumed", ckpt.resume())
except holdfast.EnvironmentFailure as problem:
    print("refused", problem.sentence)
    print("hint", problem.hint)
ckpt.close()
"""


WITHOUT_RESUME = """
import sys, torch, torch.distributed as dist
import holdfast
dist.init_process_group("gloo")
ckpt = holdfast.Checkpoint(sys.argv[1], holdfast.State(note=1), every="1h")
try:
    for step in range(1, 4):
        dist.all_reduce(torch.ones(1))
        ckpt.step()
    print("trained", step)
except holdfast.EnvironmentFailure as problem:
    print("refused", problem)
    sys.stdout.flush()
    ckpt.close()
except RuntimeError:
    print("lost its peer")
"""


def two_ranks(folder: Path, inside: list[list[str]], script: str = RANK) -> list[str]:
    """What each rank printed; rank r is started inside namespaces of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [*prefix, sys.executable, "-c", script, str(folder)],
            env={**common, "RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank, prefix in enumerate(inside)
    ]  # fmt: skip
    try:
        return [rank.communicate(timeout=90)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


@pytest.mark.lab
def test_a_local_disk_in_every_machine_is_refused_before_training(tmp_path: Path) -> None:
    own_disk = f"mount -t tmpfs tmpfs '{tmp_path}'"
    machines = [
        in_a_namespace("mount", "uts", setup=f"hostname node{rank}; {own_disk}") for rank in (0, 1)
    ]
    said = two_ranks(tmp_path, machines)
    for one in said:
        assert one.startswith(
            f"refused rank 1 on node1 does not see what rank 0 on node0 wrote into {tmp_path}: "
            "each machine has a folder of its own there\n"
        )
        assert "hint put the folder on a file system that all machines of the job share" in one


@pytest.mark.long
@pytest.mark.lab
def test_without_a_resume_a_local_disk_is_refused_in_the_first_steps(tmp_path: Path) -> None:
    own_disk = f"mount -t tmpfs tmpfs '{tmp_path}'"
    machines = [
        in_a_namespace("mount", "uts", setup=f"hostname node{rank}; {own_disk}") for rank in (0, 1)
    ]
    said = two_ranks(tmp_path, machines, WITHOUT_RESUME)
    assert said[0] == "lost its peer\n"
    assert said[1].startswith(
        f"refused rank 1 on node1 does not see what rank 0 on node0 wrote into {tmp_path}: each "
        "machine has a folder of its own there [folder-not-shared]\nhint: put the folder on"
    )


@pytest.mark.lab
@pytest.mark.parametrize(
    ("script", "said"), [(RANK, "resumed 0\n"), (WITHOUT_RESUME, "trained 3\n")]
)
def test_a_shared_disk_seen_from_two_machines_is_fine(
    tmp_path: Path, script: str, said: str
) -> None:
    machines = [in_a_namespace("mount", "uts", setup=f"hostname node{rank}") for rank in (0, 1)]
    assert two_ranks(tmp_path, machines, script) == [said] * 2


ALONE = """
import sys
from holdfast.checkpoint import choose_together
choose_together.PATIENCE = 1.0
import holdfast
try:
    print("resumed", holdfast.Checkpoint(sys.argv[1], holdfast.State(note=1)).resume())
except holdfast.EnvironmentFailure as problem:
    print("refused", problem.sentence)
"""


def alone(folder: Path, inside: list[str]) -> str:
    command = [*inside, sys.executable, "-c", ALONE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.lab
def test_a_manifest_without_permission_is_not_passed_over(tmp_path: Path) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv (util-linux)")
    for step in (10, 20):
        save_all(DISK, str(tmp_path), step)
    (tmp_path / "step-000000020" / "manifest.json").chmod(0)
    as_anybody = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    said = alone(tmp_path, as_anybody if os.geteuid() == 0 else [])
    assert "cannot be read now: manifest.json: Permission denied; looking again" in said
    assert f"refused {tmp_path}/step-000000020: rank 0 on" in said
    assert sorted(path.name for path in tmp_path.glob("step-*")) == [
        "step-000000010", "step-000000020",
    ]  # fmt: skip


@pytest.mark.lab
def test_an_io_error_is_not_passed_over(tmp_path: Path) -> None:
    """The kernel's own answer, put in its place by strace, to every read of the newest manifest."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    for step in (10, 20):
        save_all(DISK, str(tmp_path), step)
    newest = tmp_path / "step-000000020" / "manifest.json"
    inject = ["strace", "-f", "-qq", "-o", os.devnull, "-P", str(newest),
              "-e", "trace=read", "-e", "inject=read:error=EIO"]  # fmt: skip
    said = alone(tmp_path, inject)
    if "ptrace" in said:
        pytest.skip("no ptrace here")
    assert f"refused {tmp_path}/step-000000020" in said
    assert "cannot be read now: manifest.json: Input/output error" in said
    assert newest.exists()
