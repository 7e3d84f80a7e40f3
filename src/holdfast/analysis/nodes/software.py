"""Versions that the ranks of one group should have in common, and what a difference means."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast.analysis.machine import MachineFacts, ServiceState, Software, Unread
from holdfast.analysis.machine.nvlink_fabric import domain
from holdfast.analysis.versions import release
from holdfast.findings import Status

NOT_INSTALLED = "none installed"
CPU_BUILD = "none (CPU build)"
TORCH, NCCL, CUDA, PYTHON = "torch", "NCCL", "CUDA of torch", "Python"
DRIVER, FABRIC_MANAGER, IMEX = "NVIDIA driver", "fabric manager", "IMEX"
OF_MACHINE = (DRIVER, FABRIC_MANAGER, IMEX)
"""installed on the machine, not in an environment or image"""

MEANING = {
    NCCL: "NCCL compares versions when a group forms and stops (`Mismatched NCCL version "
    "detected`, from 2.23); older ones exchange messages of unequal size and hang",
    TORCH: "ranks of one group must run the same torch: the store's protocol, the order of "
    "collectives and saved states may differ",
    CUDA: "builds for different CUDA versions bring different NCCL and kernels; a CPU build has no "
    "NCCL at all",
    PYTHON: "objects that ranks send each other (broadcast_object_list, pickled state) may not "
    "load under another minor version; a patch release makes no difference",
    DRIVER: "jobs mostly run anyway, but a defect or the speed of one driver then shows on "
    "some nodes only",
    FABRIC_MANAGER: "it starts only with a driver of exactly its version, and these nodes have the "
    "same driver: after its next restart CUDA does not start on the odd node",
    IMEX: "NVLink between nodes goes through this service, which starts only with a driver that "
    "fits",
}
OF_PACKAGE = "ranks may build another model, or call collectives in another order"


def versions(one: Software) -> dict[str, str]:
    return {
        PYTHON: one.python,
        TORCH: one.torch or NOT_INSTALLED,
        # What torch brings is not missing a second time where torch itself is.
        **({CUDA: one.torch_cuda or CPU_BUILD} if one.torch else {}),
        **({NCCL: one.nccl[0].version} if one.nccl and one.nccl[0].version else {}),
        **one.packages,
    }


def machine_versions(facts: MachineFacts) -> dict[str, str]:
    """What could be read of the driver and its services; the services only where they matter."""
    nvidia, fabric = facts.nvidia, facts.fabric
    if isinstance(nvidia, Unread) or not nvidia.gpus or not nvidia.module:
        return {}
    found = {DRIVER: nvidia.module}
    if isinstance(fabric, Unread):
        return found
    wanted = {
        FABRIC_MANAGER: (fabric.manager, fabric.nvswitches > 0),
        IMEX: (fabric.imex, any(map(domain, nvidia.gpus))),
    }
    for name, (service, matters) in wanted.items():
        if matters and isinstance(service, ServiceState) and service.version:
            found[name] = service.version
    return found


def by_machine(nodes: Mapping[str, MachineFacts]) -> dict[str, dict[str, str]]:
    """program -> node -> version, of what is installed on the machines. A service of another
    version is no news where the drivers differ: it follows its driver."""
    has = {node: machine_versions(facts) for node, facts in nodes.items()}
    found = {
        program: {node: each[program] for node, each in has.items() if program in each}
        for program in OF_MACHINE
    }
    if len(set(found[DRIVER].values())) > 1:
        del found[FABRIC_MANAGER], found[IMEX]
    return {program: values for program, values in found.items() if values}


def by_program(nodes: Mapping[str, Software]) -> dict[str, dict[str, str]]:
    """program -> node -> version. A package counts as missing where other nodes have it."""
    has = {node: versions(one) for node, one in nodes.items()}
    packages = {name for one in nodes.values() for name in one.packages}
    found: dict[str, dict[str, str]] = {}
    for program in dict.fromkeys(name for each in has.values() for name in each):
        missing = NOT_INSTALLED if program in packages else None
        values = {node: each.get(program, missing) for node, each in has.items()}
        found[program] = {node: value for node, value in values.items() if value is not None}
    return found


def gravity(program: str, values: Collection[str]) -> Status:
    """How much a difference hurts."""
    same_minor = len({release(value)[:2] for value in values}) == 1
    if program == NCCL:
        return Status.ERROR
    if program == TORCH:
        return Status.WARNING if same_minor and NOT_INSTALLED not in values else Status.ERROR
    if program == CUDA:
        return Status.ERROR if CPU_BUILD in values else Status.WARNING
    if program == PYTHON:
        return Status.NOTE if same_minor else Status.WARNING
    if program == DRIVER:
        return Status.NOTE if len({release(value)[:1] for value in values}) == 1 else Status.WARNING
    return Status.WARNING if program == FABRIC_MANAGER else Status.NOTE
