"""RDMA needs more locked memory than the limit allows.

What you see   `Call to ibv_reg_mr failed with error Cannot allocate memory` or
               `ibv_create_qp failed` from NCCL at the first collective between machines, then
               ncclSystemError.
Why            An RDMA card reads and writes memory directly, so every buffer must be locked in RAM.
               The kernel counts it against RLIMIT_MEMLOCK, by default 8 MiB or less; NCCL needs far
               more. Root and CAP_IPC_LOCK are exempt. The limit is inherited from sshd, slurmd or
               the container, so it may differ from that of your own shell.
How to be sure Run `ulimit -l` inside the job (not in your login shell), or `grep locked
               /proc/PID/limits` for the launcher; give `holdfast check` its pid.
Fix            docker and podman: `--ulimit memlock=-1`. Slurm: `LimitMEMLOCK=infinity` in slurmd's
               unit and PropagateResourceLimitsExcept=MEMLOCK. Others: `* - memlock unlimited` in
               /etc/security/limits.d/, then log in again. An ordinary user cannot exceed the hard
               limit, nor can a rootless container.
Known limits   The check reads the limit of its own shell, or of the launcher whose pid it is given;
               a scheduler may start the ranks with another one. Whether the launcher raises the
               limit is not seen.
Sources        NVIDIA/nccl docs/userguide/source/troubleshooting/networking_troubleshooting.rst
               https://github.com/NVIDIA/nccl-tests/issues/206
               https://man7.org/linux/man-pages/man2/getrlimit.2.html (RLIMIT_MEMLOCK)
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Container, Limits, MachineFacts, Unread, known, rdma_use
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD211",
    slug="ib-memlock",
    related=("memlock-low", "ib-misconfig", "container-flags"),
    gpus_only=True,
)

NO_MEMORY = FAULT.log_pattern(
    "no-memory",
    r"ibv_(?P<call>reg_(?:dmabuf_)?mr(?:_iova2)?|create_(?:qp|cq))\w* failed with error "
    r"(?:Cannot allocate memory|\w+ errno 12\b)"
    # Open MPI's openib says it itself, in lines that are wrapped.
    r"|allocate some locked memory\.|memlock limits are set too low",
    anchors=(
        *("failed with error Cannot allocate memory", "errno 12"),
        *("allocate some locked memory", "memlock limits are set too low"),
    ),
    example="node-a:411:498 [0] misc/ibvwrap.cc:194 NCCL WARN Call to ibv_reg_mr failed with error "
    "Cannot allocate memory",
)
UCX_MEMORY = FAULT.log_pattern(
    "ucx-memory",
    r"ibv_(?:exp_)?(?P<call>reg_(?:dmabuf_)?mr|create_(?:qp|cq|srq))(?:_ex)?\([^)\n]{0,160}\) "
    r"failed: Cannot allocate memory",
    anchors=("failed: Cannot allocate memory",),
    example="[1700000000.1] [node-a:411:0] ib_md.c:287 UCX  ERROR ibv_reg_mr(address=0x7f00, "
    "length=65536, access=0xf) failed: Cannot allocate memory",
)
NO_QUEUE = FAULT.log_pattern(
    "no-queue",
    r"ibv_(?P<call>create_(?:qp|cq))\w* failed(?! with error Cannot|:)",
    anchors=("ibv_create_qp", "ibv_create_cq"),
    example="node-a:411:498 [0] NCCL WARN Call to ibv_create_qp failed",
)
LIMITED = FAULT.log_pattern(
    "limited",
    r"RLIMIT_MEMLOCK is (?P<bytes>\d+) bytes|max locked memory +\(kbytes, -l\) +(?P<kib>\d+)"
    r"|max locked memory \(ulimit -l\) to 'unlimited' \(current: (?P<ucx>\d+) kbytes",
    anchors=("RLIMIT_MEMLOCK is", "max locked memory"),
    example="libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.",
    # libibverbs says so whenever it is loaded, used or not
    role=Role.CONTEXT,
)

LARGE_LIMIT = 1 << 30
"""bytes; a finite limit of this size was set on purpose, and NCCL's buffers fit"""


@FAULT.check(needs=("container", "limits", "rdma_devices", "rdma_ports", "settings"))
def own_limit_is_too_low(facts: MachineFacts) -> Finding:
    idle = _why_rdma_is_not_used(facts)
    if idle:
        return FAULT.does_not_apply(idle)
    return _judge(facts, known(facts.limits), "here")


@FAULT.check(needs=("container", "launcher_limits", "rdma_devices", "rdma_ports", "settings"))
def launcher_limit_is_too_low(facts: MachineFacts) -> Finding | list[Finding]:
    if facts.launcher_limits is None:
        return []
    limits = known(facts.launcher_limits)
    if _why_rdma_is_not_used(facts):
        return []  # own_limit_is_too_low says so
    return _judge(facts, limits, f"in the launcher (pid {limits.pid})")


def _why_rdma_is_not_used(facts: MachineFacts) -> str:
    if not known(facts.rdma_devices):
        return "no RDMA device is visible"
    if off := rdma_use.switched_off(facts):
        return f"{off} makes NCCL use no RDMA"
    ports = facts.rdma_ports
    if not isinstance(ports, Unread) and ports and not any(p.state == "ACTIVE" for p in ports):
        return "no RDMA port is active"
    return ""


def _judge(facts: MachineFacts, limits: Limits, where: str) -> Finding:
    soft, hard = limits.memlock.soft, limits.memlock.hard
    if soft is None or limits.ipc_lock:
        return FAULT.ok(f"locked memory is unlimited {where}")
    devices = ", ".join(known(facts.rdma_devices))
    evidence = [
        Evidence(
            quote=f"max locked memory {text.size(soft)}, "
            f"hard limit {'unlimited' if hard is None else text.size(hard)}",
            source=f"/proc/{limits.pid}/limits",
        ),
        Evidence(quote=f"RDMA: {devices}", source="/sys/class/infiniband"),
    ]
    summary = f"only {text.size(soft)} of memory may be locked {where}, and RDMA needs more"
    if soft >= LARGE_LIMIT or not facts.plan.multi_node:
        return FAULT.note(
            summary,
            reason="that is enough for NCCL's own buffers; registered user buffers can need more"
            if soft >= LARGE_LIMIT
            else "on one machine NCCL does not use RDMA; a job on several would fail",
            evidence=evidence,
            fix=_advice(facts, hard),
        )
    return FAULT.error(
        summary,
        reason="NCCL cannot register its buffers with the card: ibv_reg_mr fails with 'Cannot "
        "allocate memory' at the first collective (unless the launcher raises the limit)",
        evidence=evidence,
        fix=_advice(facts, hard),
    )


def _advice(facts: MachineFacts, hard: int | None) -> str:
    if hard is None:
        return "run `ulimit -l unlimited` in the shell that starts the ranks, on every machine"
    container = facts.container
    if isinstance(container, Container) and container.kind in ("docker", "podman"):
        return f"start the container with `{container.kind} run --ulimit memlock=-1`"
    return (
        "ask an administrator to raise it: `* - memlock unlimited` in /etc/security/limits.d/, or "
        "LimitMEMLOCK=infinity in the unit of sshd, slurmd or kubelet's runtime"
    )


@FAULT.explain
def memory_could_not_be_locked(wreckage: Wreckage) -> Diagnosis | None:
    refused = wreckage.seen(NO_MEMORY)
    seen = refused or wreckage.seen(UCX_MEMORY) or wreckage.seen(NO_QUEUE)
    if not seen:
        return None
    limit = wreckage.seen(LIMITED)
    call = next((f" (ibv_{one.fields['call']})" for one in seen if "call" in one.fields), "")
    shown = f"; the limit was {_limit(limit[0].fields)}" if limit else ""
    return FAULT.diagnosis(
        f"the RDMA card could not lock the memory it needs{call}{shown}: RLIMIT_MEMLOCK of the job "
        "was too low",
        confidence=0.93 if refused or limit else 0.6,
        seen=[*seen, *limit],
        culprit=Culprit(what="RLIMIT_MEMLOCK", host=seen[0].line.host),
        victims=[one.rank for one in seen if one.rank is not None],
        fix="raise the limit: `--ulimit memlock=-1` for a container, LimitMEMLOCK=infinity for "
        "slurmd, `* - memlock unlimited` in /etc/security/limits.d/ elsewhere",
        next="ulimit -l",
    )


def _limit(fields: dict[str, str]) -> str:
    if "bytes" in fields:
        return text.size(int(fields["bytes"]))
    return text.size(int(fields.get("kib") or fields["ucx"]) * 1024)
