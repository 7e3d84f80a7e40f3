"""A known defect of the installed version.

What you see   A failure that neither your code nor your machine caused, and that disappears with
               another version of NCCL or torch.
Why            Software has bugs. This table holds only defects that their authors have confirmed or
               fixed, each with the affected versions and the reference.
How to be sure `NCCL_DEBUG=VERSION` prints the NCCL in use (wheels bring their own), and the failure
               is gone after an upgrade. Where the log shows a version, holdfast compares it; where
               it shows none, only the wording counts, with lower confidence.
Fix            Upgrade NCCL by its package (`pip install -U nvidia-nccl-cu13`, the number of your
               CUDA) if torch allows it, or torch itself; each entry names a workaround where there
               is one.
Known limits   A defect that is not in the table is reported under its symptom. `check` reports the
               defects whose condition it sees on the machine or in the planned job; those that
               depend on the script alone are named with `--verbose` only. The version that counts
               is that of the first NCCL library the loader would take.
Sources        https://github.com/NVIDIA/nccl/issues/1185 (2.20.3: UDS binding, fixed in 2.20.5)
               https://github.com/NVIDIA/nccl/issues/1637 (shared memory on Blackwell, in 2.26.2)
               https://github.com/NVIDIA/nccl/issues/1251 (hang with CUDA graphs, up to 2.21.5)
               https://github.com/huggingface/text-generation-inference/pull/2099 (its stack)
               https://github.com/NVIDIA/nccl/issues/1838 (cuMem host memory without peer access;
               NVIDIA/nccl docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst)
               https://github.com/NVIDIA/nccl/issues/2190 (ranks disagree on cuMem host memory)
               NVIDIA/nccl v2.24.3-1: 'Avoid "Software caused connection abort" errors on retries'
               https://github.com/NVIDIA/nccl/releases/tag/v2.29.3-1 (2.28.9: hang on ARM;
               https://github.com/marin-community/marin/pull/8038)
               https://github.com/pytorch/pytorch/issues/149153 (2.25.1: abort hangs)
               https://github.com/NVIDIA/nccl/releases/tag/v2.26.5-1 (NVLink domains, over 80 ranks)
               https://github.com/NVIDIA/nccl/issues/1676 (nvidia-peermem not recognised)
               https://github.com/NVIDIA/nccl/releases/tag/v2.26.3-1 (cuMem in containers)
               https://github.com/pytorch/pytorch/issues/153960 (torch 2.7.0, NCCL 2.26)
               https://github.com/NVIDIA/nccl/releases/tag/v2.28.7-1 (symmetric memory)
               https://github.com/NVIDIA/nccl/pull/2339 (2.31.2: what it fixes, #2198, #2241)
               https://github.com/NVIDIA/nccl/issues/1669, https://github.com/NVIDIA/nccl/issues/2346
               (RAS while communicators are made)
               https://github.com/pytorch/pytorch/issues/187081 (torch 2.12.0 on B200)
               https://github.com/NVIDIA-NeMo/RL/issues/680 (torch 2.6: FSDP2 state dicts)
               https://github.com/pytorch/pytorch/releases/tag/v2.2.1 (torch 2.2.0: DTensor)
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import LogPattern, Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, known, known_defects
from holdfast.analysis.machine.known_defects import KnownDefect, Version, nccl_in_use
from holdfast.analysis.machine.visible_gpus import NO_GPU, gpus_here
from holdfast.analysis.versions import release
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD304", slug="known-defect", related=("version-skew", "framework-bug", "ipc-removed")
)

UDS_BINDING = FAULT.log_pattern(
    "uds-binding",
    r"UDS: Binding to socket (?P<path>\S+) failed : Address already in use",
    anchors="UDS: Binding to socket",
    example="vm:1009:1009 [0] misc/ipcsocket.cc:57 NCCL WARN UDS: Binding to socket "
    "/tmp/nccl-socket-2-e6a1 failed : Address already in use (98)",
)
SMEM_BLACKWELL = FAULT.log_pattern(
    "shared-memory",
    r"ncclMaxSharedMem (?P<wanted>\d+) exceeds device/fn maxSharedMem (?P<has>\d+)",
    anchors="ncclMaxSharedMem ",
    example="vm:1009:1009 [0] NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem "
    "79856",
)
GRAPH_HANG = FAULT.log_pattern(
    "graph-hang",
    r"ncclLaunchKernelBefore_NoUncapturedCuda",
    anchors="ncclLaunchKernelBefore_NoUncapturedCuda",
    example="    ncclLaunchKernelBefore_NoUncapturedCuda (enqueue.cc:968)",
)
CUMEM_PEER = FAULT.log_pattern(
    "cumem-peer",
    r"shm\.cc:\d+ .*Cuda failure (?:\d+ )?'peer access is not supported",
    anchors="'peer access is not supported",
    example="vm:1009:1020 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not "
    "supported between these two devices'",
)
CUMEM_MIXED = FAULT.log_pattern(
    "cumem-mixed",
    # The bytes of a handle, read as a name: not the six letters that NCCL's own names end in.
    r"Error while attaching to shared memory segment (?:\S* ?\(size 0\)"
    r"|/dev/shm/nccl-(?!\w{6} )[^(]*\(size \d+\))",
    anchors="attaching to shared memory segment",
    example="vm:1009:1009 [0] misc/shmutils.cc:102 NCCL WARN Error while attaching to shared "
    "memory segment /dev/shm/nccl-x (size 0), error: No such file or directory (2)",
)
PROXY_SLOTS = FAULT.log_pattern(
    "proxy-slots",
    r"\bncclLocalOpAppend\b",
    anchors="ncclLocalOpAppend",
    example="    ncclLocalOpAppend (proxy.cc:502)",
)
RETRY_ABORT = FAULT.log_pattern(
    "retry-abort",
    r"[Cc]onnect to (?P<peer>\S+) failed : Software caused connection abort",
    anchors="Software caused connection abort",
    example="vm:1009:1020 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to "
    "192.0.2.7<45763> failed : Software caused connection abort",
    role=Role.CASCADE,
)


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    wording: LogPattern
    what: str
    since: tuple[int, ...]
    fixed_in: tuple[int, ...]
    """the first version without it; () while it is open"""
    workaround: str
    source: str
    sure: float = 0.93
    """when the log shows a version that has it"""
    unsure: float = 0.7
    """when it shows no version"""


DEFECTS = (
    Defect(
        wording=UDS_BINDING,
        what="NCCL gives two communicators of a process the same local socket after ncclCommSplit",
        since=(2, 20, 3),
        fixed_in=(2, 20, 5),
        workaround="versions before 2.20 are not affected",
        source="NVIDIA/nccl#1185",
    ),
    Defect(
        wording=SMEM_BLACKWELL,
        what="NCCL requests more shared memory per block than this Blackwell GPU has",
        since=(2, 0),
        fixed_in=(2, 26, 2),
        workaround="there is no workaround",
        source="NVIDIA/nccl#1637",
    ),
    Defect(
        wording=GRAPH_HANG,
        what="NCCL hangs when CUDA graphs of several communicators are launched",
        since=(2, 20, 0),
        fixed_in=(2, 22, 3),
        workaround="until then, run without CUDA graphs",
        source="NVIDIA/nccl#1251",
        sure=0.8,
        unsure=0.5,
    ),
    Defect(
        wording=CUMEM_PEER,
        what="NCCL maps shared host memory in a way that fails on GPUs without peer access",
        since=(2, 24, 3),
        fixed_in=(),
        workaround="`export NCCL_CUMEM_HOST_ENABLE=0`, or a driver for CUDA 13.0 or newer",
        source="NVIDIA/nccl#1838",
        sure=0.85,
    ),
    Defect(
        wording=CUMEM_MIXED,
        what="ranks of one machine disagree on whether cuMem host memory works, and NCCL mistakes "
        "one kind of address for the other",
        since=(2, 26, 3),
        fixed_in=(),
        workaround="`export NCCL_CUMEM_HOST_ENABLE=0` on all ranks",
        source="NVIDIA/nccl#2190",
        sure=0.85,
    ),
    Defect(
        wording=PROXY_SLOTS,
        what="NCCL loses slots of its network queue on ARM processors, then waits for a free one "
        "without end; on other processors the same stack is a moment of normal work",
        since=(2, 28, 9),
        fixed_in=(2, 29, 3),
        workaround="there is no workaround",
        source="NCCL 2.29.3 release notes",
        sure=0.55,
        unsure=0.25,
    ),
    Defect(
        wording=RETRY_ABORT,
        what="NCCL retries a refused connection in a way that fails with another error, so it "
        "gives up although the peer was only late",
        since=(2, 0),
        fixed_in=(2, 24, 3),
        workaround="first find out why the peer refused: late, gone, or behind a firewall",
        source="NCCL 2.24.3 release notes",
        sure=0.6,
        unsure=0.5,
    ),
)


@FAULT.check(
    needs=("software", "nvidia", "pci", "gpu_direct", "container", "settings"),
)
def version_has_a_defect_that_matters_here(facts: MachineFacts) -> Finding | list[Finding]:
    if not gpus_here(facts):
        return FAULT.does_not_apply(NO_GPU)
    installed = {"NCCL": nccl_in_use(facts), "torch": release(known(facts.software).torch)}
    if not any(installed.values()):
        return FAULT.does_not_apply("neither torch nor NCCL is installed here")
    present = [one for one in known_defects.DEFECTS if one.affects(installed[one.product])]
    found = [_found(one, installed, facts) for one in present if one.here and one.here(facts)]
    return found or FAULT.ok(_all_clear(installed, present))


def _found(defect: KnownDefect, installed: dict[str, Version], facts: MachineFacts) -> Finding:
    version = f"{defect.product} {_dotted(installed[defect.product])}"
    fixed = f"fixed in {_dotted(defect.fixed_in)}" if defect.fixed_in else "open"
    upgrade = f"upgrade {defect.product} to {_dotted(defect.fixed_in)} or later"
    advice = [upgrade if defect.fixed_in else "", defect.workaround]
    speak = FAULT.note if defect.depends else FAULT.warning
    return speak(
        f"{version} {defect.what}",
        reason=f"a known defect of {defect.product}, {fixed} ({defect.source})",
        evidence=[_where(defect, version, facts)],
        fix="; until then ".join(filter(None, advice)),
    )


def _where(defect: KnownDefect, version: str, facts: MachineFacts) -> Evidence:
    software = known(facts.software)
    source = software.nccl[0].path if defect.product == "NCCL" else software.executable
    return Evidence(quote=version, source=source)


def _all_clear(installed: dict[str, Version], present: Sequence[KnownDefect]) -> str:
    versions = " and ".join(f"{name} {_dotted(v)}" for name, v in installed.items() if v)
    hidden = sorted({one.depends for one in present if one.depends})
    depends = f"; it has some in {', '.join(hidden)}" if hidden else ""
    return f"{versions}: no known defect that this machine brings out{depends}"


@FAULT.explain
def known_nccl_defect(wreckage: Wreckage) -> Diagnosis | None:
    version = release(wreckage.versions.get("nccl", ""))
    for defect in DEFECTS:
        seen = wreckage.seen(defect.wording)
        if seen and _affects(defect, version):
            return FAULT.diagnosis(
                f"{sightings.who(seen)} hit a known defect of NCCL"
                f"{f' {_dotted(version)}' if version else ''} ({defect.source}): {defect.what}",
                confidence=defect.sure if version else defect.unsure,
                seen=seen,
                culprit=Culprit(
                    rank=seen[0].rank,
                    host=seen[0].line.host,
                    what=f"NCCL {_dotted(version)}" if version else "NCCL",
                ),
                fix=f"upgrade NCCL to {_dotted(defect.fixed_in)} or later; {defect.workaround}"
                if defect.fixed_in
                else f"{defect.workaround}; no release with a fix is known",
                next="python -c 'import torch; print(torch.cuda.nccl.version())'",
                unknown=[] if version else ["which version of NCCL ran: the log does not show it"],
            )
    return None


def _affects(defect: Defect, version: tuple[int, ...]) -> bool:
    if not version:
        return True
    return defect.since <= version and (not defect.fixed_in or version < defect.fixed_in)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
