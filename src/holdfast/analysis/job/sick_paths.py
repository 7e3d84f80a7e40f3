"""Paths between nodes that keep the job from going on: the kernel's view first, then a try. Pure.

TCP itself survives a link that is gone for seconds, so silence alone proves nothing before
`FOR_GOOD`, and a try counts only when it began late enough to see that the link came back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from holdfast import text
from holdfast.analysis.collectives import waits
from holdfast.analysis.job import pace, path_probes, path_signs
from holdfast.analysis.job.path_probes import Tried
from holdfast.analysis.job.path_signs import KernelSign
from holdfast.analysis.nodes import pattern
from holdfast.analysis.nodes.path_size import SizeJudgement, SizeVerdict
from holdfast.analysis.nodes.pattern import Pair, PathGroup
from holdfast.analysis.scene.scene import Recorder, Scene
from holdfast.findings import Evidence

FOR_GOOD = 7.0
"""seconds without an answer that no flap of five seconds makes, unless TCP pauses after it"""
TRY_AFTER = 4.0
"""seconds without an answer after which a try tells a flap from a broken path: it lasts 2.5 s, so
that it sees the end of a flap of five seconds"""
HOLE_AFTER = 3.0
"""seconds without an answer, where small packets pass at the same time: that is no flap"""
UNEXPLAINED = 20.0
"""seconds without an answer while all tries pass: longer than TCP's own pause after a flap"""
SWALLOWED = (SizeVerdict.HANGS, SizeVerdict.VANISHES, SizeVerdict.UNTRIED)
HEADERS = 40
"""bytes of a packet beside TCP's data, at least"""


class SickPath(NamedTuple):
    """A direction in which the ranks' connections get no answer, and how it was tried."""

    sign: KernelSign
    tried: Tried | None
    since: float
    """when the longest silence began"""
    tried_late: bool
    """the try began when a flap would have been over"""

    @property
    def pair(self) -> Pair:
        return self.sign.pair

    @property
    def is_unreachable(self) -> bool:
        late = self.tried_late and self.sign.unanswered >= FOR_GOOD
        return late and self.tried is not None and self.tried.failed

    @property
    def hole(self) -> SizeJudgement | None:
        """Large packets vanish, small ones pass, and the ranks send large ones."""
        if self.tried is None or self.tried.failed or self.sign.unanswered < HOLE_AFTER:
            return None
        largest = max(one.segment for one in self.sign.stuck) + HEADERS
        return next(
            (
                one
                for one in self.tried.sizes
                if one.verdict in SWALLOWED and (one.passes is None or one.passes < largest)
            ),
            None,
        )

    @property
    def is_unexplained(self) -> bool:
        """Everything that was tried passes, and the ranks' connections stay silent."""
        tried = self.tried
        if tried is None or not self.tried_late or self.sign.unanswered < UNEXPLAINED:
            return False
        return tried.passes and not tried.loss and self.hole is None


def of(scene: Scene) -> tuple[SickPath, ...]:
    """Every direction with a connection that gets no answer, the longest silence first."""
    return scene.memo(_of)


def _of(scene: Scene) -> tuple[SickPath, ...]:
    found = [_sick(scene, sign) for sign in path_signs.of(scene).values() if sign.stuck]
    return tuple(sorted(found, key=lambda one: (one.since, one.pair)))


def _sick(scene: Scene, sign: KernelSign) -> SickPath:
    since = scene.now - sign.unanswered
    began = path_probes.began(scene)
    tried = path_probes.tried(scene, sign.pair, {one.peer for one in sign.stuck})
    return SickPath(
        sign=sign,
        tried=tried if began >= since else None,  # an earlier one saw another network
        since=since,
        tried_late=began >= since + TRY_AFTER,
    )


# --- what they say together ----------------------------------------------------------------------


def certain(scene: Scene, sick: Iterable[SickPath]) -> bool:
    """Whether a rank that sends there sits in a collective, which then cannot end."""
    return any(_in_collective(scene, rank) for one in sick for rank in one.sign.ranks)


def _in_collective(scene: Scene, rank: int) -> bool:
    view = next((view for view in scene.ranks if view.rank == rank), None)
    if view is None or view.death is not None:
        return False
    if waits.analyse(scene).of(rank) is not None:
        return True
    seen = view.recorder if not waits.moved_on(scene) else None
    return isinstance(seen, Recorder) and any(
        entered > seen.finished.get(group, 0) for group, entered in seen.entered.items()
    )


def directions(scene: Scene, pairs: Collection[Pair]) -> set[Pair]:
    """Of paths that are silent both ways, the direction that is broken, where the kernels tell:
    one end still gets what the other sends again and again."""
    return {_one_way(scene, pair) or pair for pair in pairs}


def is_one_way(scene: Scene, pair: Pair) -> bool:
    """Both ends wait for an answer, and only what is sent this way does not arrive."""
    return _one_way(scene, pair) == pair


def _one_way(scene: Scene, pair: Pair) -> Pair | None:
    signs = path_signs.of(scene)
    there, back = signs.get(pair), signs.get((pair[1], pair[0]))
    if there is None or back is None or not there.stuck or not back.stuck:
        return None
    if bool(there.came) == bool(back.came):
        return None
    return back.pair if back.came else there.pair


def groups(scene: Scene, pairs: Collection[Pair]) -> list[PathGroup]:
    """The smallest true sentences about them; a path that is well is known by its connections."""
    well = {pair for pair, sign in path_signs.of(scene).items() if not sign.stuck}
    return pattern.smallest(pairs, {*pairs, *well})


def named(scene: Scene, pairs: Collection[Pair]) -> str:
    """'node b → node c (10.0.0.2 → 10.0.0.3)', 'nodes b ↔ c', 'all paths to and from c'."""
    both = {frozenset(pair) for pair in pairs}
    if len(both) == 1:
        source, target = min(pairs)
        arrow = "↔" if (target, source) in pairs else "→"
        sign = path_signs.of(scene).get((source, target))
        where = f" ({f' {arrow} '.join(sign.addresses)})" if sign else ""
        return f"node {source} {arrow} node {target}{where}"
    return "; ".join(group.words for group in groups(scene, pairs))


def waiting(scene: Scene) -> str:
    """'ranks 0-7 wait in all_reduce #101', or for how long there was no step."""
    seen = [wait for wait in waits.analyse(scene).waits if wait.title]
    places = Counter(wait.title for wait in seen)
    if not places:
        return f"no step for {text.elapsed(scene.now - pace.last_progress(scene))}"
    title = min(places, key=lambda one: (-places[one], one))
    ranks = [wait.rank for wait in seen if wait.title == title]
    return f"{text.ranks(ranks)} {text.plural(ranks, 'waits', 'wait')} in {title}"


def victims(scene: Scene) -> list[int]:
    return [view.rank for view in scene.ranks if view.death is None]


def kernel_evidence(signs: Iterable[KernelSign]) -> list[Evidence]:
    return [
        Evidence(
            quote=f"{one.local} → {one.peer} port {one.peer_port}: {one.unsent} bytes not "
            f"acknowledged, sent again {one.backoff} times in a row",
            source="the kernel's counters (ss -ti)",
            rank=one.rank,
            host=sign.pair[0],
        )
        for sign in signs
        for one in sign.stuck[:1]
    ]
