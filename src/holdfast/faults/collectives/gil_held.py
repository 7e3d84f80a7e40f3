"""Native code holds Python's global interpreter lock (GIL).

What you see   The job makes no progress; one rank runs at 100 % CPU or sleeps inside a C call, and
               none of its Python threads does anything: no log line, no timer, no signal handler,
               Ctrl-C has no effect.
Why            CPython runs Python code only while holding its global lock (GIL). An extension that
               computes or blocks without releasing it stops every thread of the process, data
               threads and watchdogs too. NCCL's heartbeat monitor kills such a process after
               minutes.
How to be sure holdfast's heartbeat thread in that rank, which needs the GIL ten times a second,
               went silent while those of the other ranks continue and the process is not stopped.
               `py-spy dump --pid PID` shows the Python line that called into C.
Fix            Release the GIL in that call (Py_BEGIN_ALLOW_THREADS, `gil_scoped_release`,
               ctypes.CDLL instead of PyDLL), or do the work in another process.
Known limits   On an overloaded machine all heartbeats are late, and holdfast stays silent. In a
               log, only torch's own check at exit names the GIL; a stuck watchdog thread may also
               wait for CUDA (see driver-hang).
Sources        https://docs.python.org/3/c-api/init.html#releasing-the-gil-from-extension-code
               pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: GIL check on exit
               https://github.com/hiyouga/LlamaFactory/issues/6964
"""

from __future__ import annotations

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
from holdfast.analysis.job import phrases, stall
from holdfast.analysis.logs import blame, suspects
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Diagnosis, Verdict

FAULT = Fault(
    code="HOLD608",
    slug="gil-held",
    traits=RunTraits(priority=420, needs_stall=True),
    related=("rank-stuck", "rank-frozen", "driver-hang", "timer-as-timeout"),
)

SILENT = 2.0
"""seconds; the thread beats every 0.1 s"""
FRESH = 1.0
LEAVING = "exit"
"""the phase a rank is in once its script is over and Python is being torn down"""


@FAULT.run
def heartbeat_stopped_in_a_live_process(scene: Scene) -> Verdict | None:
    held = stall.find(scene)
    if held is None:
        return None
    silent_ranks = [rank for rank in held.roots if _is_silent(scene, scene.rank(rank))]
    # An overloaded machine delays all heartbeats: then it says nothing about this rank.
    if not silent_ranks or not all(_beats(scene, scene.rank(rank)) for rank in held.victims):
        return None
    view = scene.rank(silent_ranks[0])
    dump = phrases.pid_command(scene, "py-spy dump --pid", [view.rank])
    silent = scene.now - (view.beat.beat_at if view.beat else scene.now)
    return FAULT.verdict(
        f"{phrases.who(scene, silent_ranks)} has run no Python for {text.elapsed(silent)}: "
        f"native code holds the GIL, called {stall.place(view)}{_life(scene, view)}; "
        f"{held.waiting()}",
        ranks=silent_ranks,
        victims=held.victims,
        certain=False,
        fix=f"find the call with {dump} and make it release the GIL",
        fix_after_end="make the call release the GIL",
        evidence=held.evidence(),
    )


def _is_silent(scene: Scene, view: RankView) -> bool:
    if view.beat is None or view.activity is None or view.activity.state in "TtD":
        return False
    # The heartbeat starts with the import of torch and ends with the script: before and after
    # that, silence means nothing.
    if not view.beat.beat_at or view.beat.phase == LEAVING:
        return False
    return scene.now - view.beat.beat_at >= SILENT


def _beats(scene: Scene, view: RankView) -> bool:
    return view.beat is None or scene.now - view.beat.beat_at < FRESH


def _life(scene: Scene, view: RankView) -> str:
    return ", and is busy" if scene.now - view.alive_at < SILENT else ""


# --- explain -------------------------------------------------------------------------------------

GIL = FAULT.log_pattern(
    "no-gil-on-exit",
    r"[Cc]ould not acquire GIL within \d+ ms|GIL induced hang",
    anchors=("ould not acquire GIL within", "GIL induced hang"),
    example="[rank0]:[E1115 01:03:20.825 ProcessGroupNCCL.cpp:1370] [PG 0 Rank 0] Could not "
    "acquire GIL within 300 ms on exit, possible GIL induced hang",
)
FIX = (
    "find the call into C that holds the GIL (`py-spy dump --native --pid PID` of that rank shows "
    "it), and make it release the GIL or run it in another process"
)


@FAULT.explain
def torch_could_not_acquire_the_gil(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(GIL)
    if not seen:
        return None
    return FAULT.diagnosis(
        f"torch could not acquire the GIL when it shut down {_who(seen[0].rank)}: native code held "
        "it, so no Python ran in that process",
        confidence=0.9,
        seen=seen,
        victims=blame.of(wreckage).others(seen[0].rank),
        fix=FIX,
        unknown=("which call held the GIL: a native stack of that process would show it",),
    )


@FAULT.explain
def watchdog_thread_hung(wreckage: Wreckage) -> Diagnosis | None:
    """The heartbeat monitor says that a thread hangs, not why: a CUDA call, a driver, or this."""
    seen = wreckage.seen(watchdog.HEARTBEAT_STUCK, watchdog.PYTHON_STUCK)
    if not seen or wreckage.seen(GIL) or blame.of(wreckage).explained:
        return None
    return FAULT.diagnosis(
        f"the watchdog thread of {_who(seen[0].rank)} made no progress for long: it waited for "
        "the GIL, or a CUDA call did not return",
        confidence=0.35,
        seen=seen,
        victims=blame.of(wreckage).others(seen[0].rank),
        fix=FIX + "; if the stack shows a CUDA call instead, see driver-hang",
        ruled_out=blame.ruled_out(wreckage),
        unknown=("what the watchdog waited for: no native stack was given",),
    )


@FAULT.explain
def stack_shows_the_gil_holder(wreckage: Wreckage) -> Diagnosis | None:
    suspect = suspects.find(wreckage)
    remains = wreckage.rank(suspect.ranks[0]) if suspect else None
    if suspect is None or remains is None or remains.stack is None or not remains.stack.holds_gil:
        return None
    return FAULT.diagnosis(
        f"rank {remains.rank} held the GIL, {stacks.where(remains.stack)}, while "
        f"{text.ranks(suspect.victims)} waited for it",
        confidence=0.6,
        seen=suspect.seen,
        culprit=suspects.culprit_on(wreckage, suspect),
        victims=suspect.victims,
        fix=FIX,
        unknown=("whether it held the GIL all the time: a stack is one moment",),
    )


def _who(rank: int | None) -> str:
    return "a rank" if rank is None else f"rank {rank}"


@FAULT.drill()
def hold_the_gil(rehearsal: Rehearsal) -> Injection | CannotInject:
    if rehearsal.job.ranks == 1:
        return NO_OTHER_RANK
    return Injection(
        does=f"rank {rehearsal.rank} holds the GIL in a C call {rehearsal.when}",
        act=BreakInside(how="hold-gil"),
        then=Then.RESTARTS,
        beside=("rank-stuck",),
    )
