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

from holdfast import wording
from holdfast.facts import MachineFacts, Software, known
from holdfast.fault import Fault
from holdfast.model import Evidence, Finding

FAULT = Fault(code="HOLD403", slug="memlock-low")

LITTLE = 64 << 20
"""The kernel's default is 8 MiB (64 KiB before Linux 5.16); anything far above was chosen."""


@FAULT.foresee
def little_may_be_locked(facts: MachineFacts) -> Finding:
    limits = known(facts.limits)
    if known(facts.rdma_devices):
        return FAULT.does_not_apply("RDMA devices are present, so ib-memlock judges the limit")
    soft = limits.memlock.soft
    if soft is None or limits.ipc_lock:
        return FAULT.ok("memory can be locked without limit")
    seen = f"{wording.size(soft)} of memory may be locked"
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
