"""Native code holds Python's lock.

What you see   The job stands still; one rank runs at 100 % or sleeps inside a C call, and none of
               its Python threads does anything: no log line, no timer, no signal handler, Ctrl-C
               without effect.
Why            CPython runs Python code only under its global lock (GIL). An extension that computes
               or blocks without releasing it stops every thread of the process, data threads and
               watchdogs too. NCCL's heartbeat monitor kills such a process after minutes.
How to be sure holdfast's beat thread in that rank, which needs the lock ten times a second, went
               silent while those of the others go on and the process is not stopped. `py-spy dump
               --pid PID` shows the Python line that called into C.
Fix            Release the lock in that call (Py_BEGIN_ALLOW_THREADS, `gil_scoped_release`,
               ctypes.CDLL instead of PyDLL), or do the work in another process.
Sources        https://docs.python.org/3/c-api/init.html#releasing-the-gil-from-extension-code
               pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: GIL check on exit
               https://github.com/hiyouga/LlamaFactory/issues/6964
"""

from __future__ import annotations

from holdfast import hold_up, scene_words
from holdfast.model import Fault, Verdict
from holdfast.signals import RankView, Scene

FAULT = Fault(code="HOLD608", slug="gil-held")

SILENT = 2.0
"""seconds; the thread beats every 0.1 s"""
FRESH = 1.0
LEAVING = "exit"
"""the phase a rank is in once its script is over and Python is being torn down"""


@FAULT.notice
def its_beat_stopped_but_not_its_process(scene: Scene) -> Verdict | None:
    held = hold_up.find(scene)
    if held is None:
        return None
    mute = [rank for rank in held.roots if _mute(scene, scene.rank(rank))]
    # A starved machine silences all beats: then it says nothing about this rank.
    if not mute or not all(_beats(scene, scene.rank(rank)) for rank in held.victims):
        return None
    view = scene.rank(mute[0])
    silent = scene.now - (view.beat.beat_at if view.beat else scene.now)
    return FAULT.verdict(
        f"{scene_words.who(scene, mute)} has run no Python for {scene_words.seconds(silent)}: "
        f"native code holds the GIL, called {hold_up.place(view)}{_life(scene, view)}; "
        f"{held.waiting()}",
        ranks=mute,
        victims=held.victims,
        certain=False,
        fix=f"`py-spy dump --pid {view.pid}` shows the call; it must release the GIL",
        evidence=held.evidence(),
    )


def _mute(scene: Scene, view: RankView) -> bool:
    if view.beat is None or view.activity is None or view.activity.state in "TtD":
        return False
    # The beat begins with the import of torch and ends with the script: before and after,
    # silence means nothing.
    if not view.beat.beat_at or view.beat.phase == LEAVING:
        return False
    return scene.now - view.beat.beat_at >= SILENT


def _beats(scene: Scene, view: RankView) -> bool:
    return view.beat is None or scene.now - view.beat.beat_at < FRESH


def _life(scene: Scene, view: RankView) -> str:
    return ", and is busy" if scene.now - view.alive_at < SILENT else ""
