"""Which rank ended first, and which exited as a result: pure, from the scene of a job.

The rule of every launcher, 'the first one seen dead is to blame', accuses victims: survivors of
a lost peer die within 50 ms, and the order in which a poll sees them is chance.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.analysis.scene import secondary_errors
from holdfast.analysis.scene.scene import ExitCall, RankView, Recorder, Scene
from holdfast.analysis.scene.surroundings import in_doubt, node_of

CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS}
)
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
ALMOST_AT_ONCE = 0.1
RIGHT_AFTER = 5.0
"""seconds: a rank without last words that ends so soon after another one went, went with it"""
POLL = 0.25
"""seconds by which a death may be seen late: each node looks for itself, ten times a second"""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that raised, was killed, or left with an exit code other than 0."""

    view: RankView
    at: float
    """when it failed: before its process was taken apart, as far as it said so"""
    consequence: str
    """one of `consequences`, or ''"""

    @property
    def rank(self) -> int:
        return self.view.rank

    @property
    def signal(self) -> int:
        """what killed it, 0 for none; an exception that is still unwinding has none either"""
        death = self.view.death
        return -death.code if death and death.code < 0 else 0

    @property
    def polled(self) -> bool:
        """It left no time of its own: it was seen to be dead."""
        return self.view.death is not None and self.at == self.view.death.at

    @property
    def mute(self) -> bool:
        """It said nothing that separates a cause from a consequence; nor does its exit code."""
        if self.consequence == secondary_errors.TEARDOWN:
            return True
        return self.view.words is None and self.signal in (0, signal.SIGABRT)


def endings(scene: Scene) -> tuple[Ending, ...]:
    """Every rank that did not end well, by time."""
    return scene.memo(_endings)


def _endings(scene: Scene) -> tuple[Ending, ...]:
    found = [ending for view in scene.ranks if (ending := _ending(view))]
    return tuple(sorted(found, key=lambda ending: ending.at))


def _ending(view: RankView) -> Ending | None:
    if view.death and view.death.code == 0:
        return None  # whatever it complained of, it took it well
    if view.words:
        said = secondary_errors.consequence(view.words)
        return Ending(view=view, at=view.words.at, consequence=said)
    if (view.death and view.death.code != 0) or exits_with_error(view):
        return Ending(view=view, at=_left_at(view), consequence="")
    return None


def exit_call(view: RankView) -> ExitCall | None:
    """The call that ended it or is ending it; not one that the script caught and survived."""
    beat = view.beat
    call = beat.exit_call if beat else None
    if beat is None or call is None or beat.step_at > call.at:
        return None
    ended_so = view.death.code == call.code if view.death else is_leaving(view)
    return call if ended_so else None


def is_leaving(view: RankView) -> bool:
    """Python shuts down in it; with CUDA that takes seconds, with an atexit upload a minute."""
    return bool(view.death is None and view.beat and view.beat.leaving_at)


def exits_with_error(view: RankView) -> bool:
    """It is on its way out by `sys.exit` with another code than 0, as far as can be told: a script
    may catch that, and leave in another way."""
    call = exit_call(view) if is_leaving(view) else None
    return call is not None and call.code != 0


def left_well(scene: Scene) -> tuple[RankView, ...]:
    """Ranks that exited with 0 and complained of nothing, or are about to."""
    return scene.memo(_left_well)


def _left_well(scene: Scene) -> tuple[RankView, ...]:
    return tuple(
        view
        for view in scene.ranks
        if not view.words
        and (view.death.code == 0 if view.death else is_leaving(view))
        and not exits_with_error(view)
    )


def parted_at(view: RankView) -> float:
    """When its peers lost it: its process may be taken apart for seconds after that."""
    left_group = view.beat.group_left_at if view.beat else 0.0
    return min(left_group or math.inf, _left_at(view))


def _left_at(view: RankView) -> float:
    call, words, death = exit_call(view), view.words, view.death
    leaving = view.beat.leaving_at if view.beat else 0.0
    return min([leaving or math.inf, *(seen.at for seen in (call, words, death) if seen)])


def cause(scene: Scene) -> tuple[Ending, ...]:
    """The first ending that is not a consequence of another; several only when they tie: to the
    instant on one machine, within what is unknown of their clocks on two."""
    return scene.memo(_cause)


def _cause(scene: Scene) -> tuple[Ending, ...]:
    ended = endings(scene)
    echoes = [e for e in ended if e.consequence and not e.mute]
    if speaking := _first(scene, [e for e in ended if not e.consequence and not e.mute]):
        # A wrapper that turns 'connection reset' into an exception of its own names no cause
        # when another rank had left before. A signal is a cause whenever it came.
        echo = not any(e.signal for e in speaking) and _echoes_a_leaving(scene, speaking[0], echoes)
        return () if echo else speaking
    mute = _first(scene, [e for e in ended if e.mute])
    if not mute:
        return ()
    # A rank that left without a word after others had complained, or right after one had gone,
    # went with them. Sockets close a moment before the kernel reports the death.
    parted = parted_at(mute[0].view) - ALMOST_AT_ONCE
    too_late = any(e.at < parted - _doubt(scene, mute[0], e) for e in echoes)
    followed = any(may_miss_a_peer(e) for e in mute) and any(
        _may_follow(scene, mute[0], view, within=RIGHT_AFTER) for view in left_well(scene)
    )
    return () if too_late or followed else mute


def _echoes_a_leaving(scene: Scene, speaking: Ending, echoes: list[Ending]) -> bool:
    """Whether another rank surely complained before it, of one that had left before that. Of each
    node one rank tells: the last that complained, the first that left."""
    before = [e for e in echoes if e.at < speaking.at - _doubt(scene, speaking, e)]
    last = {_node_name(scene, e.rank): e for e in before}
    by_time = sorted(left_well(scene), key=parted_at, reverse=True)
    first = {_node_name(scene, view.rank): view for view in by_time}
    return any(_may_follow(scene, e, view) for e in last.values() for view in first.values())


def _may_follow(scene: Scene, ending: Ending, left: RankView, *, within: float = math.inf) -> bool:
    """As far as their clocks tell."""
    return -in_doubt(scene, left.rank, ending.rank) <= ending.at - parted_at(left) < within


def _node_name(scene: Scene, rank: int) -> str:
    node = node_of(scene, rank)
    return node.name if node else ""


def may_miss_a_peer(ending: Ending) -> bool:
    """Whether a rank that gave no reason may have gone because another one had.

    Without a group there is no peer to lose. A script that ends itself by a code of its own after
    the others are done (it checked the result) speaks for itself, unless it was in a collective.
    """
    view = ending.view
    if view.beat is None:
        return True
    if not view.beat.group_ready:
        return False
    chosen = not ending.signal and (view.beat.leaving_at or exit_call(view))
    return not chosen or _in_a_collective(view)


def _in_a_collective(view: RankView) -> bool:
    """By its flight recorder, which it left behind when it exited with an error code. The entry of
    a collective that failed is never finished."""
    kept = view.recorder
    return isinstance(kept, Recorder) and any(
        kept.finished.get(group, 0) < entered for group, entered in kept.entered.items()
    )


def _doubt(scene: Scene, later: Ending, earlier: Ending) -> float:
    """Seconds by which the later of two endings may have come before the other; on one machine
    their order is as it was seen."""
    if _node_name(scene, later.rank) == _node_name(scene, earlier.rank):
        return 0.0
    return in_doubt(scene, later.rank, earlier.rank) + POLL * later.polled


def _first(scene: Scene, found: list[Ending]) -> tuple[Ending, ...]:
    return tuple(e for e in found if e.at - found[0].at <= _doubt(scene, e, found[0]))


def killed_elsewhere(scene: Scene, killed: Sequence[Ending]) -> list[Ending]:
    """Ranks on other nodes that the same signal killed, whenever that was seen: no rank is killed
    because another one was."""
    known = {(_node_name(scene, e.rank), e.signal) for e in killed}
    signals = {e.signal for e in killed if e.signal} if scene.nodes else ()
    return [
        e
        for e in endings(scene)
        if e.signal in signals and (_node_name(scene, e.rank), e.signal) not in known
    ]


def tied(scene: Scene) -> tuple[Ending, ...]:
    """Those of `cause` of which only the clocks of two nodes do not say which came first."""
    found = cause(scene)
    return tuple(e for e in found if _node_name(scene, e.rank) != _node_name(scene, found[0].rank))


def fallen(scene: Scene, culprits: Iterable[int]) -> tuple[int, ...]:
    """Every other rank that did not end well by itself: it ends with the group."""
    perhaps = cause(scene) if tied(scene) else ()
    guilty = {*culprits, *(e.rank for e in perhaps)}
    well = {view.rank for view in left_well(scene)}
    return tuple(v.rank for v in scene.ranks if v.rank not in guilty and v.rank not in well)
