"""Racks from Slurm's topology and from names; never guessed."""

from __future__ import annotations

import pytest

from holdfast.nodes.reach.rack import from_names, from_slurm


@pytest.mark.parametrize(
    ("address", "pattern", "rack"),
    [
        ("top.leaf2.nb", "switch.switch.node", "leaf2"),
        ("leaf.na", "switch.node", "leaf"),
        ("s0.s[4-7].n1", "switch.switch.node", "s[4-7]"),
        ("b3.n1", "block.node", "b3"),
        ("leaf2.nb.example.org", "switch.node", "leaf2"),
        ("nb", "node", ""),
        ("nb.example.org", "node", ""),
        ("", "", ""),
        ("nb", "", ""),
        ("nb", "switch.switch.node", ""),
    ],
)
def test_slurms_topology(address: str, pattern: str, rack: str) -> None:
    environment = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    assert from_slurm(environment) == rack


def test_without_slurm_there_is_no_topology() -> None:
    assert from_slurm({}) == ""


@pytest.mark.parametrize(
    ("names", "racks"),
    [
        (["r12-n03", "r12-n04", "r13-n03"], ["r12", "r12", "r13"]),
        (["rack3-node4", "rack4-node4"], ["rack3", "rack4"]),
        (["gpu-rack03-07", "gpu-rack11-07"], ["gpu-rack03", "gpu-rack11"]),
        (["rack3node4", "rack4node4"], ["rack3", "rack4"]),
        (["R1N1.example.org", "r2n1.example.org"], ["r1", "r2"]),
        (["r1i0n7", "r1i1n7"], ["r1", "r1"]),
        (["x1000c0s0b0n0", "x1001c0s0b0n1"], ["x1000", "x1001"]),
        (["dc1-r4-gpu7", "dc1-r5-gpu7"], ["dc1-r4", "dc1-r5"]),
    ],
)
def test_names_that_tell(names: list[str], racks: list[str]) -> None:
    assert from_names(names) == racks


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["node001", "node002"],
        ["a", "b"],
        ["r12-n03", "login"],  # one that tells nothing makes the others a guess
        ["a-r1-n1", "b-r1-n1"],  # two schemes
        ["worker-1", "worker-2"],
        ["10.0.0.1", "10.0.0.2"],
        ["server1-n1", "server2-n1"],
        ["ip-10-0-1-7", "ip-10-0-2-7"],
        ["tracker3", "tracker4"],
        ["user2-g1", "user3-g1"],
    ],
)
def test_names_that_do_not(names: list[str]) -> None:
    assert from_names(names) == [""] * len(names)
