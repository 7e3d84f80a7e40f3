"""Different versions of NCCL are in play.

What you see   A job that behaves differently from nccl-tests on the same machine, bugs of a
               version that 'is not installed', or `ncclUnhandledCudaError` and missing symbols at
               import (`undefined symbol: nccl…`). With several nodes: `Mismatched NCCL version
               detected` (from 2.23), before that `Message truncated : received … bytes instead
               of …` or a hang at init.
Why            torch's wheels bring libnccl with them; the system, a module file or a container
               image often has another. LD_PRELOAD beats all of them, and programs other than
               torch (nccl-tests, MPI jobs) take the system's.
How to be sure `NCCL_DEBUG=VERSION python train.py` prints the one in use at the first
               communicator; `grep libnccl /proc/PID/maps` shows the file.
Fix            One version for all: drop LD_PRELOAD and old LD_LIBRARY_PATH entries, and upgrade
               the wheel's copy by its package (`pip install -U nvidia-nccl-cu13`, the number of
               your CUDA), never by copying files. Same image on every node.
Sources        https://github.com/pytorch/pytorch/issues/112285
               https://github.com/pytorch/pytorch/issues/116977
               https://man7.org/linux/man-pages/man8/ld.so.8.html
               NVIDIA/nccl src/init.cc, src/bootstrap.cc: the wordings
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.patterns import nccl
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import MachineFacts, NcclLibrary, known
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(code="HOLD303", slug="version-skew")

TORCHS_OWN = ("python package", "static in torch")


@FAULT.check(needs=("software",))
def one_nccl_only(facts: MachineFacts) -> Finding:
    libraries = known(facts.software).nccl
    if not libraries:
        return FAULT.does_not_apply("no libnccl was found on this machine")
    versions = {library.version for library in libraries if library.version}
    taken = libraries[0]
    if len(versions) < 2:
        return FAULT.ok(f"NCCL {taken.version or 'of unknown version'} at {taken.path}")
    evidence = [_describe(library) for library in libraries]
    bundled = next((item for item in libraries if item.origin in TORCHS_OWN), None)
    if bundled and taken.origin == "LD_PRELOAD" and taken.version != bundled.version:
        return FAULT.warning(
            f"LD_PRELOAD puts NCCL {_version(taken)} in place of torch's own {_version(bundled)}",
            reason="torch was built and tested with its own; fine if you mean it and every node "
            "does the same",
            evidence=evidence,
            fix="if you do not mean it: `unset LD_PRELOAD`; to be sure: `NCCL_DEBUG=VERSION`",
        )
    return FAULT.note(
        f"{len(versions)} versions of NCCL lie on this machine",
        reason=f"torch will most likely load {_version(taken)} ({taken.path}); other programs, "
        "nccl-tests for one, may load another",
        evidence=evidence,
        fix="see which one a job loads: `NCCL_DEBUG=VERSION torchrun …`",
    )


def _version(library: NcclLibrary) -> str:
    return library.version or "of unknown version"


def _describe(library: NcclLibrary) -> Evidence:
    return Evidence(quote=f"{_version(library)}: {library.path}", source=library.origin)


# --- from the wreckage of a job ----------------------------------------------------------------

MISMATCH = FAULT.log_pattern(
    "mismatch",
    r"Mismatched NCCL version detected ?:(?: rank (?P<rank>\d+) version (?P<one>\d+) "
    r"rank (?P<other_rank>\d+) version (?P<other>\d+))?",
    anchors="Mismatched NCCL version",
    example="vm:1009:1009 [0] init.cc:1034 NCCL WARN Mismatched NCCL version detected : rank 4 "
    "version 22304 rank 0 version 22109",
)
SYMBOL = FAULT.log_pattern(
    "symbol",
    r"(?P<library>[\w./+\-]{1,300}\.so[\w.]*): undefined symbol: "
    r"(?P<symbol>nccl\w+|_ZN?K?(?:3c10|2at|5torch|4c10d)\w*|__nvJitLink\w+"
    r"|cu(?:blas|dnn|sparse|solver|fft|da|pti)[A-Z]\w*)",
    anchors="undefined symbol: ",
    example="ImportError: /opt/venv/lib/libtorch_cuda.so: undefined symbol: ncclCommWindowRegister",
)
TRUNCATED = FAULT.log_pattern(
    "truncated",
    r"Message truncated : received (?P<got>[\d,]+) bytes instead of (?P<wanted>[\d,]+)",
    anchors="Message truncated : received",
    example="vm:1009:1009 [0] bootstrap.cc:100 NCCL WARN Message truncated : received 256 bytes "
    "instead of 4096",
)
BUNDLED = FAULT.log_pattern(
    "bundled",
    r"cuDNN version incompatibility: PyTorch was compiled\s{1,4}against "
    r"\((?P<built>[\d, ]{1,20})\) but found runtime version \((?P<ran>[\d, ]{1,20})\)"
    r"|cuDNN version incompatibility"
    r"|were compiled with different CUDA major versions",
    anchors=("cuDNN version incompatibility", "with different CUDA major versions"),
    example="RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (8, 9, 2) "
    "but found runtime version (8, 4, 0). PyTorch already comes bundled with cuDNN.",
)
MISSING = FAULT.log_pattern(
    "missing",
    r"(?P<library>lib(?:nccl|cudart|cudnn|cublas|cublasLt|cusparse|cusolver|cufft|curand|cupti"
    r"|nvrtc|nvJitLink|torch|torch_cuda|c10)\w{0,40}\.so[\w.]{0,20}): cannot open shared object",
    anchors=": cannot open shared object file",
    example="ImportError: libcudart.so.11.0: cannot open shared object file: No such file or "
    "directory",
)
ONE_IMAGE = "use one image, or one locked list of packages, on all nodes"


@FAULT.explain
def versions_differ(wreckage: Wreckage) -> Diagnosis | None:
    for signature, tell in (
        (MISMATCH, _between_ranks),
        (SYMBOL, _in_one_process),
        (BUNDLED, _beside_torchs_own),
        (MISSING, _built_for_another),
    ):
        if seen := _meant(wreckage.seen(signature)):
            return tell(seen)
    cut_short = wreckage.seen(TRUNCATED)
    versions = _versions(wreckage)
    if cut_short:
        return _at_the_start(cut_short, versions)
    told = wreckage.seen(nccl.VERSION)
    hosts = {one.line.host for one in told}
    quiet = not wreckage.roots(but=[FAULT.slug])
    if len(versions) > 1 and len(hosts) > 1 and quiet and (wreckage.raised or wreckage.exits):
        return FAULT.diagnosis(
            f"hosts of this job run different versions of NCCL, {' and '.join(versions)}, and "
            "nothing else in the log explains the failure",
            confidence=0.5,
            seen=told,
            culprit=Culprit(what=f"NCCL {' and '.join(versions)}"),
            fix=ONE_IMAGE,
            next="pip show nvidia-nccl-cu12 | grep Version",
        )
    return None


def _meant(seen: Sequence[Sighting]) -> Sequence[Sighting]:
    """TensorFlow reports every library that it can do without."""
    optional = sightings.saying(seen, "Warning|dso_loader|dlerror")
    return [one for one in seen if one not in optional]


def _versions(wreckage: Wreckage) -> tuple[str, ...]:
    told = (one.fields.get("version", "") for one in wreckage.seen(nccl.VERSION))
    return tuple(dict.fromkeys(version for version in told if version))


def _at_the_start(seen: Sequence[Sighting], versions: Sequence[str]) -> Diagnosis:
    differ = len(versions) > 1
    told = " and ".join(versions) if differ else ""
    return FAULT.diagnosis(
        f"{sightings.who(seen)} got another amount of start-up data than its NCCL expects: "
        + (
            f"versions {told} are in use in this job"
            if differ
            else "ranks run different versions of NCCL, or under different NCCL settings"
        ),
        confidence=0.9 if differ else 0.45,
        seen=seen,
        culprit=Culprit(what=f"NCCL {told}" if differ else "NCCL's version or settings"),
        fix=f"{ONE_IMAGE}, with the same NCCL_ variables",
        next="pip show nvidia-nccl-cu12 | grep Version; env | grep NCCL_",
        unknown=[] if differ else ["which versions the ranks run: the log shows no two of them"],
    )


def _between_ranks(seen: Sequence[Sighting]) -> Diagnosis:
    one, other = (sightings.field(seen, name) for name in ("one", "other"))
    rank, other_rank = (sightings.field(seen, name) for name in ("rank", "other_rank"))
    told = (
        f": rank {rank} has {spelled(one)}, rank {other_rank} has {spelled(other)}" if one else ""
    )
    return FAULT.diagnosis(
        f"ranks of one communicator run different versions of NCCL{told}",
        confidence=0.97,
        seen=seen,
        culprit=Culprit(what=f"NCCL {spelled(one)} beside {spelled(other)}" if one else "NCCL"),
        fix=f"{ONE_IMAGE}; `pip show nvidia-nccl-cu12` on each shows which one is behind",
        next="python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'",
    )


def _in_one_process(seen: Sequence[Sighting]) -> Diagnosis:
    symbol, library = sightings.field(seen, "symbol"), sightings.field(seen, "library")
    of_nccl = symbol.startswith(("nccl", "cu", "__nv"))
    owner = "NCCL" if symbol.startswith("nccl") else "CUDA library"
    file = library.rpartition("/")[2]
    return FAULT.diagnosis(
        f"{file} needs {symbol}, and the "
        + (
            f"{owner} that was loaded is too old to have it"
            if of_nccl
            else "torch that was loaded does not have it: it was built for another version of torch"
        ),
        confidence=0.95 if of_nccl else 0.85,
        seen=seen,
        culprit=Culprit(what=library),
        fix="let torch find its own libraries: drop older copies from LD_PRELOAD and "
        "LD_LIBRARY_PATH, and keep the nvidia-… packages at the versions torch asks for"
        if of_nccl
        else f"reinstall the package that brings {file}, built for the torch that is installed",
        next="pip check; echo $LD_PRELOAD $LD_LIBRARY_PATH",
    )


def _beside_torchs_own(seen: Sequence[Sighting]) -> Diagnosis:
    built, ran = (sightings.field(seen, name).replace(", ", ".") for name in ("built", "ran"))
    return FAULT.diagnosis(
        f"torch was built with cuDNN {built} and found {ran} first"
        if built
        else "parts of this program were built with different versions of CUDA or cuDNN, and were "
        "loaded together",
        confidence=0.95,
        seen=seen,
        culprit=Culprit(what=f"cuDNN {ran}" if ran else "CUDA packages"),
        fix="let torch find what it brings: take the other copy out of LD_LIBRARY_PATH; install "
        "torch and torchvision together, from the same index",
        next="pip list | grep -E 'torch|nvidia'; echo $LD_LIBRARY_PATH",
    )


def _built_for_another(seen: Sequence[Sighting]) -> Diagnosis:
    library = sightings.field(seen, "library")
    return FAULT.diagnosis(
        f"{sightings.who(seen, 'this program')} needs {library}, and there is none of that "
        "version: a package was built for another CUDA or torch than is installed here",
        confidence=0.75,
        seen=seen,
        culprit=Culprit(what=library),
        fix="install that package in the build for this torch and CUDA; do not link other versions "
        "to the missing name",
        next="python -c 'import torch; print(torch.__version__, torch.version.cuda)'; pip check",
    )


def spelled(code: str) -> str:
    """NCCL's number as people write it: 22304 is 2.23.4, and 2708 was 2.7.8."""
    if not code.isdecimal():
        return code
    number = int(code)
    scale = 10000 if number >= 10000 else 1000
    return f"{number // scale}.{number % scale // 100}.{number % 100}"
