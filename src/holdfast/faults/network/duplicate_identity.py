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
               hostname and boot id together, and each address, must be unique.
Fix            Give each machine or container its own hostname (`docker run --hostname`) and its own
               address; or set NCCL_HOSTID to a different value on each.
Known limits   It is recognised in logs only; the check sees one machine. When the log does not name
               two hosts, two ranks on one GPU of one machine (duplicate-gpu) are more likely.
Sources        NVIDIA/nccl src/misc/utils.cc: getHostHash
               NVIDIA/nccl src/init.cc: hostHash and busId are compared
               pytorch/gloo gloo/transport/tcp/device.cc: Cannot connect to self
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-hostid
"""

from __future__ import annotations

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis

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
