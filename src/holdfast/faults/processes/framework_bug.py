"""A library failed inside its own code.

What you see   `INTERNAL ASSERT FAILED at … please report a bug to PyTorch`, `ncclInternalError:
               Internal check failed`, or an AttributeError, KeyError or UnboundLocalError whose
               last frames are all inside torch, DeepSpeed, accelerate or another library.
Why            The library reached a state its authors considered impossible. Sometimes wrong use or
               a broken environment leads there (mixed versions, memory overwritten by another
               library); often it is a defect that a later version fixes.
How to be sure Search the library's issues for the text and its version; try the next and the
               previous minor version. The same text on two machines with equal versions is
               software.
Fix            Move to the version that fixes it, or report it with the versions and the whole
               traceback. First make sure that versions agree: `holdfast check`.
Known limits   Whether the library or its caller is wrong cannot be told from a traceback; holdfast
               knows no list of defects beyond known-defect.
Sources        pytorch/pytorch c10/util/Exception.h: TORCH_INTERNAL_ASSERT
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
               https://github.com/NVIDIA/nccl/blob/master/src/nccl.h.in (ncclInternalError)
"""

from __future__ import annotations

import re

from holdfast import shell_words
from holdfast.analysis.logs import blame, own_errors
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import native_crashes
from holdfast.analysis.logs.wreckage import LoggedException, Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence

FAULT = Fault(
    code="HOLD709",
    slug="framework-bug",
    related=("known-defect", "native-crash", "python-exception", "version-skew"),
)

ASSERT = FAULT.log_pattern(
    "internal-assert",
    r"INTERNAL ASSERT FAILED at \"?(?P<file>[^\s\":]+)\"?:(?P<line>\d+)|please report a bug to "
    r"PyTorch|[Tt]his (?:is|may be|looks like) a bug in (?P<library>\w+)",
    anchors=("INTERNAL ASSERT FAILED", "please report a bug to PyTorch", " a bug in "),
    example="RuntimeError: grad.device() == bucket_view.device() INTERNAL ASSERT FAILED at "
    '"../torch/csrc/distributed/c10d/reducer.cpp":352, please report a bug to PyTorch.',
)
NCCL_INTERNAL = FAULT.log_pattern(
    "nccl-internal",
    r"ncclInternalError: Internal check failed",
    anchors="ncclInternalError",
    example="ncclInternalError: Internal check failed.",
    role=Role.CASCADE,
)
LIBRARY = re.compile(
    r"/(?:site|dist)-packages/(?P<name>torch|deepspeed|accelerate|lightning|pytorch_lightning|megatron"
    r"|transformers|horovod|ray|mmcv|mmengine|fairseq|colossalai|apex|xformers|flash_attn)/"
)
PROGRAMMING_ERRORS = frozenset(
    {"AttributeError", "UnboundLocalError", "NameError", "AssertionError"}
)
"""exceptions of a bug in the library; ValueError and TypeError usually mean a wrong call"""


@FAULT.explain
def internal_assert_failed(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(ASSERT)
    if not seen:
        return None
    place = next((f"{s.fields['file']}:{s.fields['line']}" for s in seen if "file" in s.fields), "")
    others = [t for t in blame.of(wreckage).own if t.slug not in (FAULT.slug, "")]
    version = wreckage.versions.get("torch", "")
    return FAULT.diagnosis(
        f"an internal assertion of the library failed{f' at {place}' if place else ''}"
        f"{f' (torch {version})' if version else ''}",
        confidence=0.35 if others else 0.65,
        seen=seen,
        culprit=Culprit(rank=seen[0].rank, what=place),
        victims=blame.of(wreckage).others(seen[0].rank),
        fix="search the library's issues for that line and your version, and try the next version; "
        "first make sure that all nodes run the same version",
        next="holdfast check",
        unknown=() if version else ("the version of torch: the log does not show it",),
    )


@FAULT.explain
def crashed_inside_library(wreckage: Wreckage) -> Diagnosis | None:
    """The innermost frame of a crash is in the library's own code, not in the user's."""
    crash = wreckage.seen(native_crashes.FATAL, native_crashes.HANDLER, native_crashes.HEAP)
    inside = wreckage.seen(native_crashes.INSIDE)
    if not crash or not inside:
        return None
    function = inside[0].fields["function"]
    return FAULT.diagnosis(
        f"the process crashed inside the library's own {function}(): a defect of that version, or "
        "a build for another CUDA",
        confidence=0.7,
        seen=(*inside[:2], *crash),
        culprit=Culprit(rank=inside[0].rank, what=function),
        victims=blame.of(wreckage).others(inside[0].rank),
        fix="search the library's issues for that function; use builds that match each other, or "
        "the next version",
        next="python -m torch.utils.collect_env",
        unknown=("which versions were used, unless other lines show them",),
    )


@FAULT.explain
def nccl_internal_error(wreckage: Wreckage) -> Diagnosis | None:
    """NCCL's least specific error: a lost peer or a bad network leads there as well."""
    seen = wreckage.seen(NCCL_INTERNAL)
    if not seen or blame.of(wreckage).explained or wreckage.seen(ASSERT):
        return None
    version = wreckage.versions.get("nccl", "")
    return FAULT.diagnosis(
        "an internal check of NCCL failed"
        f"{f' (NCCL {version})' if version else ''}; the first NCCL WARN line of that process "
        "says which",
        confidence=0.25,
        seen=seen,
        victims=blame.of(wreckage).others(seen[0].rank),
        fix="run again with NCCL_DEBUG=INFO and read the first WARN: it names the real problem",
        next="export NCCL_DEBUG=INFO",
        unknown=("which check: the log has no NCCL WARN line",),
    )


@FAULT.explain
def exception_inside_library(wreckage: Wreckage) -> Diagnosis | None:
    """The last frames are all inside one library, and the exception is a programming error."""
    found = [
        r for r in wreckage.raised if own_errors.tells_a_cause(r) and _raised_inside_library(r)
    ]
    if not found or wreckage.seen(ASSERT) or found[0].root_slugs:
        return None
    first = found[0]
    frame = first.frames[0]
    name = _library_of(frame.file)
    version = wreckage.versions.get(name, "")
    return FAULT.diagnosis(
        f"{first.kind} inside {name}{f' {version}' if version else ''} itself ({frame.function} at "
        f"line {frame.line}): its own code failed, perhaps because of an unexpected call",
        confidence=0.4,
        evidence=[_quote(first)],
        culprit=Culprit(rank=first.rank, what=f"{name} {version}".strip()),
        fix=f"search the issues of {name} for that line; try another version of it",
        next=shell_words.command("pip show {}", name.replace("_", "-")),
        unknown=("whether the call or the library is wrong",),
    )


def _raised_inside_library(raised: LoggedException) -> bool:
    return (
        raised.kind in PROGRAMMING_ERRORS
        and len(raised.frames) > 2
        and all(_library_of(frame.file) for frame in raised.frames[:2])
    )


def _library_of(file: str) -> str:
    found = LIBRARY.search(file)
    return found["name"] if found else ""


def _quote(raised: LoggedException) -> Evidence:
    line = raised.line
    quote = f"{raised.kind}: {raised.text}"[:200]
    return Evidence(quote=quote, source=line.source, line=line.number, rank=line.rank)
