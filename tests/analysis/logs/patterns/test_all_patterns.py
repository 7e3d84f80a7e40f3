"""Shared log patterns: what changed between versions, and what they must leave alone."""

from __future__ import annotations

import pytest

from holdfast.analysis.logs.pattern import LogPattern
from holdfast.analysis.logs.patterns import (
    all_patterns,
    kernel,
    launchers,
    nccl,
    peers,
    shells,
    watchdog,
)

SEEN: list[tuple[LogPattern, str, dict[str, str]]] = [
    (
        watchdog.WATCHDOG,
        (
            "[Rank 2] Caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, "
            "TensorShape=[8], Timeout(ms)=1800000) ran for 1800116 milliseconds before timing out."
        ),
        {"op": "ALLREDUCE", "shape": "[8]", "timeout_ms": "1800000", "ran_ms": "1800116"},
    ),
    (
        watchdog.WATCHDOG,
        (
            "Watchdog caught collective operation timeout: WorkXCCL(SeqNum=4, "
            "OpType=_ALLGATHER_BASE, NumelIn=2, NumelOut=8, Timeout(ms)=60000) ran for 60001 ms"
        ),
        {"seq": "4", "op": "_ALLGATHER_BASE", "numel_in": "2", "numel_out": "8"},
    ),
    (watchdog.WATCHDOG, "Watchdog caught collective operation timeout:", {}),
    (
        watchdog.STATUS,
        "Timeout at NCCL work: 7, last enqueued NCCL work: 9, last completed NCCL work: 6.",
        {"seq": "7", "enqueued": "9", "completed": "6"},
    ),
    (
        watchdog.STATUS,
        (
            "[PG 3 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 7, "
            "last enqueued NCCL work: 9, last completed NCCL work: 6."
        ),
        {"group": "3", "member": "0", "seq": "7", "enqueued": "9", "completed": "6"},
    ),
    (
        watchdog.STATUS,
        (
            "[PG ID 2 PG GUID 5(mesh_tp) Rank 1]  failure detected by watchdog at work sequence "
            "id: 3 PG status: last enqueued work: 4, last started work: 3 (ALLREDUCE), last "
            "completed work: -1"
        ),
        {"group": "5", "desc": "mesh_tp", "seq": "3", "started": "3", "completed": "-1"},
    ),
    (
        watchdog.DUMP_RECEIVED,
        "Received a dump signal due to a collective timeout from this local rank and we will",
        {"own": "this local rank"},
    ),
    (
        watchdog.LAGGING,
        (
            "\t - To our best knowledge, ranks [2, 5] are the lagging ranks that caused this "
            "timeout. They never joined any collectives"
        ),
        {"ranks": "2, 5"},
    ),
    (watchdog.LAGGING, "   - [2] joined but didn't finish collective #9", {"unfinished": "9"}),
    (
        watchdog.BARRIER_MISSED,
        "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms",
        {"ranks": "1, 3", "ms": "5000"},
    ),
    (
        watchdog.STORE_BARRIER,
        (
            "Waiting in store based barrier to initialize process group for rank: 1, key: "
            "store_based_barrier_key:1 (world_size=8, num_workers_joined=7, timeout=0:30:00)"
        ),
        {"rank": "1", "expected": "8", "joined": "7"},
    ),
    (
        watchdog.CLIENT_TIMEOUT,
        "The client socket has timed out after 900s while trying to connect to (node0, 29500).",
        {"host": "node0", "port": "29500", "after": "900s"},
    ),
    (
        peers.NCCL_CLOSED,
        "include/socket.h:395 NCCL WARN Net : Connection closed by remote peer",
        {},
    ),
    (
        peers.NCCL_CLOSED,
        "NCCL WARN Net : Call to recv from 192.0.2.1<40712> failed : Connection reset by peer",
        {"source": "192.0.2.1", "why": "Connection reset by peer"},
    ),
    (
        peers.NCCL_CLOSED,
        "NCCL WARN socketProgress: Connection closed by remote peer node3.cluster<51234>",
        {"address": "node3.cluster", "port": "51234"},
    ),
    (
        peers.GLOO_CLOSED,
        "gloo/transport/tcp/pair.cc:589] Connection closed by peer [fd00::7]:1234",
        {"address": "fd00::7", "port": "1234"},
    ),
    (
        nccl.INIT_COMPLETE,
        "NCCL INFO comm 0x55aa rank 3 nranks 8 cudaDev 3 nvmlDev 3 - Init COMPLETE",
        {"rank": "3", "nranks": "8", "dev": "3"},
    ),
    (
        nccl.INIT_START,
        (
            "NCCL INFO ncclCommSplit comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 "
            "parent 0x2 splitCount 1 color 5 key 0- Init START"
        ),
        {"rank": "0", "nranks": "2", "bus": "1000"},
    ),
    (
        nccl.BOOTSTRAP_USING,
        "NCCL INFO Bootstrap : Using [0]ib0:192.0.2.9<0>",
        {"interface": "ib0", "address": "192.0.2.9"},
    ),
    (
        nccl.CONNECT_RETRY,
        "NCCL INFO Call to connect returned Connection refused, retrying",
        {"reason": "Connection refused"},
    ),
    (nccl.ERROR_CODE, "NCCL INFO misc/socket.cc:633 -> 6", {"code": "6"}),
    (nccl.VERSION, "NCCL version 2.14.3+cuda11.7", {"version": "2.14.3", "cuda": "11.7"}),
    (launchers.ROW_RANK, "  rank: 3 (local_rank: 1)", {"rank": "3", "local_rank": "1"}),
    (launchers.SLURM_TASK, "srun: error: n01: tasks 0-3,7: Killed", {"tasks": "0-3,7"}),
    (
        launchers.SLURM_CANCELLED,
        "error: *** JOB 42 ON n1 CANCELLED AT 2026-03-02T20:28:05 DUE TO PREEMPTION ***",
        {"job": "42", "host": "n1", "why": "PREEMPTION"},
    ),
    (launchers.DEATH_SIGNAL, "Received Signals.SIGHUP death signal, shutting down workers", {}),
    (kernel.XID, "NVRM: Xid (PCI:0000:3b:00): 31, pid=88, name=python, Ch", {"number": "31"}),
    (kernel.XID, "NVRM: Xid (0000:03:00): 62, 1ce3", {"pci": "0000:03:00", "number": "62"}),
    (kernel.OOM_KILL, "Out of memory: Killed process 88 (python3) total-vm:1kB", {"pid": "88"}),
    (kernel.SEGFAULT, "traps: python[88] general protection fault ip:7f", {"pid": "88"}),
    (all_patterns.SETTING, "+ export NCCL_IB_DISABLE=1", {"name": "NCCL_IB_DISABLE", "value": "1"}),
]


@pytest.mark.parametrize(("pattern", "line", "fields"), SEEN, ids=lambda v: getattr(v, "name", ""))
def test_every_version_of_a_line_is_found(
    pattern: LogPattern, line: str, fields: dict[str, str]
) -> None:
    found = pattern.regex.search(line)
    assert found
    assert any(anchor in line for anchor in pattern.anchors)
    assert {name: found[name] for name in fields} == fields


NOT_SEEN = [
    (shells.SHELL_ENDED, "Killed by the user after 3 epochs"),
    (shells.SHELL_ENDED, "OOMKilled"),
    (launchers.POD_ENDED, "Exit Code:    0"),
    (nccl.ERROR_CODE, "NCCL INFO Channel 00 : 0[1a000] -> 1[1b000] via P2P/IPC"),
    (all_patterns.SETTING, "For more details, please run with NCCL_DEBUG=INFO."),
    (all_patterns.ERROR, "/opt/a.py:12: UserWarning: this will be an Error: soon"),
    (peers.STORE_RESET, "requests.exceptions.ConnectionError: Connection reset by peer"),
    (kernel.OOM_KILL, "Killing subprocess 88"),
]


@pytest.mark.parametrize(("pattern", "line"), NOT_SEEN, ids=lambda v: getattr(v, "name", ""))
def test_near_misses_are_left_alone(pattern: LogPattern, line: str) -> None:
    found = pattern.regex.search(line)
    assert not (found and any(anchor in line for anchor in pattern.anchors))


def test_stages_are_in_the_order_in_which_a_rank_passes_them() -> None:
    names = [stage.name for stage in nccl.STAGES]
    assert names.index("nccl: init-start") < names.index("nccl: init-complete")
