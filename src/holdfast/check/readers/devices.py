"""Which accelerators and RDMA devices exist, by name, and the ports of the latter."""

from __future__ import annotations

import os
import re

from holdfast.analysis.machine import Plan, RdmaPort


def read_rdma_devices(_plan: Plan, root: str = "/") -> tuple[str, ...]:
    return _names(os.path.join(root, "sys/class/infiniband"), r".+")


def read_rdma_ports(_plan: Plan, root: str = "/") -> tuple[RdmaPort, ...]:
    folder = os.path.join(root, "sys/class/infiniband")
    ports = [
        (device, number)
        for device in _names(folder, r".+")
        for number in _names(os.path.join(folder, device, "ports"), r"\d+")
    ]
    return tuple(
        RdmaPort(
            device=device,
            number=int(number),
            # the file holds the state's number and its name
            state=_text(folder, device, "ports", number, "state").rpartition(" ")[2],
            link_layer=_text(folder, device, "ports", number, "link_layer"),
        )
        for device, number in ports
    )


def _text(*path: str) -> str:
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read().strip()


def read_accelerators(_plan: Plan, root: str = "/") -> tuple[str, ...]:
    return accelerator_nodes(root)


def accelerator_nodes(root: str = "/") -> tuple[str, ...]:
    """NVIDIA's numbered device nodes, and AMD's one node for all GPUs."""
    return tuple(f"/dev/{name}" for name in _names(os.path.join(root, "dev"), r"nvidia\d+|kfd"))


def _names(folder: str, pattern: str) -> tuple[str, ...]:
    """In the order people count: nvidia2 before nvidia10. No folder means no such device."""
    try:
        names = [name for name in os.listdir(folder) if re.fullmatch(pattern, name)]
    except FileNotFoundError:
        return ()
    return tuple(sorted(names, key=lambda name: (len(name), name)))
