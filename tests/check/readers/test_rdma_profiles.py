"""From a recorded tree to findings: each fault is found, and none on healthy machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.analysis.machine import MachineFacts
from holdfast.catalogue import by_slug
from holdfast.check.readers import rdma as reader
from holdfast.system import rdma_verbs
from tests.check.readers import rdma_trees as trees
from tests.check.readers.rdma_trees import a_card
from tests.faults.machines import a_machine, a_plan, software

FAULTS = ("ib-misconfig", "ib-memlock", "hca-name-missing", "rdma-unused", "slow-nic")
TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
Tree = Callable[[Path], None]


def looked_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> MachineFacts:
    """libibverbs, which this tree has not, opens every card whose device node can be opened."""
    monkeypatch.setattr(rdma_verbs, "opened", lambda cards, _: list(cards))
    place = str(root)
    gpus = tuple(f"/dev/nvidia{n}" for n in range(8))
    with_plugin = msgspec.structs.replace(
        software(nccl="2.29.7"), net_plugins=("/opt/amazon/ofi-nccl/lib/libnccl-net.so",)
    )
    return a_machine(
        TWO_NODES,
        accelerators=gpus,
        software=with_plugin,
        rdma_devices=reader.read_rdma_devices(TWO_NODES, place),
        rdma_ports=reader.read_rdma_ports(TWO_NODES, place, between=0),
        rdma_cards=reader.read_rdma_cards(TWO_NODES, place),
    )


def found(facts: MachineFacts) -> dict[str, list[str]]:
    return {
        slug: said
        for slug in FAULTS
        if (said := [f.summary for f in by_slug(slug).ask_check(facts) if f.status.concern])
    }


def rails(root: Path, count: int = 8, *, node: bool = True) -> None:
    for n in range(count):
        a_card(root, f"mlx5_{n}", bus=f"0000:{n + 16:x}:00.0", uverbs=n, node=node,
               interfaces=[f"ib{n}"])  # fmt: skip


def dgx(root: Path) -> None:
    """Rails, and two cards for storage with one cable each; both ports are cards of their own."""
    rails(root)
    half = trees.infiniband(rate="200 Gb/sec (4X HDR)")
    for n, port in enumerate((half, trees.down(), half, trees.down()), start=8):
        a_card(
            root, f"mlx5_{n}", port, bus=f"0000:{n + 16:x}:00.0", uverbs=n, board="MT_0000001069"
        )


def roce(root: Path) -> None:
    for n in range(8):
        port = trees.roce(f"10.{n}.0.5", interface=f"rail{n}")
        a_card(root, f"mlx5_{n}", port, bus=f"0000:{n + 16:x}:00.0", uverbs=n,
               interfaces=[f"rail{n}"])  # fmt: skip


def efa(root: Path) -> None:
    for n in range(4):
        a_card(root, f"rdmap{n}s27", trees.efa(), driver="efa", board="",
               bus=f"0000:{n + 16:x}:1b.0", uverbs=n)  # fmt: skip


def guests(root: Path) -> None:
    rails(root)
    for n in range(8, 24):
        a_card(root, f"mlx5_{n}", trees.down("3: Disabled"), bus=f"0000:{n + 16:x}:00.2", uverbs=n,
               virtual_function=True)  # fmt: skip


def own_namespace(root: Path) -> None:
    """A container with macvlan: it sees addresses of the host, and its own."""
    own, foreign = trees.roce("10.1.0.5"), trees.roce("10.1.0.9", foreign=True)
    port = {
        **foreign,
        **{f"gids/{n + 4}": own[f"gids/{n}"] for n in range(4)},
        **{f"gid_attrs/types/{n + 4}": own[f"gid_attrs/types/{n}"] for n in range(4)},
    }
    a_card(root, "mlx5_0", port)


def errors_of_old(root: Path) -> None:
    for n in range(8):
        counted = {"link_downed": 3, "symbol_error": 65535, "packet_seq_err": 90210}
        a_card(root, f"mlx5_{n}", trees.infiniband(counters=counted), uverbs=n,
               bus=f"0000:{n + 16:x}:00.0")  # fmt: skip


@pytest.mark.parametrize("tree", [rails, dgx, roce, efa, guests, own_namespace, errors_of_old])
def test_a_healthy_machine_is_silent(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path)
    assert found(looked_at(tmp_path, monkeypatch)) == {}


def one_rail_down(root: Path) -> None:
    rails(root, 7)
    a_card(root, "mlx5_7", trees.down(), bus="0000:30:00.0", uverbs=7)


def no_subnet_manager(root: Path) -> None:
    a_card(root, "mlx5_0", trees.initialising())


def without_nodes(root: Path) -> None:
    rails(root, node=False)


def without_address(root: Path) -> None:
    a_card(root, "mlx5_0", trees.roce(""), interfaces=["ens1f0np0"])


def slower_rail(root: Path) -> None:
    rails(root, 7)
    a_card(root, "mlx5_7", trees.infiniband(rate="100 Gb/sec (1X NDR)"), bus="0000:30:00.0",
           uverbs=7)  # fmt: skip


@pytest.mark.parametrize(
    ("tree", "slug", "words"),
    [
        (one_rail_down, "ib-misconfig", "mlx5_7:1 is down, while the other 7 ports"),
        (no_subnet_manager, "ib-misconfig", "mlx5_0:1 waits for a subnet manager"),
        (without_nodes, "ib-misconfig", "8 RDMA cards here, and this user can open none"),
        (without_address, "ib-misconfig", "mlx5_0:1: NCCL finds no IP address for RoCE"),
        (slower_rail, "slow-nic", "mlx5_7:1 runs at 100 Gb/sec (1X NDR) only"),
    ],
)
def test_a_fault_is_found_and_no_other(
    tree: Tree, slug: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path)
    said = found(looked_at(tmp_path, monkeypatch))
    assert list(said) == [slug]
    assert [words in sentence for sentence in said[slug]] == [True]


def test_old_nccl_stumbles_over_addresses_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_namespace(tmp_path)
    facts = looked_at(tmp_path, monkeypatch)
    assert not isinstance(facts.software, str)
    old = msgspec.structs.replace(facts.software.nccl[0], version="2.25.1")  # type: ignore[union-attr]
    software = msgspec.structs.replace(facts.software, nccl=(old,))
    said = found(msgspec.structs.replace(facts, software=software))
    assert "does not tell the type" in said["ib-misconfig"][0]
