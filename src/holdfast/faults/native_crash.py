"""A rank crashed in native code.

What you see   Exit code -11 (139 in a shell: SIGSEGV), -7 (SIGBUS), -4 (SIGILL), -8 (SIGFPE) or
               -6 (SIGABRT), often with `Fatal Python error: Segmentation fault`, never with a
               Python traceback alone. The others lose their connection to it.
Why            C or C++ code touched memory it does not own, used an instruction this processor
               lacks, or gave up by abort(): an extension built for another torch or CUDA, a driver
               that does not fit, a library loaded twice, broken memory. SIGBUS is mostly a full
               /dev/shm. An abort by NCCL's watchdog or by Gloo's size check is not a crash: it is
               the answer to another rank's fault, and holdfast looks for that one.
How to be sure The fault handler's Python stack in the rank's log; `coredumpctl info PID`; the
               kernel log names the library (`segfault at … in libfoo.so`). Does it come back at
               the same place on another machine? Then it is software.
Fix            Same versions of torch, CUDA and extensions everywhere, rebuilt against each other;
               SIGBUS: a larger /dev/shm; SIGILL: a build for this processor. Comes and goes on one
               machine only: test its memory.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html
               https://docs.python.org/3/library/faulthandler.html
               https://github.com/pytorch/pytorch/issues/5040
               pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: watchdog, abort
"""

from __future__ import annotations

import re
import signal

from holdfast import endings, scene_words
from holdfast.collectives import waits
from holdfast.endings import Ending
from holdfast.model import Evidence, Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD702", slug="native-crash")

WORDS = {
    signal.SIGSEGV: "it touched memory it does not own",
    signal.SIGBUS: "mostly a full /dev/shm, or a file that shrank under it",
    signal.SIGILL: "an instruction this processor does not have",
    signal.SIGFPE: "an arithmetic fault in native code",
    signal.SIGSYS: "a system call that is not allowed here",
}


@FAULT.notice
def native_code_ended_it_first(scene: Scene) -> Verdict | None:
    crashed = [e for e in endings.cause(scene) if e.signal in endings.CRASHES]
    if not crashed:
        return None
    if all(e.mute for e in crashed) and waits.analyse(scene).mismatch:
        return None  # Gloo aborts the rank that was sent too much
    ranks = [e.rank for e in crashed]
    victims = endings.fallen(scene, ranks)
    first = crashed[0]
    return FAULT.verdict(
        f"{scene_words.who(scene, ranks)} crashed with {scene_words.signal_name(first.signal)}"
        f"{scene_words.at_step(first.view)}: {_meaning(first)}{scene_words.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=f"read the end of its log; `coredumpctl info {first.view.pid}` where cores are kept",
        evidence=[*map(scene_words.how_it_ended, crashed), *_kernel_lines(scene, crashed)],
    )


def _meaning(ending: Ending) -> str:
    if ending.signal != signal.SIGABRT:
        return WORDS[signal.Signals(ending.signal)]
    if ending.view.words:
        return scene_words.quoted(ending.view.words)
    return "it gave up by itself, and left no words that tell why"


def _kernel_lines(scene: Scene, crashed: list[Ending]) -> list[Evidence]:
    """It names the library; the number in brackets may be a thread's."""
    pids = "|".join(str(e.view.pid) for e in crashed)
    named = re.compile(rf"\[({pids})\]|\(a thread of pid ({pids})\)")
    return scene_words.kernel_lines(scene, named)[-3:] or scene_words.unread_kernel_log(scene)
