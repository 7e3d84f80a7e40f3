"""A section took longer than the limit its author gave it.

What you see   `holdfast.deadline("forward", seconds=60)` ended the rank: exit code -6 (SIGABRT, 134
               in a shell), the stacks of all its threads in its log, and the stacks of all ranks in
               the run folder.
Why            The section was still running when its time was over: it hangs, it is slower than
               its author thought, or it waits in a collective for a rank that is late.
How to be sure holdfast looks at the stack and the flight recorder of every rank before the signal
               is sent. A rank that only waits for another is not blamed: the one it waits for is
               named, and where that one is.
Fix            Look at the line it sits in. A section that may honestly take so long (the first
               step compiles, the last saves) needs a larger limit.
Sources        https://docs.python.org/3/library/faulthandler.html
               https://man7.org/linux/man-pages/man7/signal.7.html (SIGABRT)
               torch/distributed/elastic/timer/api.py: expires, of torchrun's own watchdog
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.collectives import waits
from holdfast.analysis.job import phrases
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import exits, overruns
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(code="HOLD625", slug="limit-exceeded", traits=RunTraits(priority=400))


@FAULT.run
def its_time_is_over(scene: Scene) -> Verdict | None:
    over = overruns.overrun_ranks(scene)
    if not over:
        return None
    ranks = _guilty(scene, over)
    return FAULT.verdict(
        f"{_overrun(scene, over, ranks)}{_for_whom(scene, over, ranks)}",
        ranks=ranks,
        victims=exits.fallen(scene, ranks),
        certain=True,
        fix="look at that line; a section that may honestly take so long needs a larger limit",
        evidence=[
            Evidence(quote=waits.where_is(view), source="stack", rank=view.rank)
            for view in scene.ranks
            if view.rank in ranks or view in over
        ],
    )


def _guilty(scene: Scene, over: Sequence[RankView]) -> tuple[int, ...]:
    """Those of them who wait for nobody; else whom they wait for; nobody when that is not seen."""
    seen = waits.analyse(scene)
    waiting = {wait.rank for wait in seen.waits}
    own = tuple(view.rank for view in over if view.rank not in waiting)
    led = all(view.rank in seen.victims for view in over)
    return own or (seen.roots if led else ())


def _overrun(scene: Scene, over: Sequence[RankView], ranks: Sequence[int]) -> str:
    """'rank 2 (pid 4711) exceeded its limit "forward" by 0.1 s, in load() at data.py:88'"""
    guilty = [view for view in over if view.rank in ranks]
    first = min(guilty or over, key=lambda view: view.beat.limit_until if view.beat else 0.0)
    beat = first.beat
    assert beat is not None
    wait = waits.analyse(scene).of(first.rank)
    place = f"waiting in {wait.title}" if wait else waits.where_is(first)
    others = [view.rank for view in over if view is not first]
    also = f" ({text.ranks(others)} too)" if others else ""
    return (
        f'{phrases.who(scene, [first.rank])} exceeded its limit "{beat.limit_name}" by '
        f"{text.elapsed(scene.now - beat.limit_until)}{also}, {place}"
    )


def _for_whom(scene: Scene, over: Sequence[RankView], ranks: Sequence[int]) -> str:
    if not ranks:
        return "; whom it waits for can not be seen, so nobody is blamed"
    if set(ranks) <= {view.rank for view in over}:
        return ""
    place = waits.where_is(scene.rank(ranks[0]))
    return f" for {phrases.who(scene, ranks)}, which is {place}"


# --- in what is left of a job -------------------------------------------------------------------

RAN_OUT = FAULT.log_pattern(
    "ran-out",
    r"the limit on '(?P<section>[^']+)' has run out and (?P<who>.+?) \(pid (?P<pid>\d+)\)",
    anchors="has run out and ",
    example="holdfast: the limit on 'forward' has run out and rank 2 (pid 4711) is still in it",
    role=Role.CONFIRMATION,
)
ENDED_ITSELF = FAULT.log_pattern(
    "ended-itself",
    r"'(?P<section>[^']+)' has ended while we looked, so nothing is done",
    anchors="has ended while we looked",
    example="holdfast: 'forward' has ended while we looked, so nothing is done",
    role=Role.CONTEXT,
)


@FAULT.explain
def its_time_had_run_out(wreckage: Wreckage) -> Diagnosis | None:
    """That it was in the section is certain, that it was its own fault is not: it may wait."""
    spared = {one.fields["section"] for one in wreckage.seen(ENDED_ITSELF)}
    seen = [one for one in wreckage.seen(RAN_OUT) if one.fields["section"] not in spared]
    if not seen:
        return None
    first = seen[0]
    named = re.fullmatch(r"rank (\d+)", first.fields["who"])
    return FAULT.diagnosis(
        f"{first.fields['who']} was still in its section '{first.fields['section']}' when the "
        "limit on it ran out, and was ended for that",
        confidence=0.7,
        seen=seen,
        culprit=Culprit(rank=int(named[1]) if named else first.rank, pid=int(first.fields["pid"])),
        fix="look at the stacks that follow this line in the log: they show where it sat; a "
        "section that may honestly take so long needs a larger limit",
        unknown=("whether it waited there for another rank",),
    )
