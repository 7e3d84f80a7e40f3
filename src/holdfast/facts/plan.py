"""What the user means to start."""

from __future__ import annotations

from holdfast.facts.base import Fact


class Plan(Fact, frozen=True):
    """The job the user is about to start, as far as flags and environment tell."""

    nproc: int
    """ranks on this machine"""
    min_nodes: int
    max_nodes: int
    port: int
    """the store's port; 0 means that the launcher picks one"""
    port_origin: str
    """'--port', 'MASTER_PORT', 'PET_MASTER_PORT' or 'default'"""
    master_addr: str
    """'' when nobody named one"""
    master_origin: str
    """'--master-addr', 'MASTER_ADDR', 'PET_MASTER_ADDR', or '' """
    node_rank: int | None
    rdzv_backend: str
    """'' when not named (torchrun then takes 'static')"""
    rdzv_endpoint: str
    checkpoint_folders: tuple[str, ...]
    log_folder: str
    launcher_pid: int | None
    environment: dict[str, str]
    """the whole environment the job would inherit; never printed as it is"""
    nproc_named: bool = False
    """somebody said how many ranks; else it is a guess"""

    @property
    def multi_node(self) -> bool:
        return self.max_nodes > 1

    @property
    def port_named(self) -> bool:
        return self.port_origin != "default"


class Setting(Fact, frozen=True):
    """One NCCL/torch/launcher variable in force, and where it was set."""

    name: str
    value: str
    origin: str
    """'environment' or 'FILE:LINE' of an nccl.conf"""
