"""Two machines of the job have the same identity.

What you see   NCCL: `Duplicate GPU detected : rank 0 and rank 8 both on CUDA device …` although the
               two ranks run on different machines, or failures to attach shared memory or to open
               a peer's device between machines. Gloo: `Cannot connect to self`. Kernel or
               NetworkManager: an address conflict.
Why            NCCL assumes that two processes share a machine when hostname and boot id are equal,
               and then uses shared memory and peer access. Containers of one image may all be
               called `localhost` or `node`; clones of a virtual machine keep hostname and address.
               Two machines with one IP address answer in turn.
How to be sure Run `hostname; cat /proc/sys/kernel/random/boot_id; hostname -I` on every node:
               hostname and boot id together, and each address, must be unique. `holdfast check` on
               several nodes compares them, and says where another machine answers at an address.
Fix            Give each machine or container its own hostname (`docker run --hostname`) and its own
               address; or set NCCL_HOSTID to a different value on each.
Known limits   The check compares the nodes that take part in it; an address that a machine outside
               of the job has too shows only when that machine answers. When a log does not name two
               hosts, two ranks on one GPU of one machine (duplicate-gpu) are more likely.
Sources        NVIDIA/nccl src/misc/utils.cc: getHostHash
               NVIDIA/nccl src/init.cc: hostHash and busId are compared
               pytorch/gloo gloo/transport/tcp/device.cc: Cannot connect to self
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-hostid
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import shell_words, text
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import NodesFacts, Outcome, Target, differences, identity
from holdfast.analysis.nodes.announced import is_of_one_machine
from holdfast.analysis.nodes.blocked import connect_evidence
from holdfast.analysis.nodes.identity import Twins
from holdfast.analysis.nodes.targets import taken_addresses
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD215",
    slug="duplicate-identity",
    related=("duplicate-gpu", "rank-assignment", "container-network"),
)

SAME_GPU = FAULT.log_pattern(
    "same-gpu",
    r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<other>\d+) both on CUDA device"
    r" (?P<bus>\S+)",
    anchors=("Duplicate GPU detected",),
    example="node-a:411:411 [0] init.cc:903 NCCL WARN Duplicate GPU detected : rank 0 and rank 8 "
    "both on CUDA device 1b000",
    # Usually it means what it says: see duplicate-gpu.
    role=Role.CONFIRMATION,
)
CONFLICT = FAULT.log_pattern(
    "address-conflict",
    r"(?:IP|IPv4|IPv6|[Aa]ddress) (?:address )?conflict (?:detected|for|with|on)\b.*"
    r"|IPv6 duplicate address (?P<address>\S+) .*detected",
    anchors=("onflict detected", "address conflict", "duplicate address"),
    example="Nov 15 01:02:03 node-a kernel: IPv6: eth0: IPv6 duplicate address 2001:db8::7 used by "
    "52:54:00:12:34:56 detected!",
    role=Role.CONFIRMATION,
)
SELF = FAULT.log_pattern(
    "self",
    r"Cannot connect to self",
    anchors=("Cannot connect to self",),
    example="RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:314] rv != 0. Cannot "
    "connect to self",
)


@FAULT.check_nodes
def nccl_takes_nodes_for_one_machine(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node")
    identities, gaps = differences.of_each(facts, identity.nccl_identity)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    if len(identities) < 2:
        return unknown
    found = [_taken_for_one(facts, one) for one in identity.twins(identities, facts)]
    if found:
        return [*found, *unknown]
    told = f"each of the {len(identities)} nodes has its own hostname and boot id, or NCCL_HOSTID"
    return [FAULT.ok(told), *unknown]


def _taken_for_one(facts: NodesFacts, one: Twins) -> Finding:
    names = text.names(one.names)
    gpus = any(facts.node(name).facts.accelerators for name in one.names)
    speak = FAULT.error if gpus else FAULT.warning
    shown = one.by_setting or f"hostname {one.host}, boot id {one.boot_id}"
    same = f"{names} have the same {'NCCL_HOSTID' if one.by_setting else 'hostname and boot id'}"
    evidence = [Evidence(quote=f"{name}: {shown}", source="node", host=name) for name in one.names]
    if one.one_machine:
        return FAULT.warning(
            f"{names} are the same machine",
            reason="hostname, boot id and all addresses are equal: it is listed twice, or two "
            "tasks run on it; their ranks would share its GPUs",
            evidence=evidence[:SHOWN],
            fix="name each machine once; with Slurm start one task a node: `srun "
            "--ntasks-per-node=1 holdfast check`",
        )
    return speak(
        same,
        reason="NCCL takes them for one machine and uses shared memory and peer access between "
        f"them, which fails across machines{'' if gpus else '; no GPU was seen on them'}",
        evidence=evidence[:SHOWN],
        fix="set another value on each node: `export NCCL_HOSTID=$SLURM_NODEID`"
        if one.by_setting
        else "give each its own name (`docker run --hostname NAME`), or set on each node another "
        "`export NCCL_HOSTID=…`",
    )


@FAULT.check_nodes
def address_belongs_to_two_nodes(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2 or isinstance(facts.reach, Unread):
        return ()  # peer-unreachable says that nothing could be tried
    targets = {(one.target.node, one.target.address): one.target for one in facts.reach}
    shared = {
        ip: found
        for ip, found in identity.shared_addresses(targets).items()
        if not all(_is_bridge(facts, target) for target in found)  # wrong-nic says it
    }
    strangers = [one for one in facts.reach if one.outcome is Outcome.STRANGER]
    found = [_one_address(facts, ip, ends) for ip, ends in shared.items()]
    alone = sorted({o.target.address for o in strangers if o.target.address not in shared})
    for ip in alone:
        met = [one for one in strangers if one.target.address == ip]
        if _is_bridge(facts, met[0].target):
            continue
        found.append(
            FAULT.error(
                f"another machine answers at {ip}, the address of {met[0].target.node}",
                reason="the connection was accepted and the answer did not come from the listener "
                f"of {met[0].target.node}: a duplicate address, NAT or a proxy on the path; NCCL "
                "and Gloo would talk to the wrong machine",
                evidence=[connect_evidence(one) for one in met[:SHOWN]],
                fix=f"see which machine also has it: `sudo arping -D -c 3 -I "
                f"{shell_words.word(met[0].target.interface, 'INTERFACE')} "
                f"{shell_words.word(ip, 'ADDRESS')}` on {met[0].source}",
            )
        )
    return found


def _is_bridge(facts: NodesFacts, target: Target) -> bool:
    return is_of_one_machine(facts, target.node, target.interface)


def _one_address(facts: NodesFacts, ip: str, ends: tuple[Target, ...]) -> Finding:
    """A link to a management processor, or a direct one, may look the same on every machine."""
    used = any(ip in taken_addresses(facts.node(end.node).facts) for end in ends)
    speak = FAULT.error if used else FAULT.warning
    unused = "" if used else "; neither NCCL, Gloo nor the meeting of the nodes takes it"
    return speak(
        f"{text.names(end.node for end in ends)} have the same address {ip}",
        reason="they answer in turn, and a connection from one of them to the other never leaves "
        f"the machine{unused}",
        evidence=[
            Evidence(quote=f"{end.node}: {end.interface} has {ip}", source="ip", host=end.node)
            for end in ends[:SHOWN]
        ],
        fix="give each machine its own address: `ip -br address` on both",
    )


@FAULT.explain
def two_hosts_have_one_identity(wreckage: Wreckage) -> Diagnosis | None:
    apart = [s for s in wreckage.seen(SAME_GPU) if _hosts(wreckage, s) or _likely_on_two_nodes(s)]
    if not apart:
        return None
    first = apart[0].fields
    hosts = _hosts(wreckage, apart[0])
    known = f", which run on {' and '.join(hosts)}" if hosts else ""
    return FAULT.diagnosis(
        f"NCCL treated ranks {first['one']} and {first['other']}{known} as processes on one "
        f"machine sharing GPU {first['bus']}: their machines have the same hostname and boot id",
        confidence=0.8 if hosts else 0.35,
        seen=apart,
        culprit=Culprit(what=f"hostname of {' and '.join(hosts)}" if hosts else "the hostname"),
        victims=[int(first["one"]), int(first["other"])],
        fix="give each machine its own hostname (`docker run --hostname`), or its own NCCL_HOSTID",
        next="hostname; cat /proc/sys/kernel/random/boot_id",
    )


@FAULT.explain
def address_is_used_twice(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(CONFLICT, SELF)
    if not seen or wreckage.seen(SAME_GPU):
        return None
    sure = any(s.pattern == CONFLICT.name for s in seen)
    return FAULT.diagnosis(
        "two machines on the network use one address and answer in turn"
        if sure
        else "Gloo was told to connect to its own address and port: two ranks published the same "
        "one",
        confidence=0.6 if sure else 0.4,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=seen[0].fields.get("address", "an address")),
        fix="give each machine its own address; `arping -D` shows which machine also uses it",
        next="hostname -I",
    )


def _hosts(wreckage: Wreckage, seen: Sighting) -> list[str]:
    """The two hosts, where the log tells them apart by something that NCCL did not compare."""
    both = [wreckage.rank(int(seen.fields[name])) for name in ("one", "other")]
    hosts = sorted({one.host for one in both if one and one.host})
    return hosts if len(hosts) == 2 else []


def _likely_on_two_nodes(seen: Sighting) -> bool:
    """Same position on two nodes, as ranks 0 and 8; a missing set_device gives neighbours."""
    distance = abs(int(seen.fields["one"]) - int(seen.fields["other"]))
    return distance >= 4 and distance % 4 == 0
