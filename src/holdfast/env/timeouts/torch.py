"""torch's own timeouts: the store, the groups, the watchdog, its monitor.

torch/distributed/constants.py and distributed_c10d.py (init_process_group hands its timeout to
the store as well), ProcessGroupNCCL.cpp (HeartbeatMonitor), c10d/Store.hpp; torch 2.15.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.variables import nccl_groups
from holdfast.analysis.variables.parsing import torch_bool
from holdfast.analysis.variables.status import Timeout
from holdfast.analysis.versions import release
from holdfast.env.job import Asked, Job
from holdfast.env.script_timeouts import WHOLE_GROUP
from holdfast.env.timeouts import frameworks, lookup
from holdfast.env.timeouts.lookup import TimeoutValue, by_script
from holdfast.text import exact_duration

CONSTANTS = "torch 2.15.0 torch/distributed/constants.py, distributed_c10d.py"
MONITOR = "torch ProcessGroupNCCL.cpp (HeartbeatMonitor)"
NCCL_GROUP, OTHER_GROUP = 600.0, 1800.0
OTHERS = ("gloo", "mpi", "ucc", "xccl", "hccl")
SHORTER_SINCE = "2.2"
"""the torch that gave NCCL groups ten minutes; before, all had thirty"""
NO_MONITOR = f"torch {nccl_groups.NEWER_SINCE} and later have none"
STORE = 300.0
HEARTBEAT = 480.0
DUMP = 15.0
NONBLOCKING = 1800.0


def timeouts(job: Job) -> Iterator[Timeout]:
    nccl = job.has_nccl
    if nccl and not _only_others(job):
        yield _group(job, "nccl")
    yield _group(job, "other")
    yield from frameworks.timeouts(job)
    yield _joining(job, "nccl" if nccl and not _only_others(job) else "other")
    yield _store(job)
    if nccl:
        yield from _watch(job)


# --- groups --------------------------------------------------------------------------------------


def _inits(job: Job) -> list[Asked]:
    return [one for one in job.asked if one.call == "init_process_group"]


def _only_others(job: Job) -> bool:
    """The script makes its group of another backend, and no other."""
    backends = {one.backend for one in _inits(job)}
    return bool(backends) and backends.isdisjoint({"nccl", "none", "several", ""})


def _group(job: Job, kind: str) -> Timeout:
    value, sure, remark = _group_value(job, kind)
    return Timeout(
        name="NCCL groups" if kind == "nccl" else "Gloo and other groups",
        key=f"group-{kind}",
        stage="run",
        seconds=value.seconds,
        origin=value.origin,
        does="the watchdog ends the process when a collective takes longer"
        if kind == "nccl"
        else "a collective that takes longer raises an error",
        source=CONSTANTS,
        sure=sure,
        remark=remark,
    )


def _group_value(job: Job, kind: str) -> tuple[TimeoutValue, bool, str]:
    """The value, whether it is certain, and what to say where it is not."""
    calls = [one for one in job.asked if one.call in WHOLE_GROUP and one.given]
    other = {"nccl"} if kind == "other" else set(OTHERS)
    own = next((one for one in calls if one.backend not in other), None)
    if own is not None:
        late = "" if own.seconds is not None else "the script's own, known only when it runs"
        return by_script(own), not late, late
    value = _default_group(job, kind)
    inits = _inits(job)
    if kind == "nccl" and inits and {one.backend for one in inits} <= {"none", "several"}:
        # torch goes by the name 'nccl' alone, and finds another or none (measured, torch 2.13).
        where = f"{inits[0].place.file}:{inits[0].place.line}"
        longer = TimeoutValue(
            OTHER_GROUP, f"default for a backend that is not just 'nccl' ({where})"
        )
        return longer, True, ""
    if inits and all(one.backend == "nccl" for one in inits) and kind == "other":
        return value, False, "only where the script makes such a group too"
    if inits and all(one.backend for one in inits):
        return value, True, ""
    unnamed = f"; {exact_duration(OTHER_GROUP)} where it does not name the backend 'nccl'"
    who = "what the script imports" if job.script else "the script"
    return value, False, f"{who} may pass its own" + (unnamed if kind == "nccl" else "")


def _default_group(job: Job, kind: str) -> TimeoutValue:
    version = job.version("torch")
    if kind == "nccl" and version and release(version) < release(SHORTER_SINCE):
        return TimeoutValue(OTHER_GROUP, f"default of torch {version}")
    seconds = NCCL_GROUP if kind == "nccl" else OTHER_GROUP
    return lookup.default_of_torch(job, seconds, since=SHORTER_SINCE)


# --- store and watchdog --------------------------------------------------------------------------


def _joining(job: Job, kind: str) -> Timeout:
    value, sure, _ = _group_value(job, kind)
    return Timeout(
        name="init_process_group",
        key="init",
        stage="start",
        seconds=value.seconds,
        origin="the group's timeout, which its store gets too",
        does="waits for the store and for every rank; a rank that finds no store may take "
        "twice as long",
        source=CONSTANTS,
        sure=sure,
    )


def _store(job: Job) -> Timeout:
    own = next((a for a in job.asked if a.call == "TCPStore" and a.given), None)
    value = by_script(own) if own else lookup.default_of_torch(job, STORE, since="1.9")
    return Timeout(
        name="a TCPStore of your own",
        key="store",
        stage="start",
        seconds=value.seconds,
        origin=value.origin,
        does="get() and wait() for a key that no rank sets; init_process_group gives its store "
        "the group's timeout instead",
        source="torch 2.15.0 torch/csrc/distributed/c10d/Store.hpp (kDefaultTimeout)",
        sure=own is not None and own.seconds is not None,
        remark="" if own else "only where the script creates one",
    )


def _watch(job: Job) -> Iterator[Timeout]:
    if not job.newer_nccl_groups:  # they have no monitor
        yield _heartbeat(job)
    yield _dump(job)
    if nonblocking := _nonblocking(job):
        yield nonblocking


def _heartbeat(job: Job) -> Timeout:
    switch = job.setting("TORCH_NCCL_ENABLE_MONITORING")
    off = switch is not None and torch_bool(switch.value) is False
    beat = lookup.by_variable(job, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", HEARTBEAT)
    beat = beat or lookup.default_of_torch(job, HEARTBEAT)
    return Timeout(
        name="heartbeat of NCCL's watchdog",
        key="heartbeat",
        stage="watch",
        seconds=None if off else beat.seconds,
        origin="TORCH_NCCL_ENABLE_MONITORING=0" if off else beat.origin,
        does="a process whose watchdog is stuck is not ended"
        if off
        else "the monitor ends the process when the watchdog itself is stuck in CUDA or NCCL",
        source=MONITOR,
        remark="" if job.version("torch") else NO_MONITOR,
    )


def _dump(job: Job) -> Timeout:
    names = ("TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC")
    told = (lookup.by_variable(job, name, DUMP, scale=1e-3) for name in names)
    dump = next(filter(None, told), None) or lookup.default_of_torch(job, DUMP)
    return Timeout(
        name="flight recorder's dump",
        key="dump",
        stage="watch",
        seconds=dump.seconds,
        origin=dump.origin,
        does="how long the exiting process waits for its dump to be written",
        source=MONITOR,
    )


def _nonblocking(job: Job) -> Timeout | None:
    switch = job.setting("TORCH_NCCL_USE_COMM_NONBLOCKING")
    if switch is None or not torch_bool(switch.value):
        return None
    wait = lookup.by_variable(job, "TORCH_NCCL_NONBLOCKING_TIMEOUT", NONBLOCKING)
    wait = wait or lookup.default_of_torch(job, NONBLOCKING)
    return Timeout(
        name="non-blocking communicators",
        key="nonblocking",
        stage="start",
        seconds=wait.seconds,
        origin=wait.origin,
        does="torch gives up on a communicator that is still being created",
        source="pytorch/pytorch torch/csrc/cuda/nccl.cpp",
    )
