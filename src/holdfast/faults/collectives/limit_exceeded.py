"""A section took longer than its deadline.

What you see   `holdfast.deadline("forward", seconds=60)` ended the rank: exit code -6 (SIGABRT, 134
               in a shell), the stacks of all its threads in its log, and the stacks of all ranks
               in the run folder.
Why            The section was still running at its deadline: it hangs, it is slower than expected,
               or it waits in a collective for a rank that is late.
How to be sure holdfast reads the stack and the flight recorder of every rank before it sends the
               signal. A rank that only waits for another is not blamed: holdfast names the rank it
               waits for, and where that one is.
Fix            Look at the line it is in. A section that can legitimately take so long (the first
               step compiles, the last one saves) needs a longer deadline.
Known limits   Without a readable flight recorder or stack, which rank it waits for is unknown, and
               no rank is blamed. A rank held by a debugger is not ended.
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

FAULT = Fault(
    code="HOLD625",
    slug="limit-exceeded",
    traits=RunTraits(priority=400),
    related=("rank-stuck", "slow-rank-timeout", "timer-as-timeout"),
)


@FAULT.run
def section_passed_its_deadline(scene: Scene) -> Verdict | None:
    over = overruns.overrun_ranks(scene)
    if not over:
        return None
    ranks = _culprits(scene, over)
    return FAULT.verdict(
        f"{_overrun(scene, over, ranks)}{_awaited(scene, over, ranks)}",
        ranks=ranks,
        victims=exits.fallen(scene, ranks),
        certain=True,
        fix="look at that line; give the section a longer deadline if it may take that long",
        evidence=[
            Evidence(quote=waits.where_is(view), source="stack", rank=view.rank)
            for view in scene.ranks
            if view.rank in ranks or view in over
        ],
    )


def _culprits(scene: Scene, over: Sequence[RankView]) -> tuple[int, ...]:
    """Those that wait for no rank; else the ranks they wait for; none when that is unknown."""
    seen = waits.analyse(scene)
    waiting = {wait.rank for wait in seen.waits}
    own = tuple(view.rank for view in over if view.rank not in waiting)
    led = all(view.rank in seen.victims for view in over)
    return own or (seen.roots if led else ())


def _overrun(scene: Scene, over: Sequence[RankView], ranks: Sequence[int]) -> str:
    """'rank 2 (pid 4711) exceeded the deadline of "forward" by 0.1 s, in load() at data.py:88'"""
    culprits = [view for view in over if view.rank in ranks]
    first = min(culprits or over, key=lambda view: view.beat.limit_until if view.beat else 0.0)
    beat = first.beat
    assert beat is not None
    wait = waits.analyse(scene).of(first.rank)
    place = f"waiting in {wait.title}" if wait else waits.where_is(first)
    others = [view.rank for view in over if view is not first]
    also = f" ({text.ranks(others)} too)" if others else ""
    return (
        f'{phrases.who(scene, [first.rank])} exceeded the deadline of "{beat.limit_name}" by '
        f"{text.elapsed(scene.now - beat.limit_until)}{also}, {place}"
    )


def _awaited(scene: Scene, over: Sequence[RankView], ranks: Sequence[int]) -> str:
    if not ranks:
        return "; which rank it waits for is unknown, so no rank is blamed"
    if set(ranks) <= {view.rank for view in over}:
        return ""
    place = waits.where_is(scene.rank(ranks[0]))
    return f" for {phrases.who(scene, ranks)}, which is {place}"


# --- in what is left of a job -------------------------------------------------------------------

RAN_OUT = FAULT.log_pattern(
    "ran-out",
    r"deadline '(?P<section>[^']+)' passed and (?P<who>.+?) \(pid (?P<pid>\d+)\)",
    anchors="' passed and ",
    example="holdfast> deadline 'forward' passed and rank 2 (pid 4711) is still in that section",
    role=Role.CONFIRMATION,
)
ENDED_ITSELF = FAULT.log_pattern(
    "ended-itself",
    r"section '(?P<section>[^']+)' ended meanwhile, so the process is not killed",
    anchors="ended meanwhile, so the process",
    example="holdfast> section 'forward' ended meanwhile, so the process is not killed",
    role=Role.CONTEXT,
)


@FAULT.explain
def deadline_message_in_the_log(wreckage: Wreckage) -> Diagnosis | None:
    """It was in the section, but may only have waited there for another rank."""
    spared = {one.fields["section"] for one in wreckage.seen(ENDED_ITSELF)}
    seen = [one for one in wreckage.seen(RAN_OUT) if one.fields["section"] not in spared]
    if not seen:
        return None
    first = seen[0]
    named = re.fullmatch(r"rank (\d+)", first.fields["who"])
    return FAULT.diagnosis(
        f"{first.fields['who']} was still in section '{first.fields['section']}' at its deadline "
        "and was ended",
        confidence=0.7,
        seen=seen,
        culprit=Culprit(rank=int(named[1]) if named else first.rank, pid=int(first.fields["pid"])),
        fix="look at the stacks that follow this line in the log; give the section a longer "
        "deadline if it may take that long",
        unknown=("whether it waited there for another rank",),
    )
