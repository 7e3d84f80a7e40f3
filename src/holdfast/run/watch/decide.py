"""What to do about a verdict: `(now, scene, verdict, policy, history) -> decision`. Pure.

Conclusive evidence acts at once: an end, a mismatch, a stopped process that others wait for. A rank
that merely sits somewhere is never conclusive: it may wait for an answer over HTTP, a subprocess, a
lock, a prompt, a save. There the user's own declaration decides:

- By default the timeout of the collective that the others wait in, less what evidence and an
  orderly end need, before the first step as well as later; never where torch would not abort.
- `--patience S` ends such a wait after S seconds. Before the first step it ends only ranks that
  show no activity for that long: imports and compilation take what they take.
- A slow rank is never a reason.

Whether the job is then restarted: see restart.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast import text
from holdfast.analysis.collectives import waits, worlds
from holdfast.analysis.job import pace, wait_limit
from holdfast.analysis.job.start_failure import StartFailure
from holdfast.analysis.scene import exits, heard, stopped
from holdfast.analysis.scene.scene import Policy, Scene
from holdfast.catalogue import traits
from holdfast.findings import Verdict
from holdfast.run.watch import restart

TIME_FOR_THE_CAUSE = 2.0
"""seconds after the first end in which the cause may still show: a rank that raises takes time to
unwind, and its victims may be seen first"""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    action: Literal["go-on", "hold", "restart", "stop"]
    """hold: a rank has ended, the cause is not clear yet, leave the others alone for a moment"""
    reason: str
    verdict: Verdict | None = None
    """the one acted on; `restart-loop` when that is why the job stops"""
    start_failure: StartFailure | None = None
    """all ranks failed the same way before the first step, and that is why the job stops"""


class StallHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What must be remembered from one look to the next, within an attempt."""

    timers_since: float = 0.0
    """when all clocks were started again"""
    stalled_since: float = 0.0
    """since when the same ranks are waited for at the same positions; 0 when none are"""
    stalled_at: tuple[object, ...] = ()


def remember(
    now: float, scene: Scene, verdict: Verdict | None, history: StallHistory
) -> StallHistory:
    """The history after this look."""
    lasting = verdict is not None and not verdict.certain and bool(verdict.victims)
    if verdict is None or not lasting or heard.unheard_ranks(scene):
        return msgspec.structs.replace(history, stalled_since=0.0, stalled_at=())
    seen = waits.analyse(scene)
    victims = set(verdict.victims)
    places = tuple((w.rank, w.group, w.sequence) for w in seen.waits if w.rank in victims)
    held = (verdict.ranks, places, pace.steps(worlds.part_of(scene, verdict.ranks)))
    if held == history.stalled_at:
        return history
    return msgspec.structs.replace(history, stalled_since=now, stalled_at=held)


def decide(
    now: float, scene: Scene, verdict: Verdict | None, policy: Policy, history: StallHistory
) -> Decision:
    ended = exits.endings(scene)
    if verdict is not None and verdict.fatal:
        return Decision(action="stop", reason=verdict.reason, verdict=verdict)
    if unheard := _waits_for_a_node(scene, verdict):
        return Decision(action="hold" if ended else "go-on", reason=unheard, verdict=verdict)
    if ended:
        return _after_an_end(now - ended[0].at, scene, verdict, policy)
    if verdict is None:
        return Decision(action="go-on", reason="nothing is wrong")
    if verdict.certain:
        return _act_if_still_so(now, scene, verdict, policy, history)
    return _be_patient(now, scene, verdict, policy, history)


def _after_an_end(ago: float, scene: Scene, verdict: Verdict | None, policy: Policy) -> Decision:
    unclear = verdict is None or not verdict.names_a_culprit
    if unclear and ago < TIME_FOR_THE_CAUSE:
        return Decision(action="hold", reason="a rank has ended; its cause is not clear yet")
    return _act(scene, verdict, policy, why="")


def _waits_for_a_node(scene: Scene, verdict: Verdict | None) -> str:
    """Why nothing is done yet: a node is not heard, and what is seen elsewhere may be no more than
    a result of that. Its lease decides: it comes back, or it is lost, which is a verdict itself."""
    late = heard.late_nodes(scene)
    if not late and (exits.endings(scene) or not heard.unheard_ranks(scene)):
        return ""
    known = traits(verdict.slug) if verdict else None
    if known and (known.about_nodes or known.told_to_stop):
        return ""
    if verdict and _own_endings(scene, verdict, before=min((n.heard_at for n in late), default=0)):
        return ""
    names = ", ".join(node.name for node in scene.nodes if node.hearing != "heard")
    return f"not heard: {names}; what is seen on the other nodes may follow from that"


def _own_endings(scene: Scene, verdict: Verdict, *, before: float) -> bool:
    """All it names have ended by a fault of their own: killed, or while all nodes were heard."""
    own = {
        e.rank
        for e in exits.endings(heard.known_part(scene))
        if not e.mute and not e.consequence and (e.signal or e.at < before)
    }
    return bool(verdict.ranks) and own.issuperset(verdict.ranks)


def _act_if_still_so(
    now: float, scene: Scene, verdict: Verdict, policy: Policy, history: StallHistory
) -> Decision:
    """A process that was stopped together with us is not frozen."""
    since = stopped.stopped_since(scene, verdict.ranks)
    if since is not None and now - max(since, history.timers_since) < stopped.LONG_ENOUGH:
        return Decision(action="go-on", reason="the machine slept: all timers have been reset")
    return _act(scene, verdict, policy, why="")


def _be_patient(
    now: float, scene: Scene, verdict: Verdict, policy: Policy, history: StallHistory
) -> Decision:
    go_on = Decision(action="go-on", reason=verdict.reason, verdict=verdict)
    if traits(verdict.slug).never_acts or not verdict.names_a_culprit or not verdict.victims:
        return go_on
    late = verdict.ranks or verdict.victims  # of a path all that wait for it
    if why := _timeout_near(now, scene, verdict, policy, history):
        return _act(scene, verdict, policy, why=why)
    if policy.patience is None:
        return go_on
    if _says_more_by_itself(scene, late):
        return go_on
    waited = waited_for(now, scene, verdict, history)
    if not pace.steps(worlds.part_of(scene, late)):
        alive = max(scene.rank(rank).alive_at for rank in late)
        waited = min(waited, now - max(alive, history.timers_since))
    if waited < policy.patience:
        return go_on
    why = f"waited longer than --patience {policy.patience:g}"
    return _act(scene, verdict, policy, why=why)


def _says_more_by_itself(scene: Scene, late: Sequence[int]) -> bool:
    """Exit handlers may save and upload, and come to an end. One that was stopped only just is
    rank-frozen in a moment, or runs on."""
    leaving = all(exits.is_leaving(scene.rank(rank)) for rank in late)
    return leaving or stopped.any_only_just(scene, late)


def _timeout_near(
    now: float, scene: Scene, verdict: Verdict, policy: Policy, history: StallHistory
) -> str:
    """'the wait has lasted 588 s of its timeout of 600 s'; '' while there is time."""
    for wait in wait_limit.limited_waits(scene, verdict.victims, nccl=policy.nccl_aborts):
        since = max(min(wait.since, history.stalled_since or now), history.timers_since)
        if now - since >= wait_limit.act_after(wait.timeout):
            timeout = text.exact_duration(wait.timeout)
            return f"the wait has lasted {now - since:.0f} s, and its timeout is {timeout}"
    return ""


def waited_for(now: float, scene: Scene, verdict: Verdict, history: StallHistory) -> float:
    """For how long its victims have surely waited: since we saw them do so, or since they entered
    that collective, whichever is longer."""
    seen = waits.analyse(scene)
    victims = set(verdict.victims)
    entered = [scene.evidence_at - w.seconds for w in seen.waits if w.rank in victims]
    since = min([history.stalled_since or now, *entered])
    return now - max(since, history.timers_since)


def _act(scene: Scene, verdict: Verdict | None, policy: Policy, *, why: str) -> Decision:
    found = restart.consider(scene, verdict, policy)
    return Decision(
        action="restart" if found.allowed else "stop",
        reason=f"{why}: {found.reason}" if why else found.reason,
        verdict=found.loop or verdict,
        start_failure=found.start_failure,
    )
