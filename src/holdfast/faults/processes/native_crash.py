"""A rank crashed in native code.

What you see   Exit code -11 (139 in a shell: SIGSEGV), -7 (SIGBUS), -4 (SIGILL), -8 (SIGFPE) or -6
               (SIGABRT), often with `Fatal Python error: Segmentation fault`, never with a Python
               traceback alone. The others lose their connection to it.
Why            C or C++ code accessed memory it does not own, used an instruction this CPU lacks, or
               called abort(): an extension built for another torch or CUDA, an incompatible driver,
               a library loaded twice, broken memory. SIGBUS is usually a full /dev/shm. An abort by
               NCCL's watchdog or by Gloo's size check is not a crash: it is the reaction to another
               rank's fault, and holdfast looks for that one.
How to be sure The fault handler's Python stack in the rank's log; `coredumpctl info PID`; the
               kernel log names the library (`segfault at … in libfoo.so`). If it recurs at the same
               place on another machine, it is software.
Fix            Use the same versions of torch, CUDA and extensions everywhere, built for each other;
               SIGBUS: a larger /dev/shm; SIGILL: a build for this CPU. If it happens now and then
               on one machine only, test its memory.
Known limits   holdfast does not open core files. The library is known only where the kernel log
               could be read; without it an abort with no message has no cause.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html
               https://docs.python.org/3/library/faulthandler.html
               https://github.com/pytorch/pytorch/issues/5040
               pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: watchdog, abort
               systemd: src/coredump/coredump.c (Process … dumped core)
"""

from __future__ import annotations

import signal

from holdfast import text
from holdfast.analysis.collectives import call_sites, waits
from holdfast.analysis.drill.injection import Injection, SignalProcess, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import blame, sightings
from holdfast.analysis.logs.patterns import kernel, native_crashes, shells
from holdfast.analysis.logs.patterns.native_crashes import FATAL, GAVE_UP, HANDLER, HEAP, INSIDE
from holdfast.analysis.logs.wreckage import Exit, Sighting, Wreckage
from holdfast.analysis.machine.smoke_failures import SmokeFailure
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD702",
    slug="native-crash",
    related=("framework-bug", "shm-too-small", "gpu-hardware", "version-skew"),
    traits=RunTraits(priority=255, general=True),
    smoke_fix="see where with `coredumpctl info` or `dmesg`; check that torch is built for this "
    "CPU and driver",
)
FAULT.smoke_failures.add(SmokeFailure.CRASH)
FAULT.log_patterns.extend((*native_crashes.ALL, shells.COREDUMP, shells.IN_LIBRARY))

SIGNAL_MEANINGS = {
    signal.SIGSEGV: "it accessed memory it does not own",
    signal.SIGBUS: "usually a full /dev/shm, or a truncated mapped file",
    signal.SIGILL: "an instruction this CPU does not have",
    signal.SIGFPE: "an arithmetic error in native code",
    signal.SIGSYS: "a system call that is not allowed here",
}
ABORTED = "it aborted without a message"
BY_ITSELF_OR_NOT = "whether its own code called abort(), or a SIGABRT was sent to it"


@FAULT.run
def native_crash_first(scene: Scene) -> Verdict | None:
    crashed = [e for e in exits.cause(scene) if e.signal in exits.CRASHES]
    if not crashed:
        return None
    if all(e.mute for e in crashed) and waits.analyse(scene).mismatch:
        return None  # Gloo aborts the rank that received too much
    ranks = [e.rank for e in crashed]
    victims = exits.fallen(scene, ranks)
    first = crashed[0]
    line = call_sites.last_line(first.view)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} crashed with {phrases.signal_name(first.signal)}"
        f"{f' {line}' if line else ''}{phrases.at_step(first.view)}: {_signal_meaning(first)}"
        f"{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=f"read the end of {phrases.log_of(first.view)}; where core files are kept: "
        f"{phrases.pid_command(scene, 'coredumpctl info', [first.rank])}",
        evidence=[*map(phrases.how_it_ended, crashed), *_kernel_lines(scene, crashed)],
    )


def _signal_meaning(ending: Ending) -> str:
    if ending.signal != signal.SIGABRT:
        return SIGNAL_MEANINGS[signal.Signals(ending.signal)]
    if ending.view.words:
        return phrases.quoted(ending.view.words)
    return ABORTED


def _kernel_lines(scene: Scene, crashed: list[Ending]) -> list[Evidence]:
    """They name the library; the number in brackets may be a thread id."""
    ranks = [e.rank for e in crashed]
    lines = phrases.kernel_lines(
        scene, ranks, lambda pids: rf"\[({pids})\]|\(a thread of pid ({pids})\)"
    )
    return lines[-3:] or phrases.unread_kernel_log(scene, ranks)


# --- explain -------------------------------------------------------------------------------------

MATCH_BUILDS = (
    "use the same builds of torch, CUDA and extensions on every node, built for each other; run "
    "once with PYTHONFAULTHANDLER=1 to see the Python line"
)


@FAULT.explain
def native_code_crashed(wreckage: Wreckage) -> Diagnosis | None:
    ends = blame.by_signal(wreckage, *exits.CRASHES, but=FAULT.slug)
    words = wreckage.seen(FATAL, HANDLER, HEAP, shells.COREDUMP)
    faults = [s for s in wreckage.seen(kernel.SEGFAULT) if _is_job_process(wreckage, s)]
    if not ends and not words and not faults:
        return None
    if not faults and _is_consequence_of_error(wreckage, ends, words):
        return None
    aborted = all(end.code == -signal.SIGABRT for end in ends)
    if aborted and not words and not faults and wreckage.seen(GAVE_UP):
        return None  # aborted_by_cpp_runtime knows why, or rank-exits-early does
    rank, pid = _crashed_rank(wreckage, ends, (*words, *faults))
    library = sightings.field((*faults, *wreckage.seen(shells.IN_LIBRARY)), "library")
    others = blame.of(wreckage).others(rank)
    return FAULT.diagnosis(
        f"{'a rank' if rank is None else f'rank {rank}'} crashed in native code: "
        f"{_crash_in_words(ends, words)}{f', in {library}' if library else ''}"
        + (f"; {text.ranks(others)} only lost the connection" if others else ""),
        confidence=_confidence(ends, words, faults) - (0.2 if wreckage.seen(INSIDE) else 0.0),
        seen=(*words, *faults),
        culprit=Culprit(rank=rank, pid=pid, host=ends[0].host if ends else "", what=library),
        victims=others,
        evidence=[blame.of_exit(end) for end in ends[:2]],
        fix=MATCH_BUILDS,
        next=f"coredumpctl info {pid}" if pid else "export PYTHONFAULTHANDLER=1",
        unknown=() if library else (_where_unknown(ends),),
    )


@FAULT.explain
def aborted_by_cpp_runtime(wreckage: Wreckage) -> Diagnosis | None:
    """Usually follows another error; a crash itself only where nothing else was reported."""
    seen = wreckage.seen(GAVE_UP)
    reported = [one for one in wreckage.raised if one.kind != "terminate"]
    if not seen or reported or wreckage.roots() or blame.of(wreckage).victims:
        return None
    ends = [end for end in wreckage.exits if end.code == -signal.SIGABRT and end.first]
    line = "a process" if seen[0].rank is None else f"rank {seen[0].rank}"
    who = blame.subject(ends[0]) if ends else line
    ended = [e.rank for e in wreckage.exits if e.teardown and e.rank is not None] if ends else []
    return FAULT.diagnosis(
        f"{who} was aborted by the C++ runtime ({seen[0].line.text.strip()[:80]}): native code "
        "left a thread or an object "
        "behind, usually while the program was exiting"
        + (f"; the launcher then ended {text.ranks(ended)}" if ended else ""),
        confidence=0.55,
        seen=seen,
        evidence=[blame.of_exit(end) for end in ends[:1]],
        culprit=Culprit(rank=ends[0].rank, pid=ends[0].pid, host=ends[0].host)
        if ends
        else Culprit(rank=seen[0].rank),
        victims=ended,
        fix=MATCH_BUILDS,
        next="export PYTHONFAULTHANDLER=1",
        unknown=("what ended the program before: see its last lines",),
    )


def _where_unknown(ends: tuple[Exit, ...]) -> str:
    if ends and ends[0].code == -signal.SIGABRT:
        return BY_ITSELF_OR_NOT
    return "in which library: the kernel log or a core file names it"


def _is_job_process(wreckage: Wreckage, seen: Sighting) -> bool:
    pids = {str(r.pid) for r in wreckage.ranks if r.pid}
    return seen.fields.get("pid") in pids or "python" in seen.fields.get("name", "")


def _is_consequence_of_error(
    wreckage: Wreckage, ends: tuple[Exit, ...], words: tuple[Sighting, ...]
) -> bool:
    """An abort with a message follows from that error: a watchdog, Gloo, an assertion. One without
    any, which the launcher saw before all other ends, is what the others lost their peer by."""
    aborted = all(end.code == -signal.SIGABRT for end in ends)
    only_aborted = all(s.fields.get("what") == "Aborted" or _may_be_abort(s) for s in words)
    known = blame.of(wreckage)
    others = [trouble for trouble in known.own if trouble.slug != FAULT.slug]
    losers = () if _came_first(wreckage, ends) else known.lost
    caused = known.waited or losers or others or known.disagreement
    return aborted and only_aborted and bool(caused)


def _came_first(wreckage: Wreckage, ends: tuple[Exit, ...]) -> bool:
    ranks = {end.rank for end in ends if end.first and end.rank is not None}
    spoke = any(one.rank is None or one.rank in ranks
                for one in wreckage.raised if not one.launcher)  # fmt: skip
    return len(ranks) == len(ends) == 1 and not spoke


def _may_be_abort(seen: Sighting) -> bool:
    """A core file whose signal is not named, or is SIGABRT."""
    named = [seen.fields[name] for name in ("short", "name", "sign") if name in seen.fields]
    return seen.pattern == shells.COREDUMP.name and all("ABRT" in name for name in named)


def _confidence(
    ends: tuple[Exit, ...], words: tuple[Sighting, ...], faults: list[Sighting]
) -> float:
    if any(end.code == -signal.SIGBUS for end in ends) or any(map(_is_bus_error, words)):
        return 0.4  # usually a full /dev/shm
    crashed = [end for end in ends if end.code != -signal.SIGABRT]
    if words and not faults and not crashed and all(map(_may_be_abort, words)):
        return 0.55
    if words or faults:
        return 0.9 if crashed or faults else 0.85
    return 0.85 if crashed else 0.5


def _is_bus_error(seen: Sighting) -> bool:
    reported = seen.fields
    return reported.get("number") == "7" or any(
        "bus" in reported.get(name, "").lower()
        for name in ("what", "told", "name", "gdb", "sign", "short")
    )


def _crashed_rank(
    wreckage: Wreckage, ends: tuple[Exit, ...], seen: tuple[Sighting, ...]
) -> tuple[int | None, int | None]:
    if ends:
        return ends[0].rank, ends[0].pid
    line = seen[0].line
    reported = seen[0].fields.get("pid") or seen[0].fields.get("listed", "")
    pid = line.pid or (int(reported) if reported.isdigit() else None)
    rank = next((r.rank for r in wreckage.ranks if pid is not None and r.pid == pid), line.rank)
    return rank, pid


def _crash_in_words(ends: tuple[Exit, ...], words: tuple[Sighting, ...]) -> str:
    if ends and -ends[0].code in SIGNAL_MEANINGS:
        number = signal.Signals(-ends[0].code)
        return f"{number.name}, {SIGNAL_MEANINGS[number]}"
    name_fields = ("what", "told", "dumped", "gdb", "name", "sign", "short")
    named_crash = next((s.fields[n] for s in words for n in name_fields if s.fields.get(n)), "")
    aborted = "SIGABRT, " if ends and ends[0].code == -signal.SIGABRT else ""
    return named_crash.strip() or aborted + ABORTED


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill()
def crash_a_rank(rehearsal: Rehearsal) -> Injection:
    return _crash(rehearsal, signal.SIGSEGV)


@FAULT.drill("abort")
def abort_a_rank(rehearsal: Rehearsal) -> Injection:
    return _crash(rehearsal, signal.SIGABRT)


def _crash(rehearsal: Rehearsal, number: signal.Signals) -> Injection:
    return Injection(
        does=f"{number.name} to rank {rehearsal.rank} {rehearsal.when}",
        act=SignalProcess(number=number),
        then=Then.RESTARTS,
    )
