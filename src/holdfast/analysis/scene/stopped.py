"""Ranks whose process is stopped, by a signal or by a debugger. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.analysis.scene.scene import RankView, Scene

LONG_ENOUGH = 3.0
"""seconds in state T; a shell's job control or a tool that stops a process for a look is shorter"""


def stopped_ranks(scene: Scene) -> list[RankView]:
    """Ranks in state T for long enough; where there are none, ranks held by a debugger (t)."""
    return _in_state(scene, "T") or _in_state(scene, "t")


def any_stopped(scene: Scene) -> bool:
    """Then no other fault need explain why the others wait."""
    return any(_is_stopped(view) for view in scene.ranks)


def stopped_since(scene: Scene, ranks: Iterable[int]) -> float | None:
    """When the last of them was stopped; None when one of them runs."""
    views = [scene.rank(rank) for rank in ranks]
    if not views or not all(map(_is_stopped, views)):
        return None
    return max(view.state_since for view in views)


def any_only_just(scene: Scene, ranks: Iterable[int]) -> bool:
    """One of them is stopped, and not for long enough yet to be named: it will be, or it runs on.
    Until then nothing is known of where it sits."""
    views = [scene.rank(rank) for rank in ranks]
    return any(_is_stopped(v) and scene.now - v.state_since < LONG_ENOUGH for v in views)


def _is_stopped(view: RankView) -> bool:
    return view.activity is not None and view.activity.state in ("T", "t")


def _in_state(scene: Scene, letter: str) -> list[RankView]:
    return [
        v
        for v in scene.ranks
        if v.activity is not None
        and v.death is None
        and v.activity.state == letter
        and scene.now - v.state_since >= LONG_ENOUGH
    ]
