"""A leftover of an earlier run still holds what this one needs.

What you see   The first launch works, the second fails: `EADDRINUSE`, CUDA out of memory on an idle
               GPU, or `No space left on device` from /dev/shm.
Why            A rank of the earlier run is still running without its launcher and holds the port or
               memory. Or it was killed with SIGKILL and its shared-memory files stayed in /dev/shm,
               where they remain until a reboot. It is not TIME_WAIT: the store's port can be bound
               again at once.
How to be sure `ss -ltnp` and `nvidia-smi` name the process; `fuser -v /dev/shm/*` shows which
               process uses a segment. A segment that no process has open or mapped only uses
               memory.
Fix            Stop the leftover process by pid (`kill PID`, after some seconds `kill -9 PID`) and
               remove the unused segments. Waiting 60 s does not help. holdfast stops no process
               that it did not start, and removes no file.
Known limits   Segments younger than a minute are left out, and so are those that a process which
               may not be inspected could be using. In a log this is only ever a second guess beside
               port-in-use.
Sources        https://man7.org/linux/man-pages/man7/shm_overview.7.html: persistence
               https://docs.pytorch.org/docs/stable/multiprocessing.html: sharing strategies
               torch/csrc/distributed/c10d/socket.cpp: SO_REUSEADDR
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import shell_words, text
from holdfast.analysis.logs.patterns import port_taken
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, ShmSegment, Unread, known, port_evidence
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD112",
    slug="stale-process",
    related=("orphaned-workers", "port-in-use", "shm-too-small"),
)

MIN_AGE = 60
"""seconds; a younger segment may still be on its way from one process to the next"""

SHOWN = 8
"""segments named on the screen and in the command"""


@FAULT.check(needs=("leftovers", "port"))
def leftover_process_holds_the_port(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if facts.plan.port == 0:
        return ()
    leftovers = port_evidence.orphans_on_port(facts)
    if not leftovers:
        return FAULT.ok(f"no process of an earlier run holds port {facts.plan.port}")
    pids = " ".join(str(orphan.process.pid) for orphan in leftovers)
    speak = FAULT.error if facts.plan.port_named else FAULT.warning
    return speak(
        f"a process of an earlier run holds port {facts.plan.port}",
        reason="its launcher has exited, so it will not exit by itself",
        evidence=[
            Evidence(quote=f"{orphan.process.description}: {orphan.sign}", source="/proc")
            for orphan in leftovers
        ],
        fix=f"`kill {pids}` if it is yours",
    )


@FAULT.check(needs=("leftovers", "shm"))
def unused_shared_memory_is_left(facts: MachineFacts) -> Finding:
    segments = known(facts.leftovers).segments
    unused = [s for s in segments if not s.mapped_by and s.age >= MIN_AGE]
    dead = [segment for segment in unused if segment.all_visible]
    if not dead:
        return FAULT.ok(_none_unused(len(segments), len(unused)))
    dead.sort(key=lambda segment: -segment.size)
    total = sum(segment.size for segment in dead)
    room = facts.shm
    much = not isinstance(room, Unread) and total > room.size / 10
    share = "" if isinstance(room, Unread) else f" of {text.size(room.size)}"
    speak = FAULT.warning if much else FAULT.note
    risk = ". The next run may not have enough shared memory" if much else ""
    return speak(
        f"{text.size(total)}{share} in /dev/shm is used by {len(dead)} unused "
        f"segment{'s' if len(dead) > 1 else ''}",
        reason=f"no process has them open or mapped; a killed run left them behind{risk}",
        evidence=[_describe(segment) for segment in dead[:SHOWN]],
        fix=_remove(dead),
    )


def _none_unused(segments: int, unused: int) -> str:
    if unused:
        return f"{unused} segments look unused, but not every process could be inspected"
    return (
        f"all {segments} training segments are in use"
        if segments
        else ("no training segments in /dev/shm")
    )


def _remove(dead: list[ShmSegment]) -> str:
    paths = " ".join(shell_words.word(segment.path, "FILE") for segment in dead[:SHOWN])
    more = f", and {len(dead) - SHOWN} smaller ones" if len(dead) > SHOWN else ""
    return f"`rm {paths}`{more}"


def _describe(segment: ShmSegment) -> Evidence:
    return Evidence(
        quote=f"{segment.path}: {text.size(segment.size)}, {text.duration(segment.age)} old",
        source="fstat(2) and /proc/*/maps",
    )


@FAULT.explain
def earlier_run_may_hold_the_port(wreckage: Wreckage) -> Diagnosis | None:
    """A log of this run cannot show the earlier one: a guess, kept below port-in-use."""
    seen = wreckage.seen(*port_taken.ALL)
    if not seen:
        return None
    port = port_taken.taken_port(wreckage)
    return FAULT.diagnosis(
        "the port was in use when the job started; if the same command worked before, a rank of "
        "the earlier run may still be listening",
        confidence=0.3,
        seen=seen,
        culprit=Culprit(what=f"holder of port {port}" if port else "holder of the port"),
        fix="stop the leftover process: `kill PID` (waiting does not help)",
        next=f"ss -ltnp 'sport = :{port or 29500}'",
        unknown=[
            "whether an earlier run left a process: `holdfast check` on that machine shows it"
        ],
    )
