from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

NO_ROUTE = "[rank1]: NCCL WARN Net : Connect to 192.0.2.7<43210> failed : No route to host"

test_explain = explain_table(
    "peer-unreachable",
    recognises(
        wreckage(
            "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/"
            "tcp/pair.cc:144] no error"
        ),
        sure=0.35,
        saying=["does not say which pair failed", "GLOO_SOCKET_IFNAME"],
    ),
    recognises(
        wreckage("Message:    connect() to 192.0.2.7:1024 failed"),
        sure=0.3,
        what="192.0.2.7",
        saying=["192.0.2.7 port 1024"],
    ),
    recognises(
        wreckage("[btl_tcp_endpoint.c:649] connect() to 192.0.2.7 failed: No route to host (113)"),
        sure=0.85,
        what="192.0.2.7",
        saying=["ip route get 192.0.2.7"],
    ),
    recognises(
        wreckage("A process or daemon was unable to complete a TCP connection"),
        sure=0.6,
        saying=["packets are dropped"],
    ),
    recognises(
        wreckage(
            'HYDU_sock_connect (sock.c:145): unable to connect from "node-b" to "node-a" '
            "(Connection refused)"
        ),
        sure=0.5,
        what="node-a",
        saying=["nothing listens there"],
    ),
    recognises(
        wreckage(
            "NCCL INFO socketPollConnect: connect returned No route to host, retrying (34/34) "
            "after sleep for 3400 msec"
        ),
        sure=0.85,
        saying=["it cannot be reached"],
    ),
    recognises(
        wreckage(
            "[W socket.cpp:663] [c10d] The client socket has failed to connect to [node-a]:29500 "
            "(system error: 10060 - 由于连接方在一段时间后没有正确答复。)."
        ),
        sure=0.55,
        what="node-a",
        saying=["no reply"],
    ),
    passes_over(wreckage("psycopg2: connect() to the database failed")),
    recognises(
        wreckage(NO_ROUTE),
        sure=0.85,
        what="192.0.2.7",
        victims=[1],
        saying=["rank 1 could not connect to 192.0.2.7 port 43210", "ip route get 192.0.2.7"],
    ),
    recognises(  # a line that was cut
        wreckage("NCCL WARN Net : Connect to 192.0.2.7<43210> failed : No route to"),
        sure=0.85,
        what="192.0.2.7",
        saying=["no route"],
    ),
    recognises(
        wreckage(
            "NCCL INFO ncclOsSocketPollConnect: connect to 192.0.2.7<43210> returned Connection "
            "timed out, retrying (3/34) after sleep for 300 msec"
        ),
        sure=0.6,
        what="192.0.2.7",
        saying=["no reply"],
    ),
    recognises(
        wreckage(
            "NCCL WARN socketPollConnect: Connect to 192.0.2.7<43210> returned 113(No route to "
            "host) errno 115(Operation now in progress)"
        ),
        sure=0.85,
        what="192.0.2.7",
        saying=["no route"],
    ),
    recognises(
        wreckage(
            "[rank1]: NCCL WARN socketStartConnect: Connect to 192.0.2.7<43210> failed : Software "
            "caused connection abort"
        ),
        sure=0.55,
        what="192.0.2.7",
        saying=["NCCL before 2.24"],
    ),
    recognises(
        wreckage("NCCL WARN socketPollConnect: exceeded timeouts (34)"),
        sure=0.6,
        saying=["an address that the log does not show"],
    ),
    recognises(
        wreckage(
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:769] connect "
            "[192.0.2.7]:40001: Connection refused"
        ),
        sure=0.5,
        what="192.0.2.7",
        saying=["nothing listens there"],
    ),
    recognises(
        wreckage(
            "[W socket.cpp:558] [c10d] The client socket has failed to connect to [node-a]:29500 "
            "(errno: 113 - No route to host)."
        ),
        sure=0.75,
        what="node-a",
        saying=["node-a port 29500"],
    ),
    recognises(
        wreckage("node-b: ssh: connect to host node-b port 22: No route to host"),
        sure=0.85,
        what="node-b",
        saying=["node-b port 22"],
    ),
    recognises(
        wreckage(NO_ROUTE, "[rank0]: RuntimeError: Address already in use"),
        sure=0.35,
        what="192.0.2.7",
        saying=["192.0.2.7"],
    ),
    passes_over(
        wreckage("NCCL WARN Net : Connect to 127.0.0.1<43210> failed : Connection refused")
    ),
    passes_over(
        wreckage(
            "The IPv6 network addresses of (node-a, 29500) cannot be retrieved (gai error: -2 - "
            "Name or service not known).",
            "The client socket has timed out after 60s while trying to connect to (node-a, 29500).",
        )
    ),
    passes_over(wreckage("ConnectionRefusedError: [Errno 111] Connection refused")),  # anybody's
    passes_over(wreckage("NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>")),
)
