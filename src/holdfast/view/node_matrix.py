"""The paths between nodes as a matrix that is read at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.nodes.pairs import RANK, PairState, PathSign, node_names, pair_states
from holdfast.view.text import harmless

LETTERS = {
    PathSign.OK: ".",
    PathSign.UNTRIED: "?",
    PathSign.DROPPED: "D",
    PathSign.REJECTED: "R",
    PathSign.REFUSED: "F",
    PathSign.NO_NEIGHBOUR: "A",
    PathSign.NO_ROUTE: "N",
    PathSign.OWN_ADDRESS: "O",
    PathSign.STRANGER: "S",
    PathSign.FAILED: "X",
    PathSign.LARGE_LOST: "M",
    PathSign.LOSSY: "L",
}
SELF = "-"
LARGEST = 16
"""nodes that are drawn one by one; more are folded by rack"""
LONGEST_NAME = 28

Pairs = Mapping[tuple[str, str], PairState]


def draw(facts: NodesFacts) -> str:
    """'' where there is nothing to compare."""
    names = node_names(facts)
    if len(names) < 2:
        return ""
    states = pair_states(facts)
    groups = _groups(facts, names)
    folded = len(groups) < len(names)
    cells = [[_cell(states, a, b, folded=folded) for b in groups.values()] for a in groups.values()]
    used = {cell[0] for row in cells for cell in row}
    title = "from row to column" + (", folded: worst pair, and how many are bad" if folded else "")
    return "\n".join([title, *_table(list(groups), cells), *_legend(used)])


def _groups(facts: NodesFacts, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """One a row: a node, or above sixteen nodes a rack; names without a rack in equal runs."""
    if len(names) <= LARGEST:
        return {name: (name,) for name in names}
    racks = {node.name: node.rack for node in facts.nodes}
    groups: dict[str, list[str]] = {}
    for name in names:
        if racks.get(name):
            groups.setdefault(racks[name], []).append(name)
    rest = [name for name in names if not racks.get(name)]
    length = -(-len(rest) // LARGEST)
    for start in range(0, len(rest), length or 1):
        run = rest[start : start + length]
        groups[run[0] if len(run) == 1 else f"{run[0]} … {run[-1]}"] = run
    return {label: tuple(group) for label, group in groups.items()}


def _cell(states: Pairs, sources: Sequence[str], targets: Sequence[str], *, folded: bool) -> str:
    pairs = [states[a, b] for a in sources for b in targets if a != b]
    if not pairs:
        return SELF
    worst = min(pairs, key=lambda state: (RANK[state.sign], state.partly))
    letter = LETTERS[worst.sign]
    bad = sum(state.sign not in (PathSign.OK, PathSign.UNTRIED) for state in pairs)
    return (letter.lower() if worst.partly else letter) + (str(bad) if folded and bad else "")


def _table(labels: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    shown = [harmless(label)[:LONGEST_NAME] for label in labels]
    width = max(3, *(len(cell) + 1 for row in cells for cell in row))
    margin = max(map(len, shown)) + 4
    head = " " * margin + "".join(f"{number:>{width}}" for number in range(1, len(labels) + 1))
    rows = [
        f"{number:>3} {label:<{margin - 4}}" + "".join(f"{cell:>{width}}" for cell in row)
        for number, (label, row) in enumerate(zip(shown, cells, strict=True), start=1)
    ]
    return [head, *rows]


def _legend(used: set[str]) -> list[str]:
    meanings = [
        f"{letter} {sign.value}"
        for sign, letter in LETTERS.items()
        if letter in used or letter.lower() in used
    ]
    some = any(letter.islower() for letter in used)
    return ["  ".join(meanings) + ("  (small letter: on some ports or interfaces)" if some else "")]
