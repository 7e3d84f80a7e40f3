"""Which rank ended first, and which exited as a result: pure, from the scene of a job.

The rule of every launcher, 'the first one seen dead is to blame', accuses victims: survivors of
a lost peer die within 50 ms, and the order in which a poll sees them is chance.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

import msgspec

from holdfast.analysis.scene import secondary_errors
from holdfast.analysis.scene.scene import RankView, Scene

CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGSYS}
)
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
ALMOST_AT_ONCE = 0.1
RIGHT_AFTER = 5.0
"""seconds: a rank without last words that ends so soon after another one went, went with it"""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that raised, was killed, or left with an exit code other than 0."""

    view: RankView
    at: float
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
    def mute(self) -> bool:
        """It said nothing that separates a cause from a consequence; nor does its exit code."""
        if self.consequence == secondary_errors.TEARDOWN:
            return True
        return self.view.words is None and self.signal in (0, signal.SIGABRT)


def endings(scene: Scene) -> tuple[Ending, ...]:
    """Every rank that did not end well, by time."""
    found = [ending for view in scene.ranks if (ending := _ending(view))]
    return tuple(sorted(found, key=lambda ending: ending.at))


def _ending(view: RankView) -> Ending | None:
    if view.death and view.death.code == 0:
        return None  # whatever it complained of, it took it well
    if view.words:
        said = secondary_errors.consequence(view.words)
        return Ending(view=view, at=view.words.at, consequence=said)
    if view.death and view.death.code != 0:
        return Ending(view=view, at=view.death.at, consequence="")
    return None


def left_well(scene: Scene) -> tuple[RankView, ...]:
    """Ranks that exited with 0 and complained of nothing."""
    return tuple(v for v in scene.ranks if v.death and v.death.code == 0 and not v.words)


def cause(scene: Scene) -> tuple[Ending, ...]:
    """The first ending that is not a consequence of another; several only when they tie exactly."""
    ended = endings(scene)
    echoes = [e.at for e in ended if e.consequence and not e.mute]
    gone = [v.death.at for v in left_well(scene) if v.death]
    if speaking := _first([e for e in ended if not e.consequence and not e.mute]):
        # A wrapper that turns 'connection reset' into an exception of its own names no cause
        # when another rank had left before. A signal is a cause whenever it came.
        echo = any(at < speaking[0].at and left <= at for at in echoes for left in gone)
        return () if echo and not any(e.signal for e in speaking) else speaking
    mute = _first([e for e in ended if e.mute])
    if not mute:
        return ()
    # A rank that left without a word after others had complained, or right after one had gone,
    # went with them. Sockets close a moment before the kernel reports the death.
    too_late = any(at < mute[0].at - ALMOST_AT_ONCE for at in echoes)
    in_a_group = any(had_peers(e.view) for e in mute)
    followed = in_a_group and any(0 <= mute[0].at - at < RIGHT_AFTER for at in gone)
    return () if too_late or followed else mute


def had_peers(view: RankView) -> bool:
    """Whether it could lose a peer at all: without a group there is none to lose."""
    return view.beat is None or view.beat.group_ready


def _first(found: list[Ending]) -> tuple[Ending, ...]:
    return tuple(e for e in found if e.at == found[0].at)


def fallen(scene: Scene, culprits: Iterable[int]) -> tuple[int, ...]:
    """Every other rank that did not end well by itself: it ends with the group."""
    guilty, well = set(culprits), {view.rank for view in left_well(scene)}
    return tuple(v.rank for v in scene.ranks if v.rank not in guilty and v.rank not in well)
