"""The worst that was seen on the way from one node to another: one sign a pair."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import loss, path_size
from holdfast.analysis.nodes.facts import NodesFacts
from holdfast.analysis.nodes.path_size import SizeVerdict
from holdfast.analysis.nodes.paths import Outcome
from holdfast.analysis.nodes.pattern import Pair


class PathSign(enum.Enum):
    """By how bad it is, the worst first."""

    DROPPED = "dropped"
    REJECTED = "rejected"
    REFUSED = "refused"
    NO_NEIGHBOUR = "no neighbour"
    NO_ROUTE = "no route"
    OWN_ADDRESS = "own address"
    STRANGER = "another host answered"
    FAILED = "failed"
    LARGE_LOST = "large packets are lost"
    LOSSY = "packets are lost"
    UNTRIED = "not tried"
    OK = "ok"


class PairState(NamedTuple):
    sign: PathSign
    partly: bool
    """on some ports or interfaces only"""


SIGNS = {outcome: PathSign[outcome.name] for outcome in Outcome}
SWALLOWED = (SizeVerdict.HANGS, SizeVerdict.VANISHES, SizeVerdict.UNTRIED)
RANK = {sign: place for place, sign in enumerate(PathSign)}


def pair_states(facts: NodesFacts) -> Mapping[Pair, PairState]:
    """Of every ordered pair of nodes, absent ones included (`UNTRIED`)."""
    tried: defaultdict[Pair, list[PathSign]] = defaultdict(list)
    if not isinstance(facts.reach, Unread):
        for one in facts.reach:
            tried[one.source, one.target.node].append(SIGNS[one.outcome])
    measured = _measured(facts)
    names = node_names(facts)
    return {(a, b): _state(tried[a, b], measured[a, b]) for a in names for b in names if a != b}


def _measured(facts: NodesFacts) -> defaultdict[Pair, list[PathSign]]:
    """What sizes and loss add to it, by the rules of mtu-black-hole and packet-loss."""
    found: defaultdict[Pair, list[PathSign]] = defaultdict(list)
    losses = loss.directed(() if isinstance(facts.losses, Unread) else facts.losses)
    for pair in losses.beyond_chance():
        found[pair].append(PathSign.LOSSY)
    sizes = () if isinstance(facts.sizes, Unread) else facts.sizes
    for judged in path_size.judge_all(facts, sizes, losses):
        if judged.verdict in SWALLOWED:
            found[judged.path.source, judged.path.target.node].append(PathSign.LARGE_LOST)
    return found


def node_names(facts: NodesFacts) -> tuple[str, ...]:
    """Those that are here, then those that are not but have a name."""
    here = (node.name for node in facts.nodes)
    return tuple(dict.fromkeys((*here, *(one.name for one in facts.absent if one.name))))


def _state(connects: list[PathSign], more: list[PathSign]) -> PairState:
    if not connects:
        return PairState(PathSign.UNTRIED, partly=False)
    worst = min([*connects, *more], key=RANK.__getitem__)
    partly = worst in connects and any(sign is PathSign.OK for sign in connects)
    return PairState(worst, partly=partly and worst is not PathSign.OK)
