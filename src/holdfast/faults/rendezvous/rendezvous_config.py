"""The rendezvous as configured cannot form.

What you see   Every node waits; after minutes `RendezvousConnectionError: The connection to the
               C10d store has failed` or `Timed out after 601 seconds waiting for clients. 1/2
               clients joined.`
Why            torchrun's default backend is `static`: it supports no range, and with `--nnodes 1:4`
               it waits for four. With `c10d` each node decides by itself whether it serves the
               store: the endpoint must be its host name, its canonical name, or among the addresses
               its own name resolves to. An address of a second network card is not, nor is any
               address when the name resolves to 127.0.1.1: then no node serves it. Without an
               endpoint every node uses localhost. Without a port c10d uses 29400; static rejects
               it. With static every node needs its own --node-rank, and all need the same
               --master-port.
How to be sure On the node that should serve the store, `getent ahosts $(hostname)` must list the
               endpoint's address. torchrun logs `hosts the TCP store` at level INFO on the node
               that does. On several nodes `holdfast check` asks each by torchrun's own rule:
               exactly one must believe that the endpoint is its own.
Fix            For a range: `--rdzv-backend c10d --rdzv-endpoint HOST:29400 --rdzv-id NAME`. For a
               node that does not recognise itself: `--rdzv-conf is_host=1` on the first node only
               (`is_host=0` on the others), and `--local-addr` with each node's own address.
Known limits   The check knows the environment and the options given to it, not the command line of
               a later launch. The etcd backends are recognised in logs only.
Sources        torch/distributed/run.py: default static, ports
               torch/distributed/elastic/rendezvous/utils.py: _matches_machine_hostname
               torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py: world is max_nodes
               https://github.com/pytorch/pytorch/issues/73656
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import TypeOnHost
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections, name_resolution, peers
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Plan, Unread, addresses, known, rendezvous
from holdfast.analysis.nodes import NodesFacts, StoreBelief, owners
from holdfast.analysis.source.launch import compose_nodes, nodes_of_one_job, pods
from holdfast.analysis.source.launch import rendezvous_options as launch_rendezvous
from holdfast.analysis.source.source import Source
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD108",
    slug="rendezvous-config",
    related=(
        "hostname-misresolves",
        "master-not-listening",
        "wrong-master-address",
        "launcher-config",
    ),
)

REJECTED = FAULT.log_pattern(
    "rejected",
    r"(?P<what>(?:rank|endpoint) is absent in RendezvousParameters|[Pp]ort is (?:absent|missing) "
    r"in endpoint(?:: \S+)?|Endpoint is missing in endpoint|The (?:hostname|port number) of the "
    r"rendezvous endpoint '[^']*' must be|The rendezvous configuration (?:string|option)\b.*?must "
    r"(?:be|have)|The rendezvous backend '[^']*' is not registered|nnodes=\S+ is not in "
    r"|No rendezvous handler for \w*://|using tcp:// rendezvous: .* missing"
    r"|The (?:minimum|maximum) number of nodes|Invalid NCCL_COMM_ID, please use format)",
    anchors=(
        *("is absent in RendezvousParameters", "ort is absent in", "ort is missing in"),
        *("Endpoint is missing in", "of the rendezvous endpoint", "The rendezvous configuration"),
        *("The rendezvous backend '", 'is not in "MIN:MAX"', "No rendezvous handler for"),
        *("using tcp:// rendezvous", "imum number of nodes", "Invalid NCCL_COMM_ID"),
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
HOSTS_STORE = FAULT.log_pattern(
    "hosts-it",
    r"hosts the TCP store for the C10d rendezvous backend",
    anchors=("hosts the TCP store",),
    example="Process 4711 hosts the TCP store for the C10d rendezvous backend.",
    role=Role.CONTEXT,
)


@FAULT.check(needs=("interfaces", "master_name", "own_fqdn", "own_name", "routes"))
def rendezvous_cannot_form(facts: MachineFacts) -> Finding:
    plan = facts.plan
    if plan.rdzv_backend == "c10d":
        return _c10d(facts) if plan.rdzv_endpoint else _c10d_without_endpoint(plan)
    if plan.rdzv_backend not in ("", "static"):
        return FAULT.does_not_apply(
            f"holdfast does not check the rendezvous backend {plan.rdzv_backend}"
        )
    if plan.min_nodes != plan.max_nodes:
        return _range_with_static(plan)
    if plan.rdzv_endpoint and rendezvous.split_endpoint(plan.rdzv_endpoint)[1] is None:
        return _static_endpoint_without_port(plan)
    if not plan.multi_node and not plan.rdzv_endpoint:
        return FAULT.does_not_apply("one node, and no rendezvous endpoint is set")
    return FAULT.does_not_apply("static rendezvous with a fixed number of nodes: nothing to check")


def _range_with_static(plan: Plan) -> Finding:
    """Certain only if the backend is set to static; torchrun's command line may set another."""
    named = plan.rdzv_backend == "static"
    speak = FAULT.error if named else FAULT.warning
    backend = "as set" if named else "torchrun's default, unless your command sets another"
    return speak(
        f"{plan.min_nodes} to {plan.max_nodes} nodes with the static rendezvous",
        reason=f"static ({backend}) supports no range: it waits for all {plan.max_nodes} nodes, "
        "600 s by default, and no node may join later",
        evidence=[Evidence(quote=f"--nnodes {plan.min_nodes}:{plan.max_nodes}", source="plan")],
        fix=f"`torchrun --nnodes {plan.min_nodes}:{plan.max_nodes} --rdzv-backend c10d "
        f"--rdzv-endpoint HOST:{rendezvous.C10D_PORT} --rdzv-id NAME …`",
    )


def _static_endpoint_without_port(plan: Plan) -> Finding:
    return FAULT.error(
        f"endpoint {plan.rdzv_endpoint} has no port",
        reason="the static rendezvous rejects it: 'Port is absent in endpoint'",
        evidence=[Evidence(quote=plan.rdzv_endpoint, source="rendezvous endpoint")],
        fix=f"`--rdzv-endpoint {shell_words.word(f'{plan.rdzv_endpoint}:29500', 'HOST:29500')}`",
    )


def _c10d_without_endpoint(plan: Plan) -> Finding:
    if not plan.multi_node:
        return FAULT.ok("c10d on one node: localhost is the endpoint")
    return FAULT.warning(
        "c10d with several nodes and no endpoint",
        reason="unless your command line sets one, every node uses localhost and waits for the "
        "others there",
        evidence=[Evidence(quote="no --rdzv-endpoint, no PET_RDZV_ENDPOINT", source="plan")],
        fix=f"set `--rdzv-endpoint HOST:{rendezvous.C10D_PORT}` on every node, with the same HOST, "
        "one of the nodes",
    )


def _c10d(facts: MachineFacts) -> Finding:
    plan = facts.plan
    host, port = rendezvous.split_endpoint(plan.rdzv_endpoint)
    if "is_host" in plan.environment.get("PET_RDZV_CONF", ""):
        return FAULT.ok("PET_RDZV_CONF sets is_host, which decides which node serves the store")
    if not _will_host_store(facts, host):
        meant = rendezvous.addresses_of(facts, host)
        if any(addresses.carrier(known(facts.interfaces), ip) for ip in meant):
            return _host_does_not_recognise_itself(facts, host)
    if port is None:
        return FAULT.note(
            f"endpoint {plan.rdzv_endpoint} has no port",
            reason=f"c10d then uses {rendezvous.C10D_PORT}; other launchers use 29500",
            evidence=[Evidence(quote=plan.rdzv_endpoint, source="rendezvous endpoint")],
            fix="set it: `--rdzv-endpoint "
            f"{shell_words.word(f'{plan.rdzv_endpoint}:{rendezvous.C10D_PORT}', 'HOST:PORT')}`",
        )
    return FAULT.ok(f"c10d endpoint {host} determines which node serves the store")


def _host_does_not_recognise_itself(facts: MachineFacts, host: str) -> Finding:
    own = known(facts.own_name)
    means = ", ".join(own.addresses) or own.error
    way_out = addresses.outward(facts)
    mine = host if addresses.parse(host) else way_out[1] if way_out else "ADDRESS"
    return FAULT.warning(
        f"this machine has the endpoint's address {host} but will not serve the store",
        reason=f"torchrun looks for it among the addresses of {own.name} ({means}) and does not "
        "find it: no node serves the store, and all fail after minutes",
        evidence=[
            Evidence(quote=f"{own.name}: {means}", source="getaddrinfo"),
            Evidence(quote=facts.plan.rdzv_endpoint, source="rendezvous endpoint"),
        ],
        fix=f"run `torchrun --rdzv-conf is_host=1 --local-addr "
        f"{shell_words.word(mine, 'ADDRESS')} …` here, and set "
        "`--local-addr` to their own address on the other nodes",
    )


def _will_host_store(facts: MachineFacts, host: str) -> bool:
    """torch's own rule: its name, its canonical name, or an address that both resolve to."""
    ip = addresses.parse(host)
    if host in ("localhost", facts.host) or (ip and ip.is_loopback):
        return True
    fqdn = facts.own_fqdn
    if not isinstance(fqdn, Unread) and host == fqdn:
        return True
    own = {addresses.parse(text) for text in known(facts.own_name).addresses}
    return any(addresses.parse(text) in own for text in rendezvous.addresses_of(facts, host))


@FAULT.check_nodes
def not_exactly_one_node_serves_the_store(facts: NodesFacts) -> Finding | Sequence[Finding]:
    asked = {node.name: node.store for node in facts.nodes if node.store is not None}
    if len(facts.nodes) < 2 or not asked:
        return FAULT.does_not_apply("no rendezvous endpoint is set, or there is one node")
    told = {name: one for name, one in asked.items() if isinstance(one, StoreBelief)}
    unknown = [
        FAULT.skipped(one.why, host=name) for name, one in asked.items() if isinstance(one, Unread)
    ]
    hosts = sorted(name for name, one in told.items() if one.hosts_it)
    if len(hosts) > 1 or (not hosts and not unknown):
        return [_store_hosts(facts, told, hosts), *unknown]
    if unknown:
        return unknown  # one of them may be the host, or a second one
    return FAULT.ok(f"{hosts[0]} serves the store of {told[hosts[0]].endpoint}, and no other node")


def _store_hosts(facts: NodesFacts, told: dict[str, StoreBelief], hosts: Sequence[str]) -> Finding:
    endpoint = next(iter(told.values())).endpoint
    host, _ = rendezvous.split_endpoint(endpoint)
    right = owners.book(facts).owners_of(owners.addresses_of(facts, host)) or tuple(hosts)
    chosen = right[0] if len(right) == 1 else ""
    if hosts:
        summary = f"{text.names(hosts)} each believe that they serve the store of {endpoint}"
        reason = "each of them starts a store of its own, and the job falls apart into as many"
    else:
        summary = f"no node believes that it serves the store of {endpoint}"
        reason = "torchrun's c10d looks for the endpoint among the addresses of each node's own "
        reason += "name and finds it on none: all wait for minutes and fail"
    shown = sorted(told, key=lambda name: (name not in (*hosts, chosen), name))
    return FAULT.error(
        summary,
        reason=reason,
        evidence=[
            Evidence(quote=f"{name}: {told[name].why}", source="torchrun's rule", host=name)
            for name in shown[:SHOWN]
        ],
        fix=_decide_host(facts, chosen),
    )


def _decide_host(facts: NodesFacts, chosen: str) -> str:
    way_out = addresses.outward(facts.node(chosen).facts) if chosen else None
    mine = way_out[1] if way_out else "ADDRESS"
    return (
        f"on {chosen or 'the node that has the endpoint'}: `torchrun --rdzv-conf is_host=1 "
        f"--local-addr {mine} …`; on the others `--rdzv-conf is_host=0` and their own --local-addr"
    )


@FAULT.explain
def launcher_rejected_the_rendezvous(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(REJECTED)
    if not seen:
        return None
    what = seen[0].fields["what"]
    return FAULT.diagnosis(
        f"the launcher rejected the rendezvous settings: {what}",
        confidence=0.93,
        seen=seen,
        culprit=Culprit(what=what, host=seen[0].line.host),
        fix="for static, set `--master-addr HOST --master-port 29500 --node-rank N`; for elastic, "
        "`--rdzv-backend c10d --rdzv-endpoint HOST:29400 --rdzv-id NAME`",
        next="torchrun --help | grep -A2 rdzv",
    )


@FAULT.explain
def etcd_did_not_answer(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NO_ETCD)
    if not seen or wreckage.seen(REJECTED):
        return None
    return FAULT.diagnosis(
        "torchrun's rendezvous was set to etcd, and no etcd server answered at the endpoint: none "
        "runs there, it offers only the v3 API, or the address is wrong",
        confidence=0.7,
        seen=seen,
        culprit=Culprit(what="etcd endpoint"),
        fix="`curl http://ENDPOINT/version` asks whether one runs. torchrun needs one before 3.6, "
        "started with `--enable-v2`; `holdfast run` with the same options uses the v3 API. Or use "
        "c10d: `--rdzv-backend c10d --rdzv-endpoint HOST:29400`",
    )


@FAULT.explain
def no_node_serves_the_rendezvous(wreckage: Wreckage) -> Diagnosis | None:
    lost = wreckage.seen(peers.RENDEZVOUS_LOST)
    calls = connections.attempts(wreckage, connections.STORE)
    if not lost or not calls or wreckage.seen(REJECTED) or name_resolution.unresolved(wreckage):
        return None
    if connections.commonest(c.kind for c in calls) == connections.NO_WAY or wreckage.roots():
        return None  # that explains it without a wrong setting
    hosted = bool(wreckage.seen(HOSTS_STORE))
    everywhere = len(wreckage.hosts) > 1 and {s.line.host for s in lost} >= set(wreckage.hosts)
    where = next((c.where for c in calls if c.address), "the endpoint")
    unserved = "" if hosted else " (no log says that it hosts the store)"
    return FAULT.diagnosis(
        f"torchrun connected to {where} for its rendezvous and no node served it{unserved}: each "
        "node decides by itself whether the endpoint is its own, and may be wrong",
        confidence=0.25 if hosted else 0.65 if everywhere else 0.5,
        seen=[*lost, *(c.seen for c in calls)],
        culprit=Culprit(what=f"rendezvous endpoint {where}"),
        fix="set the endpoint to a name or address that its node's own name resolves to, or set "
        "the host: `--rdzv-conf is_host=1` there, `is_host=0` on the others; use the same port and "
        "`--rdzv-id` everywhere",
        next="getent ahosts $(hostname)",
        unknown=[
            (
                "whether that node was started, and whether a firewall blocks the path (run the "
                "command above there)"
            )
        ],
    )


# --- in what a user wrote ------------------------------------------------------------------------


@FAULT.lint
def launch_cannot_form_a_rendezvous(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        yield from map(FAULT.from_problem, launch_rendezvous.problems(source, launch))
    yield from map(FAULT.from_problem, nodes_of_one_job.problems(source))


@FAULT.lint
def containers_do_not_form_one_job(source: Source) -> Iterator[Finding]:
    yield from map(FAULT.from_problem, pods.problems(source))
    yield from map(FAULT.from_problem, compose_nodes.problems(source))


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def one_host_is_given_another_id(rehearsal: Rehearsal) -> Injection:
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"{host} is started with another --rdzv-id than the others",
        act=TypeOnHost(host=host, flags=("--rdzv-id", "another")),
        then=Then.REFUSES,
        from_start=True,
        culprits=(),
        hosts=rehearsal.job.hosts,
        beside=("ranks-missing", "join-timeout", "master-not-listening"),
        join_timeout=15.0,
    )
