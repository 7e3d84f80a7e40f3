"""What the smoke test between nodes saw, of nodes whose faults are known."""

from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.nodes.isolation import PairOutcome
from holdfast.analysis.nodes.smoke import GroupTest, SmokeBetween
from tests.analysis.nodes.isolation.fleet import Fleet
from tests.faults.made_nodes import name_of, replace, some_nodes

NO_DIAGNOSTICS = Unread(why="NCCL 2.28.9 has no diagnostics (2.31 has)")


def smoked(count: int = 8, *, fleet: dict[str, Any] | None = None, **changes: Any) -> NodesFacts:
    """Healthy nodes after a smoke test in which `fleet` (fields of Fleet) was faulty; changes are
    fields of SmokeBetween."""
    nodes = Fleet([name_of(number) for number in range(count)], **(fleet or {}))
    found = nodes.isolate()
    seen = SmokeBetween(
        backend="gloo",
        why_backend="no GPU is visible to torch",
        ranks=count,
        left_out=(),
        rounds=nodes.state.rounds,
        isolation=found,
        group=GroupTest(nodes=found.cleared, outcome=PairOutcome.PASSED, speed=2e9, why=""),
        slow_alone=(),
        diagnostics=NO_DIAGNOSTICS,
        seconds=3.0,
    )
    return replace(some_nodes(count), smoke=replace(seen, **changes))
