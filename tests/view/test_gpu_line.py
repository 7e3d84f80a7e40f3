"""The line of a check that says which GPUs there are."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.analysis.machine import NvidiaFacts, RocmFacts, Unread
from holdfast.analysis.nodes import Node
from holdfast.view import gpu_line
from tests.faults.machines import a_machine
from tests.faults.made_gpus import a_gpu, nvidia
from tests.faults.made_nodes import replace, some_nodes

AMD = RocmFacts(gpus=("AMD Instinct MI300X",) * 8, driver="6.12.12")


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "GPUs: 4 × NVIDIA H100 PCIe (80 GiB), driver 580.95.05 (CUDA 13.0)"),
        (
            {"nvidia": nvidia(a_gpu(), a_gpu(1, name="NVIDIA L40S", memory_total=None))},
            "GPUs: 1 × NVIDIA H100 PCIe (80 GiB) + 1 × NVIDIA L40S, driver 580.95.05 (CUDA 13.0)",
        ),
        (
            {"nvidia": nvidia(a_gpu(), a_gpu(1, unread="GPU is lost", unread_kind="lost"))},
            "GPUs: 1 × NVIDIA H100 PCIe (80 GiB), GPU 1 not readable, driver 580.95.05 (CUDA 13.0)",
        ),
        (
            {"nvidia": nvidia(a_gpu(mig=True, mig_devices=("MIG-1", "MIG-2")))},
            "GPUs: 1 × NVIDIA H100 PCIe (80 GiB), 2 MIG instances, driver 580.95.05 (CUDA 13.0)",
        ),
        (
            {"nvidia": NvidiaFacts(present=True, module="580.95.05", error="Unknown Error")},
            "GPUs: NVIDIA driver 580.95.05 does not work: Unknown Error",
        ),
        (
            {"nvidia": NvidiaFacts(present=True, error="Driver Not Loaded")},
            "GPUs: NVIDIA driver does not work: Driver Not Loaded",
        ),
        (
            {"nvidia": NvidiaFacts(present=True, module="580.95.05", cuda="13.0")},
            "GPUs: none, driver 580.95.05 (CUDA 13.0)",
        ),
        (
            {"nvidia": NvidiaFacts(present=False), "rocm": AMD},
            "GPUs: 8 × AMD Instinct MI300X, amdgpu 6.12.12 (seen by the kernel's files only)",
        ),
        ({"nvidia": NvidiaFacts(present=False)}, ""),
        (
            {"nvidia": NvidiaFacts(present=False, module="580.95.05", error="not found")},
            "GPUs: none here, though NVIDIA's driver 580.95.05 is loaded on this machine",
        ),
        ({"nvidia": Unread(why="not asked for"), "rocm": Unread(why="not asked for")}, ""),
    ],
)
def test_what_gpus_there_are(facts: dict[str, Any], line: str) -> None:
    assert gpu_line.describe(a_machine(**facts)) == line


def test_a_name_from_outside_stays_on_its_line() -> None:
    odd = nvidia(a_gpu(name="a\nb\x1b[31m"))
    assert "\n" not in gpu_line.describe(a_machine(nvidia=odd))
    assert "\x1b" not in gpu_line.describe(a_machine(nvidia=odd))


def test_nodes_that_have_the_same_need_one_line() -> None:
    assert gpu_line.of_nodes(some_nodes(3)) == (
        "GPUs: 4 × NVIDIA H100 PCIe (80 GiB), driver 580.95.05 (CUDA 13.0), on each node"
    )


def test_nodes_that_differ_are_named() -> None:
    three = some_nodes(3)
    odd = replace(three, nodes=tuple(with_gpus(n, i) for i, n in enumerate(three.nodes)))
    assert gpu_line.of_nodes(odd).splitlines() == [
        "GPUs: 4 × NVIDIA H100 PCIe (80 GiB), driver 580.95.05 (CUDA 13.0): node-a",
        "GPUs: 1 × NVIDIA H100 PCIe (80 GiB), driver 580.95.05 (CUDA 13.0): node-b",
        "GPUs: not read: node-c",
    ]


def test_nodes_without_gpus_need_no_line() -> None:
    three = some_nodes(3)
    bare = [with_gpus(node, 3) for node in three.nodes]
    assert gpu_line.of_nodes(replace(three, nodes=tuple(bare))) == ""


def with_gpus(node: Node, kind: int) -> Node:
    gap = Unread(why="no answer within 20 s")
    seen = (node.facts.nvidia, nvidia(a_gpu()), gap, NvidiaFacts(present=False))[kind]
    return replace(node, facts=replace(node.facts, nvidia=seen))
