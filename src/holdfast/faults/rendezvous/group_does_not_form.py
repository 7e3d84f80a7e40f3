"""A small group of ranks on this machine does not form, or computes wrong sums.

What you see   The job hangs or dies in init_process_group or in its first collective, and the
               message names a layer far from the cause: `client socket has timed out` for a refused
               connection or an unknown name, `Software caused connection abort` from NCCL before
               2.24 for a refused or silent peer.
Why            A group is built in layers: loopback, processes that start, the store on MASTER_PORT,
               Gloo's connections between all ranks, NCCL's. A failure in a lower layer is reported
               by a higher one, in other words.
How to be sure `holdfast check --smoke` builds the layers one after the other, in separate processes
               with the job's own environment, and stops at the first that fails. The sums are
               compared exactly, so a pass also means that they were correct. For NCCL alone,
               nccl-tests is a second opinion, but it may load another libnccl than torch does.
Fix            Fix the layer that the finding names; the layers above it need nothing. If the sums
               are wrong although everything connects, do not train on this machine; run Gloo and
               NCCL separately, then check memory (ECC) and the network card.
Known limits   The smoke test runs on one machine; the network between machines is not tested. It
               uses a few ranks and small tensors, so a fault that needs many ranks or long runs
               stays unseen.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/socket.cpp: what a client retries
               NVIDIA/nccl src/misc/socket.cc at v2.23.4-1 and v2.24.3-1
               https://github.com/NVIDIA/nccl-tests
               https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, Smoke, SmokeRank, SmokeStage, known
from holdfast.fault import Fault
from holdfast.findings import Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD116",
    slug="group-does-not-form",
    related=("ranks-missing", "peer-unreachable", "loopback-blocked"),
)

NCCL_ERROR = FAULT.log_pattern(
    "bare",
    r"(?P<kind>ncclSystemError|ncclInternalError|ncclUnhandledCudaError|unhandled (?:system|cuda) "
    r"error|internal error)(?=[,:]).*",
    anchors=(
        *("ncclSystemError", "ncclInternalError", "ncclUnhandledCudaError"),
        *("unhandled system", "unhandled cuda", "internal error, NCCL"),
    ),
    example="RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:784, unhandled system error, NCCL "
    "version 2.7.8",
    # it says that NCCL failed, and nothing about why
    role=Role.CASCADE,
)
INTERRUPTED = FAULT.log_pattern(
    "interrupted",
    r"(?:RuntimeError|DistNetworkError): Interrupted system call",
    anchors=("Error: Interrupted system call",),
    example="RuntimeError: Interrupted system call",
    role=Role.CASCADE,
)


@FAULT.check(needs=("smoke",))
def smoke_test_failed(facts: MachineFacts) -> Finding:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    failed = next((stage for stage in smoke.stages if stage.status == "failed"), None)
    if failed is None:
        return FAULT.ok(_success(smoke))
    if failed.cause_speaks:
        return FAULT.skipped(f"the smoke test failed at '{failed.name}': see {failed.cause}")
    return FAULT.error(
        f"{smoke.world} ranks on this machine failed at stage '{failed.name}'",
        reason=failed.reason,
        evidence=[_stage(stage) for stage in smoke.stages] + _complaints(smoke),
        fix=_fix(smoke, failed),
    )


def _success(smoke: Smoke) -> str:
    passed = [stage.name for stage in smoke.stages if stage.status == "ok"]
    top = max(smoke.ladder, key=lambda rung: (rung.size, rung.bandwidth), default=None)
    speed = ""
    if top:
        speed = (
            f"; all_reduce of {text.size(top.size)} over {top.stage}: correct, "
            f"{top.bandwidth / 1e9:.2f} GB/s bus bandwidth"
        )
    return f"{smoke.world} ranks passed {', '.join(passed)}{speed}"


def _fix(smoke: Smoke, failed: SmokeStage) -> str:
    if failed.fix:
        return failed.fix
    if failed.cause:
        return f"see `holdfast explain {failed.cause}`"
    if any(rung.stage == failed.name and not rung.correct for rung in smoke.ladder):
        return "do not train on this machine; see `holdfast explain group-does-not-form`"
    return "for more detail: `TORCH_CPP_LOG_LEVEL=INFO NCCL_DEBUG=INFO holdfast check --smoke`"


def _stage(stage: SmokeStage) -> Evidence:
    took = f" after {stage.seconds:.1f} s" if stage.seconds else ""
    return Evidence(quote=f"stage '{stage.name}': {stage.status}{took}", source="smoke test")


def _complaints(smoke: Smoke) -> list[Evidence]:
    return [_complaint(rank) for rank in smoke.ranks if rank.error]


def _complaint(rank: SmokeRank) -> Evidence:
    first_line = rank.error.splitlines()[0]
    return Evidence(quote=f"rank {rank.rank}: {first_line}", source="smoke test", rank=rank.rank)


@FAULT.explain
def nccl_failed_without_its_warning(wreckage: Wreckage) -> Diagnosis | None:
    """The last resort: NCCL's own warning, which would say why, is not in the log."""
    seen = wreckage.seen(NCCL_ERROR)
    explained = wreckage.roots() or connections.attempts(wreckage)
    if not seen or explained:
        return None
    kind = seen[0].fields["kind"]
    return FAULT.diagnosis(
        f"NCCL gave up with '{kind}', and its own warning, which says why, is not in this log",
        confidence=0.25,
        seen=seen,
        fix="run the job again with NCCL_DEBUG=INFO and explain that log: its first 'NCCL WARN' "
        "line names the layer that failed",
        next="export NCCL_DEBUG=INFO",
        unknown=["the cause: failures of system calls, CUDA and the network all end in this error"],
    )


@FAULT.explain
def signal_interrupted_the_wait(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(INTERRUPTED)
    if not seen or wreckage.roots() or wreckage.seen(NCCL_ERROR):
        return None
    return FAULT.diagnosis(
        "a signal interrupted the process while it waited for the store: a launcher or a user "
        "stopped the job, or a profiler or debugger sent it",
        confidence=0.3,
        seen=seen,
        fix="find the process that ended first; the others were only told to stop. Start a "
        "profiler that sends signals after init_process_group",
        next="grep -nE 'signal|SIGTERM|Traceback' *.log",
    )
