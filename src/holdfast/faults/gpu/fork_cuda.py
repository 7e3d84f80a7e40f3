"""CUDA is used in a forked child of a process that already used it.

What you see   `RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with
               multiprocessing, you must use the 'spawn' start method`, usually in a DataLoader
               worker; in old versions `CUDA error: initialization error` (3).
Why            A CUDA context does not survive fork(): the child inherits handles that are no longer
               valid. Any use of CUDA in the parent is enough, including `torch.cuda.is_available()`
               of old versions, `.to('cuda')` in a dataset's constructor, or an import that does so.
How to be sure The traceback in the child shows the call that needed CUDA. If it is in the dataset
               or the collate function, their tensors are on the GPU.
Fix            Keep datasets on the CPU and move batches in the training loop. Where children must
               use CUDA, start them with spawn: `torch.multiprocessing.set_start_method('spawn')`
               under `if __name__ == '__main__':`, or `DataLoader(multiprocessing_context='spawn')`.
Known limits   Lint sees the parent's and the child's use of CUDA only in the same script, not
               behind an import. CUDA's `initialization error` has other causes than fork.
Sources        pytorch/pytorch torch/cuda/__init__.py: the message
               https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#cuda-in-multiprocessing
               https://github.com/pytorch/pytorch/issues/40403
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import LoggedException, Sighting, Wreckage
from holdfast.analysis.source.processes.children import processes
from holdfast.analysis.source.processes.forked_cuda import ForkedCudaUse, loader_pairs, pairs
from holdfast.analysis.source.processes.start_method import forks
from holdfast.analysis.source.program import Program, cited
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD313",
    slug="fork-cuda",
    related=("missing-main-guard", "dataloader-killed", "module-state-under-spawn"),
)

FORKED = FAULT.log_pattern(
    "forked",
    r"Cannot re-initialize (?P<device>\w+) in (?:a )?(?:bad )?fork",
    anchors="Cannot re-initialize ",
    example="RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
    "multiprocessing, you must use the 'spawn' start method",
)
INITIALISATION = FAULT.log_pattern(
    "initialisation",
    r"CUDA error(?: \(3\))?: initialization error|cuda runtime error \(3\)"
    r"|cudaErrorInitializationError|[Cc]uda failure (?:3 )?'initialization error'"
    r"|error=3 : initialization error|cuInit failed: initialization error"
    r"|cuInit results in CUDA_ERROR_NOT_INITIALIZED",
    anchors=(
        "error: initialization error",
        "error (3): initialization",
        "error=3 : initialization",
        "failed: initialization error",
        "results in CUDA_ERROR_NOT_INIT",
        "cuda runtime error (3)",
        "cudaErrorInitializationError",
        "'initialization error'",
    ),
    example="RuntimeError: CUDA error: initialization error",
)


@FAULT.explain
def cuda_used_after_fork(wreckage: Wreckage) -> Diagnosis | None:
    certain = wreckage.seen(FORKED)
    seen = certain or wreckage.seen(INITIALISATION)
    if not seen:
        return None
    device = sightings.field(seen, "device") or "CUDA"
    where = _innermost_user_frame(sightings.raised_at(wreckage, seen[0]))
    if certain:
        confidence = 0.97
        reason = (
            f"a child process of {sightings.who(seen)} was forked after its parent had used "
            f"{device}, and then used {device} itself{f' at {where}' if where else ''}"
        )
    else:
        confidence = 0.75 if _in_child_process(wreckage, seen[0]) else 0.5
        reason = (
            f"{device} could not be initialized in {sightings.who(seen)}: usually a process that "
            "was forked after its parent had used the GPU"
        )
    line = seen[0].line
    return FAULT.diagnosis(
        reason,
        confidence=confidence,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what=where),
        fix="keep datasets and collate functions on the CPU; where children must use the GPU, "
        "start them with spawn: `torch.multiprocessing.set_start_method('spawn')`",
        next="grep -rnE 'cuda|set_start_method' --include=*.py . | head",
    )


def _in_child_process(wreckage: Wreckage, sighting: Sighting) -> bool:
    """Another exception of that rank came from a process of Python's multiprocessing."""
    return any(
        "DataLoader worker process" in one.text
        or any("multiprocessing/process" in frame.file for frame in one.frames)
        for one in wreckage.raised
        if one.rank == sighting.rank
    )


def _innermost_user_frame(raised: LoggedException | None) -> str:
    """The innermost line outside torch."""
    frames = raised.frames if raised else ()
    own = (f for f in frames if "/torch/" not in f.file and "multiprocessing" not in f.file)
    return next((f"{f.file.rpartition('/')[2]}:{f.line}" for f in own), "")


# --- lint ----------------------------------------------------------------------------------------

SPAWN = "`torch.multiprocessing.set_start_method('spawn')` under the main guard"


@FAULT.lint_python
def forked_child_uses_cuda(program: Program, source: Source) -> Iterator[Finding]:
    if "cuda" not in program.text:
        return
    children = processes(program)
    if children is None:
        return
    reported = set()
    for pair in pairs(children):
        if forks(pair.method, source.here.python) and pair.child.node not in reported:
            reported.add(pair.child.node)
            yield _forked_process(source, pair)
    for pair in loader_pairs(children):
        if forks(pair.method, source.here.python) and pair.child.node not in reported:
            reported.add(pair.child.node)
            yield _forked_loader_worker(source, pair)


def _forked_process(source: Source, pair: ForkedCudaUse) -> Finding:
    assert source.program is not None
    assert pair.parent is not None
    return FAULT.error(
        f"{pair.where} uses CUDA in a forked child after its parent used CUDA",
        reason="a CUDA context does not survive fork(): the child raises 'Cannot re-initialize "
        f"CUDA in forked subprocess'. {_start_method_reason(pair)}",
        fix=(
            "change 'fork' to 'spawn' in this script"
            if pair.method == "fork"
            else f"start the children with spawn: {SPAWN}"
        )
        + "; or use CUDA in the children only",
        evidence=[cited(one.node, source.file) for one in (pair.parent, pair.starter)],
        at=source.program.place(pair.child.node),
    )


def _forked_loader_worker(source: Source, pair: ForkedCudaUse) -> Finding:
    assert source.program is not None
    seen = [one for one in (pair.parent, pair.starter) if one is not None]
    report = FAULT.error if pair.parent else FAULT.warning
    meant = (
        "the training process uses CUDA too, so this raises 'Cannot re-initialize CUDA in forked "
        "subprocess'"
        if pair.parent
        else "this fails as soon as the training process uses CUDA before the loader starts, and "
        "otherwise creates a CUDA context in every worker"
    )
    return report(
        f"{pair.where} uses CUDA in a forked DataLoader worker",
        reason=f"{meant}. {_start_method_reason(pair)}",
        fix="return CPU tensors and move the batch in the training loop: "
        "`batch.to(device, non_blocking=True)` with `pin_memory=True`; or give the loader "
        "`multiprocessing_context='spawn'`",
        evidence=[cited(one.node, source.file) for one in seen],
        at=source.program.place(pair.child.node),
    )


def _start_method_reason(pair: ForkedCudaUse) -> str:
    if pair.method == "fork":
        return "This script selects fork"
    return "No start method is set: on Linux that means fork before Python 3.14"
