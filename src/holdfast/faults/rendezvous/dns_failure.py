"""A host name does not resolve.

What you see   torch repeats `gai error: -2 - Name or service not known` and ends with `The client
               socket has timed out`; torchrun with c10d may stop with `socket.gaierror`. Gloo warns
               `Unable to resolve hostname to a (local) address` and uses loopback.
Why            The name is misspelt, known on other machines only, or does not exist yet: on
               Kubernetes a pod's name appears with the pod. torch retries resolver errors until the
               store's timeout, so a late name does no harm and a wrong one costs minutes.
How to be sure Run `getent ahosts NAME` on this machine, inside the same container as the job.
Fix            Correct the name, use the address itself, or add a line to /etc/hosts. For a
               container: `--add-host NAME:ADDRESS`, or host networking.
Known limits   On one machine the check resolves names there only; each node and container has its
               own resolver, so that on several nodes every node is asked. A name that appears late
               leaves the same log lines as one that never does, unless a timeout follows.
Sources        https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
               torch/csrc/distributed/c10d/socket.cpp: resolver errors are retried
               torch/distributed/elastic/rendezvous/utils.py: own name is looked up unguarded
               pytorch/gloo gloo/transport/tcp/device.cc
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import BreakName
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs.patterns import name_resolution, watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import Container, MachineFacts, Resolution, addresses, known
from holdfast.analysis.nodes import NodesFacts, naming, owners
from holdfast.analysis.nodes.naming import Answer, NameProblem
from holdfast.analysis.source.launch import pod_names
from holdfast.analysis.source.source import Source
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD107",
    slug="dns-failure",
    related=("hostname-misresolves", "wrong-master-address", "master-not-listening"),
)
FAULT.error_text(
    r"gai error|Name or service not known|name resolution|No address associated",
    "the name of the master does not resolve",
)
FAULT.log_patterns.extend(name_resolution.ALL)


SLOW_LOOKUP = 0.5
"""seconds; a healthy resolver answers in milliseconds. One that never answers exceeds the reader's
deadline, and the finding is 'not looked at'"""


@FAULT.check(needs=("interfaces", "own_name", "routes"))
def own_name_does_not_resolve(facts: MachineFacts) -> Finding:
    own = known(facts.own_name)
    if own.addresses:
        return _resolved(own)
    interface, ip = addresses.outward(facts) or ("INTERFACE", "ADDRESS")
    entry = f"{shell_words.word(ip, 'ADDRESS')} {shell_words.word(own.name, 'NAME')}"
    use = shell_words.setting("GLOO_SOCKET_IFNAME", interface)
    fix = f"add `{entry}` to /etc/hosts, or `export {use}`"
    if not facts.plan.multi_node:
        return FAULT.note(
            f"this machine's own name {own.name} does not resolve",
            reason="Gloo falls back to 127.0.0.1, which is right for one node",
            evidence=[_resolver_answer(own)],
            fix=fix,
        )
    return FAULT.error(
        f"this machine's own name {own.name} does not resolve",
        reason="Gloo falls back to 127.0.0.1, which other nodes cannot reach, and torchrun's c10d "
        "stops with socket.gaierror",
        evidence=[_resolver_answer(own)],
        fix=fix,
    )


@FAULT.check(needs=("container", "master_name"))
def master_name_does_not_resolve(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if facts.master_name is None:
        return ()
    master = known(facts.master_name)
    if master.addresses:
        return _resolved(master)
    passing = "temporary" in master.error.lower() or _in_kubernetes(facts)
    speak = FAULT.warning if passing else FAULT.error
    return speak(
        f"master address {master.name} does not resolve",
        reason="the name may still appear: torch retries until the store's timeout"
        if passing
        else "the resolver says that there is no such name: ranks here would retry until the "
        "store's timeout and then fail",
        evidence=[_resolver_answer(master)],
        fix=f"make `getent ahosts {shell_words.word(master.name, 'NAME')}` answer here, or use "
        "the master's address itself: "
        f"`--master-addr ADDRESS` ({facts.plan.master_origin} is {text.name(master.name)} now)",
    )


def _resolved(answer: Resolution) -> Finding:
    if answer.seconds > SLOW_LOOKUP:
        return FAULT.note(
            f"{answer.name} takes {answer.seconds:.1f} s to resolve",
            reason="a name server in the list probably does not answer; every rank waits that "
            "long, several times",
            evidence=[_resolver_answer(answer)],
            fix="find the name server that does not answer: `resolvectl status`, or see "
            "/etc/resolv.conf",
        )
    return FAULT.ok(f"{answer.name} resolves to {answer.addresses[0]}")


def _resolver_answer(answer: Resolution) -> Evidence:
    said = answer.error or ", ".join(answer.addresses)
    return Evidence(quote=f"{answer.name}: {said}", source="getaddrinfo")


def _in_kubernetes(facts: MachineFacts) -> bool:
    return isinstance(facts.container, Container) and facts.container.kind == "kubernetes"


@FAULT.check_nodes
def nodes_cannot_resolve_names(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node")
    asked, gaps = naming.answers(facts)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    if not asked:
        return unknown or FAULT.skipped("no node was asked for the name of another")
    by_name: dict[str, list[Answer]] = {}
    for one in asked:
        by_name.setdefault(one.name, []).append(one)
    found = [finding for _, same in sorted(by_name.items()) for finding in _unresolved(facts, same)]
    if found:
        return [*found, *unknown]
    return [FAULT.ok(f"every node resolves the {len(by_name)} names that a job may use"), *unknown]


def _unresolved(facts: NodesFacts, asked: list[Answer]) -> list[Finding]:
    """All nodes, and one name. A name that no node knows may be ssh's own for a machine."""
    failed = [one for one in asked if one.problem is NameProblem.UNRESOLVED]
    if not failed:
        return []
    name = asked[0].name
    node = owners.book(facts).named(name)
    needed = naming.is_master(facts, name)
    if len(failed) == len(asked) and not needed and (node is None or name != node.facts.host):
        return []
    askers = sorted(one.asker for one in failed)
    everywhere = len(failed) == len(asked) and len(asked) > 1
    who = "no other node resolves" if everywhere else f"{text.names(askers)} cannot resolve"
    speak = FAULT.error if needed else FAULT.warning
    summary = f"{who} {name}{', the master' if needed else ''}"
    if everywhere and not needed:
        speak = FAULT.note
    return [
        speak(
            summary,
            reason="ranks there retry until the store's timeout and then fail"
            if needed
            else "it matters if that node serves the store: torchrun's c10d publishes its name, "
            "not its address",
            evidence=[
                Evidence(
                    quote=f"{one.asker}: {name}: {one.resolution.error or 'no address'}",
                    source="getaddrinfo",
                    host=one.asker,
                )
                for one in failed[:SHOWN]
            ],
            fix=f"add it on {text.names(askers)}: `echo {_entry(facts, name)} | sudo "
            "tee -a /etc/hosts`; or use addresses: `torchrun --local-addr ADDRESS …`",
            host=askers[0] if len(askers) == 1 and len(asked) > 1 else "",
        )
    ]


def _entry(facts: NodesFacts, name: str) -> str:
    """A line for /etc/hosts, as one word."""
    node = owners.book(facts).named(name)
    found = addresses.outward(node.facts) if node else None
    return shell_words.word(f"{found[1] if found else 'ADDRESS'} {name}", "'ADDRESS NAME'")


@FAULT.explain
def name_did_not_resolve(wreckage: Wreckage) -> Diagnosis | None:
    downloads = wreckage.seen(name_resolution.DOWNLOAD)
    seen = name_resolution.unresolved(wreckage)
    if downloads:
        seen = tuple(s for s in seen if s.pattern == name_resolution.STORE_NAME.name)
    if not seen and not downloads:
        return _script_looked_it_up(wreckage)
    first = (*seen, *downloads)[0]
    name = next(
        (
            name_resolution.looked_up_name(s)
            for s in (*seen, *downloads)
            if name_resolution.looked_up_name(s)
        ),
        "",
    )
    where = f" on {first.line.host}" if first.line.host else ""
    purpose = "" if seen else ", which the job needs for a download"
    return FAULT.diagnosis(
        f"the name {name or 'of a node of the job'} did not resolve{where}{purpose}",
        confidence=_confidence(wreckage, seen),
        seen=seen or downloads,
        culprit=Culprit(what=name or "a host name", host=first.line.host),
        fix="correct the name, use the address itself, or add it to /etc/hosts or DNS; for a "
        "container `--add-host NAME:ADDRESS`"
        if seen
        else "download it before the job, or give the job a working resolver and a route out",
        next=shell_words.command("getent ahosts {}", name),
    )


def _script_looked_it_up(wreckage: Wreckage) -> Diagnosis | None:
    """Looked up by hand, or by a script before the ranks: the name may have appeared later."""
    seen = wreckage.seen(name_resolution.LOOKUP)
    if not seen:
        return None
    name = next(
        (n for s in reversed(seen) if (n := name_resolution.looked_up_name(s))),
        "",
    )
    return FAULT.diagnosis(
        f"{name or 'a machine of the job'} did not resolve when the job's script looked it up",
        confidence=0.3 if wreckage.roots() else 0.6,
        seen=seen,
        culprit=Culprit(what=name or "a node of the job", host=seen[0].line.host),
        fix="check that the master's pod or machine exists and has that name (on Kubernetes: a "
        "headless service), or use its address",
        next=shell_words.command("getent ahosts {}", name),
        unknown=["whether the name resolved later"],
    )


def _confidence(wreckage: Wreckage, seen: Sequence[Sighting]) -> float:
    """torch retries, so a late name leaves the same line; a timeout after it decides."""
    if not seen:
        return 0.6
    names = {name_resolution.looked_up_name(s) for s in seen} - {""}
    gave_up = any(s.fields.get("host") in names for s in wreckage.seen(watchdog.CLIENT_TIMEOUT))
    retried = all(s.pattern == name_resolution.STORE_NAME.name for s in seen)
    if retried and not gave_up and wreckage.roots(but=[FAULT.slug]):
        return 0.4
    return 0.93


@FAULT.lint
def manifest_names_no_pod(source: Source) -> Iterator[Finding]:
    yield from map(FAULT.from_problem, pod_names.problems(source))


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def name_does_not_resolve(rehearsal: Rehearsal) -> Injection:
    host, name = hosts.other_host(rehearsal), hosts.store_host(rehearsal.job)
    return Injection(
        does=f"{name} does not resolve on {host}, from the start until it was named",
        act=BreakName(host=host, name=name),
        then=Then.GOES_ON,
        from_start=True,
        culprits=(),
        hosts=(host, name),
        beside=("ranks-missing",),
        lifted=True,
    )
