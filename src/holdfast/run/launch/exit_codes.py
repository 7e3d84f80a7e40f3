"""How ranks end, and what `holdfast run` exits with then. Pure."""

from __future__ import annotations

from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.findings import Verdict

STOPPED_BY_VERDICT = 124


def failed(view: RankView) -> bool:
    return view.death is not None and view.death.code != 0


def raised(view: RankView) -> bool:
    """It is about to end: the interpreter takes seconds to come apart where torch is loaded."""
    return view.death is None and view.words is not None


def exit_code_of(found: Verdict | None, scene: Scene) -> int:
    """The culprit's own code, 128 + the signal that killed it, or 124 for one that we ended."""
    guilty = found.ranks if found else ()
    dead = [view for view in scene.ranks if view.death and view.death.code]
    for view in [v for v in dead if v.rank in guilty] or ([] if guilty else dead):
        assert view.death
        return view.death.code if view.death.code > 0 else 128 - view.death.code
    return STOPPED_BY_VERDICT
