"""Which nodes or links are behind collectives that fail or are slow, found by testing pairs.

A pair that fails says only that one of its members, or the link between them, is faulty. So pairs
are tested in rounds, all pairs of a round at once: `plan_round` says which, `absorb` takes their
results, `conclude` says what they mean. All pure.

What it rests on, and what it claims (tests/analysis/nodes/isolation holds it to that):

- A pass clears both members: it takes two healthy ones. A node is bad when two different nodes that
  are cleared fail with it, and it passes with none; with one failure it could still be the link.
  So while no healthy node has more than one bad link, no healthy node is ever called bad and no bad
  one is cleared, however many there are.
- With up to a quarter bad nodes an even number of nodes takes two rounds, three where two bad ones
  met in the first; an odd number takes three at most, since one node sits out the first. A bad link
  takes one or two rounds more: both ends must pass elsewhere, then the pair is tested again. If it
  passes this time, it was transient.
- Where racks are known the first round goes across them, and a node is called bad only after it
  failed in its own rack, too, with nodes whose rack passes with others: else the rack's way out
  could be the fault. That may take a round or two more.
- 'Undecided' is an answer: for two nodes, where no pair passes, and where more than a quarter would
  be called bad, since then a shared cause (a switch, a setting) is the likelier one.
- Speeds are asked about apart, of the pairs that passed: a slow pass never makes a node bad. A pair
  runs at the speed of its slower member, so a node counts by its best result, and a straggler is
  slow with three nodes that are fast with others.
"""

from holdfast.analysis.nodes.isolation.conclude import conclude
from holdfast.analysis.nodes.isolation.evidence import MAX_ROUNDS
from holdfast.analysis.nodes.isolation.results import (
    Isolation,
    IsolationState,
    JudgedNode,
    JudgedPair,
    PairOutcome,
    PairResult,
    absorb,
)
from holdfast.analysis.nodes.isolation.rounds import plan_round

__all__ = [
    "MAX_ROUNDS",
    "Isolation",
    "IsolationState",
    "JudgedNode",
    "JudgedPair",
    "PairOutcome",
    "PairResult",
    "absorb",
    "conclude",
    "plan_round",
]
