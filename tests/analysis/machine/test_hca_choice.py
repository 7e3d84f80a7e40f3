from __future__ import annotations

import pytest

from holdfast.analysis.machine import RdmaPort, hca_choice
from tests.faults.machines import a_port_of

PORTS = (
    a_port_of("mlx5_0"),
    a_port_of("mlx5_1"),
    a_port_of("mlx5_1", 2, state="DOWN"),
    a_port_of("mlx5_10", link_layer="Ethernet"),
)
ALL = ["mlx5_0:1", "mlx5_1:1", "mlx5_10:1"]


def names(ports: tuple[RdmaPort, ...]) -> list[str]:
    return [port.name for port in ports]


@pytest.mark.parametrize(
    ("value", "taken", "unknown"),
    [
        ("", ALL, []),
        ("mlx5", ALL, []),
        ("mlx5_1", ["mlx5_1:1", "mlx5_10:1"], []),  # a prefix
        ("=mlx5_1", ["mlx5_1:1"], []),
        ("=mlx5_1:2", [], []),  # it is there, but DOWN
        ("=mlx5_0:1,mlx5_1:1", ["mlx5_0:1", "mlx5_1:1"], []),
        ("=mlx5_0:1,=mlx5_1:1", ["mlx5_0:1"], ["=mlx5_1:1"]),  # the sign counts once
        ("=mlx5_0:2", [], ["mlx5_0:2"]),
        ("=mlx5_0:1:2:0", ["mlx5_0:1"], []),  # rail and plane do not select
        ("=mlx5_0:a", [], ["mlx5_0:0"]),
        ("^mlx5_1", ["mlx5_0:1"], []),
        ("^=mlx5_1", ["mlx5_0:1", "mlx5_10:1"], []),
        ("^=mlx5_1:1", ["mlx5_0:1", "mlx5_10:1"], []),
        ("^mlx5_9", ALL, []),
        ("mlx5_9,mlx5_0", ["mlx5_0:1"], ["mlx5_9"]),
        ("ib0", [], ["ib0"]),
        ("^", [], []),  # an empty list stands for every port
        (",mlx5_0,", ["mlx5_0:1"], []),
    ],
)
def test_ports_that_nccl_takes(value: str, taken: list[str], unknown: list[str]) -> None:
    choice = hca_choice.choose(PORTS, value)
    assert names(choice.taken) == taken
    assert list(choice.unknown) == unknown
    assert sorted([*taken, *(one.name for one in choice.passed)]) == sorted(names(PORTS))


def test_why_a_port_is_passed_over() -> None:
    choice = hca_choice.choose(PORTS, "mlx5_1")
    assert {one.name: one.why for one in choice.passed} == {
        "mlx5_0:1": "does not match NCCL_IB_HCA=mlx5_1",
        "mlx5_1:2": "DOWN, not ACTIVE",
    }
    efa = hca_choice.choose((a_port_of("rdmap0s6", link_layer="Unspecified"),), "")
    assert efa.taken == ()
    assert efa.passed[0].why == "link layer Unspecified"
    assert names(choice.inactive) == ["mlx5_1:2"]
    assert choice.widened == (("mlx5_1", ("mlx5_10",)),)
    assert hca_choice.choose(PORTS, "=mlx5_1").widened == ()
    excluded = hca_choice.choose(PORTS, "^mlx5_0").passed
    assert excluded[0].why == "excluded by NCCL_IB_HCA=^mlx5_0"
