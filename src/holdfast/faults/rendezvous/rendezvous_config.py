"""The rendezvous as configured cannot come together.

What you see   Every node waits; after minutes `RendezvousConnectionError: The connection to the
               C10d store has failed` or `Timed out after 601 seconds waiting for clients. 1/2
               clients joined.`
Why            torchrun's default backend is `static`: it knows no range, and `--nnodes 1:4` waits
               for four. With `c10d` each node decides by itself whether it hosts the store: the
               endpoint must be its host name, its canonical name, or among the addresses its own
               name resolves to. An address of a second network card is not, nor is any address
               when the name resolves to 127.0.1.1: then nobody hosts. Without an endpoint every
               node takes localhost. Without a port c10d takes 29400; static refuses. With static
               every node needs a --node-rank of its own, and all of them one --master-port.
How to be sure On the node that should host: `getent ahosts $(hostname)` must list the endpoint's
               address. torchrun says `hosts the TCP store` at log level INFO where it does.
Fix            For a range: `--rdzv-backend c10d --rdzv-endpoint HOST:29400 --rdzv-id NAME`. For a
               host that does not know itself: `--rdzv-conf is_host=1` on the first node only
               (`is_host=0` on the others), and `--local-addr` with each node's own address.
Sources        torch/distributed/run.py: default static, ports
               torch/distributed/elastic/rendezvous/utils.py: _matches_machine_hostname
               torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py: world is max_nodes
               https://github.com/pytorch/pytorch/issues/73656
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections, name_resolution, peers
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Plan, Unread, addresses, known, rendezvous
from holdfast.analysis.source.launch import nodes_of_one_job
from holdfast.analysis.source.launch import rendezvous as launch_rendezvous
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(code="HOLD108", slug="rendezvous-config")

REJECTED = FAULT.log_pattern(
    "rejected",
    r"(?P<what>(?:rank|endpoint) is absent in RendezvousParameters|[Pp]ort is (?:absent|missing) "
    r"in endpoint(?:: \S+)?|Endpoint is missing in endpoint|The (?:hostname|port number) of the "
    r"rendezvous endpoint '[^']*' must be|The rendezvous configuration (?:string|option)\b.*?must "
    r"(?:be|have)|The rendezvous backend '[^']*' is not registered|nnodes=\S+ is not in "
    r"|No rendezvous handler for \w*://|using tcp:// rendezvous: .* missing"
    r"|The (?:minimum|maximum) number of nodes)",
    anchors=(
        *("is absent in RendezvousParameters", "ort is absent in", "ort is missing in"),
        *("Endpoint is missing in", "of the rendezvous endpoint", "The rendezvous configuration"),
        *("The rendezvous backend '", 'is not in "MIN:MAX"', "No rendezvous handler for"),
        *("using tcp:// rendezvous", "imum number of nodes"),
    ),
    example="ValueError: The hostname of the rendezvous endpoint 'node a:29400' must be a "
    "dot-separated list of labels, an IPv4 address, or an IPv6 address.",
)
NO_ETCD = FAULT.log_pattern(
    "no-etcd",
    r"EtcdConnectionFailed|connection to etcd has failed|No more machines in the cluster",
    anchors=(
        *("EtcdConnectionFailed", "connection to etcd has failed"),
        "No more machines in the cluster",
    ),
    example="etcd.EtcdConnectionFailed: No more machines in the cluster",
)
HOSTS_IT = FAULT.log_pattern(
    "hosts-it",
    r"hosts the TCP store for the C10d rendezvous backend",
    anchors=("hosts the TCP store",),
    example="Process 4711 hosts the TCP store for the C10d rendezvous backend.",
    role=Role.CONTEXT,
)


@FAULT.check(needs=("interfaces", "master_name", "own_fqdn", "own_name", "routes"))
def nodes_can_meet(facts: MachineFacts) -> Finding:
    plan = facts.plan
    if plan.rdzv_backend == "c10d":
        return _c10d(facts) if plan.rdzv_endpoint else _c10d_without_endpoint(plan)
    if plan.rdzv_backend not in ("", "static"):
        return FAULT.does_not_apply(f"rendezvous backend {plan.rdzv_backend} has rules of its own")
    if plan.min_nodes != plan.max_nodes:
        return _range_with_static(plan)
    if plan.rdzv_endpoint and rendezvous.split_endpoint(plan.rdzv_endpoint)[1] is None:
        return _static_endpoint_without_port(plan)
    if not plan.multi_node and not plan.rdzv_endpoint:
        return FAULT.does_not_apply("one node, and no rendezvous endpoint named")
    return FAULT.does_not_apply("a fixed number of nodes and the static rendezvous: all is said")


def _range_with_static(plan: Plan) -> Finding:
    """Only a backend named as static is certain; torchrun's command line may name another."""
    named = plan.rdzv_backend == "static"
    speak = FAULT.error if named else FAULT.warning
    backend = "named" if named else "torchrun's default, unless your command names another"
    return speak(
        f"{plan.min_nodes} to {plan.max_nodes} nodes with the static rendezvous",
        reason=f"static ({backend}) knows no range: it waits for all {plan.max_nodes} nodes, "
        "600 s by default, and none may come later",
        evidence=[Evidence(quote=f"--nnodes {plan.min_nodes}:{plan.max_nodes}", source="plan")],
        fix=f"`torchrun --nnodes {plan.min_nodes}:{plan.max_nodes} --rdzv-backend c10d "
        f"--rdzv-endpoint HOST:{rendezvous.C10D_PORT} --rdzv-id NAME …`",
    )


def _static_endpoint_without_port(plan: Plan) -> Finding:
    return FAULT.error(
        f"endpoint {plan.rdzv_endpoint} names no port",
        reason="the static rendezvous refuses it: 'Port is absent in endpoint'",
        evidence=[Evidence(quote=plan.rdzv_endpoint, source="rendezvous endpoint")],
        fix=f"`--rdzv-endpoint {plan.rdzv_endpoint}:29500`",
    )


def _c10d_without_endpoint(plan: Plan) -> Finding:
    if not plan.multi_node:
        return FAULT.ok("c10d on one node: localhost is the endpoint")
    return FAULT.warning(
        "c10d with several nodes and no endpoint",
        reason="unless your command line names one, every node takes localhost and waits for "
        "the others there",
        evidence=[Evidence(quote="no --rdzv-endpoint, no PET_RDZV_ENDPOINT", source="plan")],
        fix=f"on every node: `--rdzv-endpoint HOST:{rendezvous.C10D_PORT}`, HOST being one of them",
    )


def _c10d(facts: MachineFacts) -> Finding:
    plan = facts.plan
    host, port = rendezvous.split_endpoint(plan.rdzv_endpoint)
    if "is_host" in plan.environment.get("PET_RDZV_CONF", ""):
        return FAULT.ok("PET_RDZV_CONF says by is_host who hosts the store")
    if not _believes_to_host(facts, host):
        meant = rendezvous.addresses_of(facts, host)
        if any(addresses.carrier(known(facts.interfaces), ip) for ip in meant):
            return _host_does_not_know_itself(facts, host)
    if port is None:
        return FAULT.note(
            f"endpoint {plan.rdzv_endpoint} names no port",
            reason=f"c10d takes {rendezvous.C10D_PORT} then; other launchers mean 29500",
            evidence=[Evidence(quote=plan.rdzv_endpoint, source="rendezvous endpoint")],
            fix=f"say it: `--rdzv-endpoint {plan.rdzv_endpoint}:{rendezvous.C10D_PORT}`",
        )
    return FAULT.ok(f"c10d endpoint {host} is clear about who hosts the store")


def _host_does_not_know_itself(facts: MachineFacts, host: str) -> Finding:
    own = known(facts.own_name)
    means = ", ".join(own.addresses) or own.error
    way_out = addresses.outward(facts)
    mine = host if addresses.parse(host) else way_out[1] if way_out else "ADDRESS"
    return FAULT.warning(
        f"this machine has the endpoint's address {host} but will not host the store",
        reason=f"torchrun looks for it among the addresses of {own.name} "
        f"({means}) and does not find it: no node hosts, all fail after minutes",
        evidence=[
            Evidence(quote=f"{own.name}: {means}", source="getaddrinfo"),
            Evidence(quote=facts.plan.rdzv_endpoint, source="rendezvous endpoint"),
        ],
        fix=f"here: `torchrun --rdzv-conf is_host=1 --local-addr {mine} …`; on the other nodes "
        "`--local-addr` with their own address",
    )


def _believes_to_host(facts: MachineFacts, host: str) -> bool:
    """torch's own rule, from what we read: name, canonical name, or a shared resolved address."""
    ip = addresses.parse(host)
    if host in ("localhost", facts.host) or (ip and ip.is_loopback):
        return True
    fqdn = facts.own_fqdn
    if not isinstance(fqdn, Unread) and host == fqdn:
        return True
    own = {addresses.parse(text) for text in known(facts.own_name).addresses}
    return any(addresses.parse(text) in own for text in rendezvous.addresses_of(facts, host))


@FAULT.explain
def the_launcher_refused_it(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(REJECTED)
    if not seen:
        return None
    what = seen[0].fields["what"]
    return FAULT.diagnosis(
        f"the launcher could not understand how the nodes are to meet: {what}",
        confidence=0.93,
        seen=seen,
        culprit=Culprit(what=what, host=seen[0].line.host),
        fix="static: `--master-addr HOST --master-port 29500 --node-rank N`; elastic: "
        "`--rdzv-backend c10d --rdzv-endpoint HOST:29400 --rdzv-id NAME`",
        next="torchrun --help | grep -A2 rdzv",
    )


@FAULT.explain
def no_etcd_answered(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NO_ETCD)
    if not seen or wreckage.seen(REJECTED):
        return None
    return FAULT.diagnosis(
        "torchrun was to meet through etcd, and no etcd server answered at the endpoint: none runs "
        "there, it speaks only the v3 interface, or the address is wrong",
        confidence=0.7,
        seen=seen,
        culprit=Culprit(what="etcd endpoint"),
        fix="start etcd with `--enable-v2` and name it by --rdzv-endpoint, or do without: "
        "`--rdzv-backend c10d --rdzv-endpoint HOST:29400`. `curl http://ENDPOINT/version` "
        "asks whether one runs",
    )


@FAULT.explain
def nobody_hosts_the_rendezvous(wreckage: Wreckage) -> Diagnosis | None:
    lost = wreckage.seen(peers.RENDEZVOUS_LOST)
    calls = connections.attempts(wreckage, connections.STORE)
    if not lost or not calls or wreckage.seen(REJECTED) or name_resolution.unresolved(wreckage):
        return None
    if connections.commonest(c.kind for c in calls) == connections.NO_WAY or wreckage.roots():
        return None  # that explains it without any wrong setting
    hosted = bool(wreckage.seen(HOSTS_IT))
    everywhere = len(wreckage.hosts) > 1 and {s.line.host for s in lost} >= set(wreckage.hosts)
    where = next((c.where for c in calls if c.address), "the endpoint")
    return FAULT.diagnosis(
        f"torchrun called {where} for its rendezvous and nobody served it"
        + ("" if hosted else ", nor does any node say that it hosts the store")
        + ": each node decides by itself whether the endpoint is its own, and may be wrong",
        confidence=0.25 if hosted else 0.65 if everywhere else 0.5,
        seen=[*lost, *(c.seen for c in calls)],
        culprit=Culprit(what=f"rendezvous endpoint {where}"),
        fix="make the endpoint a name or address that its node's own name resolves to, or say who "
        "hosts: `--rdzv-conf is_host=1` there, `is_host=0` on the others; the same port and "
        "`--rdzv-id` everywhere",
        next="getent ahosts $(hostname)",
        unknown=["whether that node was started at all, and whether a firewall stands between"],
    )


# --- in what a user wrote ------------------------------------------------------------------------


@FAULT.lint
def the_nodes_cannot_meet(source: Source) -> Iterator[Finding]:
    alone = (
        doubt for launch in source.launches for doubt in launch_rendezvous.problems(source, launch)
    )
    for doubt in (*alone, *nodes_of_one_job.problems(source)):
        speak = {"error": FAULT.error, "warning": FAULT.warning}.get(doubt.status, FAULT.note)
        yield speak(doubt.summary, reason=doubt.reason, fix=doubt.fix, at=doubt.place)
