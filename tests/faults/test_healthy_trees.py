"""Faults that judge the PCI tree say nothing about healthy machines, on one node and on several."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import catalogue
from tests.check.readers import pci_trees
from tests.faults.machines import a_plan
from tests.faults.made_topologies import on_tree

HEALTHY: dict[str, Callable[[Path], pci_trees.PciTree]] = {
    "rack server": pci_trees.dgx_h100,
    "switches below switches": pci_trees.hgx_a100,
    "workstation": lambda root: pci_trees.workstation(root, iommu="identity"),
    "switched workstation": pci_trees.switched_workstation,
    "one GPU in a guest": pci_trees.one_gpu_passed_through,
    "cloud": pci_trees.eight_gpus_of_a_cloud,
}


@pytest.mark.parametrize("make", HEALTHY.values(), ids=list(HEALTHY))
def test_silent(tmp_path: Path, make: Callable[[Path], pci_trees.PciTree]) -> None:
    tree = make(tmp_path)
    faults = catalogue.choose(["p2p-acs-iommu", "gpu-direct-off", "known-defect"], [])
    for nvlink, nodes in itertools.product((False, True), (1, 4)):
        machine = on_tree(tree, nvlink=nvlink, plan=a_plan(min_nodes=nodes, max_nodes=nodes))
        said = [f.summary for f in catalogue.check(machine, faults) if f.status.concern]
        assert said == [], (nvlink, nodes)
