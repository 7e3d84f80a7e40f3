"""What only shows when racks are known: one that is cut off, one that is bad as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from holdfast import text
from holdfast.analysis.nodes.isolation.evidence import STRIKES, IsolationEvidence, Pair


def cut_racks(evidence: IsolationEvidence) -> dict[str, set[Pair]]:
    """Racks that have fine pairs inside and none to the outside, with the pairs that are not."""
    fine_inside: set[str] = set()
    fine_outside: set[str] = set()
    for pair in evidence.fine:
        racks = {*_racks(evidence, pair)}
        (fine_inside if len(racks) == 1 else fine_outside).update(racks)
    across: dict[str, set[Pair]] = defaultdict(set)
    for pair in evidence.questioned:
        one, other = _racks(evidence, pair)
        if one != other:
            across[one].add(pair)
            across[other].add(pair)
    lost = fine_inside - fine_outside - {""}
    return {rack: across[rack] for rack in sorted(lost) if len(across[rack]) >= STRIKES}


def whole_racks(evidence: IsolationEvidence, names: Iterable[str]) -> dict[str, list[str]]:
    """Racks of at least two nodes, all of which are among these."""
    members: dict[str, list[str]] = defaultdict(list)
    for name in evidence.present:
        if rack := evidence.state.racks.get(name, ""):
            members[rack].append(name)
    chosen = {*names}
    return {
        rack: nodes
        for rack, nodes in members.items()
        if len(nodes) > 1 and chosen.issuperset(nodes)
    }


def remarks_on_racks(evidence: IsolationEvidence, cut: dict[str, set[Pair]]) -> Iterable[str]:
    apart: dict[str, set[Pair]] = {}
    for rack, pairs in cut.items():
        others = {other for pair in pairs for other in _racks(evidence, pair)}
        if others & evidence.reach_out:
            yield (
                f"rack {rack} is cut off: its nodes pass with each other, and none of "
                f"{len(pairs)} pairs with nodes of other racks does: look at its uplink"
            )
        else:
            apart[rack] = pairs
    if apart:
        count = len({pair for pairs in apart.values() for pair in pairs})
        yield (
            f"nodes of {text.names(f'rack {rack}' for rack in apart)} pass at home, and none of "
            f"{count} pairs across does: look at their uplinks"
        )
    for rack, nodes in whole_racks(evidence, evidence.blamed).items():
        yield f"all {len(nodes)} nodes of rack {rack} fail: look at its switch and power first"


def _racks(evidence: IsolationEvidence, pair: Pair) -> tuple[str, str]:
    one, other = sorted(pair)
    racks = evidence.state.racks
    # A node of unknown rack is taken for a rack of its own, so nothing is concluded from it.
    return racks.get(one) or f"node {one}", racks.get(other) or f"node {other}"
