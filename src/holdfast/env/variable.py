"""All that is known of one variable, or of a family of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.analysis import variables
from holdfast.analysis.machine import Unread
from holdfast.analysis.variables import Variable
from holdfast.analysis.variables.status import SettingStatus, VariableInfo
from holdfast.env import readers
from holdfast.env.job import Job

CONFLICTS = (
    ("TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
     "blocking wait wins: no watchdog and no async error handling then"),
    ("NCCL_COMM_ID", "NCCL_SOCKET_IFNAME",
     "NCCL_COMM_ID decides the interface of NCCL's start"),
    ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE=1 makes the level moot"),
    ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET=IB with NCCL_IB_DISABLE=1: NCCL does not start"),
    ("NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_IB_DISABLE=1 makes the choice of cards moot"),
    ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS",
     "NCCL_DEBUG_SUBSYS counts only with NCCL_DEBUG=INFO or TRACE"),
    ("NCCL_DEBUG", "NCCL_DEBUG_FILE", "nothing is written to the file without NCCL_DEBUG"),
    ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_ENABLE_MONITORING",
     "without monitoring the heartbeat is not looked at"),
    ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC",
     "the dump must fit into the heartbeat's time"),
    ("TORCH_NCCL_NONBLOCKING_TIMEOUT", "TORCH_NCCL_USE_COMM_NONBLOCKING",
     "the timeout counts only for non-blocking communicators"),
    ("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "HOROVOD_STALL_CHECK_TIME_SECONDS",
     "the shutdown only happens where it is above the warning time"),
)  # fmt: skip
"""pairs that bear on each other: faults/settings/variable_conflict.py, the programs' manuals"""


def one(name: str, job: Job, judged: Sequence[SettingStatus]) -> VariableInfo:
    row = variables.lookup(name)
    found, searched = _search(name, job)
    return VariableInfo(
        name=name,
        row=row,
        version=variables.version_of(row) if row else "",
        now=next((j for j in judged if j.name == name), None),
        read_by=readers.readers(name, found),
        searched=searched,
        bears_on=tuple(_bearing(name)),
        spellings=tuple(r.name for r in variables.everything().values() if r.instead == name),
        near=() if row else tuple(variables.near_names(name)),
    )


def _search(name: str, job: Job) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Who holds the name, and, where that proves something, who was searched for it."""
    search = job.facts.variable_search
    if isinstance(search, Unread):
        return {}, ()
    proves = name in search.found and variables.prefix_of(name) in search.prefixes
    return search.found, search.searched if proves else ()


def family(pattern: str) -> tuple[Variable, ...]:
    """The rows that a pattern such as NCCL_IB_* or TORCH_FR_ stands for."""
    stem = pattern.rstrip("*")
    rows = variables.everything().values()
    return tuple(row for row in rows if row.name.startswith(stem) and row.name != pattern)


def _bearing(name: str) -> list[tuple[str, str]]:
    pairs = [(a, b, how) for a, b, how in CONFLICTS if name in (a, b)]
    return [(b if name == a else a, how) for a, b, how in pairs]
