"""How ranks end, and what `holdfast run` exits with then. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from holdfast.analysis.collectives import waits
from holdfast.analysis.scene import exits, overruns
from holdfast.analysis.scene.scene import Death, RankView, Scene
from holdfast.findings import Verdict
from holdfast.system.deaths import UNKNOWN

STOPPED_BY_VERDICT = 124
CHECKS_FAILED = 1
"""before anything was started"""
UNCAUGHT = 1
"""what Python exits with for an exception that nothing caught"""
AT_WORK = 5.0
"""seconds since the last sign of life of a rank that is not stuck"""
TEARDOWN = 10.0
"""seconds for Python, CUDA and NCCL to come apart once all exit handlers are done: a collective
without peers can hang there for good"""


def failed(view: RankView) -> bool:
    return view.death is not None and view.death.code != 0


def raised(view: RankView) -> bool:
    """It is about to end: the interpreter takes seconds to come apart where torch is loaded. Only
    if nothing caught it: who calls `sys.exit` may yet change its mind."""
    words = view.words
    return view.death is None and words is not None and words.exit_code is None


def exiting(scene: Scene) -> frozenset[int]:
    """Ranks on their way out, whose exit handlers may run to the end."""
    return frozenset(view.rank for view in scene.ranks if _exits_by_itself(view, scene.now))


def _exits_by_itself(view: RankView, now: float) -> bool:
    if not (raised(view) or exits.is_leaving(view)):
        return False
    if view.activity is not None and view.activity.state in "Tt":
        return False  # stopped: that would last for ever
    beat = view.beat
    # Our hook is the last of all handlers, and ends the beat.
    done_at = beat.beat_at if beat and beat.phase == "exit" else 0.0
    return not done_at or now - done_at <= TEARDOWN


def to_kill_at_once(found: Verdict, scene: Scene) -> frozenset[int]:
    """Culprits without grace: stopped, over their deadline, blocked in a collective, or silent.
    Ranks that wait for them can save only once they are gone. One at work may be saving: it is
    asked."""
    over = {view.rank for view in overruns.overrun_ranks(scene)}
    waiting = waits.analyse(scene)
    return frozenset(
        rank
        for rank in found.ranks
        if rank in over
        or waiting.of(rank) is not None
        or not _is_at_work(scene.rank(rank), scene.now)
    )


def _is_at_work(view: RankView, now: float) -> bool:
    stopped = view.activity is not None and view.activity.state in "Tt"
    return view.death is None and not stopped and now - view.alive_at < AT_WORK


def exit_code_of(found: Verdict | None, scene: Scene, after: Mapping[int, Death]) -> int:
    """The culprit's own code, 128 + the signal that killed it, or 124 for one that we ended.

    `scene` is what the verdict was found in, `after` how ranks that were alive then ended. One
    that was on its way out is given its own code, whether it was quick to exit or not.
    """
    if found and found.about_hosts:
        return STOPPED_BY_VERDICT  # what ended, ended as a result
    guilty = found.ranks if found else ()
    dead = [view for view in scene.ranks if view.death and view.death.code]
    for view in [v for v in dead if v.rank in guilty] or ([] if guilty else dead):
        assert view.death
        return _as_shell(view.death.code)
    leaving = [view for view in scene.ranks if raised(view) or exits.exits_with_error(view)]
    for view in [v for v in leaving if v.rank in guilty] or ([] if guilty else leaving):
        own = after[view.rank].code if view.rank in after else 0
        if own not in (0, UNKNOWN, -signal.SIGKILL, -signal.SIGTERM):
            return _as_shell(own)
        # Ended by us, within its exit handlers.
        call = exits.exit_call(view)
        return call.code if call and call.code else UNCAUGHT
    return STOPPED_BY_VERDICT


def _as_shell(code: int) -> int:
    """An unknown code is a failure: the system would cut 256 down to 0."""
    if code == UNKNOWN:
        return UNCAUGHT
    return code if code > 0 else 128 - code
