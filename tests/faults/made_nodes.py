"""Healthy nodes to start from; a test changes the one thing it is about.

facts = some_nodes(4)
facts = on_node(facts, "node-b", software=…)                 # a fact of one machine
facts = path(facts, "node-a", "node-b", Outcome.DROPPED)      # one direction
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from holdfast.analysis.machine import Interface, MachineFacts, Plan, Resolution, Unread
from holdfast.analysis.nodes import (
    Absence,
    ClockOffset,
    Node,
    NodesFacts,
    Outcome,
    PathLoss,
    PathSizes,
    PortKind,
    Reached,
    RouteTo,
    SizeProbe,
    Target,
)
from tests.faults.machines import a_loopback, a_machine, a_plan, an_interface
from tests.faults.made_gpus import a_gpu, nvidia

MTU = 1500
SIZES = (576, 1280, 1500, 4000, 9000)
MESSAGES = (1024, 65536, 1 << 20)
PROBES = 40
replace = msgspec.structs.replace


def name_of(number: int) -> str:
    """'node-a', …, 'node-z', then 'node-26'."""
    return f"node-{string.ascii_lowercase[number] if number < 26 else number}"


def address_of(number: int) -> str:
    return f"10.0.{number // 250}.{number % 250 + 1}"


def a_target(number: int, kind: PortKind = PortKind.EPHEMERAL, **changes: Any) -> Target:
    target = Target(
        node=name_of(number),
        interface="eth0",
        address=address_of(number),
        port=29500 if kind is PortKind.MASTER else 40000 + number,
        kind=kind,
    )
    return replace(target, **changes)


def a_node(number: int, count: int, plan: Plan, mtu: int = MTU) -> Node:
    name, ip = name_of(number), address_of(number)
    names = tuple(_resolved(name_of(n), address_of(n)) for n in range(count))
    return Node(
        name=name,
        facts=a_machine(
            replace(plan, environment={}),
            host=name,
            own_fqdn=f"{name}.cluster.example",
            own_name=_resolved(name, ip),
            interfaces=(a_loopback(), data_interface(number, mtu)),
            nvidia=nvidia(*(a_gpu(n, uuid=f"GPU-{number:08x}-{n}") for n in range(4))),
        ),
        findings=(),
        boot_id=f"boot-{number}",
        clock=ClockOffset(seconds=0.0002 * (number % 5), bound=0.001),
        names=names,
        store=None,
    )


def data_interface(number: int, mtu: int = MTU) -> Interface:
    interface = an_interface(ip=address_of(number), mtu=mtu)
    return replace(interface, addresses=(replace(interface.addresses[0], prefix=16),))


def _resolved(name: str, *ips: str) -> Resolution:
    return Resolution(name=name, addresses=ips, error="", seconds=0.001)


def some_nodes(count: int = 4, *, mtu: int = MTU, **plan: Any) -> NodesFacts:
    """Nodes of one subnet on which nothing is wrong, and everything could be looked at."""
    planned = a_plan(**{"min_nodes": count, "max_nodes": count, **plan})
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    return NodesFacts(
        plan=planned,
        nodes=tuple(a_node(n, count, planned, mtu) for n in range(count)),
        absent=(),
        coordinator=name_of(0),
        routes=tuple(_route(a, b, mtu) for a, b in pairs),
        reach=tuple(_reached(a, b, kind) for a, b in pairs for kind in PortKind),
        sizes=tuple(_sizes(a, b, mtu) for a, b in pairs),
        losses=tuple(_no_loss(a, b) for a, b in pairs),
    )


def _reached(source: int, target: int, kind: PortKind) -> Reached:
    return Reached(
        source=name_of(source),
        target=a_target(target, kind),
        outcome=Outcome.OK,
        error="",
        seconds=0.0004,
        local_address=address_of(source),
    )


def _route(source: int, target: int, mtu: int) -> RouteTo:
    return RouteTo(
        source=name_of(source),
        target=a_target(target),
        interface="eth0",
        local_address=address_of(source),
        gateway="",
        mtu=mtu,
        error="",
    )


def _sizes(source: int, target: int, mtu: int) -> PathSizes:
    return PathSizes(
        source=name_of(source),
        target=a_target(target),
        interface="eth0",
        mtu=mtu,
        datagrams=probes(mtu),
        messages=tuple(SizeProbe(bytes=size, arrived=True) for size in MESSAGES),
    )


def probes(passes: int, mtu: int | None = None) -> tuple[SizeProbe, ...]:
    """Sizes up to `passes` arrive; larger ones are lost up to the MTU and never leave beyond."""
    limit = mtu or passes
    return tuple(
        SizeProbe(bytes=s, arrived=s <= passes, error="EMSGSIZE" if s > limit else "")
        for s in SIZES
    )


def _no_loss(source: int, target: int) -> PathLoss:
    return PathLoss(
        source=name_of(source),
        target=a_target(target),
        sent=PROBES,
        arrived=PROBES,
        answered=PROBES,
        median_seconds=0.0003,
    )


# --- changes -------------------------------------------------------------------------------------

MACHINE = frozenset(MachineFacts.__struct_fields__)


def on_node(facts: NodesFacts, name: str, **changes: Any) -> NodesFacts:
    """Change facts of one machine, or of the node itself (clock, names, store, boot_id…)."""
    own = {key: value for key, value in changes.items() if key not in MACHINE or key == "clock"}
    machine = {key: value for key, value in changes.items() if key not in own}

    def changed(node: Node) -> Node:
        return replace(node, **own, facts=replace(node.facts, **machine))

    return replace(facts, nodes=tuple(changed(n) if n.name == name else n for n in facts.nodes))


def on_all(facts: NodesFacts, change: Callable[[Node], dict[str, Any]]) -> NodesFacts:
    """The same, for every node."""
    for node in facts.nodes:
        facts = on_node(facts, node.name, **change(node))
    return facts


def path(
    facts: NodesFacts,
    source: str,
    target: str,
    outcome: Outcome = Outcome.DROPPED,
    kind: PortKind | None = None,
    **changes: Any,
) -> NodesFacts:
    """What the connects from one node to another bring; all ports where no kind is named."""
    assert not isinstance(facts.reach, Unread)
    error = {Outcome.DROPPED: "ETIMEDOUT", Outcome.REJECTED: "EHOSTUNREACH"}.get(outcome, "")

    def changed(one: Reached) -> Reached:
        if (one.source, one.target.node) != (source, target) or kind not in (None, one.target.kind):
            return one
        return replace(one, **{"outcome": outcome, "error": error, **changes})

    return replace(facts, reach=tuple(map(changed, facts.reach)))


def paths(facts: NodesFacts, pairs: Iterable[tuple[str, str]], *args: Any) -> NodesFacts:
    for source, target in pairs:
        facts = path(facts, source, target, *args)
    return facts


def cut(facts: NodesFacts, one: Sequence[str], other: Sequence[str]) -> NodesFacts:
    """Nothing passes between two groups of nodes, in either direction."""
    ends = [(a, b) for a in one for b in other]
    return paths(facts, [*ends, *((b, a) for a, b in ends)])


def resolving(facts: NodesFacts, asker: str, name: str, *ips: str) -> NodesFacts:
    """What one node makes of the name of another; without addresses it does not resolve."""
    names = facts.node(asker).names
    assert not isinstance(names, Unread)
    error = "" if ips else "Name or service not known"
    answer = Resolution(name=name, addresses=ips, error=error, seconds=0.001)
    kept = tuple(one for one in names if one.name != name)
    return on_node(facts, asker, names=(*kept, answer))


def untried(facts: NodesFacts, source: str, target: str) -> NodesFacts:
    assert not isinstance(facts.reach, Unread)
    kept = (one for one in facts.reach if (one.source, one.target.node) != (source, target))
    return replace(facts, reach=tuple(kept))


def sizes(facts: NodesFacts, source: str, target: str, **changes: Any) -> NodesFacts:
    assert not isinstance(facts.sizes, Unread)
    return replace(
        facts,
        sizes=tuple(
            replace(one, **changes) if (one.source, one.target.node) == (source, target) else one
            for one in facts.sizes
        ),
    )


def loss(facts: NodesFacts, source: str, target: str, **changes: Any) -> NodesFacts:
    assert not isinstance(facts.losses, Unread)
    return replace(
        facts,
        losses=tuple(
            replace(one, **changes) if (one.source, one.target.node) == (source, target) else one
            for one in facts.losses
        ),
    )


def absent(facts: NodesFacts, name: str, why: str, hint: str = "") -> NodesFacts:
    return replace(facts, absent=(*facts.absent, Absence(name=name, why=why, hint=hint)))


def unreadable_nodes(count: int = 3) -> NodesFacts:
    """Nodes of which nothing could be read, and no path could be tried."""
    why = Unread(why="the test took it away")
    facts = some_nodes(count, master_addr="node-a", rdzv_endpoint="node-a:29400")
    machine = dict.fromkeys(MACHINE - {"plan", "host"}, why)
    nodes = tuple(
        replace(
            node,
            facts=replace(node.facts, **machine),
            **dict.fromkeys(("boot_id", "clock", "names", "store"), why),
        )
        for node in facts.nodes
    )
    return replace(facts, nodes=nodes, routes=why, reach=why, sizes=why, losses=why, smoke=why)


def renamed(facts: NodesFacts, names: dict[str, str]) -> NodesFacts:
    """The same facts with the nodes in another order, under other names."""

    def name(old: str) -> str:
        return names.get(old, old)

    def target(one: Any) -> Any:
        return replace(
            one, source=name(one.source), target=replace(one.target, node=name(one.target.node))
        )

    def every(values: Any) -> Any:
        return values if isinstance(values, Unread) else tuple(map(target, reversed(values)))

    nodes = tuple(
        replace(node, name=name(node.name), facts=replace(node.facts, host=name(node.facts.host)))
        for node in reversed(facts.nodes)
    )
    return replace(
        facts,
        nodes=nodes,
        routes=every(facts.routes),
        reach=every(facts.reach),
        sizes=every(facts.sizes),
        losses=every(facts.losses),
    )
