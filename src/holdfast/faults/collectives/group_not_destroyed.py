"""The process group still existed when the program ended.

What you see   `destroy_process_group() was not called before program exit, which can leak
               resources`, in torch 2.4 and 2.5 `process group has NOT been destroyed before we
               destruct ProcessGroupNCCL`. Mostly nothing else; occasionally a rank that hangs or
               crashes at the very end, or peers that lose their connection to the store.
Why            Threads of NCCL, and the store on rank 0, end with the process in whatever order the
               interpreter shuts down. A peer that is still in a collective or reads the store loses
               its connection. destroy_process_group waits and closes in order.
How to be sure It happens after the last step, and the work is complete. If something failed before,
               that is the cause and this warning a consequence: a rank that dies never closes its
               group.
Fix            Call torch.distributed.destroy_process_group() last on every rank, in a `finally:`.
               `holdfast.init()` does it at exit.
Known limits   The warning also appears in healthy runs: it is reported only with a bad end and
               without a better reason, or where nothing else was given. `holdfast lint` does not
               see a group closed by an imported function, and stays silent when its name suggests
               it.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#shutdown
               pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (destructor)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns.endings import LEFT_OPEN
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.source.collectives import init_calls
from holdfast.analysis.source.program import Call, Program
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Diagnosis, Finding

FAULT = Fault(
    code="HOLD624",
    slug="group-not-destroyed",
    related=("rank-exits-early", "store-host-lost", "native-crash"),
)

CRASHES = (-6, -11, -7, 134, 139, 135)
"""exit codes of SIGABRT, SIGSEGV and SIGBUS, by Python's and by the shell's numbers"""

FAULT.log_patterns.append(LEFT_OPEN)


@FAULT.explain
def rank_exited_with_an_open_group(wreckage: Wreckage) -> Diagnosis | None:
    """A healthy run shows the warning too: it needs a bad end, and no better reason for it."""
    warned = wreckage.seen(LEFT_OPEN)
    if not warned or wreckage.roots() or wreckage.raised:
        return None
    if _nothing_else(wreckage, warned):
        return _on_its_own(warned)
    lost = [one for one in wreckage.sightings if one.role is Role.CASCADE]
    crashed = [one for one in wreckage.exits if one.code in CRASHES and not one.teardown]
    # A rank that failed before could not close its group: then the warning is a consequence.
    if not all(_follows(one, warned[0]) for one in lost) or not (lost or crashed):
        return None
    who = "a rank" if warned[0].rank is None else f"rank {warned[0].rank}"
    end = "others lost their connection to it" if lost else "a process crashed during shutdown"
    return FAULT.diagnosis(
        f"{who} exited without destroy_process_group, and then {end}; no rank reported an error "
        "before that",
        confidence=0.4,
        seen=(*warned[:2], *lost[:2]),
        victims=(one.rank for one in lost if one.rank is not None),
        fix="call torch.distributed.destroy_process_group() at the end of every rank, in a "
        "`finally:`; `holdfast.init()` does it at exit",
        unknown=("whether the work was complete: these lines do not show the last step",),
    )


PREFIXES = 120
"""characters before a line: rank, time, file"""


def _nothing_else(wreckage: Wreckage, warned: tuple[Sighting, ...]) -> bool:
    """The question is about this line."""
    shown = sum(len(one.line.text) + PREFIXES for one in warned)
    return not wreckage.exits and sum(one.size for one in wreckage.sources) <= shown


def _on_its_own(warned: tuple[Sighting, ...]) -> Diagnosis:
    return FAULT.diagnosis(
        "a rank exited without destroy_process_group; if all steps were done that is harmless, and "
        "these lines show no failure",
        confidence=0.3,
        seen=warned[:2],
        fix="call torch.distributed.destroy_process_group() at the end of every rank; if the job "
        "failed, the cause is above this warning",
        unknown=("whether anything failed: only the warning was given",),
    )


def _follows(one: Sighting, warning: Sighting) -> bool:
    """Later in the same log, by another rank; between logs the order is not known."""
    return (
        one.line.source == warning.line.source
        and one.order > warning.order
        and one.rank != warning.rank
    )


# --- in what a user wrote ------------------------------------------------------------------------

CLOSES = re.compile(
    r"\w*(cleanup|clean_up|destroy|shutdown|shut_down|teardown|tear_down|finali[sz]e|finish|end_dist)"
    r"\w*"
)
"""imported functions that may close the group"""


@FAULT.lint_python
def script_never_destroys_the_group(program: Program, source: Source) -> Iterator[Finding]:
    """Whole scripts only: a library leaves closing the group to its user."""
    if not source.complete or "destroy_process_group" in program.text:
        return
    opened = [one for one in init_calls.init_calls_of(program) if init_calls.runs(program, one)]
    if not opened or any(_may_close(program, call) for call in program.calls):
        return
    nccl = init_calls.backend(program, opened[0]) == "nccl"
    tell = FAULT.warning if nccl else FAULT.note
    yield tell(
        "this script joins a process group and never calls destroy_process_group",
        reason="threads and connections then end in any order at exit: "
        + (
            "NCCL warns about it, and occasionally a rank hangs or crashes after its work is done"
            if nccl
            else "mostly harmless, but peers may report a lost connection at the very end"
        ),
        fix="call `torch.distributed.destroy_process_group()` last on every rank, best in a "
        "`finally:`",
        at=program.place(opened[0].call.node),
    )


def _may_close(program: Program, call: Call) -> bool:
    """By its name; a function of this file only if it calls something unknown itself."""
    if not CLOSES.fullmatch(call.method):
        return False
    function = program.target(call)
    return function is None or any(
        not inner.name.startswith(("torch.", "builtins.")) for inner in program.calls_in(function)
    )
