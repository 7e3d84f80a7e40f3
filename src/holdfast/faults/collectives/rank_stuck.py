"""One rank never arrives at a collective, and all others wait for it.

What you see   Nothing: no step, no output, no error. After the group's timeout (10 minutes with
               NCCL, 30 with Gloo) the ranks that *waited* abort, and the log shows only them.
Why            A collective completes when every member has entered it. One rank is somewhere else:
               in a lock, a read from dead storage, an endless loop, a debugger's prompt, a long
               save. All others wait for it silently. Or its GPU is: a kernel that never ends
               keeps it from a collective that its script asked for long ago.
How to be sure holdfast compares the ranks' flight recorders to see which ranks entered the
               collective and which did not, and takes the stack of the missing one from outside.
               `py-spy dump --pid PID` shows the same. CPU time and bytes read and written tell
               whether it is stuck or busy. `holdfast explain --ras` asks NCCL itself (2.28.7 and
               newer) which processes answer, and how many collectives each has launched.
Fix            Look at the line it is in. If the work takes long by design, do not make the others
               wait for it (save in the background), or give the group a longer timeout. holdfast
               ends the wait a few seconds before that timeout, or after `--patience S`.
Known limits   Without flight recorder or stack of that rank holdfast can only say which ranks
               waited. A stack is one moment: it does not show for how long the rank was there.
               Which GPU never came shows only with TORCH_NCCL_ENABLE_TIMING=1, which `run` sets
               unless it is set already. Collectives inside CUDA graphs are never recorded: there
               stacks alone decide, and the one rank that is not where all others wait is called
               likely, never certain.
Sources        torch/csrc/distributed/c10d/FlightRecorder.hpp: sequence numbers per group
               https://pytorch.org/blog/flight-recorder-a-new-lens-for-understanding-nccl-watchdog-timeouts/
               https://github.com/pytorch/pytorch/pull/118582
               NVIDIA/nccl src/ras/client_support.cc, docs/userguide/source/troubleshooting/ras.rst
               NVIDIA/nvidia-resiliency-ext: fault_tolerance/rank_monitor_server.py (heartbeats)
               ray-project/ray: python/ray/train/v2/_internal/exceptions.py (missing ranks)
"""

from __future__ import annotations

import msgspec

from holdfast import text
from holdfast.analysis.collectives import stacks
from holdfast.analysis.drill.injection import (
    NO_OTHER_RANK,
    BreakInside,
    CannotInject,
    Injection,
    Then,
)
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import gpu_stall, pace, phrases, stall, unrecorded
from holdfast.analysis.job.unrecorded import OddOne
from holdfast.analysis.logs import (
    blame,
    horovod_stall,
    odd_ranks,
    ras_evidence,
    stack_positions,
    suspects,
    trainer_stalls,
)
from holdfast.analysis.logs.patterns import launchers, missing_rank, trainers, watchdog
from holdfast.analysis.logs.patterns.missing_rank import HOROVOD_OLD, HOROVOD_READY, UNIQUE_ID
from holdfast.analysis.logs.stack_positions import StackPositions
from holdfast.analysis.logs.suspects import Suspect
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD606",
    slug="rank-stuck",
    traits=RunTraits(priority=460, needs_stall=True, general=True, notice_name="waiting"),
    related=("slow-rank-timeout", "rank-frozen", "gil-held", "driver-hang"),
)

SHOWN = 8
"""ranks whose place fits into a sentence"""


@FAULT.run
def others_wait_for_it(scene: Scene) -> Verdict | None:
    held = stall.find(scene)
    if held is None:
        return None
    gpu = gpu_stall.sentence(held)
    pid, there = scene.rank(held.roots[0]).pid, phrases.on_node(scene, held.roots[0])
    return FAULT.verdict(
        gpu or held.sentence(),
        ranks=held.roots,
        one_of=held.one_of,
        victims=held.victims,
        certain=False,
        fix=f"see which kernel runs: `cuda-gdb -p {pid} -ex 'info cuda kernels' -batch`{there}"
        if gpu
        else f"see which line it is in: `py-spy dump --pid {pid}`{there}",
        fix_after_end="",
        evidence=[*(gpu_stall.evidence(held) if gpu else ()), *held.evidence()],
    )


@FAULT.run
def collectives_run_in_cuda_graphs(scene: Scene) -> Verdict | None:
    """What cannot be seen is said: no recorder shows where the ranks are."""
    if not unrecorded.is_blind(scene):
        return None
    if odd := unrecorded.odd_one(scene):
        return _likely_waited_for(scene, odd)
    living = [view for view in scene.ranks if view.death is None]
    idle = scene.now - pace.last_progress(scene)
    places = "; ".join(f"rank {v.rank} is {stall.place(v)}" for v in living[:SHOWN])
    return FAULT.verdict(
        f"no step for {text.elapsed(idle)}, and which rank the others wait for cannot be seen: the "
        f"job runs its collectives in CUDA graphs, which torch does not record; {places}",
        ranks=(),
        victims=[view.rank for view in living],
        certain=False,
        fix="compare the ranks' stacks: "
        + phrases.pid_command(scene, "py-spy dump --pid", [living[0].rank]),
        fix_after_end="",
        evidence=[
            Evidence(quote=stall.place(view), source="stack", rank=view.rank) for view in living
        ],
    )


def _likely_waited_for(scene: Scene, odd: OddOne) -> Verdict:
    """Never more than a notice: it may be what the user means it to do."""
    pid, there = odd.view.pid, phrases.on_node(scene, odd.view.rank)
    verdict = FAULT.verdict(
        odd.sentence(scene),
        ranks=[odd.view.rank],
        victims=[view.rank for view in odd.others],
        certain=False,
        fix=f"see which line it is in: `py-spy dump --pid {pid}`{there}",
        fix_after_end="",
        evidence=[
            Evidence(quote=stall.place(view), source="stack", rank=view.rank)
            for view in (odd.view, *odd.others)
        ],
    )
    return msgspec.structs.replace(verdict, likely=True)


# --- explain -------------------------------------------------------------------------------------


FAULT.log_patterns.extend((*missing_rank.ALL, *trainers.STALLS))

FIX = (
    "find the line that rank is in (a lock, a read, a loop, a save) and fix that; a longer timeout "
    "only makes the wait longer. `holdfast run` takes every rank's stack when this happens"
)


@FAULT.explain
def others_waited_for_one_rank(wreckage: Wreckage) -> Diagnosis | None:
    suspect = suspects.find(wreckage)
    if suspect is None or suspect.ended or suspect.how == "inside":
        return None
    # What is near an unheard rank has a recorder, and may have come.
    unheard = [r for r in suspect.ranks if r not in wreckage.recorders]
    ranks = text.ranks(unheard if suspect.how == "unheard" and unheard else suspect.ranks)
    who = f"one or more of {ranks}" if suspect.one_of else ranks
    if suspect.one_of and len(unheard) == 1:
        who = f"{ranks}, or a rank that it waited for,"
    how = {
        "absent": _behind(wreckage, suspect),
        "named": "torch names it",
        "mute": f"{ranks} left no log, stack or recorder",
        "unheard": f"{ranks} logged nothing about it, {_so(suspect)}",
    }[suspect.how]
    where = _where(wreckage, suspect)
    return FAULT.diagnosis(
        f"{who} never {_came(suspect)} {_title(suspect)}, in which "
        f"{_waited(suspect)} until the timeout: {how}{where}; no rank reported an error",
        confidence=_confidence(wreckage, suspect),
        evidence=blame.positions(wreckage),
        seen=suspect.seen,
        culprit=suspects.culprit_on(wreckage, suspect),
        victims=suspect.victims,
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=(*suspects.doubts(wreckage, suspect), *blame.unknown(wreckage, *suspect.ranks[:2])),
    )


@FAULT.explain
def all_ranks_entered_and_it_never_ended(wreckage: Wreckage) -> Diagnosis | None:
    """Scripts run ahead of their GPUs: which GPU never came to it, recorders do not show."""
    suspect = suspects.find(wreckage)
    if suspect is None or suspect.how != "inside":
        return None
    return FAULT.diagnosis(
        f"{text.ranks(suspect.ranks)} entered {_title(suspect)}, all its members did, and it never "
        f"ended; {_waited(suspect)} behind them. The GPU of one of them never came to it (a kernel "
        "that does not end), or the network between them lost it",
        confidence=0.4,
        evidence=blame.positions(wreckage),
        seen=suspect.seen,
        culprit=suspect.culprit,
        victims=suspect.victims,
        fix="see which kernel each of these ranks runs (`cuda-gdb`, `py-spy dump --native`), and "
        "start again with TORCH_NCCL_ENABLE_TIMING=1: then the recorders show which GPU came",
        next="export TORCH_NCCL_ENABLE_TIMING=1",
        ruled_out=blame.ruled_out(wreckage),
        unknown=("which of these ranks it was: the recorders show scripts, not GPUs",),
    )


@FAULT.explain
def too_many_dumps_are_lost(wreckage: Wreckage) -> Diagnosis | None:
    """What is left fits too many ranks: what is seen is said, and none is blamed."""
    suspect = suspects.too_many(wreckage)
    if suspect is None:
        return None
    known = blame.of(wreckage)
    lost = known.members - {one.rank for one in wreckage.ranks if one.dumped}
    others = " and other collectives" if len(known.census.standstills) > 1 else ""
    return FAULT.diagnosis(
        f"{text.ranks(known.waited)} waited in {_title(suspect)}{others} until the timeout, and "
        f"for which rank cannot be told: of {text.ranks(lost)} ({len(lost)} of "
        f"{len(known.members)}) no flight-recorder dump was given, and it may be any of "
        f"{text.counted(len(suspect.ranks), 'rank')}",
        confidence=0.35,
        evidence=blame.positions(wreckage),
        seen=suspect.seen,
        culprit=Culprit(),
        victims=known.waited,
        fix="look for the dumps that are missing (TORCH_NCCL_DEBUG_INFO_TEMP_FILE on the machines "
        "of those ranks) and give them all; `holdfast run` reads every rank before the job ends",
        ruled_out=blame.ruled_out(wreckage),
        unknown=(f"where {text.ranks(lost)} were: no dump was given",),
    )


def _confidence(wreckage: Wreckage, suspect: Suspect) -> float:
    if suspect.how == "absent":
        alone = suspect.whole and len(suspect.ranks) == 1
        return 0.65 if not alone else 0.85 if _would_have_spoken(wreckage, suspect) else 0.75
    if suspect.heeded_sigterm and suspect.how == "unheard":
        return 0.6
    return {"named": 0.7, "mute": 0.3, "unheard": 0.45}[suspect.how]


def _so(suspect: Suspect) -> str:
    """What a rank that says nothing may be doing."""
    if suspect.heeded_sigterm:
        return "so it hung: its process existed, and took the launcher's SIGTERM"
    return "so it hung or its process was stopped" + ("" if suspect.alive else " or killed")


def _would_have_spoken(wreckage: Wreckage, suspect: Suspect) -> bool:
    """By dumps alone it did not arrive; the reason may be in a log that was not given."""
    remains = wreckage.rank(suspect.ranks[0])
    if blame.has_log(wreckage, suspect.ranks[0]) or (remains and remains.stack):
        return True
    one_log_of_all = not any(r.logs for r in wreckage.ranks)
    return one_log_of_all and bool(suspect.seen)


def _came(suspect: Suspect) -> str:
    """A script may have asked for it, long before its GPU would have come to it."""
    place = suspect.place
    asked = place and [r for r in suspect.ranks if place.last.get(r, 0) >= place.sequence]
    return "came, on its GPU, to" if asked else "entered"


def _title(suspect: Suspect) -> str:
    if suspect.place is None and suspect.how == "absent":
        return "the send or recv"
    return suspect.place.title if suspect.place else "the collective"


def _waited(suspect: Suspect) -> str:
    return f"{text.ranks(suspect.victims)} waited" if suspect.victims else "the others waited"


def _behind(wreckage: Wreckage, suspect: Suspect) -> str:
    several = len(suspect.ranks) > 1
    if _came(suspect) != "entered":
        return f"the {'scripts' if several else 'script'} asked for it, the GPU did not come"
    if several:
        return "their flight recorders end before it"
    return f"its flight recorder ends before it{_last(wreckage, suspect)}"


def _last(wreckage: Wreckage, suspect: Suspect) -> str:
    last = blame.of(wreckage).census.last_seen.get(suspect.ranks[0], "")
    return f", with {last}" if last else ""


def _where(wreckage: Wreckage, suspect: Suspect) -> str:
    remains = wreckage.rank(suspect.ranks[0])
    if remains is None or remains.stack is None:
        return ""
    place = stacks.where(remains.stack)
    return f"; it was {place}" if place else ""


@FAULT.explain
def horovod_names_missing_ranks(wreckage: Wreckage) -> Diagnosis | None:
    """Each missing rank, with the tensors it did not submit."""
    seen = wreckage.seen(launchers.HOROVOD_MISSING, HOROVOD_OLD)
    missing = horovod_stall.missing_tensors(wreckage)
    if not missing or blame.of(wreckage).explained:
        return None
    several = len(set(map(tuple, missing.values()))) > 1
    ranks = sorted(missing)
    return FAULT.diagnosis(
        f"Horovod waited for {text.ranks(ranks)}, which did not submit the tensors that the "
        f"others did ({', '.join(missing[ranks[0]][:2]) or 'not named'})",
        confidence=0.4 if several else 0.7,
        seen=seen,
        culprit=odd_ranks.named(ranks),
        victims=[r for r in blame.of(wreckage).members if r not in ranks],
        fix="find out where that rank is; if it is running, make it submit the same tensors as the "
        "others",
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, *ranks[:2]),
    )


@FAULT.explain
def horovod_lists_ready_ranks_only(wreckage: Wreckage) -> Diagnosis | None:
    """The report says that ranks are missing, and at most which ones are not."""
    seen = wreckage.seen(HOROVOD_READY) or wreckage.seen(launchers.HOROVOD_MISSING)
    if not seen or horovod_stall.missing_tensors(wreckage) or blame.of(wreckage).explained:
        return None
    ready = horovod_stall.ready_ranks(wreckage)
    came = frozenset[int]().union(*ready)
    late = sorted(blame.of(wreckage).members - came) if came else []
    who = text.ranks(late) if late else "the other ranks"
    return FAULT.diagnosis(
        f"Horovod waited for {who}, which did not submit what "
        f"{text.ranks(came) if came else 'the ready ranks'} did",
        confidence=0.35 if len(ready) > 1 else 0.65 if len(late) == 1 else 0.4,
        seen=seen,
        culprit=Culprit(rank=late[0]) if len(late) == 1 else Culprit(),
        victims=came,
        fix="find out where those ranks are; if they run, make them submit the same tensors",
        ruled_out=blame.ruled_out(wreckage),
        unknown=()
        if len(late) == 1
        else ("which ranks are missing: Horovod lists only the ready ones",),
    )


@FAULT.explain
def monitor_of_trainer_reported_it(wreckage: Wreckage) -> Diagnosis | None:
    stall_seen = trainer_stalls.find(wreckage)
    if stall_seen is None:
        return None
    ranks = stall_seen.ranks
    own = blame.of(wreckage).own
    return FAULT.diagnosis(
        f"{stall_seen.said}; the others waited for {text.ranks(ranks)}"
        if ranks
        else f"{stall_seen.said}; the job hung, and which rank the others waited for is not shown",
        confidence=0.4 if own else stall_seen.confidence,
        seen=stall_seen.seen,
        culprit=odd_ranks.named(list(ranks)) if ranks else Culprit(),
        victims=[rank for rank in stall_seen.noticed if rank not in ranks],
        fix=FIX,
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, *ranks[:2])
        if ranks
        else ("which rank it was: ranks that wait for another one look the same",),
    )


@FAULT.explain
def only_waiting_ranks_logged(wreckage: Wreckage) -> Diagnosis | None:
    """Only ranks that waited wrote something: all that follows is that another did not arrive."""
    known = blame.of(wreckage)
    timeouts = wreckage.seen(
        watchdog.WATCHDOG, watchdog.WAIT_TIMEOUT, watchdog.GLOO_TIMEOUT, watchdog.STORE_GET
    )
    held = wreckage.seen(UNIQUE_ID)
    if known.explained or known.disagreement or suspects.find(wreckage):
        return None
    if suspects.too_many(wreckage):
        return None
    if held and not wreckage.seen(watchdog.CLIENT_TIMEOUT):
        return _waited_for_the_unique_id(wreckage)
    if not timeouts or known.all_inside or known.census.roots:
        return None
    place = f" in {known.place.title}" if known.place else ""
    waited = f"{text.ranks(known.waited)} waited" if known.waited else "a rank waited"
    return FAULT.diagnosis(
        f"{waited}{place} until the timeout; these lines do not show which rank was missing, since "
        "only ranks that waited write them",
        confidence=0.35,
        seen=timeouts,
        culprit=Culprit(),
        victims=known.waited,
        fix="look at the logs and the last step of the ranks that did not print this message; "
        "`holdfast run` names the missing rank and takes its stack",
        ruled_out=blame.ruled_out(wreckage),
        unknown=(
            "which rank was late: these lines come from ranks that waited",
            *blame.unknown(wreckage),
        ),
    )


def _waited_for_the_unique_id(wreckage: Wreckage) -> Diagnosis | None:
    """NCCL's start: the first member of a group puts an id into the store, the others fetch it."""
    held = wreckage.seen(UNIQUE_ID)
    if any("reset" in s.line.text or "closed" in s.line.text for s in held):
        return None  # the store is gone: a different fault
    owner = int(held[0].fields.get("owner", 0))
    waiters = {s.rank for s in held if s.rank is not None} - {owner}
    return FAULT.diagnosis(
        f"rank {owner} of the group never reached its first NCCL collective, where it puts the "
        "communicator's id into the store; the others waited for that id until the timeout",
        confidence=0.45,
        seen=held,
        culprit=Culprit(rank=owner),
        victims=waiters,
        fix=f"read the log of rank {owner}: it was still preparing data before its first "
        "collective, or it exited",
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, owner),
    )


@FAULT.explain
def stacks_show_a_rank_elsewhere(wreckage: Wreckage) -> Diagnosis | None:
    """Stacks without recorders: of a running job under torchrun, or taken by py-spy."""
    stood = stack_positions.find(wreckage)
    if stood is None or wreckage.recorders or blame.of(wreckage).explained:
        return None
    ranks = sorted(stood.elsewhere)
    one = len(ranks) == 1
    where = stacks.where(stood.elsewhere[ranks[0]]) or "somewhere its stack does not show"
    places = " and ".join(sorted(set(stood.waiting.values())))
    return FAULT.diagnosis(
        f"{text.ranks(ranks)} {'is' if one else 'are'} {where}, while "
        f"{text.ranks(stood.waiting)} {'waits' if len(stood.waiting) == 1 else 'wait'} in "
        f"{places}, which {_needs_all(stood)}",
        confidence=0.35 if stood.doubt else 0.6 if one and stood.whole else 0.4,
        evidence=[
            Evidence(quote=stacks.where(stood.elsewhere[rank]), source="stack", rank=rank)
            for rank in ranks
        ]
        + [Evidence(quote=f"in {place}", source="stack", rank=rank)
           for rank, place in sorted(stood.waiting.items())],
        culprit=odd_ranks.named(ranks),
        victims=stood.waiting,
        fix=FIX,
        next=_stack_of(wreckage, ranks[0]),
        unknown=(
            *((f"{text.ranks(stood.waiting)}: {stood.doubt}",) if stood.doubt else ()),
            "which collective the others are in: no flight recorder could be read",
            *(() if stood.whole else ("where the other ranks are: no stacks of them were given",)),
        ),
    )  # fmt: skip


def _needs_all(stood: StackPositions) -> str:
    if stack_positions.GPU_WAIT in stood.waiting.values():
        return "ends only when every rank has come to the collectives that their GPUs are in"
    return "needs all ranks"


@FAULT.explain
def rank_was_elsewhere_when_interrupted(wreckage: Wreckage) -> Diagnosis | None:
    """A person stopped the job, perhaps as it hung: the tracebacks show where each rank was."""
    stood = stack_positions.at_interrupt(wreckage)
    if stood is None or blame.of(wreckage).own:
        return None
    ranks = sorted(stood.elsewhere)
    return FAULT.diagnosis(
        f"when the job was interrupted, {text.ranks(ranks)} "
        f"{text.plural(ranks, 'was', 'were')} {stacks.where(stood.elsewhere[ranks[0]])}, and "
        f"{text.ranks(stood.waiting)} in {' and '.join(sorted(set(stood.waiting.values())))}, "
        "which needs all ranks: if the job had stopped making progress, this is why",
        confidence=0.45,
        evidence=[
            Evidence(quote=stacks.where(stood.elsewhere[rank]), source="traceback", rank=rank)
            for rank in ranks
        ],
        culprit=odd_ranks.named(ranks),
        victims=stood.waiting,
        fix=FIX,
        unknown=("whether the job was still making progress when it was interrupted",),
    )


@FAULT.explain
def nccl_ras_gets_no_answer(wreckage: Wreckage) -> Diagnosis | None:
    """Each process has a thread that answers RAS, whatever its script does."""
    answer = ras_evidence.newest(wreckage)
    if answer is None or not answer.silent or blame.of(wreckage).explained:
        return None
    gone = answer.silent
    who = ras_evidence.named(answer, gone)
    one, first = len(gone) == 1, gone[0]
    states = {answer.states.get(process.pid) for process in gone}
    ended = "" if states != {""} else "; no such process exists any more"
    return FAULT.diagnosis(
        f"{who} {'does' if one else 'do'} not answer NCCL's RAS"
        f"{', which has given up on it' * (one and first.dead)}: a stuck script would not keep the "
        f"process from answering, so it has ended, is stopped, or its machine cannot be reached"
        f"{ended}",
        confidence=0.65 if one else 0.5,
        evidence=ras_evidence.quotes(answer),
        culprit=ras_evidence.culprit(answer, gone),
        victims=ras_evidence.others(answer, gone),
        fix=f"look at pid {first.pid} on {first.host}: state T is a stopped process (`kill -CONT "
        f"{first.pid}`), no such process means that it ended (read its log and the kernel log)",
        next=f"ps -o pid,stat,wchan:32,cmd -p {first.pid}",
        unknown=("why it does not answer: RAS cannot tell a stopped process from one that is gone",)
        if not ended
        else ("how it ended: RAS does not know exit codes",),
    )


@FAULT.explain
def nccl_ras_shows_ranks_behind(wreckage: Wreckage) -> Diagnosis | None:
    """By the launches that each rank has counted itself: sends and receives are not among them."""
    late = ras_evidence.late_ranks(wreckage)
    if late is None or late.gap.crossed or late.answer.silent or blame.of(wreckage).explained:
        return None
    odd = late.gap.behind if late.gap.odd == "behind" else ()
    once = "" if late.lasted else "; in a job that moves, ranks differ by a few at any moment"
    alone = (
        "; most ranks are behind: they all wait elsewhere, or it called a collective that they "
        "do not call"
        if late.gap.odd == "ahead"
        else ""
    )
    pid = next((one.pid for one in odd or late.gap.behind if one.pid), None)
    return FAULT.diagnosis(
        f"{ras_evidence.gap_sentence(late)}{alone}{once}",
        confidence=(0.55 if odd else 0.4) if late.lasted else 0.3,
        evidence=ras_evidence.gap_quotes(late),
        culprit=ras_evidence.culprit(late.answer, odd),
        victims=ras_evidence.others(late.answer, odd) if odd else (),
        fix=FIX
        if late.lasted
        else "ask again and compare: only counts that stay the same show a stall",
        next=f"holdfast explain --pid {pid}" if pid else "",
        unknown=(
            "whether it is stuck or at work (a save, an evaluation): RAS only counts launches",
        ),
    )


def _stack_of(wreckage: Wreckage, rank: int) -> str:
    remains = wreckage.rank(rank)
    return f"py-spy dump --pid {remains.pid}" if remains and remains.pid else ""


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(quick=True)
def sleep_in_a_rank(rehearsal: Rehearsal) -> Injection | CannotInject:
    return _never_arrive(rehearsal, "sleeps in Python and never returns", how="hang")


@FAULT.drill("busy")
def compute_in_a_rank(rehearsal: Rehearsal) -> Injection | CannotInject:
    return _never_arrive(rehearsal, "computes in an endless loop", how="spin")


@FAULT.drill("endless-kernel", needs=("gpu",))
def occupy_a_gpu(rehearsal: Rehearsal) -> Injection | CannotInject:
    return _never_arrive(rehearsal, "starts a GPU kernel that never ends", how="endless-kernel")


def _never_arrive(rehearsal: Rehearsal, words: str, *, how: str) -> Injection | CannotInject:
    if rehearsal.job.ranks == 1:
        return NO_OTHER_RANK
    return Injection(
        does=f"rank {rehearsal.rank} {words} {rehearsal.when}",
        act=BreakInside(how=how),
        then=Then.RESTARTS,
    )
