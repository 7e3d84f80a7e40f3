"""What the user means to start, from the flags of `check` and the environment; pure.

torchrun reads every one of its flags from PET_<FLAG> as well; so do we.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from holdfast.analysis.machine import Plan
from holdfast.errors import ConfigError

T = TypeVar("T")

DEFAULT_PORT = 29500
"""torchrun's and torch's own default (TCPStore.hpp, kDefaultPort)"""


class Flags(NamedTuple):
    """What was typed; None where nothing was."""

    port: int | None = None
    nproc_per_node: int | None = None
    nnodes: str | None = None
    master_addr: str | None = None
    checkpoint_folders: tuple[str, ...] = ()
    launcher_pid: int | None = None
    port_flag: str = "--port"
    """what `port` was typed behind: 'holdfast run' has torchrun's name for it"""
    log_folder: str = "runs"


def make_plan(flags: Flags, environment: Mapping[str, str], *, accelerators: int) -> Plan:
    """The plan in force. A flag beats the environment, the environment beats the default."""
    port, port_origin = _first(
        (flags.port_flag, flags.port),
        ("MASTER_PORT", _number(environment, "MASTER_PORT")),
        ("PET_MASTER_PORT", _number(environment, "PET_MASTER_PORT")),
        ("default", DEFAULT_PORT),
    )
    if not 0 <= port <= 65535:
        raise ConfigError(f"{port_origin} must be from 0 to 65535, got {port}")
    if "" in flags.checkpoint_folders:
        raise ConfigError("--ckpt names no folder", hint="is the variable after --ckpt set?")
    master, master_origin = _first(
        ("--master-addr", flags.master_addr),
        ("MASTER_ADDR", environment.get("MASTER_ADDR") or None),
        ("PET_MASTER_ADDR", environment.get("PET_MASTER_ADDR") or None),
        ("", ""),
    )
    nodes, nodes_origin = _first(
        ("--nnodes", flags.nnodes), ("PET_NNODES", environment.get("PET_NNODES")), ("", "1")
    )
    min_nodes, max_nodes = _node_range(nodes, nodes_origin)
    named = _nproc(flags, environment)
    return Plan(
        # Unnamed, we expect a rank per GPU; without GPUs one, which is torchrun's default.
        nproc=named or max(1, accelerators),
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        port=port,
        port_origin=port_origin,
        master_addr=master,
        master_origin=master_origin,
        node_rank=_node_rank(environment),
        rdzv_backend=environment.get("PET_RDZV_BACKEND", ""),
        rdzv_endpoint=environment.get("PET_RDZV_ENDPOINT", ""),
        checkpoint_folders=flags.checkpoint_folders,
        log_folder=flags.log_folder,
        launcher_pid=flags.launcher_pid,
        environment=dict(environment),
        nproc_named=named is not None,
    )


def _first(*choices: tuple[str, T | None]) -> tuple[T, str]:
    """The first choice that has a value, and where it came from."""
    return next((value, origin) for origin, value in choices if value is not None)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    if not _is_whole(text):
        raise ConfigError(f"{name} in the environment must be a number, got {text[:40]!r}")
    return int(text)


def _is_whole(text: str) -> bool:
    """Plain digits, and no more of them than any count of ranks, nodes or ports has."""
    return text.isascii() and text.isdigit() and len(text) < 10


def _nproc(flags: Flags, environment: Mapping[str, str]) -> int | None:
    """As torchrun: a number; 'gpu', 'auto' and 'cpu' count on the machine later, so we skip them.
    None when none was named."""
    named = flags.nproc_per_node
    if named is None:
        text = environment.get("PET_NPROC_PER_NODE", "")
        named = int(text) if _is_whole(text) else None
    if named is None:
        named = _number(environment, "LOCAL_WORLD_SIZE")
    if named is not None and named < 1:
        raise ConfigError(f"--nproc-per-node must be >= 1, got {named}")
    return named


def _node_range(text: str, origin: str) -> tuple[int, int]:
    """'2' or torchrun's elastic '2:4'."""
    low, colon, high = text.partition(":")
    if not _is_whole(low) or (colon and not _is_whole(high)):
        raise ConfigError(f"{origin} must be a number or a range such as 2:4, got {text[:40]!r}")
    least, most = int(low), int(high or low)
    if not 1 <= least <= most:
        raise ConfigError(f"{origin} must be N or MIN:MAX with 1 <= MIN <= MAX, got {text!r}")
    return least, most


def _node_rank(environment: Mapping[str, str]) -> int | None:
    """NODE_RANK by hand, PET_NODE_RANK for torchrun, GROUP_RANK inside a torchrun worker."""
    for name in ("NODE_RANK", "PET_NODE_RANK", "GROUP_RANK"):
        if (rank := _number(environment, name)) is not None:
            return rank
    return None
