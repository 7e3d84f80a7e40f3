"""Long work on one rank comes close to the group's timeout.

What you see   `Watchdog caught collective operation timeout` or `Timed out waiting …ms for recv`
               on all ranks but one, while that one was busy and healthy: it tokenised the data,
               saved or downloaded a model, evaluated.
Why            The others wait in a barrier or the next collective, and a collective has a timeout:
               600 s with NCCL, 1800 s with Gloo unless configured otherwise. The work takes longer.
               torch then aborts and names a rank that waited.
How to be sure The rank that did not wait used CPU time or did I/O all along, and its stack is in
               that work. Here a longer timeout is the right fix, which it seldom is.
Fix            `init_process_group(timeout=timedelta(hours=2))`, or a separate group with a long
               timeout for that one barrier, or do the work before the group is formed. holdfast
               ends such a wait a few seconds before its timeout, with the evidence: torch would
               abort and name a rank that waited.
Known limits   In a log, work is recognised by common progress bars and messages (tokenising,
               downloading, saving, evaluating); a script that logs nothing while it works looks
               like rank-stuck.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
               https://github.com/hiyouga/LlamaFactory/issues/360
               pytorch/pytorch torch/distributed/constants.py: default timeouts
"""

from __future__ import annotations

import re

from holdfast import text
from holdfast.analysis.job import stall, wait_limit
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
    code="HOLD610",
    slug="slow-rank-timeout",
    traits=RunTraits(priority=440, needs_stall=True),
    related=("rank-stuck", "slow-rank", "clocks-inconsistent"),
)

REPORT_AT = 0.5
"""of the timeout: early enough for a person to act"""
ALIVE = 5.0
"""seconds: a rank that was active since then is working"""


@FAULT.run
def work_approaches_the_timeout(scene: Scene) -> Verdict | None:
    held = stall.find(scene)
    if held is None or not held.timeout or held.seconds < REPORT_AT * held.timeout:
        return None
    if held.wait and not wait_limit.torch_ends(scene.rank(held.wait.rank), held.wait):
        return None  # nothing happens at that timeout
    if any(scene.now - scene.rank(rank).alive_at > ALIVE for rank in held.roots):
        return None
    timeout, acts = text.elapsed(held.timeout), wait_limit.act_after(held.timeout)
    return FAULT.verdict(
        f"{held.sentence()}; it is working, but their timeout is {timeout}: holdfast will end the "
        f"wait after {text.elapsed(acts)}, before torch aborts and blames a rank that only waited",
        ranks=held.roots,
        victims=held.victims,
        certain=False,
        fix="raise the timeout: `init_process_group(timeout=timedelta(hours=2))`",
        evidence=held.evidence(),
    )


# --- explain -------------------------------------------------------------------------------------

FAULT.log_patterns.extend(long_work.ALL)

TIMED_OUT = re.compile(r"(?i)socket timeout|wait timeout|timeout waiting|timed out")
DEFAULTS = (600, 1800)
"""seconds: NCCL's timeout since torch 2.2, and that of everything else and before"""
TEARDOWN = 90
"""seconds from a timeout to the end of the job: it is logged, dumped and propagated"""
EARLY = 4
"""collectives: so soon after the start, a rank is mostly busy with data, models or caches"""
FIX = (
    "raise the timeout, `init_process_group(timeout=timedelta(hours=2))` (in a trainer: its "
    "ddp_timeout), or do that work once before the group is formed and let all ranks read the "
    "result"
)


@FAULT.explain
def rank_was_still_working(wreckage: Wreckage) -> Diagnosis | None:
    """The last message before the timeouts is about long work, and the work was not done."""
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
        f"{who} was still working ({task}{f', {percent} %' if percent >= 0 else ''}) when the "
        f"ranks that waited for it reached the timeout of {_timeout(timeouts)}: nothing failed, "
        "the work takes longer than the timeout allows",
        confidence=sure,
        seen=(work, *timeouts),
        culprit=Culprit(rank=rank) if rank is not None else Culprit(what=f"the rank doing: {task}"),
        victims=victims,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=() if work.rank is not None else ("which rank it was: that line has no rank",),
    )


@FAULT.explain
def ranks_waited_in_main_process_first(wreckage: Wreckage) -> Diagnosis | None:
    """Hugging Face's `main_process_first`: all others wait until rank 0 has done its part."""
    behind = wreckage.seen(FIRST)
    timeouts = list(_timeouts(wreckage))
    if not behind or not timeouts or _last_work(wreckage, timeouts):
        return None
    if blame.of(wreckage).explained:
        return None
    return FAULT.diagnosis(
        f"the others waited in `{behind[0].fields['call']}` until the timeout for the first "
        "process to do its part, mostly tokenising or caching data",
        confidence=0.65,
        seen=(*behind[:1], *timeouts[:2]),
        culprit=Culprit(rank=0),
        victims=[r for r in blame.of(wreckage).waited if r != 0],
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("whether rank 0 was still working or stuck: its own log would show it",),
    )


@FAULT.explain
def unique_id_never_came(wreckage: Wreckage) -> Diagnosis | None:
    """Before the first collective of a group: a rank that late is mostly busy with data."""
    held = [s for s in wreckage.seen(UNIQUE_ID) if TIMED_OUT.search(s.line.text)]
    if not held or blame.of(wreckage).explained or wreckage.seen(FIRST, WORKING, SAVING):
        return None
    owner = int(held[0].fields.get("owner", 0))
    return FAULT.diagnosis(
        f"the others waited until the timeout for rank {owner} of the group to reach its first "
        "collective: it may simply have been busy with data or caches that only it prepares",
        confidence=0.4,
        seen=held,
        culprit=Culprit(rank=owner),
        victims=[s.rank for s in held if s.rank is not None],
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=(f"what rank {owner} was doing: its own log would show it",),
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


def _timeout(timeouts: list[Sighting]) -> str:
    told = [s.fields.get("timeout_ms") or s.fields.get("ms") for s in timeouts]
    lengths = [int(ms) / 1000 for ms in told if ms]
    return text.elapsed(max(lengths)) if lengths else "the group"


@FAULT.explain
def progress_bar_stopped_at_a_default_timeout(wreckage: Wreckage) -> Diagnosis | None:
    """The timeout's own message is missing, but a progress bar broke off half-way, just after one
    of torch's default timeouts, with a traceback."""
    bars = [s for s in wreckage.seen(WORKING) if s.fields.get("percent") != "100"]
    cut = bars[-1] if bars else None
    if cut is None or _timeouts(wreckage) or blame.of(wreckage).explained:
        return None
    timeout = next((one for one in DEFAULTS if 0 <= _elapsed(cut) - one < TEARDOWN), 0)
    if not timeout or not wreckage.seen(TRACEBACK):
        return None
    task = cut.fields["work"].lower()
    return FAULT.diagnosis(
        f"long work ({task}, {cut.fields['percent']} %) broke off after {cut.fields['elapsed']}, "
        f"just after torch's default timeout of {text.elapsed(timeout)}: other ranks were probably "
        "waiting for it",
        confidence=0.55,
        seen=(cut,),
        culprit=Culprit(
            rank=cut.rank, what="" if cut.rank is not None else f"the rank doing: {task}"
        ),
        fix=FIX,
        unknown=("whether it was a timeout: its message is not in these lines",),
    )


def _elapsed(bar: Sighting) -> int:
    seconds = 0
    for part in bar.fields.get("elapsed", "").split(":"):
        seconds = seconds * 60 + int(part or 0)
    return seconds


@FAULT.explain
def all_but_rank_0_waited_in_a_barrier(wreckage: Wreckage) -> Diagnosis | None:
    """Only rank 0 is missing from a barrier: rank 0 alone prepares, saves and logs."""
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
        f"{text.ranks(known.waited) if known.waited else 'a rank'} waited in a barrier until the "
        "timeout, and rank 0 logged no error: work that only rank 0 does (data, caches, a save) "
        "may simply have taken longer than the timeout allows",
        confidence=0.5 if alone and early else 0.45 if alone or early else 0.3,
        seen=in_barrier,
        culprit=Culprit(rank=0) if alone else Culprit(),
        victims=known.waited,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=(
            "what rank 0 was doing: its log or stack would show it",
            *blame.unknown(wreckage),
        ),
    )


def _is_barrier(seen: Sighting) -> bool:
    """torch implements NCCL's barrier as an all_reduce of one element."""
    op = seen.fields.get("op", "")
    return op == "BARRIER" or (op == "ALLREDUCE" and seen.fields.get("numel_in") == "1")
