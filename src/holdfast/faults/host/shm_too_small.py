"""Shared memory (/dev/shm) is too small.

What you see   `unable to allocate shared memory(shm) for file </torch_…>: No space left on device`;
               from torch before that check (late 2025) `DataLoader worker (pid …) is killed by
               signal: Bus error`, exit code -7 (SIGBUS). NCCL's `failed to extend
               /dev/shm/nccl-… to 9637892 bytes`, in old versions `Call to posix_fallocate failed`.
Why            Containers get 64 MiB by default. Loader workers hand every batch over in /dev/shm
               (32 images of 224x224 as float32 are 18 MiB, and each worker prepares two ahead).
               NCCL puts the buffers of GPUs without direct access to each other there, 9.2 MiB for
               each connection and channel (4 MiB Simple, 4.7 LL128, 0.5 LL). A page that was not
               reserved and cannot be allocated is noticed only when it is touched, by SIGBUS. From
               NCCL 2.24 with CUDA driver 12.6 or newer NCCL uses cuMem host memory instead, where
               NUMA support works (Docker blocks it unless `--cap-add SYS_NICE`); loaders still use
               /dev/shm.
How to be sure `df -h /dev/shm` inside the container while the job runs. holdfast also allocates
               some of it. Its estimate: four such connections per rank with GPUs (37 MiB), and 128
               MiB per rank with loaders to be comfortable; jobs without loader workers need less.
Fix            docker, podman: `--shm-size=8g`, or `--ipc=host` (then --shm-size has no effect).
               Kubernetes: an emptyDir with `medium: Memory` mounted at /dev/shm. A host: `mount -o
               remount,size=16G /dev/shm`. Otherwise fewer loader workers, or smaller batches.
Known limits   The need is an estimate that does not know the job's batch size. A bare SIGBUS may
               also come from a mapped file that was truncated.
Sources        NVIDIA/nccl docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst
               NVIDIA/nccl src/transport/shm.cc, src/init.cc: buffer sizes
               moby/moby daemon/config/config.go: 64 MiB by default
               https://github.com/NVIDIA/nccl/issues/290
               https://github.com/pytorch/pytorch/issues/5040
               https://github.com/pytorch/pytorch/pull/161910 (an error instead of SIGBUS)
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import nccl, no_space, shared_memory
from holdfast.analysis.logs.patterns.shared_memory import OBJECT
from holdfast.analysis.logs.wreckage import Exit, Sighting, Wreckage
from holdfast.analysis.machine import Container, MachineFacts, Shm, known
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD402",
    slug="shm-too-small",
    related=("dataloader-killed", "fd-limit", "disk-full", "ipc-removed"),
)
FAULT.log_patterns.extend(shared_memory.ALL)
FAULT.error_text(
    r"(/dev/shm|shared memory)[^\n]*No space left|No space left[^\n]*/dev/shm",
    "shared memory (/dev/shm) is too small",
)

SHM = "/dev/shm"  # noqa: S108 - named in words, never opened here
MIB = 1 << 20
ONE_BATCH = 18 * MIB
"""32 images, 3 x 224 x 224, float32"""
NCCL_A_RANK = 37 * MIB
"""4 connections (2 neighbours, 2 channels) of 9.2 MiB: NVIDIA/nccl src/transport/shm.cc"""
COMFORT_A_RANK = 128 * MIB
"""NCCL's share, and a few batches of loader workers; 1 GiB for 8 ranks, as NCCL's guide has it"""
CLOSED = {
    "ENOENT": "there is no such folder",
    "EROFS": "it is mounted read-only",
    "EACCES": "this user may not write there",
    "EPERM": "the kernel refuses it despite the permissions",
}
"""nothing says that a job needs it, and torch without loader workers does not"""


@FAULT.check(needs=("accelerators", "container", "shm"))
def shared_memory_too_small(facts: MachineFacts) -> Finding:
    shm, nproc = known(facts.shm), facts.plan.nproc
    if shm.error in CLOSED:
        return FAULT.warning(
            f"{SHM} cannot be used: {CLOSED[shm.error]}",
            reason="loader workers will fail ('unable to open shared memory object'), and so will "
            "NCCL between GPUs without direct access to each other; a job with neither runs",
            evidence=_evidence(shm),
            fix=_how_to_open(facts),
        )
    if shm.error:
        return FAULT.error(
            f"{text.size(shm.tried)} of shared memory could not be allocated: {shm.error}",
            reason="a test allocation in /dev/shm just failed; loader workers and NCCL will fail "
            "the same way, with 'No space left on device' or a bus error",
            evidence=_evidence(shm),
            fix=_how_to_enlarge(facts),
        )
    if shm.free >= COMFORT_A_RANK * nproc:
        return FAULT.ok(f"{SHM} has {text.size(shm.free)} free for {nproc} ranks")
    with_gpus = facts.accelerators != ()
    needed = ONE_BATCH + (NCCL_A_RANK * nproc if nproc > 1 and with_gpus else 0)
    report = FAULT.error if shm.free < needed else FAULT.warning
    return report(
        f"{SHM} has {text.size(shm.free)} free of {text.size(shm.size)}, "
        f"little for {nproc} rank{'s' if nproc > 1 else ''}",
        reason=_estimate(shm.free, nproc, with_gpus=with_gpus),
        evidence=_evidence(shm),
        fix=_how_to_enlarge(facts),
    )


def _estimate(free: int, nproc: int, *, with_gpus: bool) -> str:
    batch = (
        f"one batch of 32 images takes {text.size(ONE_BATCH)} and each loader worker "
        f"prepares two; {text.size(COMFORT_A_RANK * nproc)} would be comfortable"
    )
    if nproc > 1 and with_gpus:
        return (
            f"estimate: NCCL takes about {text.size(NCCL_A_RANK)} per rank where GPUs lack direct "
            f"access to each other (none from 2.24 on where cuMem works), and {batch}"
        )
    if free < ONE_BATCH:
        return f"loader workers will fail, in older torch with a bus error (SIGBUS): {batch}"
    return f"a job without loader workers may run; with them, {batch}"


def _evidence(shm: Shm) -> list[Evidence]:
    tried = f", allocating {text.size(shm.tried)}: {shm.error or 'worked'}"
    return [
        Evidence(
            quote=f"{text.size(shm.size)} in total, {text.size(shm.free)} free{tried}",
            source=SHM,
        )
    ]


def _how_to_enlarge(facts: MachineFacts) -> str:
    want = max(8, facts.plan.nproc // 4)  # GiB: 256 MiB a rank, at least 8
    container = facts.container
    kind = container.kind if isinstance(container, Container) else ""
    if kind in ("docker", "podman"):
        return f"start the container with `{kind} run --shm-size={want}g …`, or with `--ipc=host`"
    if kind == "kubernetes":
        return "mount an emptyDir with `medium: Memory` at /dev/shm in the pod"
    if kind:
        return "give the container the host's /dev/shm, or a larger private one"
    return (
        f"look for leftovers with `ls -l {SHM}`; otherwise, as root: "
        f"`mount -o remount,size={want}G {SHM}`"
    )


def _how_to_open(facts: MachineFacts) -> str:
    if isinstance(facts.container, Container):
        return "give the container a /dev/shm of its own, without `:ro` and with mode 1777"
    return f"as root: `mount -t tmpfs -o mode=1777 tmpfs {SHM}`"


# --- explain -------------------------------------------------------------------------------------

SEGMENT = FAULT.log_pattern(
    "nccl",
    r"failed to extend (?P<file>\S*shm\S*) to (?P<size>\d+) bytes|posix_fallocate failed"
    r"|Error while creating shared memory segment (?P<segment>\S+) \(size (?P<bytes>\d+)\)",
    anchors=("failed to extend ", "posix_fallocate failed", "creating shared memory segment"),
    example="vm:1011:1011 [2] misc/shmutils.cc:87 NCCL WARN Error: failed to extend "
    "/dev/shm/nccl-WxYzAb to 9637892 bytes, error: No space left on device (28)",
)
TENSOR = FAULT.log_pattern(
    "tensor",
    r"unable to allocate shared memory\(shm\) for file <(?P<file>[^>]*)>"
    r"|unable to (?:write to|resize) file <(?P<old>/?torch_[^>]*)>"
    r"|unable to open shared memory object <(?P<object>[^>]*)>.*No space left"
    r"|not enough space for (?P<backing>\S{1,200}) \(the shared-memory",
    anchors=(
        "shared memory(shm)",
        "unable to write to file",
        "unable to resize file",
        "No space",
        "(the shared-memory",
    ),
    example="RuntimeError: unable to allocate shared memory(shm) for file </torch_4711_1_0>: "
    "Success (0)",
)
VOLUME = FAULT.log_pattern(
    "volume",
    r"Usage of EmptyDir volume \"(?P<volume>\w{0,40}shm\w{0,40})\" exceeds the limit "
    r"\"(?P<limit>\w{1,20})\"",
    anchors=("Usage of EmptyDir volume",),
    example='Usage of EmptyDir volume "dshm" exceeds the limit "64Mi".',
    role=Role.CONFIRMATION,
)
BUS = FAULT.log_pattern(
    "bus",
    r"(?:worker \(pid (?P<worker>\d+)\) is )?killed by signal: Bus error"
    r"|[Uu]nexpected bus error encountered in worker"
    r"|workers are out of shared memory",
    anchors=("signal: Bus error", "bus error encountered", "out of shared memory"),
    example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is "
    "possible that dataloader's workers are out of shared memory.",
)
NO_PAGE = FAULT.log_pattern(
    "no-page",
    # UCX and Open MPI read the kernel's reason for the signal (BUS_ADRERR): a mapping is there, and
    # the file behind it could not give the page.
    r"(?:Bus error|Signal code): [Nn]on-?exist[ae]nt physical address",
    anchors=("xistent physical address", "xistant physical address"),
    example="[node-a:4711 :0:4720] Caught signal 7 (Bus error: nonexistent physical address)",
)
BANNER = FAULT.log_pattern(
    "banner",
    r"SHMEM allocation limit is set to the default of (?P<limit>\d+ ?MB)",
    anchors="SHMEM allocation limit",
    example="NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be",
    # NVIDIA's images print this at every start of a container with Docker's default.
    role=Role.CONTEXT,
)
OTHER_CAUSE = r"Too many open files|Permission denied|No such file"
ENLARGE = (
    "enlarge it: `docker run --shm-size=8g` or `--ipc=host`; in Kubernetes an emptyDir with "
    "`medium: Memory` at /dev/shm"
)


@FAULT.explain
def shared_memory_full(wreckage: Wreckage) -> Diagnosis | None:
    seen = [
        *wreckage.seen(SEGMENT, TENSOR),
        *(s for s in wreckage.seen(no_space.FULL) if no_space.in_shared_memory(wreckage, s)),
    ]
    other = sightings.saying(seen, OTHER_CAUSE)
    if sightings.saying(wreckage.seen(nccl.WARN), rf"Call to \w+ failed ?: (?:{OTHER_CAUSE})"):
        # NCCL prints the reason in one line, and in the next only that a segment was not created.
        other = (*other, *(one for one in seen if one.fields.get("segment")))
    seen = sorted((one for one in seen if one not in other), key=lambda one: one.order)
    if seen:
        return _allocation_refused(wreckage, seen)
    if limit := wreckage.seen(VOLUME):
        return _diagnose(
            wreckage,
            f'Kubernetes ended the pod because its volume "{limit[0].fields["volume"]}" for {SHM} '
            f"had used up its limit of {limit[0].fields['limit']}",
            limit,
            confidence=0.9,
        )
    if bus := wreckage.seen(BUS):
        return _diagnose(
            wreckage,
            f"a DataLoader worker of {sightings.who(bus)} died of a bus error: it touched a page "
            f"of {SHM} that could not be allocated",
            bus,
            confidence=0.9,
        )
    if touched := wreckage.seen(NO_PAGE):
        return _diagnose(
            wreckage,
            f"{sightings.who(touched)} died of a bus error: it touched a page that could not be "
            f"allocated, as in a full {SHM}; a mapped file that was truncated does the same",
            touched,
            confidence=0.7,
        )
    if unopened := wreckage.seen(OBJECT):
        return _diagnose(
            wreckage,
            f"{sightings.who(unopened)} could not open a shared memory object, and the log does "
            f"not say why: {SHM} may be full, though too many open files are more likely",
            unopened,
            # Creating the file needs an inode and no space: a full /dev/shm fails one step later.
            confidence=0.35,
        )
    return _died_of_sigbus(wreckage)


def _allocation_refused(wreckage: Wreckage, seen: Sequence[Sighting]) -> Diagnosis:
    names = ("file", "segment", "old", "object", "backing")
    file = next((f for name in names if (f := sightings.field(seen, name))), "")
    asked = sightings.field(seen, "size") or sightings.field(seen, "bytes")
    size = f" of {text.size(int(asked))}" if asked else ""
    segment = f"a segment{size}" + (f" ({file})" if file else "")
    certain_wording = sightings.saying(
        seen, "No space|fallocate|extend|torch_"
    ) or not sightings.field(seen, "segment")
    # NCCL prints 'while creating' for any failure there; pinning it for CUDA can fail too.
    pinning = sightings.saying(wreckage.seen(nccl.WARN), r"shm\w*\.(?:cc|h):\d+.*Cuda failure")
    return _diagnose(
        wreckage,
        f"{sightings.who(seen)} could not allocate {segment} in {SHM}: "
        + ("CUDA refused to pin it, or it is full" if pinning else "it is full or too small"),
        seen,
        confidence=0.55 if pinning else 0.95 if certain_wording else 0.85,
    )


def _died_of_sigbus(wreckage: Wreckage) -> Diagnosis | None:
    """SIGBUS: usually a page of shared memory that could not be allocated; or a mapped file."""
    ended: list[Exit] = [e for e in wreckage.exits if e.code in (-7, 135) and not e.teardown]
    if not ended or wreckage.roots():
        return None
    first = ended[0]
    who = "a rank" if first.rank is None else f"rank {first.rank}"
    return FAULT.diagnosis(
        f"{who} died of a bus error (SIGBUS), usually because a page of {SHM} could not be "
        "allocated; a mapped file that was truncated does the same",
        confidence=0.6 if wreckage.seen(BANNER) else 0.5,
        culprit=Culprit(rank=first.rank, host=first.host, pid=first.pid),
        evidence=[Evidence(quote=first.line.text, source=first.line.source, rank=first.rank)],
        seen=wreckage.seen(BANNER),
        fix=ENLARGE,
        next=f"df -h {SHM}",
    )


def _diagnose(
    wreckage: Wreckage, reason: str, seen: Sequence[Sighting], *, confidence: float
) -> Diagnosis:
    limit = sightings.field(wreckage.seen(BANNER), "limit")
    default = f"; this container has Docker's default of {limit}" if limit else ""
    worker, line = sightings.field(seen, "worker"), seen[0].line
    return FAULT.diagnosis(
        f"{reason}{default}",
        confidence=confidence,
        seen=[*seen, *wreckage.seen(BANNER)],
        culprit=Culprit(
            rank=line.rank,
            host=line.host,
            pid=line.pid,
            what=f"DataLoader worker pid {worker}" if worker else "",
        ),
        fix=f"{ENLARGE}; or use fewer loader workers or smaller batches",
        next=f"df -h {SHM}",
    )
