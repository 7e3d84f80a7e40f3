"""Something of an earlier run still holds what this one needs.

What you see   The first launch works, the second fails: `EADDRINUSE`, CUDA out of memory on an
               idle GPU, or `No space left on device` from /dev/shm.
Why            A rank outlived its launcher and still listens on the port or holds memory; or it
               was killed with SIGKILL, which leaves its shared-memory files in /dev/shm: nobody
               removes them until a reboot. It is not TIME_WAIT: the store's port is free at once.
How to be sure `ss -ltnp` and `nvidia-smi` name the process; `fuser -v /dev/shm/*` names who uses
               a segment. One that no process has open or mapped is only taking up memory.
Fix            End the survivor by its pid (`kill PID`, after some seconds `kill -9 PID`), remove
               the dead segments. Waiting 60 s cures nothing here. holdfast ends no process that
               it did not start, and removes no file.
Sources        https://man7.org/linux/man-pages/man7/shm_overview.7.html: persistence
               https://docs.pytorch.org/docs/stable/multiprocessing.html: sharing strategies
               torch/csrc/distributed/c10d/socket.cpp: SO_REUSEADDR
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.logs.patterns import port_taken
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, ShmSegment, Unread, known, port_evidence
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(code="HOLD112", slug="stale-process")

SETTLED = 60
"""seconds; a younger segment may be on its way from one process to the next"""

SHOWN = 8
"""segments named on the screen and in the command"""


@FAULT.check(needs=("leftovers", "port"))
def no_survivor_holds_the_port(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if facts.plan.port == 0:
        return ()
    guilty = port_evidence.orphans_on_port(facts)
    if not guilty:
        return FAULT.ok(f"no survivor of an earlier run holds port {facts.plan.port}")
    pids = " ".join(str(orphan.process.pid) for orphan in guilty)
    speak = FAULT.error if facts.plan.port_named else FAULT.warning
    return speak(
        f"a survivor of an earlier run holds port {facts.plan.port}",
        reason="its launcher is gone, so it will not end by itself",
        evidence=[
            Evidence(quote=f"{orphan.process.description}: {orphan.sign}", source="/proc")
            for orphan in guilty
        ],
        fix=f"if it is yours: `kill {pids}`",
    )


@FAULT.check(needs=("leftovers", "shm"))
def no_segment_is_left_over(facts: MachineFacts) -> Finding:
    segments = known(facts.leftovers).segments
    unused = [s for s in segments if not s.mapped_by and s.age >= SETTLED]
    dead = [segment for segment in unused if segment.all_visible]
    if not dead:
        return FAULT.ok(_nothing_dead(len(segments), len(unused)))
    dead.sort(key=lambda segment: -segment.size)
    total = sum(segment.size for segment in dead)
    room = facts.shm
    much = not isinstance(room, Unread) and total > room.size / 10
    share = "" if isinstance(room, Unread) else f" of {text.size(room.size)}"
    speak = FAULT.warning if much else FAULT.note
    return speak(
        f"{text.size(total)}{share} in /dev/shm is taken by dead segments ({len(dead)})",
        reason="no process has them open or mapped: a killed run left them"
        + ("; the next one may find too little room" if much else ""),
        evidence=[_describe(segment) for segment in dead[:SHOWN]],
        fix=_remove(dead),
    )


def _nothing_dead(segments: int, unused: int) -> str:
    if unused:
        return f"{unused} segments look unused, but not every process could be inspected"
    return (
        f"each of the {segments} training segments is in use"
        if segments
        else ("no training segment is left in /dev/shm")
    )


def _remove(dead: list[ShmSegment]) -> str:
    paths = " ".join(shlex.quote(segment.path) for segment in dead[:SHOWN])
    more = f", and {len(dead) - SHOWN} smaller ones" if len(dead) > SHOWN else ""
    return f"`rm {paths}`{more}"


def _describe(segment: ShmSegment) -> Evidence:
    return Evidence(
        quote=f"{segment.path}: {text.size(segment.size)}, {text.duration(segment.age)} old",
        source="fstat(2) and /proc/*/maps",
    )


@FAULT.explain
def an_earlier_run_may_hold_it(wreckage: Wreckage) -> Diagnosis | None:
    """A log of this run cannot show the earlier one: a guess, kept below port-in-use."""
    seen = wreckage.seen(*port_taken.ALL)
    if not seen:
        return None
    port = port_taken.taken_port(wreckage)
    return FAULT.diagnosis(
        "the port was taken when the job started: if the same command worked before, a rank of "
        "the earlier run outlived its launcher and still listens",
        confidence=0.3,
        seen=seen,
        culprit=Culprit(what=f"holder of port {port}" if port else "holder of the port"),
        fix="end the survivor by its pid: `kill PID`; waiting cures nothing",
        next=f"ss -ltnp 'sport = :{port or 29500}'",
        unknown=["whether an earlier run left anything: `holdfast check` on the machine tells"],
    )
