from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast.analysis.machine import Gid, RdmaPort, Unread
from holdfast.analysis.machine.rdma import NO_ANSWER, NO_DRIVER, NO_LIBRARY, grown
from holdfast.check.readers import rdma as reader
from holdfast.system import rdma, rdma_verbs
from tests.check.readers import rdma_trees as trees
from tests.check.readers.rdma_trees import a_card, a_libibverbs
from tests.faults.machines import a_plan

PLAN = a_plan()


def ports(root: Path) -> dict[str, RdmaPort]:
    return {port.name: port for port in reader.read_rdma_ports(PLAN, str(root), between=0)}


def test_eight_rails_of_infiniband(tmp_path: Path) -> None:
    for n in range(8):
        a_card(tmp_path, f"mlx5_{n}", bus=f"0000:{n + 16:x}:00.0", uverbs=n, interfaces=[f"ib{n}"])
    a_card(tmp_path, "mlx5_10", trees.down(), bus="0000:3a:00.0", uverbs=10)
    assert reader.read_rdma_devices(PLAN, str(tmp_path))[-2:] == ("mlx5_7", "mlx5_10")
    found = ports(tmp_path)
    assert found["mlx5_3:1"] == RdmaPort(
        device="mlx5_3",
        number=1,
        state="ACTIVE",
        link_layer="InfiniBand",
        physical_state="LinkUp",
        rate=400.0,
        rate_text="400 Gb/sec (4X NDR)",
        lid=0x12,
        subnet_manager_lid=1,
        interfaces=("ib3",),
        gids=(Gid(0, "fe80:0000:0000:0000:a088:c203:0055:48ae", "IB/RoCE v1"),),
    )
    broken = found["mlx5_10:1"]
    assert (broken.state, broken.physical_state, broken.rate) == ("DOWN", "Polling", 10.0)


def test_a_card_as_a_whole(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx5_0", uverbs=3)
    a_card(tmp_path, "mlx5_1", bus="0000:1a:00.2", uverbs=4, virtual_function=True)
    first, part = rdma.cards(str(tmp_path))
    assert (first.driver, first.bus_id, first.numa) == ("mlx5_core", "0000:1a:00.0", 0)
    assert (first.firmware, first.board) == ("28.41.1000", "MT_0000000838")
    assert (first.uverbs, first.virtual_function) == ("/dev/infiniband/uverbs3", False)
    assert part.virtual_function


def test_addresses_of_roce(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx5_0", trees.roce("10.1.0.5", interface="bond0"))
    gids = ports(tmp_path)["mlx5_0:1"].gids
    assert [(gid.index, gid.kind, gid.interface) for gid in gids] == [
        (0, "IB/RoCE v1", "bond0"),
        (1, "RoCE v2", "bond0"),
        (2, "IB/RoCE v1", "bond0"),
        (3, "RoCE v2", "bond0"),
    ]
    assert gids[3].gid.endswith("ffff:0a01:0005")
    assert ports(tmp_path)["mlx5_0:1"].interfaces == ("bond0",)


def test_addresses_of_another_network_namespace_have_no_type(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx5_0", trees.roce("10.1.0.5", foreign=True))
    assert {gid.kind for gid in ports(tmp_path)["mlx5_0:1"].gids} == {""}


def test_two_ports_of_one_card_have_their_own_interfaces(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx4_0", trees.infiniband(), trees.down(), interfaces=["ib0", "ib1"])
    found = ports(tmp_path)
    assert found["mlx4_0:1"].interfaces == ("ib0",)
    assert found["mlx4_0:2"].interfaces == ("ib1",)


def test_efa_and_a_card_made_of_software(tmp_path: Path) -> None:
    a_card(tmp_path, "rdmap16s27", trees.efa(), driver="efa", board="")
    software = tmp_path / "sys/class/infiniband/rxe0/ports/1"
    software.mkdir(parents=True)
    (software / "state").write_text("4: ACTIVE\n")
    found = ports(tmp_path)
    assert found["rdmap16s27:1"].link_layer == "Unknown"
    assert found["rxe0:1"].link_layer == ""
    virtual, of_amazon = rdma.cards(str(tmp_path))
    assert (virtual.name, virtual.driver, virtual.bus_id) == ("rxe0", "", "")
    assert of_amazon.driver == "efa"


def test_a_machine_without(tmp_path: Path) -> None:
    assert reader.read_rdma_devices(PLAN, str(tmp_path)) == ()
    assert reader.read_rdma_ports(PLAN, str(tmp_path)) == ()
    assert reader.read_rdma_cards(PLAN, str(tmp_path)) == ()
    # the kernel's connection manager alone: an image with RDMA software on a machine without cards
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    (tmp_path / "dev/infiniband/rdma_cm").touch()
    assert reader.read_rdma_cards(PLAN, str(tmp_path)) == ()


# --- counters ------------------------------------------------------------------------------------


def test_errors_that_grow_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {"symbol_error": 7, "link_downed": 2, "packet_seq_err": 40}
    a_card(tmp_path, "mlx5_0", trees.infiniband(counters=errors))
    counter = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"
    monkeypatch.setattr(time, "sleep", lambda _: counter.write_text("19\n"))
    (port,) = reader.read_rdma_ports(PLAN, str(tmp_path))
    assert port.counters == errors
    assert port.growing == {"symbol_error": 12}


def test_a_port_that_never_counted_an_error_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_card(tmp_path, "mlx5_0")
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited for nothing"))
    (port,) = reader.read_rdma_ports(PLAN, str(tmp_path))
    assert (port.counters, port.growing) == ({}, {})


def test_a_counter_that_was_reset_did_not_grow() -> None:
    assert grown({"symbol_error": 9, "link_downed": 1}, {"symbol_error": 2, "link_downed": 1}) == {}
    assert grown({}, {"link_downed": 1}) == {"link_downed": 1}


def test_a_look_of_a_run_costs_its_deadline_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_card(tmp_path, "mlx5_0", trees.infiniband(counters={"symbol_error": 7}))
    monkeypatch.setattr(rdma, "LOOK_SECONDS", 30.0)
    seen = rdma.look(str(tmp_path))
    assert isinstance(seen, tuple)
    assert seen[0].counters == {"symbol_error": 7}
    hangs = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"
    hangs.unlink()
    os.mkfifo(hangs)  # no writer: as a card whose firmware does not answer
    monkeypatch.setattr(rdma, "LOOK_SECONDS", 0.2)
    assert isinstance(rdma.look(str(tmp_path)), Unread)
    assert rdma.look(str(tmp_path / "none")) == ()


# --- opening cards -------------------------------------------------------------------------------


def test_a_container_without_device_nodes(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx5_0", node=False)
    (card,) = reader.read_rdma_cards(PLAN, str(tmp_path))
    assert (card.open_error, card.verbs_error, card.is_usable) == ("ENOENT", "", False)


def test_a_card_without_a_device_node_of_its_own(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx5_0", uverbs=None)
    assert reader.read_rdma_cards(PLAN, str(tmp_path))[0].open_error == "ENOENT"


def test_a_node_of_another_user(tmp_path: Path) -> None:
    assert rdma_verbs.open_error("/a/file", str(tmp_path)) == "ENOENT"
    (tmp_path / "a").touch()
    assert rdma_verbs.open_error("/a/file", str(tmp_path)) == "ENOTDIR"


def cards_by_library(root: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> dict[str, object]:
    (root / "cards").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setenv("FAKE_VERBS", str(root / "cards"))
    plan = a_plan(environment={"NCCL_IBVERBS_LIB": a_libibverbs(root)})
    cards = reader.read_rdma_cards(plan, str(root))
    return {card.name: card.verbs_error or card.active_mtu for card in cards}


def test_what_libibverbs_makes_of_each_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for n, name in enumerate(("mlx5_0", "mlx5_1", "mlx5_2", "bnxt_re0")):
        a_card(tmp_path, name, bus=f"0000:{n + 16:x}:00.0", uverbs=n)
    monkeypatch.setattr(rdma_verbs, "SECONDS", 30.0)
    found = cards_by_library(tmp_path, monkeypatch, "mlx5_0 0 5", "mlx5_1 0 3 5", "mlx5_2 12 5")
    assert found == {
        "mlx5_0": {1: 4096},
        "mlx5_1": {1: 1024, 2: 4096},
        "mlx5_2": "ENOMEM",
        "bnxt_re0": NO_DRIVER,
    }
    assert "Warning" not in capfd.readouterr().err


def test_a_card_that_hangs_is_the_one_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_card(tmp_path, "mlx5_0")
    monkeypatch.setattr(rdma_verbs, "SECONDS", 0.3)
    assert cards_by_library(tmp_path, monkeypatch, "mlx5_0 -1 5") == {"mlx5_0": NO_ANSWER}


def test_a_machine_without_libibverbs(tmp_path: Path) -> None:
    a_card(tmp_path, "mlx5_0")
    cards = rdma_verbs.opened(rdma.cards(str(tmp_path)), [str(tmp_path / "libibverbs.so")])
    assert [card.verbs_error for card in cards] == [NO_LIBRARY]
