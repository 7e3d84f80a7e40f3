"""Little memory may be locked.

What you see   Nothing, in most jobs. `mlock failed to allocate … bytes` from DeepSpeed when it
               offloads to disk; `ibv_reg_mr` failures once the same job runs where RDMA is.
Why            RLIMIT_MEMLOCK bounds what a process may lock in RAM. NCCL over NVLink, PCIe or TCP
               locks nothing that counts here, and CUDA's pinned memory is the driver's own affair.
               RDMA does count (see ib-memlock), and so do DeepSpeed's page-locked buffers for disk
               offload.
How to be sure `ulimit -l` in the shell that starts the ranks.
Fix            Nothing has to be done without RDMA and disk offload. Otherwise `ulimit -l` up to
               the hard limit, `--ulimit memlock=-1` for a container, or a line in
               /etc/security/limits.d/.
Sources        NVIDIA/nccl docs/userguide/source/troubleshooting/networking_troubleshooting.rst
               deepspeedai/DeepSpeed csrc/pin_memory/page_alloc.cpp
               https://man7.org/linux/man-pages/man2/getrlimit.2.html (RLIMIT_MEMLOCK)
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import text
from holdfast.analysis.machine import MachineFacts, Software, known
from holdfast.analysis.source.launch import ulimits
from holdfast.analysis.source.source import Container, Source
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(code="HOLD403", slug="memlock-low")

LITTLE = 64 << 20
"""The kernel's default is 8 MiB (64 KiB before Linux 5.16); anything far above was chosen."""


@FAULT.check(needs=("limits", "rdma_devices", "software"))
def little_may_be_locked(facts: MachineFacts) -> Finding:
    limits = known(facts.limits)
    if known(facts.rdma_devices):
        return FAULT.does_not_apply("RDMA devices are present, so ib-memlock judges the limit")
    soft = limits.memlock.soft
    if soft is None or limits.ipc_lock:
        return FAULT.ok("memory can be locked without limit")
    seen = f"{text.size(soft)} of memory may be locked"
    who = _who_would_mind(facts)
    if soft >= LITTLE or not who:
        return FAULT.ok(f"{seen}; without RDMA nothing in this job needs more")
    return FAULT.note(
        f"only {seen}",
        reason=f"{who}; NCCL without RDMA does not mind",
        evidence=[
            Evidence(quote=f"max locked memory {soft} bytes", source=f"/proc/{limits.pid}/limits")
        ],
        fix="if one of these is yours: `ulimit -l unlimited` where the hard limit allows it, "
        "`--ulimit memlock=-1` for a container",
    )


def _who_would_mind(facts: MachineFacts) -> str:
    software = facts.software
    if isinstance(software, Software) and "deepspeed" in software.packages:
        return "DeepSpeed locks its buffers when it offloads to disk, and fails when it may not"
    if facts.plan.multi_node:
        return "no RDMA device is visible here; if another machine of the job has one, it fails"
    return ""


# --- in what a user wrote ------------------------------------------------------------------------


@FAULT.lint
def the_limit_is_not_what_it_says(source: Source) -> Iterator[Finding]:
    for raised in ulimits.raised(source, "memlock"):
        if "sudo" in raised.command.wrappers:
            yield FAULT.error(
                "`sudo ulimit` changes nothing here",
                reason="ulimit is part of the shell, and sudo starts programs: 'command not "
                "found', or a child whose limit ends with it",
                fix="`ulimit -l unlimited` without sudo, where the hard limit allows it; else a "
                "line `* - memlock unlimited` in /etc/security/limits.d/",
                at=raised.command.place,
            )
        elif ulimits.only_while_building(source, raised.command):
            yield FAULT.warning(
                "`RUN ulimit` ends with that step of the build",
                reason="the limits of a container are those that the engine starts it with",
                fix="`docker run --ulimit memlock=-1 …`",
                at=raised.command.place,
            )


@FAULT.lint
def rdma_without_locked_memory(source: Source) -> Iterator[Finding]:
    """A container that is handed RDMA devices, and may lock next to nothing."""
    for container in source.containers:
        asked = ulimits.asked(container, "memlock")
        if asked is not None and ulimits.soft_above_hard(*asked[1:]):
            option, soft, hard = asked
            yield FAULT.error(
                f"a soft limit of {soft} above a hard limit of {hard}",
                reason="the engine refuses it, and the container does not start",
                fix="`--ulimit memlock=-1`",
                at=option.place,
            )
        elif _given_rdma(container) and (asked is None or 0 <= asked[1] < LITTLE):
            yield FAULT.warning(
                "the container gets RDMA devices, but may lock little memory",
                reason="RDMA locks what it sends and receives: `ibv_reg_mr` fails beyond the limit "
                "(8 MiB by default), unless the engine is set up to give more",
                fix="`--ulimit memlock=-1`",
                at=(asked[0] if asked else container).place,
            )


def _given_rdma(container: Container) -> bool:
    free = container.option("privileged") is not None or any(
        option.value.upper().removeprefix("CAP_") in ("IPC_LOCK", "ALL")
        for option in container.every("cap-add")
    )
    devices = any("/dev/infiniband" in option.value for option in container.every("device"))
    return devices and not free
