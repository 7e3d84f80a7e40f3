"""A rank aborted while its program was exiting, with its work done.

What you see   `terminate called without an active exception`, exit -6 (SIGABRT; 134 in a shell)
               after the last step, the last save and all exit handlers; no Python line.
Why            A worker thread of Gloo frees a collective's tensors after the script has gone on.
               Where Python is being finalized by then, taking the GIL for that ends the thread
               inside a C++ destructor, and C++ ends the process. It takes a busy machine, and is a
               defect of torch: its own scripts do it without holdfast.
How to be sure The log ends with that line, after what the script prints last. A core file shows
               PyThread_exit_thread below c10d::ProcessGroupGloo::runLoop.
Fix            Nothing is lost. Under `holdfast run`, and after holdfast.init(), ranks wait for
               these threads before they exit. Elsewhere `time.sleep(0.1)` as the last line of the
               script does nearly the same; Python 3.14 no longer ends threads in this way.
Known limits   Only a rank that holdfast watches is known to have finished its script; a status that
               the script asked for by `raise SystemExit(n)` is not seen.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: runLoop
               https://docs.python.org/3/c-api/init.html (threads at finalization)
               https://github.com/python/cpython/issues/87135
"""

from __future__ import annotations

import signal

from holdfast.analysis.job import phrases
from holdfast.analysis.scene import exits, secondary_errors
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Verdict

FAULT = Fault(
    code="HOLD711",
    slug="crash-at-exit",
    related=("native-crash", "group-not-destroyed"),
    traits=RunTraits(priority=253),
)


@FAULT.run
def work_was_done(scene: Scene) -> Verdict | None:
    ended = exits.cause(scene)
    if not ended or not all(map(_aborted_after_its_work, ended)):
        return None
    ranks = [e.rank for e in ended]
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} aborted while exiting{phrases.at_step(ended[0].view)}, after "
        "its script and all exit handlers had ended: nothing of it is lost"
        f"{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="nothing is to be done for this job; to be rid of it, end the script with "
        "`time.sleep(0.1)` after destroy_process_group()",
        evidence=[*map(phrases.how_it_ended, ended)],
    )


def _aborted_after_its_work(ending: Ending) -> bool:
    """Our hook is the last of all exit handlers, and says so; C++ said only how it ended."""
    beat = ending.view.beat
    return (
        ending.signal == signal.SIGABRT
        and ending.consequence == secondary_errors.TEARDOWN
        and beat is not None
        and beat.phase == "exit"
        and (beat.exit_call is None or beat.exit_call.code == 0)
    )
