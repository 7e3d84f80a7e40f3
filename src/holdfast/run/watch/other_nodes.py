"""What the watch of a coordinator has to do with other nodes in one attempt, besides judging."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from holdfast.analysis.job import suspected_paths
from holdfast.analysis.scene.scene import Scene
from holdfast.run.nodes.messages import EndRound, RoundStart
from holdfast.run.watch.peers import NodePeers

PROBE_AGAIN = 2.5
"""seconds between two requests to try paths; whether one is worth it, suspected_paths knows"""


class OtherNodes:
    def __init__(self, peers: NodePeers) -> None:
        self._peers = peers
        self._probed_at = -PROBE_AGAIN
        self._reports_seen: dict[str, float] = {}
        """node -> when the newest report that was taken in was made"""

    def own_name(self, round_: RoundStart) -> str:
        """What the others call this node."""
        others = self._peers.states()
        return next(node.name for node in round_.nodes if node.name not in others)

    def slept(self) -> bool:
        """Whether one of them reports that its own loop was late: its ranks could not work."""
        late = False
        for name, state in self._peers.states().items():
            report, seen = state.report, self._reports_seen.get(name, 0.0)
            if report is not None and report.at > seen:
                self._reports_seen[name] = report.at
                late = late or report.slept_at > seen > 0
        return late

    def probe(self, scene: Scene, *, timers_since: float) -> None:
        """The paths that seem sick, by an active probe; it takes seconds, and answers later."""
        if scene.now < self._probed_at + PROBE_AGAIN:
            return
        if pairs := suspected_paths.find(scene, timers_since=timers_since):
            self._probed_at = scene.now
            self._peers.ask_for_probes(pairs)

    def end_round(
        self,
        action: Literal["restart", "stop", "done"],
        *,
        reason: str,
        exit_code: int = 0,
        kill: Collection[int] = (),
        no_save: bool = False,
        without: Sequence[str] = (),
    ) -> None:
        """On all of them; here the agent does it."""
        if round_ := self._peers.round():
            order = EndRound(
                round=round_.round,
                action=action,
                culprits=tuple(sorted(kill)),
                exit_code=exit_code,
                reason=reason,
                no_save=no_save,
            )
            self._peers.end_round(order, without=without)
