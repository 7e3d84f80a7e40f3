"""Evidence of all nodes: asked for at once, waited for a moment. No I/O; the clock is passed in."""

from __future__ import annotations

from holdfast.run.watch.peers import NodePeers

WAIT = 4.0
"""seconds for other nodes: stacks and recorders take up to 2 s each there"""


class EvidenceRequests:
    """One attempt."""

    def __init__(self, peers: NodePeers) -> None:
        self._peers = peers
        self._number = 0
        self._asked_at = 0.0
        self._purpose = ""

    def ask(self, purpose: str, now: float) -> int:
        """The number of the request, which goes to all nodes."""
        self._number += 1
        self._asked_at, self._purpose = now, purpose
        self._peers.ask_for_evidence(self._number)
        return self._number

    def awaited(self, now: float) -> bool:
        """Whether a node that is heard may still answer."""
        if not self._purpose or now >= self._asked_at + WAIT:
            return False
        return any(
            state.hearing == "heard"
            and state.report is not None
            and state.report.evidence < self._number
            for state in self._peers.states().values()
        )

    def came_for(self, purpose: str) -> bool:
        """Whether it was asked for this, and has not been used yet."""
        if self._purpose != purpose:
            return False
        self._purpose = ""
        return True
