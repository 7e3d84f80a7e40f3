"""A kernel failed on the GPU: an assertion, or an illegal memory access.

What you see   `CUDA error: device-side assert triggered` on one rank, at a line of Python that has
               nothing to do with it; above it lines such as `IndexKernel.cu:92: … Assertion `index
               out of bounds` failed.` Or `an illegal memory access was encountered`, `unspecified
               launch failure`. The other ranks time out.
Why            Kernels run asynchronously, so the traceback shows where the error was noticed, not
               where it happened. Most assertions are labels or token ids out of range (embedding,
               cross entropy), probabilities outside 0…1, or NaN in sampling. An illegal access is a
               bug in a kernel (suspect custom and fused ones first), a tensor that was freed too
               early, and occasionally a failing GPU.
How to be sure The assertion's file names the kernel: Indexing, Loss, NLL, scatter_gather. If it
               happens on one rank with one batch, it is the data. `CUDA_LAUNCH_BLOCKING=1` makes
               the traceback exact; `compute-sanitizer python …` finds illegal accesses; the same
               batch on the CPU raises a plain IndexError. It is the hardware if Xid 31 or 13
               appears on one GPU only, with different programs.
Fix            Check labels and indices against the size of the table before they reach the GPU. For
               illegal accesses: upgrade custom kernels, or disable them one by one.
Known limits   An illegal memory access alone does not tell a kernel bug from a failing GPU; only
               the kernel log (Xid) does. The batch that triggered an assertion is not in the log.
Sources        pytorch/pytorch aten/src/ATen/native/cuda/IndexKernel.cu: such an assertion
               https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html (700, 710)
               https://github.com/modelscope/ms-swift/issues/8371
               https://github.com/NVIDIA/nccl/issues/1562
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.analysis.drill.injection import BreakInside, Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import sightings, xid_reports
from holdfast.analysis.logs.patterns import kernel
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.logs.xid_table import XidBlame, look_up
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Verdict

FAULT = Fault(
    code="HOLD312",
    slug="cuda-assert",
    traits=RunTraits(priority=212),
    related=("gpu-hardware", "device-ordinal", "python-exception"),
)

ASSERTION = FAULT.log_pattern(
    "assertion",
    # Some pastes have a line break before 'failed'; ROCm's runtime puts it in other words.
    r"(?<![\w./<>+\-])(?P<file>[\w./<>+\-]{1,200}\.(?:cuh?|h|hpp|cpp|py|inl|hip)|unknown):(?P<line>\d{1,6}):.{0,300}?"
    r"(?:(?:block: ?\[|thread: ?\[).{0,100}?Assertion|Device-side assertion) "
    r"[`'](?P<text>[^'`]{0,300})(?:['`] failed|$)",
    anchors=("Assertion ", "Device-side assertion "),
    example="/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [0,0,0], "
    "thread: [32,0,0] Assertion `index >= -sizes[i] && index < sizes[i]` failed.",
)
TRIGGERED = FAULT.log_pattern(
    "triggered",
    r"device-side assert triggered|cudaErrorAssert\b|CUDA_ERROR_ASSERT\b|cuda runtime error \(59\)"
    r"|hipErrorAssert\b|CUDA device-side assertion failures were found",
    anchors=(
        "device-side assert",
        "cudaErrorAssert",
        "CUDA_ERROR_ASSERT",
        "runtime error (59)",
        "hipErrorAssert",
    ),
    example="RuntimeError: CUDA error: device-side assert triggered",
)
ILLEGAL = FAULT.log_pattern(
    "illegal",
    r"(?P<what>an illegal memory access was encountered|unspecified launch failure"
    r"|misaligned address|an illegal instruction was encountered|invalid program counter"
    r"|operation not supported on global/shared address space"
    r"|the launch timed out and was terminated|too many resources requested for launch"
    # The stack of a kernel, by CUDA's documentation: too small for it, or overwritten.
    r"|hardware stack error|cudaErrorHardwareStackError|CUDA_ERROR_HARDWARE_STACK_ERROR"
    r"|(?:cuda|hip)Error(?:IllegalAddress|LaunchFailure|MisalignedAddress|IllegalInstruction)"
    r"|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|MISALIGNED_ADDRESS|ILLEGAL_INSTRUCTION)"
    r"|Memory access fault by GPU node-\d+|HW Exception by GPU node-\d+"
    r"|(?:CUBLAS|CUDNN|CUSPARSE)_STATUS_EXECUTION_FAILED)",
    anchors=(
        "illegal memory access was enc",
        "unspecified launch failure",
        "misaligned address",
        "illegal instruction was enc",
        "invalid program counter",
        "global/shared address space",
        "the launch timed out and was",
        "too many resources requested",
        "hardware stack error",
        "HardwareStackError",
        "HARDWARE_STACK_ERROR",
        "ErrorIllegalAddress",
        "ErrorLaunchFailure",
        "ErrorMisalignedAddress",
        "ErrorIllegalInstruction",
        "CUDA_ERROR_ILLEGAL_",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_MISALIGNED",
        "access fault by GPU node-",
        "HW Exception by GPU node-",
        "_STATUS_EXECUTION_FAILED",
    ),
    example="RuntimeError: CUDA error: an illegal memory access was encountered",
)
ADDRESS = re.compile(r"(?i)memory access|illegal_?address")
ASSERTION_CAUSES = (
    (
        r"(?i)ind(?:ex|ices)|embedding|gather|scatter|srcIndex",
        "an index is out of range for its table",
    ),
    (r"(?i)loss|nll|t >= 0|target|cur_target|n_classes", "a label is out of range for the classes"),
    (r"(?i)probability|multinomial|bernoulli|>= ?0.*<= ?1", "a probability is outside 0…1 or NaN"),
)


UNKNOWN_XID = "whether the GPU is at fault: check the kernel log for an Xid"
KERNEL_FAILED = re.compile(
    r"(?:CUDA|HIP) error: (?P<what>device-side assert triggered|an illegal memory access was "
    r"encountered|unspecified launch failure|misaligned address|an illegal instruction was "
    r"encountered)"
)


@FAULT.run
def gpu_kernel_failed_first(scene: Scene) -> Verdict | None:
    failed = [e for e in exits.cause(scene) if _what_failed(e)]
    if not failed:
        return None
    ranks, first = [e.rank for e in failed], failed[0]
    victims = exits.fallen(scene, ranks)
    where = f", noticed at {first.view.words.where}" if first.view.words else ""
    return FAULT.verdict(
        f"a kernel of {phrases.who(scene, ranks)} failed on the GPU{phrases.at_step(first.view)}: "
        f"{_what_failed(first)}{where}{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="an assertion of the kernel is in the log of that rank; CUDA_LAUNCH_BLOCKING=1 makes "
        "the line exact",
        evidence=[phrases.how_it_ended(e) for e in failed],
    )


def _what_failed(ending: Ending) -> str:
    words = ending.view.words
    found = words and KERNEL_FAILED.search(f"{words.text}\n{words.root_text}")
    return found["what"] if found else ""


@FAULT.explain
def gpu_kernel_failed(wreckage: Wreckage) -> Diagnosis | None:
    assertions = wreckage.seen(ASSERTION)
    triggered = wreckage.seen(TRIGGERED)
    if assertions or triggered:
        return _assertion_failed(assertions, triggered)
    seen = wreckage.seen(ILLEGAL)
    if not seen:
        return None
    what = sightings.field(seen, "what")
    if "timed out" in what:
        return _launch_timed_out(seen)
    return FAULT.diagnosis(
        f"a kernel of {sightings.who(seen)} failed on the GPU ({what}): usually a bug in a "
        "kernel or a tensor used after it was freed, rarely the GPU itself",
        confidence=0.55 if ADDRESS.search(what) else 0.45,
        seen=seen,
        fix="get an exact traceback with CUDA_LAUNCH_BLOCKING=1, find the access with "
        "`compute-sanitizer python …`; disable custom and fused kernels one by one; if it only "
        "ever happens on one GPU, suspect that GPU",
        next="dmesg -T | grep Xid",
        ruled_out=_ruled_out(wreckage),
        unknown=[] if wreckage.seen(kernel.XID) else [UNKNOWN_XID],
    )


def _ruled_out(wreckage: Wreckage) -> list[str]:
    """An Xid that names the program: the driver itself does not blame the GPU."""
    numbers = {xid_reports.number(one) for one in wreckage.seen(kernel.XID)}
    if not numbers or not all(look_up(n).blame is XidBlame.PROGRAM for n in numbers):
        return []
    listed = ", ".join(str(number) for number in sorted(numbers))
    return [f"a broken GPU, as far as the driver tells: it reported Xid {listed} only"]


def _launch_timed_out(seen: Sequence[Sighting]) -> Diagnosis:
    return FAULT.diagnosis(
        f"a kernel of {sightings.who(seen)} ran longer than the driver allows: GPUs that also "
        "drive a display have a limit of a few seconds; a kernel that hangs ends the same way",
        confidence=0.4,
        seen=seen,
        fix="use a GPU without a display or desktop; otherwise use smaller batches to keep each "
        "kernel short",
        next="nvidia-smi --query-gpu=index,display_active,display_mode --format=csv",
        unknown=["whether that GPU drives a display"],
    )


def _assertion_failed(assertions: Sequence[Sighting], triggered: Sequence[Sighting]) -> Diagnosis:
    text, file, number = (sightings.field(assertions, name) for name in ("text", "file", "line"))
    where = f" at {file.rpartition('/')[2]}:{number}" if file else ""
    meaning = next(
        (cause for regex, cause in ASSERTION_CAUSES if sightings.saying(assertions, regex)), ""
    )
    # The GPU's own line is printed without a rank; the exception that follows has one.
    reporter = next((one for one in (*assertions, *triggered) if one.rank is not None), None)
    seen = [*assertions[:3], *triggered]
    line = (reporter or seen[0]).line
    who = f"rank {line.rank}" if reporter else sightings.who(seen)
    return FAULT.diagnosis(
        f"a kernel of {who} failed an assertion on the GPU{where}"
        + (f": `{text}` is false" if text else "")
        + (f", so {meaning}" if meaning else ""),
        confidence=0.95,
        seen=seen,
        culprit=Culprit(
            rank=line.rank,
            host=line.host,
            pid=line.pid,
            what=f"{file.rpartition('/')[2]}:{number}" if file else "",
        ),
        fix="check labels and indices of that batch against the sizes of tables and classes "
        "before they go to the GPU; the traceback only shows where the error was noticed",
        next="export CUDA_LAUNCH_BLOCKING=1",
        unknown=[] if text else ["which assertion: see further up in that rank's log"],
    )


@FAULT.drill(needs=("gpu",))
def use_an_index_out_of_range(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"rank {rehearsal.rank} uses an index out of range on its GPU {rehearsal.when}",
        act=BreakInside(how="device-assert"),
        then=Then.RESTARTS,
    )
