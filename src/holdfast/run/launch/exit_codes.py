"""How ranks end, and what `holdfast run` exits with then. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from holdfast.analysis.scene.scene import Death, RankView, Scene
from holdfast.findings import Verdict

STOPPED_BY_VERDICT = 124
UNCAUGHT = 1
"""what Python exits with for an exception that nothing caught"""


def failed(view: RankView) -> bool:
    return view.death is not None and view.death.code != 0


def raised(view: RankView) -> bool:
    """It is about to end: the interpreter takes seconds to come apart where torch is loaded. Only
    if nothing caught it: who calls `sys.exit` may yet change its mind."""
    words = view.words
    return view.death is None and words is not None and words.exit_code is None


def exiting(scene: Scene) -> frozenset[int]:
    """Ranks that raised, and run on to their end: not if stopped, which would last for ever."""
    return frozenset(view.rank for view in scene.ranks if raised(view) and not _is_stopped(view))


def _is_stopped(view: RankView) -> bool:
    return view.activity is not None and view.activity.state in "Tt"


def exit_code_of(found: Verdict | None, scene: Scene, after: Mapping[int, Death]) -> int:
    """The culprit's own code, 128 + the signal that killed it, or 124 for one that we ended.

    `scene` is what the verdict was found in, `after` how ranks that were alive then ended. One
    that had raised is given its own code, whether it was quick to exit or not.
    """
    guilty = found.ranks if found else ()
    dead = [view for view in scene.ranks if view.death and view.death.code]
    for view in [v for v in dead if v.rank in guilty] or ([] if guilty else dead):
        assert view.death
        return _as_shell(view.death.code)
    unwinding = [view for view in scene.ranks if raised(view)]
    for view in [v for v in unwinding if v.rank in guilty] or ([] if guilty else unwinding):
        own = after[view.rank].code if view.rank in after else 0
        # Ended by us, within its exit handlers: Python's code for an exception.
        return UNCAUGHT if own in (0, -signal.SIGKILL, -signal.SIGTERM) else _as_shell(own)
    return STOPPED_BY_VERDICT


def _as_shell(code: int) -> int:
    return code if code > 0 else 128 - code
