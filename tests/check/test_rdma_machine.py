"""`holdfast check` as a whole on a machine with RDMA cards: /sys/class and /dev are replaced in a
mount namespace, and libibverbs is one whose cards are lines of a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.check.readers import rdma_trees as trees
from tests.check.readers.rdma_trees import a_card, a_libibverbs
from tests.check.readers.trees import needs_root

FAULTS = ("ib-misconfig", "ib-memlock", "hca-name-missing", "rdma-unused", "slow-nic")
ENTER = """
set -e
hide() {  # the folder, with these entries in place of its own
  mkdir -p "$ROOT/kept/$1" && mount --rbind "/$1" "$ROOT/kept/$1" && mount -t tmpfs tmpfs "/$1"
  for one in "$ROOT/kept/$1"/*; do ln -s "$one" "/$1/${one##*/}"; done
}
hide sys/class
hide dev
for one in sys/class/infiniband sys/class/infiniband_verbs dev/infiniband; do
  ln -sfn "$ROOT/$one" "/$one"
done
exec "$@"
"""


def check(root: Path, *more: str) -> tuple[int, list[tuple[str, str, str]]]:
    """Exit code, and status, fault and summary of what was found."""
    only = [word for slug in FAULTS for word in ("--only", slug)]
    command = [sys.executable, "-m", "holdfast", "check", "--json", *only, *more]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", *command],
        env={
            **os.environ,
            "ROOT": str(root),
            "FAKE_VERBS": str(root / "cards"),
            "NCCL_IBVERBS_LIB": str(root / "libibverbs.so.1"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if "denied" in done.stderr or "not permitted" in done.stderr:
        pytest.skip("needs a mount namespace")
    assert done.stdout, done.stderr
    document = msgspec.json.decode(done.stdout)
    found = [(f["status"], f["slug"], f["summary"]) for f in document["findings"]]
    return done.returncode, found


def a_machine(root: Path, *, down: int | None = None) -> None:
    needs_root()
    a_libibverbs(root)
    (root / "cards").write_text("".join(f"mlx5_{n} 0 5\n" for n in range(4)))
    for n in range(4):
        port = trees.down() if n == down else trees.infiniband(counters={"link_downed": 2})
        a_card(root, f"mlx5_{n}", port, bus=f"0000:{n + 16:x}:00.0", uverbs=n)


@pytest.mark.long
def test_a_healthy_machine(tmp_path: Path) -> None:
    a_machine(tmp_path)
    code, found = check(tmp_path, "--nnodes", "2")
    assert code == 0
    assert [one for one in found if one[0] in ("error", "warning", "note")] == []
    assert ("ok", "ib-misconfig", "this user can open 4 RDMA cards") in found


@pytest.mark.long
def test_a_port_that_is_down(tmp_path: Path) -> None:
    a_machine(tmp_path, down=2)
    _, found = check(tmp_path, "--nnodes", "2")
    said = [one for one in found if one[0] in ("error", "warning", "note")]
    assert [(one[1], "mlx5_2:1 is down" in one[2]) for one in said] == [("ib-misconfig", True)]


@pytest.mark.long
def test_a_card_without_its_user_space_driver(tmp_path: Path) -> None:
    a_machine(tmp_path)
    (tmp_path / "cards").write_text("")
    code, found = check(tmp_path, "--nnodes", "2")
    assert code == 1
    (said,) = [one for one in found if one[0] == "warning"]
    assert said[1] == "rdma-unused"
    assert "libibverbs has no driver for the cards" in said[2]
