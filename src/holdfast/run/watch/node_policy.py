"""What a decision means for nodes: who is left out, who is waited for, who is killed. Pure."""

from __future__ import annotations

import signal
from typing import Literal, NamedTuple

from holdfast import text
from holdfast.analysis.collectives import waits
from holdfast.analysis.scene import attempt_start
from holdfast.analysis.scene.scene import Policy, Scene
from holdfast.findings import Verdict
from holdfast.run.launch import exit_codes
from holdfast.run.watch.decide import Decision
from holdfast.run.watch.peers import NodePeers

OTHERS_TOLD = 1.5
"""seconds after one node was told to stop in which the others may be told too: then a scheduler
ends the job, and does not take a node"""
HEARD_JUST_NOW = 1.0
"""seconds: a node reports five times in that"""
SAME_EVENT = 2.0
"""seconds between two nodes that fall silent for one reason"""
PROBES_COUNT = 20.0
"""seconds in which what probes showed is looked at"""
SETTLED = 60.0
"""seconds that a round runs at least before it ends to take in a node"""


class NodeChange(NamedTuple):
    """The nodes of the job change, and no rank is to blame."""

    action: Literal["hold", "restart", "stop"]
    reason: str = ""
    told: tuple[str, ...] = ()
    """the nodes that were told to stop"""
    exit_code: int = 0


def all_ended_well(scene: Scene) -> bool:
    """Every rank of every node exited with 0."""
    world = sum(len(node.ranks) for node in scene.nodes)
    well = [view for view in scene.ranks if view.death is not None and view.death.code == 0]
    return len(well) == world


def needs_a_look(scene: Scene) -> bool:
    """A node is not heard, or paths were tried because they seemed sick."""
    not_heard = any(node.hearing != "heard" or node.farewell for node in scene.nodes)
    return not_heard or (scene.probes is not None and scene.now - scene.probes.at < PROBES_COUNT)


def is_lost(scene: Scene) -> bool:
    return any(node.hearing == "lost" for node in scene.nodes)


def may_be_said(scene: Scene, found: Verdict) -> bool:
    """While a node is not heard nothing is said of others: the one that all wait for may be there,
    and it may be about to be lost."""
    silent = {node.name for node in scene.nodes if node.silent >= HEARD_JUST_NOW}
    return silent <= set(found.hosts)


def more_may_be_lost(scene: Scene) -> bool:
    """A node is lost, and another one fell silent at about the same time: its lease ends soon, and
    together they are one event."""
    lost = [n.silent for n in scene.nodes if n.hearing == "lost" and n.farewell == "silent"]
    late = [n.silent for n in scene.nodes if n.hearing == "late"]
    return bool(lost) and any(silent > min(lost) - SAME_EVENT for silent in late)


def change_of_nodes(
    scene: Scene, peers: NodePeers, policy: Policy, *, since: float
) -> NodeChange | None:
    """`since`: when this round's ranks were started."""
    told = {name: state.told for name, state in peers.states().items() if state.told}
    if told:
        names = tuple(told)
        first = next(iter(told.values()))
        number = signal.Signals[first.signal] if first.signal in signal.Signals.__members__ else 15
        stop = NodeChange(
            "stop", f"stopping: {_told(names, first.signal)}", names, exit_code=128 + number
        )
        if first.signal == "SIGINT":
            return stop
        if min(scene.now - state.told_at for state in peers.states().values() if state.told) < (
            OTHERS_TOLD
        ):
            return NodeChange("hold")
        if peers.can_do_without(names) and _may_continue(scene, policy):
            return NodeChange(
                "restart",
                f"{_told(names, first.signal)}: saving, then re-forming without it (not counted)",
                names,
            )
        return stop
    waiting = peers.waiting_nodes()
    if waiting and _resumes_with_more(scene) and scene.now - since >= SETTLED:
        return NodeChange(
            "restart", f"saving, then re-forming to take in {text.names(waiting)} (not counted)"
        )
    return None


def _resumes_with_more(scene: Scene) -> bool:
    """The job runs well as it is: it ends only for what is known to go on with more ranks."""
    saves = scene.checkpoints.saves
    return bool(saves) and saves[-1].any_world


def _may_continue(scene: Scene, policy: Policy) -> bool:
    if policy.restarts_typed:
        return policy.max_restarts > 0
    return attempt_start.can_resume(scene.checkpoints)


def _told(names: tuple[str, ...], sign: str) -> str:
    verb = "was" if len(names) == 1 else "were"
    return f"{text.names(names)} {verb} told to stop ({sign})"


def to_kill_at_once(found: Verdict, scene: Scene) -> frozenset[int]:
    """Culprits without grace. Where a node or a path is to blame, the ranks that wait in a
    collective too: it never ends, and in it no signal is heard."""
    kill = exit_codes.to_kill_at_once(found, scene)
    if not found.about_hosts:
        return kill
    waiting = waits.analyse(scene)
    return kill | {rank for rank in found.victims if waiting.of(rank) is not None}


def gone(found: Verdict | None, peers: NodePeers) -> tuple[str, ...]:
    """The nodes that it is about and that are no longer there."""
    states = peers.states()
    named = found.about_hosts if found else ()
    return tuple(n for n in named if n in states and states[n].hearing == "lost")


def left_out(found: Verdict | None, peers: NodePeers) -> tuple[str, ...]:
    """A node to blame; of a broken path one end that is not ours: which of the two is sick is not
    known, but without it the path is not used."""
    if found is None or not found.certain or gone(found, peers):
        return ()
    others = [name for name in found.about_hosts if name in peers.states()]
    chosen = tuple(others) if found.hosts else tuple(others[-1:])
    return chosen if chosen and peers.can_do_without(chosen) else ()


def reason(decision: Decision, found: Verdict | None, peers: NodePeers) -> str:
    """'restarting (1 of 3) without node b'."""
    if decision.action != "restart" or not peers.states():
        return decision.reason
    out = gone(found, peers) or left_out(found, peers)
    if not out:
        return decision.reason
    names = text.names(out)
    if peers.can_do_without(out):
        return f"{decision.reason}, without {names}"
    return f"{decision.reason} once {names} {text.plural(out, 'is', 'are')} back"
