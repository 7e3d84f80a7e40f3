"""NCCL's own log: which process is which rank, how far each came, what was set.

NCCL has written these lines since 2.4 with small changes: 'Init START' since 2.18, 'Bootstrap :'
with a space before 2.20, the name of the function before 'comm' since 2.19.
"""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_tells = functools.partial(LogPattern, role=Role.CONTEXT)

_COMM = (
    r"comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d+) nranks (?P<nranks>\d+)"
    r"(?: cudaDev (?P<dev>\d+))?(?: nvmlDev \d+)?(?: busId (?P<bus>[0-9a-fA-F]+))?"
    r"(?: parent 0x[0-9a-f]+(?: splitCount \d+)? color -?\d+ key -?\d+)?"
    r"(?: commId (?P<commid>0x[0-9a-f]+))?"
)

BOOTSTRAP_USING = _tells(
    name="nccl: bootstrap",
    pattern=r"Bootstrap ?: Using (?:\[0\])?(?P<interface>[^\s:]+):(?P<address>[^\s<]+)",
    anchors=("Bootstrap : Using", "Bootstrap: Using"),
    example="vm:1009:1009 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>",
)
NET_USING = _tells(
    name="nccl: network",
    pattern=r"Using network (?P<network>\w+)|NET/(?P<transport>\w+) ?: Using (?P<devices>.*)",
    anchors=("Using network ", "NET/Socket : Using", "NET/IB : Using", "NET/OFI Using"),
    example="vm:1009:1009 [0] NCCL INFO Using network Socket",
)
INIT_START = _tells(
    name="nccl: init-start",
    pattern=_COMM + r" ?- Init START",
    anchors=("- Init START",),
    example="vm:1009:1009 [0] NCCL INFO ncclCommInitRankConfig comm 0x1b67ca30 rank 0 nranks 4 "
    "cudaDev 0 nvmlDev 0 busId 60 commId 0x6e44eff749924948 - Init START",
)
RING = _tells(
    name="nccl: ring",
    pattern=r"Bootstrap timings total|comm \S+ rank (?P<rank>\d+) nRanks (?P<nranks>\d+) nNodes"
    r"|\bRing 00 : +\d+ +\d+|\bTrees \[0\]",
    anchors=("Bootstrap timings total", " nNodes ", "Ring 00 : ", "Trees [0]"),
    example="vm:1009:1009 [0] NCCL INFO Bootstrap timings total 0.056853 (create 0.000026)",
)
CONNECTED = _tells(
    name="nccl: connected",
    pattern=r"Connected all (?P<what>rings|trees)",
    anchors=("Connected all ",),
    example="vm:1009:1009 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0",
)
INIT_COMPLETE = _tells(
    name="nccl: init-complete",
    pattern=_COMM + r" ?- Init COMPLETE",
    anchors=("- Init COMPLETE",),
    example="vm:1009:1009 [0] NCCL INFO comm 0x1b67ca30 rank 0 nranks 4 cudaDev 0 busId 3d000 - "
    "Init COMPLETE",
)
ENV_SET = _tells(
    name="nccl: env-set",
    pattern=r"(?P<name>NCCL_\w+) set by environment to (?P<value>.*?)\.?$",
    anchors=(" set by environment to ",),
    example="vm:1009:1009 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0",
)
VERSION = _tells(
    name="nccl: version",
    pattern=r"NCCL version (?P<version>\d+\.\d+(?:\.\d+)?)[^\s+]*(?:\+cuda(?P<cuda>[\d.]*\d))?",
    anchors=("NCCL version ",),
    example="vm:1009:1009 [0] NCCL INFO NCCL version 2.28.9+cuda13.0",
)
WARN = _tells(
    name="nccl: warn",
    pattern=r"(?:(?<![\w/.])(?P<file>[\w/.]{1,80}):(?P<line>\d+) (?:\((?P<function>\w+)\) )?)?"
    r"NCCL WARN (?P<message>.*)",
    anchors=("NCCL WARN ",),
    example="vm:1009:1009 [0] misc/socket.cc:57 NCCL WARN Call to bind failed: Address in use",
)
CONNECT_RETRY = _tells(
    name="nccl: connect-retry",
    pattern=r"connect to (?P<address>[^\s<]+)<(?P<port>\d+)> returned (?P<why>[^,]+), "
    r"(?:retrying(?: \((?P<attempt>\d+)/(?P<of>\d+)\))?|exceeded)"
    r"|Call to connect(?: to (?P<peer>[^\s<]+)<\d+>)? (?:returned|failed) ?:? (?P<reason>[\w ]+)"
    r"|socket(?:Start|Poll)Connect: (?:exceeded (?:retries|timeouts)"
    r"|Connect to (?P<target>[^\s<]+)<\d+> failed : (?P<error>[\w ]+))",
    anchors=("> returned ", "Call to connect ", "Connect: exceeded ", "Connect: Connect to "),
    example="vm:1009:1009 [0] NCCL INFO socketPollConnect: connect to 192.0.2.7<43210> returned "
    "Connection refused, retrying (12/34) after sleep for 1200 msec",
    role=Role.CASCADE,
)
ERROR_CODE = _tells(
    name="nccl: error-code",
    pattern=r"(?:NCCL INFO )?(?<![\w/.])(?P<file>[\w/.]{1,80}\.(?:cc|h|cu)):(?P<line>\d+)"
    r"(?: \(\w+\))? "
    r"(?:NCCL INFO )?-> (?P<code>\d)(?!\d)",
    # ' -> 2' itself is in every line about a channel, thousands of them in a healthy start.
    anchors=(
        "init.cc:",
        "init.cu:",
        "bootstrap.cc:",
        "bootstrap.cu:",
        "socket.cc:",
        "socket.h:",
        "group.cc:",
        "proxy.cc:",
        "enqueue.cc:",
        "channel.cc:",
        "transport.cc:",
        "connect.cc:",
        "/net.cc:",
        "/p2p.cc:",
        "/shm.cc:",
        "/nvls.cc:",
        "net_ib.cc:",
        "net_ib/",
        "linux.cc:",
        "shmutils.cc:",
        "coll_net.cc:",
        "topo.cc:",
        "search.cc:",
        "dev_runtime.cc:",
        "shm.h:",
    ),
    example="vm:1009:1009 [0] NCCL INFO bootstrap.cc:433 -> 2",
    role=Role.CASCADE,
)
RAS = _tells(
    name="nccl: ras",
    # A line of it in a log of other things; a whole answer is read by analysis/ras.
    pattern=r"Rank (?P<rank>\d+)\b.{0,80}? -- GPU .{0,80}? managed by process (?P<pid>\d+) on node "
    r"(?P<host>\S+)",
    anchors=(" managed by process ",),
    example="  Rank 2 -- GPU 2 managed by process 1011 on node 192.0.2.2",
    role=Role.CONFIRMATION,
)

STAGES: tuple[LogPattern, ...] = (
    BOOTSTRAP_USING,
    NET_USING,
    INIT_START,
    RING,
    INIT_COMPLETE,
    CONNECTED,
)
"""the order in which a rank passes them; `Connected all rings` came before COMPLETE in NCCL before
2.22, which connects lazily since, so a rank's stage is the furthest it passed"""

ALL: tuple[LogPattern, ...] = (
    *STAGES,
    ENV_SET,
    VERSION,
    WARN,
    CONNECT_RETRY,
    ERROR_CODE,
    RAS,
)
