"""What NCCL, UCX and libfabric print when RDMA cards cannot connect, transfer or be opened."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_pattern = functools.partial(LogPattern, slug="ib-misconfig")

MODIFY_QP = _pattern(
    name="ib-misconfig: modify-qp",
    pattern=r"ibv_modify_qp failed with (?:error )?(?:\d+ )?(?P<why>[A-Z][\w ]+?)?(?: errno \d+)?"
    r"(?:, on dev (?P<device>\S+?),.*?local GID index (?P<gid>-?\d+).*?)?(?:$|,|[\"'])"
    # Programs that use the card without NCCL: UCX, Mooncake, UCCL, perftest.
    r"|(?:[Ff]ailed to modify|[Ee]rror modifying) QP(?: 0x\w{1,8})? to (?:INIT|RTR|RTS)\b"
    r"(?:[^:\n]{0,60}: (?:reason: )?(?P<said>[A-Z][\w ]{3,40}))?",
    anchors=("ibv_modify_qp failed", "ailed to modify QP", "rror modifying QP"),
    example="node-a:411:498 [0] misc/ibvwrap.cc:376 NCCL WARN Call to ibv_modify_qp failed with 22 "
    "Invalid argument, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 3, local "
    "GID ::ffff:192.0.2.2, remote GID ::ffff:192.0.2.7",
)
COMPLETION = _pattern(
    name="ib-misconfig: completion",
    # Without a peer before NCCL 2.12.
    pattern=r"Got completion (?:from peer (?P<peer>[^\s<]+)(?:<[^>]*>)? )?with "
    r"(?:error |status=?)(?:[A-Z_]+\()?(?P<status>\d+)(?:.*vendor[_ ]err[ =](?P<vendor>\d+))?"
    r"(?:.*hca (?P<device>\S+))?",
    anchors=("Got completion from peer", "Got completion with "),
    example="node-a:411:498 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from "
    "peer 192.0.2.7<43210> with error 12, opcode 0, len 0, vendor err 129",
    # Most statuses are about the other side; rdma_transfer_failed decides which are a cause.
    role=Role.CASCADE,
)
BAD_EVENT = _pattern(
    name="ib-misconfig: async-event",
    pattern=r"NET/IB : (?:(?P<device>\S+:\d+) )?(?:async fatal event(?: on \w+)?[^:]*: "
    r"(?P<event>.*)"
    r"|Got async (?:error )?event ?: (?P<old>(?:port (?:error|active)|GID|local catastrophic"
    r"|device fatal|LID change|P_Key|SM change).*)|(?P<table>GID table changed))"
    r"|IB Async event on (?P<card>[\w-]{1,40}): (?P<ucx>(?:port error|GID table change|local "
    r"catastrophic error|device fatal|LID change|P_Key table change)[^\n]{0,60})"
    # NVRx's health check of the cards.
    r"|NIC/IB (?P<nic>[\w-]{1,40}) (?P<down>link down counter has been incremented: \d+ -> \d+)",
    anchors=(
        *("async fatal event", "Got async ", "GID table changed", "IB Async event on "),
        "link down counter has been incremented",
    ),
    example="node-a:411:498 [0] NCCL WARN NET/IB : mlx5_0:1 async fatal event: port error",
)
NOT_OPENED = _pattern(
    name="ib-misconfig: not-opened",
    pattern=r"NET/IB : Unable to (?:open|query) (?:device (?P<device>\S+)|port(?:_num)? "
    r"(?P<port>\d+))"
    r"|ibv_(?:open_device|query_gid|query_port|alloc_pd)(?:\w*) failed",
    anchors=(
        *("NET/IB : Unable to ", "ibv_open_device failed", "ibv_query_gid failed"),
        *("ibv_query_port failed", "ibv_alloc_pd failed"),
    ),
    example="node-a:411:498 [0] NCCL WARN NET/IB : Unable to open device mlx5_0",
)
NO_GID = _pattern(
    name="ib-misconfig: no-gid",
    pattern=r"(?:open|read) failed in ncclIbRoceGetVersionNum: (?P<why>[A-Z][\w ]{3,40})",
    anchors=("failed in ncclIbRoceGetVersionNum",),
    example="node-a:411:498 [0] transport/net_ib.cc:330 NCCL WARN NET/IB: read failed in "
    "ncclIbRoceGetVersionNum: Invalid argument",
)
MIXED = _pattern(
    name="ib-misconfig: mixed-links",
    pattern=r"NET/IB : (?:Attempted to (?:connect|merge) incompatible devices: (?P<devices>\S+)"
    r"|Remote \w+ device is incompatible|Can't merge net devices with different link_layer)",
    anchors=("incompatible devices", "device is incompatible", "with different link_layer"),
    example="node-a:411:498 [0] NCCL WARN NET/IB : Attempted to connect incompatible devices: "
    "[0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE. Try selecting NICs of only one link type",
)
REG_MR = _pattern(
    name="ib-misconfig: reg-mr",
    pattern=r"ibv_reg_(?:dmabuf_)?mr(?:_iova2)? failed with error "
    r"(?P<why>Bad address|Invalid argument"
    r"|Operation not supported)",
    anchors=("mr failed with error", "mr_iova2 failed with error"),
    example="node-a:411:498 [0] NCCL WARN Call to ibv_reg_mr failed with error Bad address",
)
FAILED = _pattern(
    name="ib-misconfig: failed",
    # With its resiliency on, NCCL survives the failure of one of several cards, not of more.
    pattern=r"NET/IB: Fatal error\. Detected (?P<bad>\d+) failed devices out of (?P<all>\d+)"
    r"|NET/IB: The error is fatal \((?P<status>[\w ]{1,60})\)"
    r"|(?P<call>mlx5dv_create_qp|ibv_post_(?:send|recv)\(\)) failed (?:to create QP: |with error )"
    r"(?P<why>[A-Z][\w ]{3,40})|Call to (?P<poll>ibv_poll_cq)\(\) returned -?\d+",
    anchors=(
        *("NET/IB: Fatal error. Detected", "NET/IB: The error is fatal", "mlx5dv_create_qp failed"),
        *("ibv_post_send() failed", "ibv_post_recv() failed", "ibv_poll_cq() returned"),
    ),
    example="node-a:411:498 [0] NCCL WARN NET/IB: Fatal error. Detected 2 failed devices out of 2 "
    "devices on the send communicator (comm=0x7f1c). No support for more than a single failed "
    "device.",
)
UNEQUAL = _pattern(
    name="ib-misconfig: unequal",
    pattern=r"Detected mixed local (?P<kind>Net|CollNet) device counts across ranks "
    r"\(min (?P<fewest>\d+), max (?P<most>\d+)\)",
    anchors=("Detected mixed local ",),
    example="node-a:411:498 [0] NCCL WARN Detected mixed local Net device counts across ranks "
    "(min 1, max 2). Set NCCL_IGNORE_NET_MISMATCH=1 to continue.",
)
OFI_ERROR = _pattern(
    name="ib-misconfig: ofi",
    pattern=r"NET/OFI .*(?:[Rr]equest.* completed with error|Couldn't open|Failed to initialize)",
    anchors=("completed with error", "NET/OFI Couldn't open", "NET/OFI Failed to initialize"),
    example="node-a:411:498 [0] NCCL WARN NET/OFI Request 0x7f1c completed with error. RC: 113. "
    "Error: unreachable remote. Completed length: 0",
    role=Role.CASCADE,
)
OFI_ABSENT = _pattern(
    name="ib-misconfig: ofi-absent",
    pattern=r"fi_getinfo: provider efa output empty list"
    r"|NET/OFI .{0,200}(?:Creating new endpoint .{0,60}failed"
    r"|Initializing a new domain .{0,80}failed"
    r"|Couldn't create fabric|Unable to find a protocol that worked"
    r"|Failed to initialize (?:sendrecv|rdma|RDMA) protocol)",
    anchors=(
        *("provider efa output empty list", "Creating new endpoint", "Initializing a new domain"),
        *("Couldn't create fabric", "find a protocol that worked", "Failed to initialize "),
    ),
    example="libfabric:85:1747438790::core:core:fi_getinfo_():1392<warn> fi_getinfo: provider efa "
    "output empty list",
    # An image may contain the plugin on machines without EFA, where NCCL uses TCP.
    role=Role.CONTEXT,
)

ALL = (
    *(MODIFY_QP, COMPLETION, BAD_EVENT, NOT_OPENED, NO_GID, MIXED, REG_MR, FAILED, UNEQUAL),
    *(OFI_ERROR, OFI_ABSENT),
)
