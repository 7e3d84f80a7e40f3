"""Nodes of the job that are lost, since when, and how far that tells why. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import text
from holdfast.analysis.job import phrases
from holdfast.analysis.scene import exits
from holdfast.analysis.scene import heard as heard_ranks
from holdfast.analysis.scene.node_view import NodeView
from holdfast.analysis.scene.scene import Scene
from holdfast.findings import Evidence

CLOSED_FOR_GOOD = 2.0
"""seconds: a launcher that only lost its connection is back by then"""
TOGETHER = 4.0
"""seconds within which nodes that lose the network at once are last heard: messages of each come
five times a second, and TCP may deliver the last ones late"""


def is_lost(node: NodeView) -> bool:
    if node.coordinates:
        return False
    closed = node.farewell in ("closed", "left") and node.silent >= CLOSED_FOR_GOOD
    return node.hearing == "lost" or closed


def lost(scene: Scene) -> tuple[NodeView, ...]:
    """By node rank. Without those that were told to stop: they said goodbye."""
    return tuple(node for node in scene.nodes if is_lost(node) and not node.told_to_stop)


def told_to_stop(scene: Scene) -> tuple[NodeView, ...]:
    """Nodes whose launcher got a signal; Ctrl-C first: it is meant for the whole job."""
    told = (node for node in scene.nodes if node.told_to_stop and not node.coordinates)
    return tuple(sorted(told, key=lambda node: node.told_to_stop != "SIGINT"))


def heard(scene: Scene) -> tuple[NodeView, ...]:
    return tuple(node for node in scene.nodes if node.hearing == "heard" and not is_lost(node))


def is_cause(scene: Scene, nodes: Iterable[NodeView]) -> bool:
    """Whether no rank of another node had failed by itself before the first of these nodes was last
    heard: what ended such a rank ended the job."""
    since = min(scene.now - node.silent for node in nodes)
    return not any(ending.at < since for ending in exits.cause(heard_ranks.known_part(scene)))


def failed_before(scene: Scene, nodes: Iterable[NodeView]) -> str:
    """'; before that rank 4 (node c, pid 4711): ended by SIGSEGV', where such a node said so."""
    gone = {rank for node in nodes for rank in node.ranks}
    ended = [ending for ending in exits.cause(scene) if ending.rank in gone]
    return f"; before that {phrases.how_it_ended(ended[0]).quote}" if ended else ""


def out_of_touch(scene: Scene) -> tuple[NodeView, ...]:
    """Lost without a goodbye of their kernels, and by all that is known their machines are silent
    too: down, or cut off."""
    return tuple(
        node
        for node in lost(scene)
        if node.farewell not in ("closed", "left") and node.machine_answers is not True
    )


def went_together(nodes: Iterable[NodeView]) -> bool:
    """Two or more, last heard within a few seconds of each other."""
    silent = [node.silent for node in nodes]
    return len(silent) > 1 and max(silent) - min(silent) <= TOGETHER


def ranks_of(scene: Scene, nodes: Iterable[NodeView]) -> list[int]:
    """Those that were ever reported: of a node that is lost at once nothing is known."""
    known = {view.rank for view in scene.ranks}
    return [rank for node in nodes for rank in node.ranks if rank in known]


def victims(scene: Scene, nodes: Iterable[NodeView]) -> list[int]:
    gone = {rank for node in nodes for rank in node.ranks}
    return [view.rank for view in scene.ranks if view.rank not in gone]


def with_ranks(nodes: Iterable[NodeView]) -> str:
    """'node c (ranks 4-5)', 'nodes c and d (ranks 4-7)'."""
    listed = tuple(nodes)
    names = text.names(node.name for node in listed)
    ranks = text.ranks(rank for node in listed for rank in node.ranks)
    return f"node{'' if len(listed) == 1 else 's'} {names} ({ranks})"


def how(node: NodeView) -> str:
    """What was seen, and what it means, as far as can be known from another machine."""
    return how_it_went(
        farewell=node.farewell,
        words=node.farewell_words,
        silent=node.silent,
        answers=node.machine_answers,
    )


CLOSED = "closed the connection"
"""the words of a connection that ended as it should: they add nothing"""


def how_it_went(*, farewell: str, words: str, silent: float, answers: bool | None) -> str:
    seen = f" ({words})" if words else ""
    if farewell == "left":
        return f"its launcher left{seen}"
    if farewell == "closed":
        meaning = {
            True: "its launcher was killed or exited; the machine still answers",
            False: "its launcher ended, and the machine has stopped answering since: it shuts "
            "down, or its network went down too",
            None: "its launcher was killed or exited, or the machine shuts down",
        }[answers]
        how = f" ({words})" if words != CLOSED else ""
        return f"its kernel closed the connection{how}: {meaning}"
    quiet = f"nothing was heard from it for {text.elapsed(silent)}"
    meaning = {
        True: "the machine answers and its launcher does not: it is stopped, or gets no CPU time",
        False: "the machine does not answer either: it is down, hangs, or is cut off from the "
        "network; from here these look the same",
        None: "it is down, hangs, or is cut off from the network; from here these look the same",
    }[answers]
    return f"{quiet}: {meaning}"


def evidence(scene: Scene, nodes: Iterable[NodeView]) -> list[Evidence]:
    """What was seen of each, and how the first ranks that exited as a result put it."""
    ended = [phrases.how_it_ended(ending) for ending in exits.endings(scene)[:2]]
    return [
        *(
            Evidence(
                quote=f"{node.name}: {node.farewell_words or how(node)}",
                source="its launcher's connection",
                host=node.name,
            )
            for node in nodes
        ),
        *ended,
    ]
