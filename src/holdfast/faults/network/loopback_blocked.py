"""Processes on this machine cannot reach each other over loopback.

What you see   On a single machine the first rank starts, the others wait for the store and time
               out. NCCL up to 2.23 prints `Software caused connection abort` where the kernel said
               refused or timed out: it retried on a used socket. From 2.24 it prints the true
               error.
Why            The store, Gloo and NCCL's bootstrap use TCP even on one machine, and all traffic to
               a local address passes the interface lo. A packet filter that rejects there gives
               ECONNREFUSED or EHOSTUNREACH, one that drops gives a timeout, SELinux gives EACCES
               and an AVC record. lo may also be down (a fresh network namespace) or lack ::1.
               firewalld and ufw accept everything on lo by default, so switching them off does not
               help.
How to be sure Run `ip addr show lo`, then `sudo nft list ruleset` and look for a rule about lo.
               `holdfast check` listens on 127.0.0.1 and ::1 and connects to itself; with a listener
               there, a refusal can only come from a filter.
Fix            lo down: `ip link set lo up`. Filter: allow the interface in the chain that rejects,
               for nftables `nft insert rule inet TABLE CHAIN iif lo accept`. SELinux: `ausearch -m
               AVC -ts recent` shows the denial to write a policy for. Without IPv6 use 127.0.0.1
               instead of `localhost`.
Known limits   The check tests one connection in the network namespace it runs in; a container or a
               unit with its own rules must be tested from inside. Filter rules are not read, only
               their effect.
Sources        torvalds/linux net/ipv4/icmp.c: which rejection becomes which errno
               NVIDIA/nccl src/misc/socket.cc at v2.23.4-1 and v2.24.3-1
               https://github.com/NVIDIA/nccl/issues/1515
               firewalld/firewalld src/firewall/core/nftables.py: lo is accepted
"""

from __future__ import annotations

from holdfast.analysis.machine import (
    Interface,
    MachineFacts,
    NcclLibrary,
    Reach,
    Security,
    Software,
    known,
)
from holdfast.analysis.machine.smoke_failures import SmokeFailure
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(
    code="HOLD216",
    slug="loopback-blocked",
    related=("peer-unreachable", "permission-denied", "group-does-not-form"),
)
FAULT.smoke_failures.add(SmokeFailure.LOOPBACK)

LO_DOWN = "`sudo ip link set lo up` (in this network namespace)"
ALLOW_LO = (
    "find the rule with `sudo nft list ruleset` and allow lo before it: `sudo nft insert rule inet "
    "TABLE CHAIN iif lo accept`"
)
MEANING = {
    "ECONNREFUSED": ("holdfast listened there itself, so a packet filter rejects it", ALLOW_LO),
    "EHOSTUNREACH": ("a packet filter rejects it (administratively prohibited)", ALLOW_LO),
    "ETIMEDOUT": ("no reply: a packet filter drops it", ALLOW_LO),
    "EACCES": (
        "a security module (SELinux) forbids it",
        (
            "find the denial with `sudo ausearch -m AVC -ts recent`, and allow exactly that in a "
            "policy"
        ),
    ),
    "EPERM": (
        "a rule on this process forbids it (BPF, seccomp, systemd's IPAddressDeny)",
        "check the settings of the unit or container that this shell runs in",
    ),
    "EADDRNOTAVAIL": ("the address does not exist: lo is down or lost its address", LO_DOWN),
    "ENETUNREACH": ("there is no route to it: lo is down", LO_DOWN),
}
NO_IPV6 = {"EADDRNOTAVAIL", "EAFNOSUPPORT", "ENETUNREACH"}


@FAULT.check(needs=("interfaces", "loopback", "security", "software"))
def loopback_does_not_connect(facts: MachineFacts) -> Finding:
    tries = known(facts.loopback)
    failed = [t for t in tries if t.error]
    if not failed:
        return FAULT.ok(f"listened and connected on {', '.join(t.address for t in tries)}")
    if any(t.address == "127.0.0.1" for t in failed):
        return _blocked(facts, failed)
    if all(t.error in NO_IPV6 for t in failed):
        return FAULT.note(
            "IPv6 loopback (::1) is missing; 127.0.0.1 works",
            reason="harmless unless a setting uses ::1; torch tries IPv4 as well",
            evidence=_evidence(facts, failed),
        )
    meaning, fix = _explain(facts, failed[0])
    return FAULT.warning(
        "connections to ::1 are blocked; 127.0.0.1 works",
        reason=f"{meaning}; torch tries IPv6 first if `localhost` resolves to both, and may wait "
        "long",
        evidence=_evidence(facts, failed),
        fix=f"{fix}; or use 127.0.0.1 instead of `localhost`",
    )


def _blocked(facts: MachineFacts, failed: list[Reach]) -> Finding:
    first = next(t for t in failed if t.address == "127.0.0.1")
    meaning, fix = _explain(facts, first)
    return FAULT.error(
        f"cannot connect to 127.0.0.1: {first.error}",
        reason=f"{meaning}; the store, Gloo and NCCL need it even on one "
        f"machine{_nccl_masks_it(facts)}",
        evidence=_evidence(facts, failed),
        fix=fix,
    )


def _explain(facts: MachineFacts, failure: Reach) -> tuple[str, str]:
    if _stopped_loopbacks(facts):
        return "the interface lo is down", LO_DOWN
    unknown = ("holdfast has no explanation for this error", "start with `ip addr show lo`")
    return MEANING.get(failure.error, unknown)


def _stopped_loopbacks(facts: MachineFacts) -> list[Interface]:
    interfaces = facts.interfaces if isinstance(facts.interfaces, tuple) else ()
    return [i for i in interfaces if i.kind == "loopback" and not i.running]


def _nccl_masks_it(facts: MachineFacts) -> str:
    """NCCL before 2.24 prints another error than the one that happened."""
    software = facts.software
    first = next(iter(software.nccl), None) if isinstance(software, Software) else None
    if isinstance(first, NcclLibrary) and _version(first.version) < (2, 24):
        return f" (NCCL {first.version} reports it as 'Software caused connection abort')"
    return ""


def _version(text: str) -> tuple[int, ...]:
    """An unknown version counts as new: then nothing is said about its wording."""
    numbers = [int(part) for part in text.split(".") if part.isdigit()]
    return tuple(numbers) or (999,)


def _evidence(facts: MachineFacts, failed: list[Reach]) -> list[Evidence]:
    seen = [
        Evidence(
            quote=f"connect to holdfast's own listener on {t.address} port {t.port}: {t.error} "
            f"after {t.seconds:.1g} s",
            source="listen and connect",
        )
        for t in failed
    ]
    seen += [
        Evidence(quote=f"{i.name} is {i.state}", source=f"/sys/class/net/{i.name}/operstate")
        for i in _stopped_loopbacks(facts)
    ]
    security = facts.security
    if isinstance(security, Security):
        quote = f"firewall: {security.firewall}; SELinux: {security.selinux}"
        seen.append(Evidence(quote=quote, source="read only"))
        denials = security.denials if isinstance(security.denials, tuple) else ()
        seen += [Evidence(quote=line, source="audit log") for line in denials[:2]]
    return seen
