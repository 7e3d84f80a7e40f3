"""RDMA ports compared with how they were when the ranks started, and shown beside a verdict."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.rdma import GONE, PortChange
from holdfast.analysis.scene.scene import Scene
from holdfast.run.watch import verdict
from holdfast.run.watch.rdma_watch import RdmaWatch
from holdfast.system import rdma
from tests.check.readers import rdma_trees as trees
from tests.check.readers.rdma_trees import a_card
from tests.faults.network.failing_ports import A_FEW_BITS, WENT_DOWN
from tests.faults.test_over_nodes import with_node
from tests.run.scenes import a_rank, a_scene, ended, held_up, on_nodes, words

NDR = "400 Gb/sec (4X NDR)"


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma, "LOOK_SECONDS", 30.0)


def watching(root: Path) -> RdmaWatch:
    watch = RdmaWatch(str(root))
    watch.begin()
    return watch


def port_file(root: Path, name: str) -> Path:
    return root / "sys/class/infiniband/mlx5_0/ports/1" / name


def test_errors_count_from_the_start(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx5_0", trees.infiniband(counters={"link_downed": 4}))
    watch = watching(tmp_path)
    assert watch.look() == ()
    port_file(tmp_path, "counters/link_downed").write_text("5\n")
    port_file(tmp_path, "state").write_text("1: DOWN\n")
    assert watch.look() == (
        PortChange(
            port="mlx5_0:1",
            state="DOWN",
            state_before="ACTIVE",
            rate=NDR,
            rate_before=NDR,
            errors={"link_downed": 1},
        ),
    )


def test_a_link_that_came_back_slower(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx5_0")
    watch = watching(tmp_path)
    port_file(tmp_path, "rate").write_text("100 Gb/sec (1X NDR)\n")
    seen = watch.look()
    assert isinstance(seen, tuple)
    assert seen[0].slowed_down
    assert not seen[0].went_down


def test_a_card_that_disappears(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx5_0")
    watch = watching(tmp_path)
    (tmp_path / "sys/class/infiniband/mlx5_0").unlink()
    seen = watch.look()
    assert isinstance(seen, tuple)
    assert (seen[0].state, seen[0].went_down) == (GONE, True)


def test_a_machine_without_rdma_is_not_asked(tmp_path: Path) -> None:
    assert watching(tmp_path).look() is None


def test_a_card_that_hangs_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_card(tmp_path, "mlx5_0")
    watch = watching(tmp_path)
    monkeypatch.setattr(rdma, "LOOK_SECONDS", 0.2)
    hangs = port_file(tmp_path, "counters/symbol_error")
    hangs.unlink()
    os.mkfifo(hangs)
    assert isinstance(watch.look(), Unread)
    hangs.unlink()
    assert isinstance(watch.look(), Unread)


# --- beside a verdict ----------------------------------------------------------------------------


def quotes(scene: Scene) -> list[tuple[str | None, str]]:
    found = verdict.judge(scene)
    assert found is not None
    return [(e.host, e.quote) for e in found.evidence if e.source == "/sys/class/infiniband"]


def test_a_stall_shows_what_ports_did_on_the_nodes_of_those_who_wait() -> None:
    stalled = with_node(on_nodes(held_up({2: {}})), "a", rdma=(A_FEW_BITS, WENT_DOWN))
    since = "since the ranks were started"
    assert quotes(stalled) == [
        ("a", "mlx5_3:1 went from ACTIVE to DOWN, link_downed +1 (the link failed), "
         + since),
        ("a", f"mlx5_3:1 symbol_error +3 (bits were received wrongly), {since}"),
    ]  # fmt: skip


def test_an_exception_shows_a_lost_link_and_no_wrong_bits() -> None:
    said = words("RuntimeError", "NCCL error: remote process exited", at=99.0)
    scene = a_scene([a_rank(0), ended(1, 1, said=said)], rdma=(A_FEW_BITS, WENT_DOWN))
    shown = quotes(scene)
    assert len(shown) == 1
    assert "ACTIVE to DOWN" in shown[0][1]
