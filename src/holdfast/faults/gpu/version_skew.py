"""Different versions of NCCL or CUDA libraries are in use.

What you see   A job that behaves differently from nccl-tests on the same machine, bugs of a version
               that 'is not installed', or `ncclUnhandledCudaError` and missing symbols at import
               (`undefined symbol: nccl…`). With several nodes: `Mismatched NCCL version detected`
               (from 2.23), before that `Message truncated : received … bytes instead of …` or a
               hang at init.
Why            torch's wheels bring their own libnccl; the system, a module file or a container
               image often has another. LD_PRELOAD overrides all of them, and programs other than
               torch (nccl-tests, MPI jobs) load the system's.
How to be sure `NCCL_DEBUG=VERSION python train.py` prints the one in use at the first
               communicator; `grep libnccl /proc/PID/maps` shows the file.
Fix            Use one version everywhere: remove LD_PRELOAD and old LD_LIBRARY_PATH entries, and
               upgrade the wheel's copy by its package (`pip install -U nvidia-nccl-cu13`, the
               number of your CUDA), never by copying files. Use the same image on every node.
Known limits   Which library a process will load is inferred, not observed. Between nodes `check`
               compares the interpreter it runs under on each, which must be that of the job, and
               the NVIDIA driver, fabric manager and IMEX as far as each node shows them.
Sources        https://github.com/pytorch/pytorch/issues/112285
               https://github.com/pytorch/pytorch/issues/116977
               https://man7.org/linux/man-pages/man8/ld.so.8.html
               NVIDIA/nccl src/init.cc, src/bootstrap.cc: the messages
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.patterns import nccl
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import MachineFacts, NcclLibrary, known
from holdfast.analysis.nodes import NodesFacts, differences, software
from holdfast.analysis.nodes.differences import Difference
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Status

FAULT = Fault(
    code="HOLD303",
    slug="version-skew",
    related=("known-defect", "driver-mismatch", "env-mismatch-nodes", "no-such-version"),
)

BUNDLED_ORIGINS = ("python package", "static in torch")


@FAULT.check(needs=("software",))
def nccl_versions_on_machine(facts: MachineFacts) -> Finding:
    libraries = known(facts.software).nccl
    if not libraries:
        return FAULT.does_not_apply("no libnccl was found on this machine")
    versions = {library.version for library in libraries if library.version}
    taken = libraries[0]
    if len(versions) < 2:
        return FAULT.ok(f"NCCL {taken.version or 'of unknown version'} at {taken.path}")
    evidence = [_library_evidence(library) for library in libraries]
    bundled = next((item for item in libraries if item.origin in BUNDLED_ORIGINS), None)
    if bundled and taken.origin == "LD_PRELOAD" and taken.version != bundled.version:
        return FAULT.warning(
            f"LD_PRELOAD replaces torch's own NCCL {_version_of(bundled)} with "
            f"{_version_of(taken)}",
            reason="torch was built and tested with its own; fine if intended and the same on "
            "every node",
            evidence=evidence,
            fix="if this is not intended: `unset LD_PRELOAD`; to verify: `export "
            "NCCL_DEBUG=VERSION`",
        )
    return FAULT.note(
        f"{len(versions)} versions of NCCL are installed on this machine",
        reason=f"torch will most likely load {_version_of(taken)} ({taken.path}); other programs "
        "such as nccl-tests may load another",
        evidence=evidence,
        fix="see which one a job loads: `NCCL_DEBUG=VERSION torchrun …`",
    )


def _version_of(library: NcclLibrary) -> str:
    return library.version or "of unknown version"


def _library_evidence(library: NcclLibrary) -> Evidence:
    return Evidence(quote=f"{_version_of(library)}: {library.path}", source=library.origin)


# --- between nodes -------------------------------------------------------------------------------


@FAULT.check_nodes
def versions_differ_between_nodes(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is nothing to compare")
    nodes, gaps = differences.of_each(facts, lambda node: node.facts.software)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    if len(nodes) < 2:
        return unknown
    machines = {node.name: node.facts for node in facts.nodes}
    programs = {**software.by_program(nodes), **software.by_machine(machines)}
    unequal = {name: differences.compare(values) for name, values in programs.items()}
    found = [_unequal(name, one) for name, one in unequal.items() if one is not None]
    if found:
        return [*found, *unknown]
    same = ", ".join(f"{name} {next(iter(values.values()))}" for name, values in programs.items())
    return [FAULT.ok(f"{len(nodes)} nodes have the same versions: {same}"), *unknown]


def _unequal(program: str, unequal: Difference) -> Finding:
    odd = unequal.odd
    listed = (
        f"{text.names(odd)} {text.plural(odd, 'has', 'have')} "
        f"{text.names(unequal.values[node] for node in odd)}, the others {unequal.usual}"
        if odd
        else unequal.listed
    )
    speak = {Status.ERROR: FAULT.error, Status.WARNING: FAULT.warning}.get(
        software.gravity(program, unequal.values.values()), FAULT.note
    )
    first = sorted(unequal.values.items(), key=lambda item: (item[0] not in odd, item[0]))
    of_machine = program in software.OF_MACHINE
    return speak(
        f"{program} differs between nodes: {listed}",
        reason=software.MEANING.get(program, software.OF_PACKAGE),
        evidence=[
            Evidence(
                quote=f"{node}: {program} {value}",
                source="NVIDIA driver" if of_machine else "packages",
                host=node,
            )
            for node, value in first[:SHOWN]
        ],
        fix=f"install one version on all nodes; what {first[0][0]} has: `nvidia-smi`"
        if of_machine
        else f"use one image or environment on all nodes; what {first[0][0]} has: `python -m "
        "torch.utils.collect_env`",
        host=odd[0] if len(odd) == 1 else "",
    )


# --- explain -------------------------------------------------------------------------------------

MISMATCH = FAULT.log_pattern(
    "mismatch",
    r"Mismatched NCCL version detected ?:(?: rank (?P<rank>\d+) version (?P<one>\d+) "
    r"rank (?P<other_rank>\d+) version (?P<other>\d+))?",
    anchors="Mismatched NCCL version",
    example="vm:1009:1009 [0] init.cc:1034 NCCL WARN Mismatched NCCL version detected : rank 4 "
    "version 22304 rank 0 version 22109",
)
BUILT_FOR = FAULT.log_pattern(
    "built-for",
    # Programs with kernels that use NCCL's device API, and what RAS finds of other processes.
    r"compiled with NCCL version (?P<built>[\d.]{1,20}), but is running with NCCL library version "
    r"(?P<ran>[\d.]{1,20}\d)|NCCL version mismatch with remote peer .{1,80}\(local: "
    r"(?P<local>[\d.]{1,20}), remote (?P<remote>[\d.]{1,20})\)",
    anchors=("compiled with NCCL version ", "NCCL version mismatch with remote peer"),
    example="vm:1009:1009 [0] dev_runtime.cc:90 NCCL WARN NCCL library is too old. This "
    "application was compiled with NCCL version 2.32.3, but is running with NCCL library version "
    "2.28.9.",
)
SYMBOL = FAULT.log_pattern(
    "symbol",
    r"(?<![\w./+\-])(?P<library>[\w./+\-]{1,300}\.so[\w.]*): undefined symbol: "
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
def library_versions_differ(wreckage: Wreckage) -> Diagnosis | None:
    for pattern, diagnose in (
        (MISMATCH, _differ_between_ranks),
        (BUILT_FOR, _other_nccl_found),
        (SYMBOL, _missing_symbol),
        (BUNDLED, _other_cudnn_found),
        (MISSING, _missing_library),
    ):
        if seen := _required(wreckage.seen(pattern)):
            return diagnose(seen)
    cut_short = wreckage.seen(TRUNCATED)
    versions = _nccl_versions(wreckage)
    if cut_short:
        return _differ_at_init(cut_short, versions)
    shown = wreckage.seen(nccl.VERSION)
    hosts = {one.line.host for one in shown}
    quiet = not wreckage.roots(but=[FAULT.slug])
    if len(versions) > 1 and len(hosts) > 1 and quiet and (wreckage.raised or wreckage.exits):
        return FAULT.diagnosis(
            f"hosts of this job ran different versions of NCCL, {' and '.join(versions)}, and "
            "nothing else in the log explains the failure",
            confidence=0.5,
            seen=shown,
            culprit=Culprit(what=f"NCCL {' and '.join(versions)}"),
            fix=ONE_IMAGE,
            next="pip show nvidia-nccl-cu12 | grep Version",
        )
    return None


def _required(seen: Sequence[Sighting]) -> Sequence[Sighting]:
    """Without TensorFlow's reports of optional libraries."""
    optional = sightings.saying(seen, "Warning|dso_loader|dlerror")
    return [one for one in seen if one not in optional]


def _nccl_versions(wreckage: Wreckage) -> tuple[str, ...]:
    shown = (one.fields.get("version", "") for one in wreckage.seen(nccl.VERSION))
    return tuple(dict.fromkeys(version for version in shown if version))


def _differ_at_init(seen: Sequence[Sighting], versions: Sequence[str]) -> Diagnosis:
    differ = len(versions) > 1
    shown = " and ".join(versions) if differ else ""
    return FAULT.diagnosis(
        f"{sightings.who(seen)} received a different amount of start-up data than its NCCL "
        "expects: "
        + (
            f"this job used versions {shown}"
            if differ
            else "ranks ran different versions of NCCL, or with different NCCL settings"
        ),
        confidence=0.9 if differ else 0.45,
        seen=seen,
        culprit=Culprit(what=f"NCCL {shown}" if differ else "NCCL's version or settings"),
        fix=f"{ONE_IMAGE}, with the same NCCL_ variables",
        next="pip show nvidia-nccl-cu12 | grep Version; env | grep NCCL_",
        unknown=[] if differ else ["which versions the ranks ran: the log shows only one"],
    )


def _differ_between_ranks(seen: Sequence[Sighting]) -> Diagnosis:
    one, other = (sightings.field(seen, name) for name in ("one", "other"))
    rank, other_rank = (sightings.field(seen, name) for name in ("rank", "other_rank"))
    shown = (
        f": rank {rank} has {dotted_nccl_version(one)}, rank {other_rank} has "
        f"{dotted_nccl_version(other)}"
        if one
        else ""
    )
    return FAULT.diagnosis(
        f"ranks of one communicator ran different versions of NCCL{shown}",
        confidence=0.97,
        seen=seen,
        culprit=Culprit(
            what=f"NCCL {dotted_nccl_version(one)} beside {dotted_nccl_version(other)}"
            if one
            else "NCCL"
        ),
        fix=f"{ONE_IMAGE}; `pip show nvidia-nccl-cu12` on each shows which differs",
        next="python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'",
    )


def _other_nccl_found(seen: Sequence[Sighting]) -> Diagnosis:
    built, ran, here, there = (
        sightings.field(seen, name) for name in ("built", "ran", "local", "remote")
    )
    return FAULT.diagnosis(
        f"a program that was built for NCCL {built} loaded NCCL {ran}"
        if built
        else f"processes of this job run different versions of NCCL: {here} and {there}",
        confidence=0.95 if built else 0.85,
        seen=seen,
        culprit=Culprit(what=f"NCCL {ran or there}"),
        fix=ONE_IMAGE,
        next="pip show nvidia-nccl-cu12 nvidia-nccl-cu13 | grep -E 'Name|Version'",
    )


def _missing_symbol(seen: Sequence[Sighting]) -> Diagnosis:
    symbol, library = sightings.field(seen, "symbol"), sightings.field(seen, "library")
    of_nccl = symbol.startswith(("nccl", "cu", "__nv"))
    owner = "NCCL" if symbol.startswith("nccl") else "CUDA library"
    file = library.rpartition("/")[2]
    return FAULT.diagnosis(
        f"{file} needs {symbol}, but the "
        + (
            f"loaded {owner} is too old to have it"
            if of_nccl
            else "loaded torch does not have it: it was built for another version of torch"
        ),
        confidence=0.95 if of_nccl else 0.85,
        seen=seen,
        culprit=Culprit(what=library),
        fix="let torch load its own libraries: remove older copies from LD_PRELOAD and "
        "LD_LIBRARY_PATH, and keep the nvidia-… packages at the versions torch requires"
        if of_nccl
        else f"reinstall the package that brings {file}, built for the torch that is installed",
        next="pip check; echo $LD_PRELOAD $LD_LIBRARY_PATH",
    )


def _other_cudnn_found(seen: Sequence[Sighting]) -> Diagnosis:
    built, ran = (sightings.field(seen, name).replace(", ", ".") for name in ("built", "ran"))
    return FAULT.diagnosis(
        f"torch was built with cuDNN {built} and found {ran} first"
        if built
        else "parts of this program that were built with different versions of CUDA or cuDNN were "
        "loaded together",
        confidence=0.95,
        seen=seen,
        culprit=Culprit(what=f"cuDNN {ran}" if ran else "CUDA packages"),
        fix="let torch load its own copy: remove the other one from LD_LIBRARY_PATH; install "
        "torch and torchvision together, from the same index",
        next="pip list | grep -E 'torch|nvidia'; echo $LD_LIBRARY_PATH",
    )


def _missing_library(seen: Sequence[Sighting]) -> Diagnosis:
    library = sightings.field(seen, "library")
    return FAULT.diagnosis(
        f"{sightings.who(seen, 'this program')} needs {library}, which is not installed "
        "in that version: a package was built for another CUDA or torch",
        confidence=0.75,
        seen=seen,
        culprit=Culprit(what=library),
        fix="install that package in the build for this torch and CUDA; do not symlink another "
        "version to the missing name",
        next="python -c 'import torch; print(torch.__version__, torch.version.cuda)'; pip check",
    )


def dotted_nccl_version(code: str) -> str:
    """NCCL's numeric version in dotted form: 22304 is 2.23.4, and 2708 was 2.7.8."""
    if not code.isdecimal():
        return code
    number = int(code)
    scale = 10000 if number >= 10000 else 1000
    return f"{number // scale}.{number % scale // 100}.{number % 100}"
