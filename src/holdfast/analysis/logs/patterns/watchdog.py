"""Messages of ranks that waited: torch's watchdog, heartbeat monitor, barriers and stores.

A timeout shows which rank waited, never which rank was late. What helps is in the fields:
at which collective, how far this rank had come, whose key or name was missing.
"""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_waited = functools.partial(LogPattern, role=Role.CASCADE)
_names = functools.partial(LogPattern, role=Role.CONFIRMATION)

_GROUP = (
    r"(?:\[PG (?:ID \d+ PG GUID )?(?P<group>[^\s\](]+)(?:\((?P<desc>[^)]*)\))?"
    r" Rank (?P<member>\d+)\].{0,300}?)?"
)
"""`[PG ID 0 PG GUID 0(default_pg) Rank 1]`, `[PG 0 Rank 1]`: the rank is the group's own count"""

_WORK = (
    r"Work\w*\((?:SeqNum=(?P<seq>\d+))?(?:, )?(?:OpType=(?P<op>\w+))?"
    r"(?:, TensorShape=(?P<shape>\[[\d, ]*\]))?"
    r"(?:, NumelIn=(?P<numel_in>\d+))?(?:, NumelOut=(?P<numel_out>\d+))?"
    r"(?:, Timeout\(ms\)=(?P<timeout_ms>\d+))?"
)
"""torch before 1.13 gave no SeqNum, before 2.1 the shape instead of the numbers of elements"""

WATCHDOG = _waited(
    name="clocks: watchdog",
    # Of the NCCL groups since torch 2.15: `[TC][rank=1][name=0] Operation timed out after 9 ms`.
    pattern=rf"(?:[Cc]aught collective operation timeout:? ?(?:{_WORK}\)?)?"
    r"|\[TC\]\S{0,200} Operation timed out(?= after ))"
    r"(?: (?:ran for|after) (?P<ran_ms>\d+) m(?:illiseconds|s\b))?",
    anchors=("aught collective operation timeout", "Operation timed out after "),
    example="[rank1]:[E1115 01:03:15.143127245 ProcessGroupNCCL.cpp:689] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=11, OpType=ALLREDUCE, NumelIn=1048576, "
    "NumelOut=1048576, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
)
WAIT_TIMEOUT = _waited(
    name="clocks: wait",
    pattern=rf"{_WORK}\)? timed out in (?:blocking wait|call to wait)",
    anchors=("timed out in call to wait", "timed out in blocking wait"),
    example="RuntimeError: [Rank 0] WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=60000) timed out in call to wait().",
)
STATUS = _waited(
    name="clocks: status",
    pattern=rf"{_GROUP}(?:at (?:NCCL |XCCL )?work(?: sequence id)?: (?P<seq>-?\d+).{{0,60}}?)?"
    r"[Ll]ast enqueued (?:\w+ )?work: (?P<enqueued>-?\d+)"
    r"(?:, last started (?:\w+ )?work: (?P<started>-?\d+)[^,]*)?"
    r"(?:, last completed (?:\w+ )?work: (?P<completed>-?\d+))?",
    anchors=("ast enqueued",),
    example="[rank1]:[E1115 01:03:15.143288197 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID "
    "0(default_pg) Rank 1]  failure detected by watchdog at work sequence id: 11 PG status: last "
    "enqueued work: 11, last completed work: 10",
)
DUMP_SIGNALLED = _waited(
    name="clocks: dump-signalled",
    pattern=rf"{_GROUP}First PG on this rank to signal dumping",
    anchors=("First PG on this rank to signal dumping",),
    example="[rank1]:[E1115 01:03:20.693006940 ProcessGroupNCCL.cpp:2636] [PG ID 0 PG GUID "
    "0(default_pg) Rank 1] First PG on this rank to signal dumping.",
)
DUMP_OBSERVED = _waited(
    name="clocks: dump-observed",
    pattern=r"Observed flight recorder dump signal from another rank",
    anchors=("Observed flight recorder dump signal",),
    example="[rank0]:[E1115 01:01:40.448308057 ProcessGroupNCCL.cpp:1849] [PG ID 0 PG GUID "
    "0(default_pg) Rank 0] Observed flight recorder dump signal from another rank via TCPStore.",
)
DUMP_RECEIVED = _waited(
    name="clocks: dump-received",
    pattern=rf"{_GROUP}Received a (?:global )?(?:dump signal|timeout signal)"
    r"(?: due to a collective timeout)? from\s+(?:rank (?P<rank>\d+)|(?P<own>this local rank))?",
    anchors=("Received a dump signal", "Received a global timeout signal", "Received a timeout"),
    example="[rank0]:[E1115 01:01:40.448513571 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID "
    "0(default_pg) Rank 0] Received a dump signal due to a collective timeout from  rank 3 and we "
    "will try our best to dump the debug info. Last enqueued NCCL work: 11, last completed NCCL "
    "work: 10.This is most likely caused by incorrect usages of collectives",
)
LAGGING = _names(
    name="clocks: lagging",
    pattern=r"\[(?P<ranks>[\d, ]+)\] (?:are the lagging ranks that caused this timeout"
    r"|joined but didn't finish collective #(?P<unfinished>\d+)"
    r"|finished collective #(?P<finished>\d+), but didn't join collective)",
    anchors=("are the lagging ranks", "but didn't finish collective", "but didn't join collective"),
    example="\t     [2] finished collective #10, but didn't join collective #11 (count from 1)",
)
BARRIER_MISSED = _names(
    name="clocks: barrier-missed",
    pattern=r"Ranks? (?P<ranks>[\d, ]*\d) failed to pass monitoredBarrier in (?P<ms>\d+) ms",
    anchors=("failed to pass monitoredBarrier",),
    example="RuntimeError: [Rank 0]: Rank 2 failed to pass monitoredBarrier in 30000 ms",
)
BARRIER_ECHO = _waited(
    name="clocks: barrier-echo",
    pattern=r"Rank (?P<rank>\d+) (?:successfully reached monitoredBarrier, but received errors"
    r"|timed out in monitoredBarrier)",
    anchors=("successfully reached monitoredBarrier", "timed out in monitoredBarrier"),
    example="RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while "
    "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.",
)
GLOO_TIMEOUT = _waited(
    name="clocks: gloo-timeout",
    pattern=r"Timed out waiting (?P<ms>\d+) ?ms for (?P<what>recv|send) operation"
    r"|gloo/transport/\S+ (?:Read|Write|Connect) timeout \[(?P<address>[^\]]*)\]",
    anchors=("Timed out waiting", "d timeout [", "e timeout [", "t timeout ["),
    example="RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
    "waiting 1800000ms for recv operation to complete",
)
GLOO_WAIT = _waited(
    name="clocks: gloo-wait",
    pattern=r"^\s*(?:RuntimeError: )?Operation timed out!|Wait timeout for key\(s\): (?P<keys>.*)",
    anchors=("Operation timed out!", "Wait timeout for key"),
    example="RuntimeError: Wait timeout for key(s): rank_1",
)
GLOO_MESH = _waited(
    name="clocks: gloo-mesh",
    pattern=r"Gloo connectFullMesh failed(?: with)? (?P<why>.*)",
    anchors=("connectFullMesh failed",),
    example="RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/"
    "tcp/pair.cc:144] no error",
)
STORE_WAIT = _waited(
    name="clocks: store-wait",
    pattern=r"wait timeout after (?P<ms>\d+)ms, keys: (?P<keys>\S.*)",
    anchors=("wait timeout after",),
    example="torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//3",
)
STORE_GET = _waited(
    name="clocks: store-get",
    pattern=r"store->get\('(?P<key>[^']*)'\) got error: (?P<why>.*)"
    r"|(?:^|: )RuntimeError: (?P<bare>Socket Timeout)",
    anchors=("store->get(", "RuntimeError: Socket Timeout"),
    example="torch.distributed.DistBackendError: [3] is setting up NCCL communicator and "
    "retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') "
    "got error: Socket Timeout",
)
STORE_BARRIER = _waited(
    name="clocks: store-barrier",
    pattern=r"store.based barrier.{0,80}?rank: (?P<rank>\d+).{0,80}?"
    r"\(world_size=(?P<expected>\d+), (?:num_workers_joined|worker_count)=(?P<joined>\d+)",
    anchors=("store based barrier", "store-based barrier"),
    example="RuntimeError: Timed out initializing process group in store based barrier on rank: 0, "
    "for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)",
)
CLIENTS_JOINED = _waited(
    name="clocks: clients-joined",
    pattern=r"(?:waiting for clients\. )?(?P<joined>\d{1,9})/(?P<expected>\d{1,9}) clients joined",
    anchors=("clients joined",),
    example="torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. "
    "1/2 clients joined.",
)
CLIENT_TIMEOUT = _waited(
    name="clocks: client-timeout",
    pattern=r"client socket has timed out after (?P<after>\S+) while trying to connect to "
    r"\(?(?P<host>[^,)]+)(?:, (?P<port>\d+))?"
    r"|TCP client failed to connect/validate to host (?P<validated>\S+) - timed out"
    r"|connect\(\) timed out\. Original timeout was (?P<original>\d+)",
    anchors=("client socket has timed out", "failed to connect/validate", "connect() timed out"),
    example="torch.distributed.DistNetworkError: The client socket has timed out after 60000ms "
    "while trying to connect to (192.0.2.7, 29500).",
)
HEARTBEAT_STUCK = _waited(
    name="clocks: heartbeat",
    pattern=r"watchdog got stuck for (?P<seconds>\d+) ?seconds|Heartbeat monitor timed out",
    anchors=("watchdog got stuck for", "Heartbeat monitor timed out"),
    example="[rank0]:[E1115 01:03:20.825728716 ProcessGroupNCCL.cpp:1375] [PG 0 Rank 0] "
    "ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in monitoring "
    "enqueued collectives. This typically indicates a NCCL/CUDA API hang blocking the watchdog",
)
TAKING_DOWN = _waited(
    name="clocks: taking-down",
    pattern=r"taking the entire process down|Some NCCL operations have failed or timed out"
    r"|Terminating the process after attempting to dump debug info"
    r"|Aborting process on rank \d+ due to (?:timeout|error) - "
    r"|Default timeout callback fired, calling os\.abort\(\)"
    r"|Watchdog event loop appears stuck .{0,60} -- (?:aborting|exiting) process",
    anchors=(
        "taking the entire process down",
        "operations have failed or timed out",
        "Terminating the process after attempting",
        "Aborting process on rank ",
        "Default timeout callback fired",
        "Watchdog event loop appears stuck",
    ),
    example="[rank1]:[E1115 01:04:15.1 ProcessGroupNCCL.cpp:621] [Rank 1] To avoid data "
    "inconsistency, we are taking the entire process down.",
)
ASYNC_ERROR = _waited(
    name="clocks: async-error",
    # Of the NCCL groups since torch 2.15: that NCCL failed, in NCCL's words for the code.
    pattern=r"\[TC\]\S{0,200} (?:nccl hit async|Async) error on rank (?P<member>\d+): (?P<why>.*)",
    anchors=("nccl hit async error on rank", "Async error on rank"),
    example="[rank1]:[E1116 01:04:15.2 ProcessGroupNCCLUtils.cpp:330] [TC][rank=1][name=0] nccl "
    "hit async error on rank 1: remote process exited or there was a network error",
)
PYTHON_WATCHDOG = _waited(
    name="clocks: python-watchdog",
    # torch/distributed/_watchdog.py, since 2.15: symmetric memory, backends written in Python.
    pattern=r"Watchdog (?P<what>stream|cpu) timeout fired \(id=-?\d+\)",
    anchors=("Watchdog stream timeout fired", "Watchdog cpu timeout fired"),
    example="W1116 01:04:15.201000 4711 torch/distributed/_watchdog.py:304] Watchdog stream "
    "timeout fired (id=3)",
)
PYTHON_STUCK = _waited(
    name="clocks: python-watchdog-stuck",
    pattern=r"Watchdog event loop appears stuck \(no response within (?P<seconds>\d+)",
    anchors=("Watchdog event loop appears stuck",),
    example="W1116 01:04:15.201000 4711 torch/distributed/_watchdog.py:341] Watchdog event loop "
    "appears stuck (no response within 30.0s)",
)
WATCHDOG_DIED = _waited(
    name="clocks: watchdog-died",
    pattern=rf"{_GROUP}[Ww]atchdog thread terminated with exception: ?(?P<why>.*)",
    anchors=("atchdog thread terminated with exception",),
    example="[rank2]:[E1115 01:04:15.2 ProcessGroupNCCL.cpp:1182] [PG 0 Rank 2] Process group "
    "watchdog thread terminated with exception: CUDA error: unspecified launch failure",
)

ALL: tuple[LogPattern, ...] = (
    WATCHDOG,
    WAIT_TIMEOUT,
    STATUS,
    DUMP_SIGNALLED,
    DUMP_OBSERVED,
    DUMP_RECEIVED,
    LAGGING,
    BARRIER_MISSED,
    BARRIER_ECHO,
    GLOO_TIMEOUT,
    GLOO_WAIT,
    GLOO_MESH,
    STORE_WAIT,
    STORE_GET,
    STORE_BARRIER,
    CLIENTS_JOINED,
    CLIENT_TIMEOUT,
    HEARTBEAT_STUCK,
    TAKING_DOWN,
    ASYNC_ERROR,
    PYTHON_WATCHDOG,
    PYTHON_STUCK,
    WATCHDOG_DIED,
)
