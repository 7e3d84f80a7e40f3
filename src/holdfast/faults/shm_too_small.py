"""Shared memory (/dev/shm) is too small.

What you see   `unable to allocate shared memory(shm) for file </torch_…>: No space left on device`;
               from torch before that check (late 2025) `DataLoader worker (pid …) is killed by
               signal: Bus error`, exit code -7 (SIGBUS). NCCL's `failed to extend
               /dev/shm/nccl-… to 9637892 bytes`, in old versions `Call to posix_fallocate failed`.
Why            Containers get 64 MiB by default. Loader workers hand every batch over in /dev/shm
               (32 images of 224x224 as float32 are 18 MiB, and each worker prepares two ahead).
               NCCL puts the buffers of GPUs that cannot reach each other directly there, 9.2 MiB
               for each connection and channel (4 MiB Simple, 4.7 LL128, 0.5 LL). Unless it was
               reserved, a page that cannot be had is noticed only when it is touched, and then by
               SIGBUS. From NCCL 2.24 with CUDA driver 12.6 or newer NCCL uses cuMem host memory
               instead, where NUMA support works (Docker blocks it unless `--cap-add SYS_NICE`);
               loaders still use /dev/shm.
How to be sure `df -h /dev/shm` inside the container while the job runs. holdfast also allocates
               some of it for real. Its estimate: four such connections a rank with GPUs (37 MiB),
               and 128 MiB a rank with loaders to be comfortable; jobs without loader workers need
               less.
Fix            docker, podman: `--shm-size=8g`, or `--ipc=host` (then --shm-size has no effect).
               Kubernetes: an emptyDir with `medium: Memory` mounted at /dev/shm. A host:
               `mount -o remount,size=16G /dev/shm`. Else fewer loader workers, or smaller batches.
Sources        NVIDIA/nccl docs/userguide/source/troubleshooting/runtime_and_mpi_issues.rst
               NVIDIA/nccl src/transport/shm.cc, src/init.cc: buffer sizes
               moby/moby daemon/config/config.go: 64 MiB by default
               https://github.com/NVIDIA/nccl/issues/290
               https://github.com/pytorch/pytorch/issues/5040
               https://github.com/pytorch/pytorch/pull/161910 (an error instead of SIGBUS)
"""

from __future__ import annotations

from holdfast import wording
from holdfast.facts import Container, MachineFacts, Shm, known
from holdfast.model import Evidence, Fault, Finding

FAULT = Fault(code="HOLD402", slug="shm-too-small")

SHM = "/dev/shm"  # noqa: S108 - named in words, never opened here
MIB = 1 << 20
ONE_BATCH = 18 * MIB
"""32 images, 3 x 224 x 224, float32"""
NCCL_A_RANK = 37 * MIB
"""4 connections (2 neighbours, 2 channels) of 9.2 MiB: NVIDIA/nccl src/transport/shm.cc"""
COMFORT_A_RANK = 128 * MIB
"""NCCL's share, and a few batches of loader workers; 1 GiB for 8 ranks, as NCCL's guide has it"""


@FAULT.foresee
def not_enough_room(facts: MachineFacts) -> Finding:
    shm, nproc = known(facts.shm), facts.plan.nproc
    if shm.error:
        return FAULT.error(
            f"there is no {SHM}"
            if shm.error == "ENOENT"
            else f"{wording.size(shm.tried)} of shared memory could not be had: {shm.error}",
            reason="a real allocation in /dev/shm failed just now; loader workers and NCCL will "
            "meet the same, as 'No space left on device' or as a bus error",
            evidence=_evidence(shm),
            fix=_advice(facts),
        )
    if shm.free >= COMFORT_A_RANK * nproc:
        return FAULT.ok(f"{SHM} has {wording.size(shm.free)} free for {nproc} ranks")
    with_gpus = facts.accelerators != ()
    needed = ONE_BATCH + (NCCL_A_RANK * nproc if nproc > 1 and with_gpus else 0)
    speak = FAULT.error if shm.free < needed else FAULT.warning
    return speak(
        f"{SHM} has {wording.size(shm.free)} free of {wording.size(shm.size)}, "
        f"little for {nproc} rank{'s' if nproc > 1 else ''}",
        reason=_estimate(shm.free, nproc, with_gpus=with_gpus),
        evidence=_evidence(shm),
        fix=_advice(facts),
    )


def _estimate(free: int, nproc: int, *, with_gpus: bool) -> str:
    batch = (
        f"one batch of 32 images takes {wording.size(ONE_BATCH)} of it and each loader worker "
        f"prepares two; {wording.size(COMFORT_A_RANK * nproc)} would be comfortable"
    )
    if nproc > 1 and with_gpus:
        return (
            f"estimate: NCCL takes about {wording.size(NCCL_A_RANK)} a rank where GPUs lack direct "
            f"access to each other (none from 2.24 on where cuMem works), and {batch}"
        )
    if free < ONE_BATCH:
        return f"loader workers will fail, in older torch by a bus error (SIGBUS): {batch}"
    return f"without loader workers nothing may break; with them, {batch}"


def _evidence(shm: Shm) -> list[Evidence]:
    tried = f", allocating {wording.size(shm.tried)}: {shm.error or 'worked'}"
    return [
        Evidence(
            quote=f"{wording.size(shm.size)} in all, {wording.size(shm.free)} free{tried}",
            source=SHM,
        )
    ]


def _advice(facts: MachineFacts) -> str:
    want = max(8, facts.plan.nproc // 4)  # GiB: 256 MiB a rank, and never a stingy number
    container = facts.container
    kind = container.kind if isinstance(container, Container) else ""
    if kind in ("docker", "podman"):
        return f"start the container with `{kind} run --shm-size={want}g …`, or with `--ipc=host`"
    if kind == "kubernetes":
        return "mount an emptyDir with `medium: Memory` at /dev/shm in the pod"
    if kind:
        return "give the container the host's /dev/shm, or a larger one of its own"
    return (
        f"look for leftovers with `ls -l {SHM}`; else, as root: "
        f"`mount -o remount,size={want}G {SHM}`"
    )
