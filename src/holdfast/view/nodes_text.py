"""What a check of several nodes says to a person: the matrix, then findings, worst first."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from holdfast import text as words
from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.nodes.pairs import round_trips
from holdfast.analysis.nodes.smoke import SmokeBetween
from holdfast.findings import Finding, Status
from holdfast.view import node_matrix
from holdfast.view.text import WIDTH, finding, harmless, wrapped

NAMED = 6
"""nodes that are named in a sentence; the rest are counted"""


ADDED = 3
"""other words for the same fault that are quoted"""
DETAILS = ("  -->", "  =", "help:")
"""what follows the summary of a finding"""


def banner(facts: NodesFacts) -> str:
    """One line: what was looked at."""
    here = f"{len(facts.nodes)} node{'s' if len(facts.nodes) != 1 else ''}"
    missing = f", {len(facts.absent)} missing" if facts.absent else ""
    return f"{here}{missing}, seen from {harmless(facts.coordinator)}: port {facts.plan.port}"


def matrix(facts: NodesFacts) -> str:
    drawn = node_matrix.draw(facts)
    trips = round_trips(facts)
    if not drawn or not trips:
        return drawn
    source, target = slowest = max(trips, key=lambda pair: trips[pair])
    usual = statistics.median(trips.values())
    return (
        f"{drawn}\nround trip {usual * 1e3:.2g} ms (median of {len(trips)} paths), at most "
        f"{trips[slowest] * 1e3:.2g} ms ({harmless(source)} → {harmless(target)})"
    )


def smoke_table(facts: NodesFacts) -> str:
    """Which nodes exchanged data with which, and how fast; '' when it was not asked for."""
    seen = facts.smoke
    if seen is None:
        return ""
    if isinstance(seen, Unread):
        return f"smoke test between nodes: not run, {harmless(seen.why)}"
    lines = [f"smoke test between nodes, {seen.backend}, {seen.ranks} ranks, {seen.seconds:.1f} s"]
    for number, pairs in enumerate(seen.rounds, start=1):
        lines += [
            f"  round {number}  {harmless(pair.first)} and {harmless(pair.second)}: "
            f"{pair.outcome.value}{_speed(pair.speed)}"
            for pair in pairs[:NAMED]
        ]
        if more := pairs[NAMED:]:
            lines.append(f"  round {number}  and {len(more)} more pairs")
    group = seen.group
    why = f", {harmless(group.why)}" if group.why else ""
    together = f"{len(group.nodes)} nodes: {group.outcome.value}{_speed(group.speed)}{why}"
    return "\n".join([*lines, f"  together {together}", *_networks(seen)])


def _networks(seen: SmokeBetween) -> list[str]:
    """'  network  IB with GPUDirect, 8 cards: a, b', a line for each kind."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for name, one in seen.networks.items():
        direct = " with GPUDirect" if one.gpu_direct else ""
        kinds[f"{one.way}{direct}, {words.counted(one.cards, 'card')}"].append(name)
    return [
        f"  network  {harmless(kind)}: {harmless(words.names(names))}"
        for kind, names in kinds.items()
    ]


def _speed(speed: float | None) -> str:
    return "" if speed is None else f", {words.bandwidth(speed)}"


def report(
    findings: Sequence[Finding],
    facts: NodesFacts,
    *,
    verbose: bool,
    colour: bool,
    width: int = WIDTH,
) -> str:
    """Each thing once, with the nodes that have it; the worst first."""
    everybody = len(facts.nodes)
    groups = group(findings)
    blocks = []
    for status in (Status.ERROR, Status.WARNING, Status.NOTE, Status.SKIPPED, Status.OK):
        paragraphs = [
            _paragraph(members, everybody, colour=colour, width=width)
            for members in groups
            if members[0].status is status and (verbose or _is_news(members[0]))
        ]
        short = status in (Status.SKIPPED, Status.OK)
        blocks += ["\n".join(paragraphs)] if short and paragraphs else paragraphs
    return "\n\n".join(blocks)


def group(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that say the same of different nodes stand together, in the order of the first."""
    groups: defaultdict[object, list[Finding]] = defaultdict(list)
    for item in findings:
        same = (item.code, item.status, item.applies) if item.host else id(item)
        groups[same].append(item)
    return list(groups.values())


def node_list(names: Sequence[str], everybody: int) -> str:
    """'all 8 nodes', 'both nodes', 'a, b and 3 more'."""
    listed = list(dict.fromkeys(names))
    if len(listed) == everybody > 1:
        return "both nodes" if everybody == 2 else f"all {everybody} nodes"
    shown = ", ".join(harmless(name) for name in listed[:NAMED])
    return shown + (f" and {len(listed) - NAMED} more" if len(listed) > NAMED else "")


def _is_news(item: Finding) -> bool:
    return item.status is not Status.OK and item.applies


def _paragraph(members: Sequence[Finding], everybody: int, *, colour: bool, width: int) -> str:
    first = members[0]
    if not first.host:
        return finding(first, colour=colour, width=width)
    alike = [one for one in members if (one.summary, one.reason) == (first.summary, first.reason)]
    where = node_list([one.host for one in alike], everybody)
    text = finding(_said_of(first, where), colour=colour, width=width)
    others = [one for one in members if one not in alike]
    if first.status in (Status.OK, Status.SKIPPED):
        return "\n".join(
            [text, *(finding(_said_of(o, o.host), colour=colour, width=width) for o in others)]
        )
    more = [
        wrapped(f"  and on {one.host}: {one.summary}", width, rest="    ") for one in others[:ADDED]
    ]
    if rest := others[ADDED:]:
        more.append(f"  and similarly on {node_list([one.host for one in rest], everybody)}")
    lines = text.split("\n")
    after = next((n for n, line in enumerate(lines) if line.startswith(DETAILS)), len(lines))
    return "\n".join([*lines[:after], *more, *lines[after:]])


def _said_of(item: Finding, where: str) -> Finding:
    if item.status is Status.SKIPPED:
        return msgspec.structs.replace(item, reason=f"{item.reason} ({where})")
    if item.summary.startswith(where):  # it names its node itself
        return item
    return msgspec.structs.replace(item, summary=f"{where}: {item.summary}")
