"""Messages of a rank that lost another one. Their writer is never the cause.

An address or a local rank in them says which rank they lost: follow it.
"""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_lost = functools.partial(LogPattern, role=Role.CASCADE)

GLOO_CLOSED = _lost(
    name="peers: gloo-closed",
    pattern=r"Connection closed by peer \[(?P<address>[^\]]*)\]"
    r"(?::(?P<port>\d+))?|Socket (?:unexpectedly )?closed \[(?P<closed>[^\]]*)\]",
    anchors=("Connection closed by peer", "Socket unexpectedly closed", "Socket closed ["),
    example="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed "
    "by peer [192.0.2.7]:23621. This is typically caused by a remote worker crashing.",
)
GLOO_BROKEN = _lost(
    name="peers: gloo-broken",
    pattern=r"gloo/transport/[^\s\]]+\] (?:Read error|writev) \[(?P<address>[^\]]*)\]"
    r"(?::(?P<port>\d+))?: (?P<why>[A-Z][\w ]+)|Application timeout caused pair closure"
    r"|gloo/transport/[^\s\]]+\].*(?:Connection reset by peer|Broken pipe)",
    anchors=("gloo/transport/", "Application timeout caused pair closure"),
    example="RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error "
    "[192.0.2.7]:23621: Connection reset by peer",
)
NCCL_CLOSED = _lost(
    name="peers: nccl-closed",
    pattern=r"(?:socketProgress|Net ?): Connection closed by remote peer(?: (?P<address>\S+?)"
    r"(?:<(?P<port>\d+)>)?)?(?=[\s'\"]|$)"
    r"|Call to recv (?:from (?P<source>\S+?)(?:<\d+>)? )?failed : (?P<why>.*)",
    anchors=("Connection closed by remote peer", "Call to recv "),
    example="vm:1009:1367 [0] misc/socket.cc:57 NCCL WARN socketProgress: Connection closed by "
    "remote peer 192.0.2.7<43210>",
)
NCCL_REMOTE = _lost(
    name="peers: nccl-remote",
    pattern=r"ncclRemoteError|remote process exited or there was a network error"
    r"|network error or a remote process exiting prematurely",
    anchors=("ncclRemoteError", "remote process exit"),
    example="ncclRemoteError: A call failed possibly due to a network error or a remote process "
    "exiting prematurely.",
)
REMOTE_ERROR = _lost(
    name="peers: remote-error",
    pattern=r"[Rr]emote error detected from rank:? ?(?P<rank>\d+)?",
    anchors=("emote error detected from rank",),
    example="[rank1]:[E1115 01:03:15.1 ProcessGroupNCCL.cpp:1994] [PG ID 0 PG GUID 0 Rank 1] "
    "remote error detected from rank: 3",
)
PROXY_FAILED = _lost(
    name="peers: proxy-failed",
    pattern=r"Socket recv failed while polling for opId"
    r"|\[Proxy Service \d+\] Failed to execute operation (?P<operation>\w+) from rank (?P<rank>\d+)"
    r"|Proxy Call to rank (?P<called>\d+) failed"
    r"|\[Service thread\] (?:Could not receive type|Accept failed)",
    anchors=(
        "Socket recv failed while polling",
        "Failed to execute operation",
        "Proxy Call to rank",
        "[Service thread] Could not",
        "[Service thread] Accept failed",
    ),
    example="vm:1009:1367 [0] proxy.cc:1905 NCCL WARN [Proxy Service 0] Failed to execute "
    "operation Connect from rank 3, retcode 3",
)
PROXY_CLOSED = LogPattern(
    name="peers: proxy-closed",
    pattern=r"\[Service thread\] Connection closed by localRank (?P<local_rank>\d+)",
    anchors=("Connection closed by localRank",),
    example="vm:1009:1367 [0] NCCL INFO [Service thread] Connection closed by localRank 2",
    # NCCL says so at every ordinary end too.
    role=Role.TEARDOWN,
)
STORE_LOST = _lost(
    name="peers: store-lost",
    pattern=r"(?:send|recv)(?:Bytes|Value|ValueWithTimeout|Vector|String) failed on (?P<socket>.*)"
    r"|Failed to recv, got 0 bytes|Connection was likely closed"
    r"|Failed to check the \"should dump\" flag|TCPStore server has shut down too early",
    anchors=(
        "Bytes failed on",
        "Value failed on",
        "Timeout failed on",
        "Vector failed on",
        "String failed on",
        "got 0 bytes",
        "Connection was likely closed",
        'the "should dump" flag',
        "server has shut down too early",
    ),
    example="[rank3]:[W1115 01:03:15.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl("
    "fd=4, addr=[vm]:53718, remote=[vm]:29500): Failed to recv, got 0 bytes. Connection was "
    "likely closed. Did the remote server shutdown or crash?",
)
STORE_RESET = _lost(
    name="peers: store-reset",
    pattern=r"(?:DistNetworkError|DistStoreError|(?:^|: )RuntimeError): "
    r"(?P<why>Connection reset by peer|Broken pipe|Connection closed)",
    anchors=("Error: Connection reset by peer", "Error: Broken pipe", "Error: Connection closed"),
    example="torch.distributed.DistNetworkError: Connection reset by peer",
)
RENDEZVOUS_LOST = _lost(
    name="peers: rendezvous-lost",
    # 'failed to shutdown the rendezvous … due to an error of type …' is only a warning.
    pattern=r"(?<!error of type )RendezvousConnectionError"
    r"|connection to (?:the C10d store|etcd) has failed",
    anchors=(
        *("RendezvousConnectionError", "connection to the C10d store has failed"),
        "connection to etcd has failed",
    ),
    example="torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
    "the C10d store has failed. See inner exception for details.",
)
RENDEZVOUS_CLOSED = _lost(
    name="peers: rendezvous-closed",
    pattern=r"Rendezvous(?:Closed|GracefulExit|StoreClosed)Error",
    anchors=("RendezvousClosedError", "RendezvousGracefulExitError", "RendezvousStoreClosedError"),
    example="torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
)
ABORTED = _lost(
    name="peers: aborted",
    pattern=r"(?i:nccl communicator (?:was|is) aborted)(?: on rank (?P<rank>\d+))?"
    r"(?:\. +Original reason for failure was: (?P<why>.*))?"
    r"|communicator encountered error set by ProcessGroupNCCL",
    anchors=(
        "ommunicator was aborted",
        "ommunicator is aborted",
        "ommunicator encountered error set by",
    ),
    example="RuntimeError: NCCL communicator was aborted on rank 1.  Original reason for failure "
    "was: [Rank 1] Watchdog caught collective operation timeout",
)
HOROVOD_SHUT_DOWN = _lost(
    name="peers: horovod-shut-down",
    pattern=r"Horovod has been shut down\. This was caused by an exception on one of the ranks",
    anchors=("Horovod has been shut down",),
    example="horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was "
    "caused by an exception on one of the ranks or an attempt to allreduce",
)

ALL: tuple[LogPattern, ...] = (
    GLOO_CLOSED,
    GLOO_BROKEN,
    NCCL_CLOSED,
    NCCL_REMOTE,
    REMOTE_ERROR,
    PROXY_FAILED,
    PROXY_CLOSED,
    STORE_LOST,
    STORE_RESET,
    RENDEZVOUS_LOST,
    RENDEZVOUS_CLOSED,
    ABORTED,
    HOROVOD_SHUT_DOWN,
)
