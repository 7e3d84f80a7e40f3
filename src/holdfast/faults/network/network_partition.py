"""The machines of the job have fallen into islands.

What you see   Ranks on some machines lose those on others, all at the same time and in both
               directions, while ranks within each island go on talking; `NIC Link is Down` in a
               kernel log; RAS reports that peers do not respond. Nobody crashed.
Why            A link, a switch or a rule between the islands stopped carrying packets. Established
               connections notice only when their retransmissions give up, a quarter of an hour by
               default (net.ipv4.tcp_retries2), so torch's own timeout is often the first to speak.
How to be sure `ping` between one machine of each island, and between two of the same island. The
               kernel logs of both sides around the minute when it began: `journalctl -k`.
Fix            Mend the link; then start again, since a group cannot be healed. A job that should
               survive it needs a launcher that restarts and a checkpoint.
Sources        torvalds/linux net/ipv4/tcp_timer.c: tcp_write_timeout
               https://docs.kernel.org/networking/ip-sysctl.html (tcp_retries2)
               NVIDIA/nccl docs/userguide/source/troubleshooting/ras.rst
"""

from __future__ import annotations

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections
from holdfast.analysis.logs.patterns.dead_connections import DIED_IN_USE
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis

FAULT = Fault(code="HOLD206", slug="network-partition")

LINK_DOWN = FAULT.log_pattern(
    "link-down",
    r"(?P<interface>[\w.@-]{1,64}): (?:NIC |Network )?[Ll]ink (?:is |status )?(?:Down|down|DOWN)"
    r"|(?P<name>[\w.@-]{1,64}): [Cc]arrier lost|\((?P<bonded>\w+)\): link status definitely down",
    anchors=(
        *("ink is Down", "ink is down", "ink is DOWN", "Link down", "Link Down", "link DOWN"),
        *("link status definitely down", "arrier lost"),
    ),
    example="Nov 15 01:02:03 node-a kernel: mlx5_core 0000:18:00.0 ens3f0np0: Link down",
    role=Role.CONFIRMATION,
)


@FAULT.explain
def a_link_went_down(wreckage: Wreckage) -> Diagnosis | None:
    down = wreckage.seen(LINK_DOWN)
    if not down:
        return None
    cut_off = wreckage.seen(DIED_IN_USE) or connections.attempts(wreckage)
    interface = next((v for k, v in down[0].fields.items() if v), "")
    host = down[0].line.host
    return FAULT.diagnosis(
        f"the kernel{f' of {host}' if host else ''} reports that the link of "
        f"{interface or 'an interface'} went down, which cuts its machine off from the others",
        confidence=0.7 if cut_off else 0.4,
        seen=down,
        culprit=Culprit(host=host, what=interface),
        fix="look at cable, transceiver and switch port, then start the job again",
        next=sightings.command("ethtool {}; journalctl -k | grep -i link", interface),
    )


@FAULT.explain
def islands_lost_each_other(wreckage: Wreckage) -> Diagnosis | None:
    """Both sides complain of each other, and nobody of their own machine."""
    if wreckage.seen(LINK_DOWN):
        return None
    told = wreckage.seen(DIED_IN_USE)
    sides = {one.line.host for one in told if one.line.host}
    lost = {_peer(one) for one in told} - {""}
    if len(sides) < 2 or len(lost) < 2 or wreckage.roots(but=[FAULT.slug]):
        return None
    return FAULT.diagnosis(
        f"{' and '.join(sorted(sides))} lost each other at once, and nobody crashed: the network "
        "between them stopped carrying packets",
        confidence=0.45,
        seen=told,
        culprit=Culprit(what="path between the hosts"),
        fix="mend the path, then start the job again; a restart policy and checkpoints let it "
        "survive the next time",
        next=sightings.command("ping -c 3 {}", min(lost)),
        unknown=["whether small packets still passed: then it is the MTU (`ping -M do -s 8972`)"],
    )


def _peer(told: Sighting) -> str:
    return told.fields.get("address") or told.fields.get("peer", "")
