"""Long work on one rank comes close to the group's timeout.

What you see   `Watchdog caught collective operation timeout` or `Timed out waiting …ms for recv`
               on all ranks but one, while that one was busy and well: it tokenised the data,
               saved or downloaded a model, evaluated.
Why            The others wait in a barrier or the next collective, and a collective has a timeout:
               600 s with NCCL, 1800 s with Gloo unless told otherwise. The work takes longer. torch
               then aborts and names a rank that waited.
How to be sure The one that did not wait shows processor time or I/O all along, and its stack is in
               that work. Here a longer timeout is the right cure, which it seldom is.
Fix            `init_process_group(timeout=timedelta(hours=2))`, or a group of its own with a long
               timeout for that one barrier, or do the work before the group is formed. holdfast
               ends such a wait at 80 % of the timeout, with the evidence, before torch would.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
               https://github.com/hiyouga/LlamaFactory/issues/360
               pytorch/pytorch torch/distributed/constants.py: default timeouts
"""

from __future__ import annotations

import re

from holdfast import text
from holdfast.analysis.job import stall
from holdfast.analysis.logs import blame
from holdfast.analysis.logs.patterns import long_work, watchdog
from holdfast.analysis.logs.patterns.all_patterns import TRACEBACK
from holdfast.analysis.logs.patterns.long_work import FIRST, SAVING, WORKING
from holdfast.analysis.logs.patterns.missing_rank import UNIQUE_ID
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Verdict

FAULT = Fault(
    code="HOLD610", slug="slow-rank-timeout", traits=RunTraits(priority=440, needs_stall=True)
)

SPEAK_AT = 0.5
"""of the timeout: early enough for a person to do something"""
ALIVE = 5.0
"""seconds: whoever moved since is at work"""


@FAULT.run
def its_work_outlasts_their_patience(scene: Scene) -> Verdict | None:
    held = stall.find(scene)
    if held is None or not held.timeout or held.seconds < SPEAK_AT * held.timeout:
        return None
    if any(scene.now - scene.rank(rank).alive_at > ALIVE for rank in held.roots):
        return None
    timeout = text.elapsed(held.timeout)
    return FAULT.verdict(
        f"{held.sentence()}; it is at work, but their timeout is {timeout}: holdfast ends the wait "
        f"at {text.elapsed(stall.END_AT * held.timeout)}, before torch would and blame a victim",
        ranks=held.roots,
        victims=held.victims,
        certain=False,
        fix="give that wait more time: `init_process_group(timeout=timedelta(hours=2))`",
        evidence=held.evidence(),
    )


# --- explain -------------------------------------------------------------------------------------

FAULT.log_patterns.extend(long_work.ALL)

TIMED_OUT = re.compile(r"(?i)socket timeout|wait timeout|timeout waiting|timed out")
DEFAULTS = (600, 1800)
"""seconds: NCCL's timeout since torch 2.2, and that of everything else and before"""
STRUCK = 90
"""seconds in which a timeout takes a job down: it is told, dumped, and sent round"""
EARLY = 4
"""collectives: so soon after the start, what keeps a rank is mostly data, models or caches"""
FIX = (
    "give that wait more time, `init_process_group(timeout=timedelta(hours=2))` (in a trainer: its "
    "ddp_timeout), or do that work before the group is formed, once, and let all read the result"
)


@FAULT.explain
def one_was_still_at_work(wreckage: Wreckage) -> Diagnosis | None:
    """The last thing said before the timeouts is work that takes long, and it was not over."""
    known = blame.of(wreckage)
    timeouts = [s for s in _timeouts(wreckage) if s.rank is None or s.rank in known.waited]
    if not timeouts or known.explained or known.disagreement:
        return None
    work = _last_work(wreckage, timeouts)
    if work is None:
        return None
    percent = int(work.fields.get("percent", "-1"))
    rank = work.rank if work.rank is not None else _only_zero_missing(wreckage)
    sure = 0.4 if percent == 100 else 0.75 if rank is not None else 0.6
    who = "one rank" if rank is None else f"rank {rank}"
    task = work.fields.get("work", "").strip().lower()
    victims = [r for r in known.waited if r != rank]
    return FAULT.diagnosis(
        f"{who} was still at work ({task}{f', {percent} %' if percent >= 0 else ''}) when the "
        f"timeout of {_clock(timeouts)} struck the ranks that waited for it: nothing failed, the "
        "work takes longer than the wait allows",
        confidence=sure,
        seen=(work, *timeouts),
        culprit=Culprit(rank=rank) if rank is not None else Culprit(what=f"the rank at: {task}"),
        victims=victims,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=() if work.rank is not None else ("which rank it was: that line carries no rank",),
    )


@FAULT.explain
def the_first_process_goes_first(wreckage: Wreckage) -> Diagnosis | None:
    """Hugging Face's `main_process_first`: all others wait until rank 0 has done its part."""
    behind = wreckage.seen(FIRST)
    timeouts = list(_timeouts(wreckage))
    if not behind or not timeouts or _last_work(wreckage, timeouts):
        return None
    if blame.of(wreckage).explained:
        return None
    return FAULT.diagnosis(
        f"the others waited behind `{behind[0].fields['call']}` for the first process to do its "
        "part, mostly tokenising or caching data, until the timeout struck",
        confidence=0.65,
        seen=(*behind[:1], *timeouts[:2]),
        culprit=Culprit(rank=0),
        victims=[r for r in blame.of(wreckage).waited if r != 0],
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("whether rank 0 still worked or was stuck: its own lines would tell",),
    )


@FAULT.explain
def the_first_never_put_its_id_there(wreckage: Wreckage) -> Diagnosis | None:
    """Before the first collective of a group: what keeps a rank that long there is mostly data."""
    held = [s for s in wreckage.seen(UNIQUE_ID) if TIMED_OUT.search(s.line.text)]
    if not held or blame.of(wreckage).explained or wreckage.seen(FIRST, WORKING, SAVING):
        return None
    owner = int(held[0].fields["owner"])
    return FAULT.diagnosis(
        f"the others waited for rank {owner} of the group before its first collective until the "
        "timeout: it may simply have been at work, on data or caches that it alone prepares",
        confidence=0.4,
        seen=held,
        culprit=Culprit(rank=owner),
        victims=[s.rank for s in held if s.rank is not None],
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=(f"what rank {owner} was doing: its own lines would tell",),
    )


def _timeouts(wreckage: Wreckage) -> tuple[Sighting, ...]:
    return wreckage.seen(
        watchdog.WATCHDOG, watchdog.WAIT_TIMEOUT, watchdog.GLOO_TIMEOUT, watchdog.STORE_GET,
        watchdog.STORE_WAIT, watchdog.STORE_BARRIER,
    )  # fmt: skip


def _last_work(wreckage: Wreckage, timeouts: list[Sighting]) -> Sighting | None:
    """Of a rank that did not wait itself; in one file, before the first timeout."""
    waited = {s.rank for s in timeouts if s.rank is not None}
    first = {s.line.source: s.order for s in reversed(timeouts)}
    found = [
        s
        for s in wreckage.seen(WORKING, SAVING)
        if s.rank not in waited and s.order < first.get(s.line.source, s.order + 1)
    ]
    return found[-1] if found else None


def _only_zero_missing(wreckage: Wreckage) -> int | None:
    known = blame.of(wreckage)
    return 0 if known.waited and known.members - known.waited == {0} else None


def _clock(timeouts: list[Sighting]) -> str:
    told = [s.fields.get("timeout_ms") or s.fields.get("ms") for s in timeouts]
    lengths = [int(ms) / 1000 for ms in told if ms]
    return text.elapsed(max(lengths)) if lengths else "the group"


@FAULT.explain
def its_bar_ended_with_the_clock(wreckage: Wreckage) -> Diagnosis | None:
    """Of the timeout itself nothing is left, but a bar of long work broke off just after one of
    torch's default timeouts, in the middle, with a traceback."""
    bars = [s for s in wreckage.seen(WORKING) if s.fields.get("percent") != "100"]
    cut = bars[-1] if bars else None
    if cut is None or _timeouts(wreckage) or blame.of(wreckage).explained:
        return None
    clock = next((c for c in DEFAULTS if 0 <= _elapsed(cut) - c < STRUCK), 0)
    if not clock or not wreckage.seen(TRACEBACK):
        return None
    task = cut.fields["work"].lower()
    return FAULT.diagnosis(
        f"long work ({task}, {cut.fields['percent']} %) broke off after {cut.fields['elapsed']}, "
        f"just when torch's default timeout of {text.elapsed(clock)} strikes: other ranks "
        "were waiting for it",
        confidence=0.55,
        seen=(cut,),
        culprit=Culprit(rank=cut.rank, what="" if cut.rank is not None else f"the rank at: {task}"),
        fix=FIX,
        unknown=("the timeout's own words: they are not in these lines",),
    )


def _elapsed(bar: Sighting) -> int:
    seconds = 0
    for part in bar.fields.get("elapsed", "").split(":"):
        seconds = seconds * 60 + int(part or 0)
    return seconds


@FAULT.explain
def all_but_the_first_waited_in_a_barrier(wreckage: Wreckage) -> Diagnosis | None:
    """Rank 0 alone is missing from a barrier: what only rank 0 does is prepare, save and log."""
    known = blame.of(wreckage)
    timeouts = list(wreckage.seen(watchdog.WATCHDOG, watchdog.WAIT_TIMEOUT))
    if known.explained or known.disagreement or _last_work(wreckage, timeouts):
        return None
    in_barrier = [s for s in timeouts if _is_barrier(s)]
    early = [s for s in timeouts if 0 < int(s.fields.get("seq") or 0) <= EARLY]
    if not in_barrier or 0 in known.waited | known.lost:
        return None
    alone = _only_zero_missing(wreckage) is not None
    return FAULT.diagnosis(
        f"{blame.plain(known.waited) if known.waited else 'a rank'} waited in a barrier until the "
        "timeout, and rank 0 is not among those who complain: work that only rank 0 does (data, "
        "caches, a save) may simply have taken longer than the wait allows",
        confidence=0.5 if alone and early else 0.45 if alone or early else 0.3,
        seen=in_barrier,
        culprit=Culprit(rank=0) if alone else Culprit(),
        victims=known.waited,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("what rank 0 was doing: its log or stack would tell", *blame.unknown(wreckage)),
    )


def _is_barrier(seen: Sighting) -> bool:
    """torch makes NCCL's barrier of an all_reduce of one element."""
    op = seen.fields.get("op", "")
    return op == "BARRIER" or (op == "ALLREDUCE" and seen.fields.get("numel_in") == "1")
