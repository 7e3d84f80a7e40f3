"""A host name does not resolve.

What you see   torch repeats `gai error: -2 - Name or service not known` and ends with `The client
               socket has timed out`; torchrun with c10d may stop with `socket.gaierror`. Gloo
               warns that it is `Unable to resolve hostname to a (local) address` and takes
               loopback.
Why            The name is misspelt, known on other machines only, or not there yet: on
               Kubernetes a pod's name appears with the pod. torch retries resolver errors until
               the store's timeout, so a late name is no fault and a wrong one costs minutes.
How to be sure `getent ahosts NAME` on this machine, inside the same container as the job.
Fix            Correct the name, use the address itself, or add a line to /etc/hosts. For a
               container: `--add-host NAME:ADDRESS`, or host networking.
Sources        torch/csrc/distributed/c10d/socket.cpp: resolver errors are retried
               torch/distributed/elastic/rendezvous/utils.py: own name is looked up unguarded
               pytorch/gloo gloo/transport/tcp/device.cc
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import addresses
from holdfast.facts import Container, MachineFacts, Resolution, known
from holdfast.model import Evidence, Fault, Finding

FAULT = Fault(code="HOLD107", slug="dns-failure")

SLOW = 0.5
"""seconds; a healthy resolver answers in milliseconds, and one that never answers ran into
our own deadline and is 'not looked at'"""


@FAULT.foresee
def own_name_resolves(facts: MachineFacts) -> Finding:
    own = known(facts.own_name)
    if own.addresses:
        return _resolved(own)
    interface, ip = addresses.outward(facts) or ("INTERFACE", "ADDRESS")
    fix = f"add `{ip} {own.name}` to /etc/hosts, or `export GLOO_SOCKET_IFNAME={interface}`"
    if not facts.plan.multi_node:
        return FAULT.note(
            f"this machine's own name {own.name} does not resolve",
            reason="Gloo falls back to 127.0.0.1, which is right for one node",
            evidence=[_quote(own)],
            fix=fix,
        )
    return FAULT.error(
        f"this machine's own name {own.name} does not resolve",
        reason="Gloo falls back to 127.0.0.1, where other nodes cannot come, and torchrun's c10d "
        "stops with socket.gaierror",
        evidence=[_quote(own)],
        fix=fix,
    )


@FAULT.foresee
def master_name_resolves(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if facts.master_name is None:
        return ()
    master = known(facts.master_name)
    if master.addresses:
        return _resolved(master)
    passing = "temporary" in master.error.lower() or _in_kubernetes(facts)
    speak = FAULT.warning if passing else FAULT.error
    return speak(
        f"master address {master.name} does not resolve",
        reason="it may still appear (torch retries until the store's timeout)"
        if passing
        else "the resolver says there is no such name: ranks here would retry until the store's "
        "timeout, in vain",
        evidence=[_quote(master)],
        fix=f"`getent ahosts {master.name}` must answer here; else give the master's address "
        f"itself: `--master-addr ADDRESS` ({facts.plan.master_origin} says {master.name})",
    )


def _resolved(answer: Resolution) -> Finding:
    if answer.seconds > SLOW:
        return FAULT.note(
            f"{answer.name} takes {answer.seconds:.1f} s to resolve",
            reason="a name server in the list probably does not answer; every rank pays this, "
            "several times",
            evidence=[_quote(answer)],
            fix="see `resolvectl status` or /etc/resolv.conf for the silent name server",
        )
    return FAULT.ok(f"{answer.name} resolves to {answer.addresses[0]}")


def _quote(answer: Resolution) -> Evidence:
    said = answer.error or ", ".join(answer.addresses)
    return Evidence(quote=f"{answer.name}: {said}", source="getaddrinfo")


def _in_kubernetes(facts: MachineFacts) -> bool:
    return isinstance(facts.container, Container) and facts.container.kind == "kubernetes"
