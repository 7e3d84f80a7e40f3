"""The reader of every field of MachineFacts: the one list that `check` runs."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import cast

from holdfast.check.collect import Reader
from holdfast.fault import Fault

READERS = {
    "settings": "settings.read_settings",
    "port": "port.read_port",
    "port_ranges": "port.read_port_ranges",
    "limits": "limits.read_limits",
    "launcher_limits": "limits.read_launcher_limits",
    "process_room": "limits.read_process_room",
    "shm": "shm.read_shm",
    "interfaces": "network.read_interfaces",
    "routes": "network.read_routes",
    "own_name": "names.read_own_name",
    "own_fqdn": "names.read_own_fqdn",
    "master_name": "names.read_master_name",
    "master_reach": "names.read_master_reach",
    "loopback": "loopback.read_loopback",
    "container": "container.read_container",
    "cgroup": "cgroup.read_cgroup",
    "load": "load.read_load",
    "security": "security.read_security",
    "clock": "clock.read_clock",
    "folders": "folders.read_folders",
    "checkpoints": "checkpoints.read_checkpoints",
    "rendezvous_files": "rendezvous_files.read_rendezvous_files",
    "kernel_log": "kernel_log.read_kernel_log",
    "leftovers": "leftovers.read_leftovers",
    "software": "software.read_software",
    "variable_search": "variable_search.read_variable_search",
    "rdma_devices": "rdma.read_rdma_devices",
    "rdma_ports": "rdma.read_rdma_ports",
    "rdma_cards": "rdma.read_rdma_cards",
    "accelerators": "devices.read_accelerators",
    "nvidia": "nvidia.read_nvidia",
    "cuda": "cuda.read_cuda",
    "fabric": "fabric.read_fabric",
    "rocm": "rocm.read_rocm",
    "pci": "pci.read_pci",
    "gpu_direct": "pci.read_gpu_direct",
}
"""Field of MachineFacts -> file and function under `readers/`; imported only when it is to run."""


def readers(facts: Iterable[str] = READERS) -> dict[str, Reader]:
    """The readers of these facts, or of all; facts that nothing reads (the plan) have none."""
    return {name: _load(READERS[name]) for name in sorted(set(facts) & READERS.keys())}


def readers_for(faults: Iterable[Fault], also: Iterable[str] = ()) -> dict[str, Reader]:
    """The readers of the facts that these faults ask for, and of those named in `also`."""
    return readers({*also, *(fact for fault in faults for fact in fault.needs)})


def _load(place: str) -> Reader:
    module, _, function = place.partition(".")
    found = importlib.import_module(f"holdfast.check.readers.{module}")
    return cast("Reader", getattr(found, function))
