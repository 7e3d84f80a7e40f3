from __future__ import annotations

from holdfast.analysis.machine import Container, Resolution, Unread
from holdfast.analysis.nodes import NodesFacts
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.launch.made_manifests import (
    C10D,
    JOB2,
    SERVICE,
    SET4,
    manifest,
    torchrun,
)
from tests.faults import between
from tests.faults.machines import a_machine, a_plan
from tests.faults.made_nodes import on_all, on_node, resolving, some_nodes
from tests.faults.table import (
    check_table,
    explain_table,
    flags,
    leaves,
    lint_table,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

UNKNOWN = "Name or service not known"
PLAN = a_plan(max_nodes=2, master_addr="node-x", master_origin="MASTER_ADDR")
POD = Container(kind="kubernetes", sign="", rootless=None, network="own", ipc="own")


def no_answer(name: str, error: str = UNKNOWN) -> Resolution:
    return Resolution(name=name, addresses=(), error=error, seconds=0.01)


def answer(name: str, seconds: float = 0.001) -> Resolution:
    return Resolution(name=name, addresses=("10.0.0.9",), error="", seconds=seconds)


test_check = check_table(
    "dns-failure",
    speaks(
        "error",
        a_machine(PLAN, master_name=no_answer("node-x")),
        saying=["node-x does not resolve", UNKNOWN, "and then fail", "getent ahosts node-x"],
    ),
    speaks(
        "warning",
        a_machine(PLAN, master_name=no_answer("node-x", "Temporary failure in name resolution")),
        saying=["may still appear"],
    ),
    speaks(
        "warning",  # the name of a pod comes with the pod
        a_machine(PLAN, master_name=no_answer("node-x"), container=POD),
        saying=["may still appear"],
    ),
    speaks(
        "error",
        a_machine(a_plan(max_nodes=2), own_name=no_answer("node-a")),
        saying=["own name node-a", "`10.0.0.5 node-a` to /etc/hosts", "socket.gaierror"],
    ),
    speaks("note", a_machine(own_name=no_answer("node-a")), saying=["right for one node"]),
    speaks(
        "note",
        a_machine(PLAN, master_name=answer("node-x", seconds=0.7)),
        saying=["node-x takes 0.7 s to resolve"],
    ),
    silent(a_machine()),
    silent(a_machine(PLAN, master_name=answer("node-x", seconds=0.2))),
    skips(a_machine(PLAN, master_name=Unread(why="no answer")), saying=["no answer"]),
    skips(a_machine(own_name=Unread(why="no answer")), saying=["no answer"]),
)


# --- explain --------------------------------------------------------------------------

RETRIED = (
    "[W socket.cpp:697] [c10d] The IPv6 network addresses of (node-a, 29500) cannot be retrieved "
    "(gai error: -2 - Name or service not known)."
)

test_explain = explain_table(
    "dns-failure",
    recognises(
        wreckage("nslookup: can't resolve 'job-master-0'"),
        sure=0.6,
        what="job-master-0",
        saying=["when the job's script looked it up", "headless service"],
    ),
    recognises(
        wreckage("** server can't find node-a.cluster: NXDOMAIN"),
        sure=0.6,
        what="node-a.cluster",
        saying=["getent ahosts node-a.cluster"],
    ),
    passes_over(wreckage("nslookup: can't resolve '(null)'")),
    recognises(
        wreckage("Error: Rank -1 received an Exception: host not found: Name or service not known"),
        sure=0.93,
        saying=["did not resolve"],
    ),
    recognises(
        wreckage(f"[rank1]: {RETRIED}"),
        sure=0.93,
        what="node-a",
        saying=["the name node-a did not resolve", "getent ahosts node-a"],
    ),
    recognises(
        wreckage(f"[rank1]: {RETRIED}", "[rank0]: RuntimeError: Address already in use"),
        sure=0.4,  # it may have come late, and something else broke
        what="node-a",
        saying=["node-a"],
    ),
    recognises(
        wreckage("socket.gaierror: [Errno -3] Temporary failure in name resolution"),
        sure=0.93,
        what="a host name",
        saying=["did not resolve"],
    ),
    recognises(
        wreckage("ValueError: host not found: Name or service not known"),
        sure=0.93,
        what="a host name",
        saying=["did not resolve"],
    ),
    recognises(
        wreckage("ssh: Could not resolve hostname node-b: Name or service not known"),
        sure=0.93,
        what="node-b",
        saying=["node-b"],
    ),
    recognises(
        wreckage(
            "NCCL WARN Net : error encountered when getting address info : Name or service not "
            "known"
        ),
        sure=0.93,
        what="a host name",
        saying=["did not resolve"],
    ),
    recognises(
        wreckage(
            "urllib3.exceptions.NameResolutionError: Failed to resolve 'example.org' ([Errno -3] "
            "Temporary failure in name resolution)"
        ),
        sure=0.6,
        what="example.org",
        saying=["needs for a download"],
    ),
    passes_over(
        wreckage(
            "[W socket.cpp:697] [c10d] The IPv6 network addresses of (1.0.0.0.ip6.arpa, 29500) "
            "cannot be retrieved (gai error: 8 - nodename nor servname provided, or not known)."
        )
    ),
    passes_over(wreckage("RuntimeError: Connection refused")),
)


# --- between nodes -------------------------------------------------------------------------------

FOUR = some_nodes(4)


def alias(facts: NodesFacts) -> NodesFacts:
    """The nodes were reached by names that only ssh knows."""
    return on_all(facts, lambda node: {"host": f"ip-{node.name}"})


def unknown(name: str, facts: NodesFacts) -> NodesFacts:
    for node in facts.nodes:
        facts = resolving(facts, node.name, name)
    return facts


test_check_nodes = between.table(
    "dns-failure",
    between.speaks(
        "error",
        resolving(some_nodes(4, master_addr="node-b"), "node-c", "node-b"),
        saying=[
            "node-c cannot resolve node-b, the master",
            "node-c: node-b: Name or service not known",
            "echo '10.0.0.2 node-b'",
        ],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning", resolving(FOUR, "node-c", "node-b"), saying=["node-c cannot resolve node-b"]
    ),
    between.speaks(
        "error",
        unknown("node-b", some_nodes(4, rdzv_endpoint="node-b:29400")),
        saying=["no other node resolves node-b, the master"],
        hosts=[""],
    ),
    between.speaks("note", unknown("node-b", FOUR), saying=["no other node resolves node-b"]),
    between.silent(FOUR),
    between.silent(unknown("node-b", alias(FOUR))),
    between.skips(on_node(FOUR, "node-c", names=Unread(why="late")), saying=["late"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)


# --- lint ----------------------------------------------------------------------------------------

test_lint = lint_table(
    "dns-failure",
    flags("error", manifest(JOB2, torchrun("--nnodes=2 --master-addr=trainer-2.trainer")),
          lines=[18], saying=["trainer-2.trainer does not exist", "numbered from 0"]),
    flags("error", manifest(SET4, torchrun("--nnodes=4 --master-addr=trainer-0.other"), pod="x: 1"),
          lines=[18], saying=["named below trainer", "serviceName"]),
    flags("warning", manifest(SET4, torchrun("--nnodes=4 --master-addr=trainer-0")), lines=[18],
          saying=["without a service"]),
    flags("warning", manifest(JOB2, torchrun(f"--nnodes=2 {C10D}"), pod="x: 1"), lines=[18],
          saying=["have no subdomain", "completionMode: Indexed"]),
    flags("error", manifest(SET4, torchrun(f"--nnodes=4 {C10D}"), before=SERVICE.format(ip="''")),
          lines=[23], saying=["the service trainer is not headless", "clusterIP: None"]),
    flags("error", manifest(SET4, torchrun("--nnodes=4 --master-addr=trainer --master-port=29500"),
                            before=SERVICE.format(ip="''")),
          lines=[23], saying=["passes on port 23456, not the master's port 29500"]),
    flags("error", manifest(SET4, torchrun(f"--nnodes=4 {C10D}"), host=True), lines=[18],
          saying=["ask the DNS of their node", "ClusterFirstWithHostNet"]),
    leaves(manifest(SET4, torchrun(f"--nnodes=4 {C10D}"), before=SERVICE.format(ip="None"))),
    leaves(manifest(SET4, torchrun("--nnodes=4 --master-addr=trainer --master-port=23456"),
                    before=SERVICE.format(ip="''"))),
    leaves(manifest(SET4, torchrun(f"--nnodes=4 {C10D}"), host=True,
                    pod="dnsPolicy: ClusterFirstWithHostNet")),
    leaves(manifest(SET4, torchrun("--nnodes=4 --master-addr=10.0.0.1"), host=True)),
    leaves(manifest(SET4, torchrun("--nnodes=4 --master-addr=head.example.org"))),
    leaves(manifest(SET4, torchrun("--nnodes=4 --master-addr=$MASTER"))),
)  # fmt: skip
