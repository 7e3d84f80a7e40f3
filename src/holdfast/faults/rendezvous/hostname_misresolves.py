"""This machine's own name resolves to the wrong address.

What you see   Gloo: `timed out connecting: … Connection refused, remote=[127.0.1.1]:…` on some
               nodes, or `Connect timeout`, while every machine answers pings. torchrun with c10d:
               all nodes wait for a store that none of them serves.
Why            Gloo listens on the first usable address of the machine's own name. Debian and Ubuntu
               write `127.0.1.1 name` into /etc/hosts; that address is usable, so Gloo gives the
               other nodes a loopback address, without a warning. torchrun's c10d compares the
               endpoint with the same addresses to decide which node serves the store, and publishes
               the machine's full name as MASTER_ADDR.
How to be sure `getent ahosts $(hostname)`: Gloo uses the first line. `python3 -c 'import socket;
               print(socket.getfqdn())'` prints the name that torchrun publishes. On several nodes
               `holdfast check` resolves every node's name on every node and compares the answers
               with the addresses that the node really has.
Fix            Give the name its real address in /etc/hosts or DNS, for example
               `10.0.0.5 node-a`. Without touching the machine: GLOO_SOCKET_IFNAME=eth0 for Gloo
               and `torchrun --local-addr 10.0.0.5` for torchrun.
Known limits   On one machine only its view of its own name is checked. Between nodes, an address
               that no node has may still lead there (NAT): that is a warning. In a log of one
               machine the line is the same as for a rank that died.
Sources        pytorch/gloo gloo/transport/tcp/device.cc
               torch/distributed/elastic/rendezvous/utils.py: _matches_machine_hostname
               https://github.com/pytorch/pytorch/issues/150532
               https://github.com/aws-samples/aws-do-eks/issues/69
               https://www.debian.org/doc/manuals/debian-reference/ch05.en.html
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import BreakName
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs.patterns import connections, name_resolution, watchdog
from holdfast.analysis.logs.patterns.connections import Attempt
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Resolution, Unread, addresses, known
from holdfast.analysis.nodes import NodesFacts, naming
from holdfast.analysis.nodes.naming import Answer, NameProblem
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD106",
    slug="hostname-misresolves",
    related=("dns-failure", "rendezvous-config", "wrong-nic"),
)

NOT_BINDABLE = FAULT.log_pattern(
    "not-bindable",
    r"Unable to find address for (?P<name>\S+?); bind\(2\) for (?P<address>\S+) failed"
    r"|rp != nullptr\. Unable to find address for: (?P<host>\S+)"
    r"|Unable to find interface for: \[?(?P<stranger>[^\]\s]+)"
    r"|gloo/transport/\w{2,10}/\w{2,20}\.cc:\d+\].{0,60}bind: Cannot assign requested address",
    anchors=(
        *("; bind(2) for ", "Unable to find address for:", "Unable to find interface for:"),
        "bind: Cannot assign requested address",
    ),
    example="RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:130] "
    "rp != nullptr. Unable to find address for node-a; bind(2) for 192.0.2.9 failed with: Cannot "
    "assign requested address",
)


@FAULT.check(needs=("interfaces", "own_name", "routes"))
def own_name_resolves_to_loopback_or_elsewhere(facts: MachineFacts) -> Finding:
    own = known(facts.own_name)
    if not own.addresses:
        return FAULT.skipped(f"{own.name} does not resolve: see dns-failure")
    interfaces = known(facts.interfaces)
    evidence = [Evidence(quote=f"{own.name} is {', '.join(own.addresses)}", source="getaddrinfo")]
    taken = next((ip for ip in own.addresses if addresses.carrier(interfaces, ip)), None)
    if taken is None:
        speak = FAULT.warning if facts.plan.multi_node else FAULT.note
        return speak(
            f"{own.name} resolves to an address that no interface here has",
            reason="the entry in /etc/hosts or DNS is outdated, or the address is translated "
            "(NAT): Gloo then falls back to 127.0.0.1, which only ranks on this machine can reach",
            evidence=evidence,
            fix=_advice(facts),
        )
    if addresses.is_loopback(taken):
        return _loopback(facts, own, taken, evidence)
    if facts.plan.multi_node and addresses.is_ipv6(taken) and not _ipv6_leads_out(facts, taken):
        return FAULT.warning(
            f"{own.name} resolves to an IPv6 address first, and IPv6 has no route here",
            reason="there is no IPv6 route beyond this link, and Gloo uses the first address",
            evidence=evidence,
            fix=_advice(facts),
        )
    return FAULT.ok(f"{own.name} is {taken}, an address of this machine")


@FAULT.check(needs=("interfaces", "own_fqdn", "routes"))
def published_name_is_localhost(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if not facts.plan.multi_node or facts.plan.rdzv_backend != "c10d":
        return ()  # only c10d publishes this name, and one node may call itself localhost
    name = known(facts.own_fqdn)
    if name.partition(".")[0] not in ("localhost", "ip6-localhost"):
        return FAULT.ok(f"torchrun publishes this machine as {name}")
    return FAULT.error(
        f"this machine's full name is {name}",
        reason="if this node becomes rank 0, torchrun tells all other nodes to connect to this "
        "name, and each would connect to itself",
        evidence=[Evidence(quote=name, source="socket.getfqdn()")],
        fix=_advice(facts),
    )


def _loopback(facts: MachineFacts, own: Resolution, taken: str, seen: list[Evidence]) -> Finding:
    summary = f"own name {own.name} resolves to the loopback address {taken}"
    interface = facts.plan.environment.get("GLOO_SOCKET_IFNAME", "")
    if not facts.plan.multi_node:
        return FAULT.note(
            summary,
            reason="harmless on one node; with several, Gloo would listen on loopback without a "
            "warning",
            evidence=seen,
        )
    if interface and facts.plan.rdzv_backend != "c10d":
        return FAULT.note(
            summary,
            reason=f"GLOO_SOCKET_IFNAME={interface} makes Gloo use another address",
            evidence=seen,
        )
    if interface:
        return FAULT.warning(
            summary,
            reason=f"GLOO_SOCKET_IFNAME={interface} makes Gloo use another address, but torchrun's "
            "c10d still decides by the name which node serves the store",
            evidence=seen,
            fix=_advice(facts),
        )
    return FAULT.error(
        summary,
        reason="Gloo listens there without a warning, and other nodes cannot reach a loopback "
        "address; torchrun's c10d decides by the name which node serves the store",
        evidence=seen,
        fix=_advice(facts),
    )


def _ipv6_leads_out(facts: MachineFacts, ip: str) -> bool:
    if addresses.is_link_local(ip):
        return False
    routes = facts.routes
    return isinstance(routes, Unread) or addresses.has_ipv6_route(routes)


def _advice(facts: MachineFacts) -> str:
    interface, ip = addresses.outward(facts) or ("INTERFACE", "ADDRESS")
    ip, host = shell_words.word(ip, "ADDRESS"), shell_words.word(facts.host, "NAME")
    return (
        f"replace the line in /etc/hosts with `{ip} {host}`, or `export "
        f"{shell_words.setting('GLOO_SOCKET_IFNAME', interface)}` and `torchrun --local-addr {ip} "
        "…`"
    )


@FAULT.check_nodes
def nodes_resolve_names_to_wrong_machines(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node")
    asked, gaps = naming.answers(facts)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    resolved = [one for one in asked if one.problem is not NameProblem.UNRESOLVED]
    if not resolved:
        return unknown or FAULT.skipped("no name of another node was resolved: see dns-failure")
    wrong = [one for one in resolved if one.problem]
    if not wrong:
        count = len({one.name for one in resolved})
        return [FAULT.ok(f"{count} names lead to their node, whichever node asks"), *unknown]
    everywhere, by_asker = _by_subject(wrong, resolved)
    return [
        *(_wrong_everywhere(found) for found in everywhere),
        *(_wrong_on_one_node(facts, asker, found) for asker, found in by_asker.items()),
        *unknown,
    ]


def _by_subject(
    wrong: list[Answer], asked: list[Answer]
) -> tuple[list[list[Answer]], dict[str, list[Answer]]]:
    """A name that all other nodes resolve alike is its own; else the node that asks differs."""
    everywhere: list[list[Answer]] = []
    by_asker: dict[str, list[Answer]] = {}
    for name in sorted({one.name for one in wrong}):
        found = [one for one in wrong if one.name == name]
        alike = len({one.addresses for one in found}) == 1
        if alike and len(found) > 1 and len(found) == sum(one.name == name for one in asked):
            everywhere.append(found)
            continue
        for one in found:
            by_asker.setdefault(one.asker, []).append(one)
    return everywhere, by_asker


def _wrong_everywhere(found: list[Answer]) -> Finding:
    first = found[0]
    sure = first.problem is not NameProblem.NO_NODE
    speak = FAULT.error if sure else FAULT.warning
    return speak(
        f"all other nodes resolve {first.name} to {first.addresses}, {_leads(first)}",
        reason="they would look for its ranks there"
        + ("" if sure else "; fine only if the address is translated (NAT) on the path"),
        evidence=[_resolved_evidence(one) for one in found[:SHOWN]],
        fix=f"correct the entry of {text.name(first.name)} in DNS or /etc/hosts: `getent ahosts "
        f"{shell_words.word(first.name, 'NAME')}`",
        host=first.target,
    )


def _wrong_on_one_node(facts: NodesFacts, asker: str, found: list[Answer]) -> Finding:
    needed = any(naming.is_master(facts, one.name) for one in found)
    speak = FAULT.error if needed else FAULT.warning
    first = found[0]
    more = f", and {len(found) - 1} more names wrongly" if len(found) > 1 else ""
    return speak(
        f"{asker} resolves {first.name} to {first.addresses}, {_leads(first, asker)}{more}",
        reason="its ranks would look for the store there"
        if needed
        else "if the node of that name serves the store (torchrun's c10d publishes its name), "
        "ranks here would look for it at the wrong place",
        evidence=[_resolved_evidence(one) for one in found[:SHOWN]],
        fix=f"on {text.name(asker)} correct /etc/hosts or its resolver: `getent ahosts "
        f"{shell_words.word(first.name, 'NAME')}` must "
        f"answer {text.name(_true_address(facts, first))}",
        host=asker,
    )


def _leads(one: Answer, asker: str = "each machine") -> str:
    if one.problem is NameProblem.LOOPBACK:
        return f"which is {asker} itself"
    if one.problem is NameProblem.OTHER_NODE:
        return f"which is {one.found_at}"
    return "an address that no node has"


def _true_address(facts: NodesFacts, one: Answer) -> str:
    found = addresses.outward(facts.node(one.target).facts) if one.target else None
    return found[1] if found else "as on the other nodes"


def _resolved_evidence(one: Answer) -> Evidence:
    return Evidence(
        quote=f"{one.asker}: {one.name} is {one.addresses}", source="getaddrinfo", host=one.asker
    )


FIX_NAME_OR_BYPASS = (
    "give the name its real address in /etc/hosts or DNS, or bypass it: `export "
    "GLOO_SOCKET_IFNAME=eth0` and `torchrun --local-addr ADDRESS …`"
)


@FAULT.explain
def gloo_published_loopback(wreckage: Wreckage) -> Diagnosis | None:
    calls = [
        c
        for c in connections.attempts(wreckage, connections.GLOO)
        if addresses.is_loopback(c.address)
    ]
    alone = wreckage.seen(name_resolution.GLOO_NAME)
    if not calls and not (alone and wreckage.seen(watchdog.GLOO_MESH)):
        return None
    where = calls[0].address if calls else "127.0.0.1"
    return FAULT.diagnosis(
        f"Gloo told its peers to connect to {where}, which on each machine is the machine itself: "
        "the host's own name resolves to loopback",
        confidence=_loopback_confidence(wreckage, calls, warned=bool(alone)),
        seen=[*alone, *(c.seen for c in calls)],
        culprit=Culprit(what=f"{where} for the host's own name"),
        victims=[c.seen.rank for c in calls if c.seen.rank is not None],
        fix=FIX_NAME_OR_BYPASS,
        next="getent ahosts $(hostname)",
    )


@FAULT.explain
def name_resolved_to_no_address_of_this_host(wreckage: Wreckage) -> Diagnosis | None:
    """Resolvers take '1234' for the address 0.0.4.210; getfqdn may answer a reverse name."""
    calls = [c for c in connections.attempts(wreckage) if _is_numeric_name(c.address)]
    reverse = [
        s
        for s in wreckage.seen(name_resolution.STORE_NAME)
        if s.fields["name"].endswith(name_resolution.REVERSE_ZONES)
    ]
    unbound = wreckage.seen(NOT_BINDABLE)
    if calls:
        what = calls[0].address
        reason = (
            f"the ranks connected to {what}: a host name made of digits was read as a number, and "
            "the number as an address in 0.0.0.0/8, which no host has"
        )
    elif reverse:
        what = reverse[0].fields["name"]
        reason = (
            f"the machine's own name was looked up and came back as {what}, a reverse DNS entry"
        )
    elif unbound:
        named = unbound[0].fields
        names = (v for k, v in named.items() if v and k != "address")
        what = next(names, "the name of this host")
        reason = f"{what} resolves to an address that this machine does not have"
    else:
        return None
    return FAULT.diagnosis(
        reason,
        confidence=0.9 if reverse or calls else 0.85,
        seen=[*(c.seen for c in calls), *reverse, *unbound],
        culprit=Culprit(what=what),
        fix=FIX_NAME_OR_BYPASS
        if not calls
        else "use the address itself, or a host name that begins with a letter",
        next="getent ahosts $(hostname); python3 -c 'import socket; print(socket.getfqdn())'",
    )


def _loopback_confidence(wreckage: Wreckage, calls: list[Attempt], *, warned: bool) -> float:
    """On one machine a refused loopback connection only means that a rank died."""
    several = len(wreckage.hosts) > 1
    debian = any(c.address.startswith("127.0.1.") for c in calls)
    if several or debian:
        return 0.9
    if wreckage.roots(but=[FAULT.slug]):
        return 0.3
    return 0.75 if warned else 0.6


def _is_numeric_name(address: str) -> bool:
    """'1234', or what a resolver makes of it."""
    zero_net = address.startswith("0.0.") and not addresses.is_loopback(address)
    return address.isdigit() or (zero_net and addresses.parse(address) is not None)


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def own_name_is_loopback(rehearsal: Rehearsal) -> Injection:
    """As Debian's installer writes it. Where Gloo is not told better, the others cannot connect."""
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"{host}'s own name is 127.0.1.1 there, from the start",
        act=BreakName(host=host, name=host, address="127.0.1.1"),
        then=Then.GOES_ON,
        from_start=True,
        culprits=(),
        hosts=(host,),
    )


@FAULT.drill("endpoint", needs=("hosts",))
def name_of_the_endpoint_is_loopback(rehearsal: Rehearsal) -> Injection:
    host, name = hosts.other_host(rehearsal), hosts.store_host(rehearsal.job)
    return Injection(
        does=f"{name}, where the launchers meet, is 127.0.1.1 on {host}, from the start",
        act=BreakName(host=host, name=name, address="127.0.1.1"),
        then=Then.REFUSES,
        from_start=True,
        culprits=(),
        hosts=(host, name),
        beside=("ranks-missing", "join-timeout"),
        join_timeout=15.0,
    )
