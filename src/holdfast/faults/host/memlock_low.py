"""The limit on locked memory is low.

What you see   Nothing, in most jobs. `mlock failed to allocate … bytes` from DeepSpeed when it
               offloads to disk; `ibv_reg_mr` failures once the same job runs on machines with RDMA.
Why            RLIMIT_MEMLOCK limits how much memory a process may lock in RAM. NCCL over NVLink,
               PCIe or TCP locks nothing that counts here, and CUDA's pinned memory is managed by
               the driver. RDMA does count (see ib-memlock), and so do DeepSpeed's page-locked
               buffers for disk offload.
How to be sure `ulimit -l` in the shell that starts the ranks.
Fix            Nothing without RDMA and disk offload. Otherwise `ulimit -l` up to the hard limit,
               `--ulimit memlock=-1` for a container, or a line in /etc/security/limits.d/.
Known limits   Where RDMA devices are present ib-memlock judges the limit instead. Whether a job
               offloads to disk is guessed from DeepSpeed being installed.
Sources        NVIDIA/nccl docs/userguide/source/troubleshooting/networking_troubleshooting.rst
               deepspeedai/DeepSpeed csrc/pin_memory/page_alloc.cpp
               https://man7.org/linux/man-pages/man2/getrlimit.2.html (RLIMIT_MEMLOCK)
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import text
from holdfast.analysis.machine import MachineFacts, Software, known
from holdfast.analysis.source.launch import ulimit_mistakes, ulimits
from holdfast.analysis.source.source import ContainerRun, Source
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(
    code="HOLD403", slug="memlock-low", related=("ib-memlock", "fd-limit", "process-limit")
)

LOW = 64 << 20
"""The kernel's default is 8 MiB (64 KiB before Linux 5.16); far above, it was set on purpose."""


@FAULT.check(needs=("limits", "rdma_devices", "software"))
def locked_memory_limit_low(facts: MachineFacts) -> Finding:
    limits = known(facts.limits)
    if known(facts.rdma_devices):
        return FAULT.does_not_apply("RDMA devices are present: see ib-memlock")
    soft = limits.memlock.soft
    if soft is None or limits.ipc_lock:
        return FAULT.ok("no limit on locked memory")
    seen = f"{text.size(soft)} of memory may be locked"
    needed_by = _needs_locked_memory(facts)
    if soft >= LOW or not needed_by:
        return FAULT.ok(f"{seen}; without RDMA this job needs no more")
    return FAULT.note(
        f"only {seen}",
        reason=f"{needed_by}; NCCL without RDMA is not affected",
        evidence=[
            Evidence(quote=f"max locked memory {soft} bytes", source=f"/proc/{limits.pid}/limits")
        ],
        fix="if that applies: `ulimit -l unlimited` where the hard limit allows it, "
        "`--ulimit memlock=-1` for a container",
    )


def _needs_locked_memory(facts: MachineFacts) -> str:
    software = facts.software
    if isinstance(software, Software) and "deepspeed" in software.packages:
        return "DeepSpeed locks its buffers when it offloads to disk; too low a limit stops it"
    if facts.plan.multi_node:
        return "no RDMA device is visible here; RDMA on another machine of the job would fail"
    return ""


# --- lint ----------------------------------------------------------------------------------------


@FAULT.lint
def ulimit_has_no_effect(source: Source) -> Iterator[Finding]:
    for raised in ulimits.ulimit_commands(source, "memlock"):
        if mistake := ulimit_mistakes.under_sudo(raised):
            yield FAULT.error(
                mistake.summary,
                reason=mistake.reason,
                fix="`ulimit -l unlimited` without sudo, where the hard limit allows it; otherwise "
                "add `* - memlock unlimited` in /etc/security/limits.d/",
                at=mistake.place,
            )
        elif mistake := ulimit_mistakes.only_in_build_step(source, raised):
            yield FAULT.warning(
                mistake.summary,
                reason=mistake.reason,
                fix="`docker run --ulimit memlock=-1 …`",
                at=mistake.place,
            )


@FAULT.lint
def rdma_container_memlock_low(source: Source) -> Iterator[Finding]:
    """A container that gets RDMA devices but may lock almost no memory."""
    for container in source.containers:
        asked = ulimits.container_ulimit(container, "memlock")
        if mistake := ulimit_mistakes.soft_above_hard(container, "memlock"):
            yield FAULT.error(
                mistake.summary,
                reason=mistake.reason,
                fix="`--ulimit memlock=-1`",
                at=mistake.place,
            )
        elif _has_rdma_devices(container) and (asked is None or 0 <= asked[1] < LOW):
            yield FAULT.warning(
                "the container gets RDMA devices but may lock little memory",
                reason="RDMA locks its send and receive buffers: `ibv_reg_mr` fails beyond the "
                "limit (8 MiB by default), unless the engine is configured for more",
                fix="`--ulimit memlock=-1`",
                at=(asked[0] if asked else container).place,
            )


def _has_rdma_devices(container: ContainerRun) -> bool:
    unlimited = container.option("privileged") is not None or any(
        option.value.upper().removeprefix("CAP_") in ("IPC_LOCK", "ALL")
        for option in container.every("cap-add")
    )
    devices = any("/dev/infiniband" in option.value for option in container.every("device"))
    return devices and not unlimited
