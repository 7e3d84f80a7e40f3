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

from holdfast.facts import MachineFacts, NcclLibrary, known
from holdfast.fault import Fault
from holdfast.inference import sighted
from holdfast.model import Culprit, Diagnosis, Evidence, Finding
from holdfast.remains import nccl
from holdfast.remains.nouns import Sighting, Wreckage

FAULT = Fault(code="HOLD303", slug="version-skew")

TORCHS_OWN = ("python package", "static in torch")


@FAULT.foresee
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

MISMATCH = FAULT.wording(
    "mismatch",
    r"Mismatched NCCL version detected ?:(?: rank (?P<rank>\d+) version (?P<one>\d+) "
    r"rank (?P<other_rank>\d+) version (?P<other>\d+))?",
    anchors="Mismatched NCCL version",
    example="vm:1009:1009 [0] init.cc:1034 NCCL WARN Mismatched NCCL version detected : rank 4 "
    "version 22304 rank 0 version 22109",
)
SYMBOL = FAULT.wording(
    "symbol",
    r"(?P<library>[\w./+\-]{1,300}\.so[\w.]*): undefined symbol: "
    r"(?P<symbol>nccl\w+|_ZN?K?(?:3c10|2at|5torch|4c10d)\w*)",
    anchors="undefined symbol: ",
    example="ImportError: /opt/venv/lib/libtorch_cuda.so: undefined symbol: ncclCommWindowRegister",
)
TRUNCATED = FAULT.wording(
    "truncated",
    r"Message truncated : received (?P<got>[\d,]+) bytes instead of (?P<wanted>[\d,]+)",
    anchors="Message truncated : received",
    example="vm:1009:1009 [0] bootstrap.cc:100 NCCL WARN Message truncated : received 256 bytes "
    "instead of 4096",
)
ONE_IMAGE = "use one image, or one locked list of packages, on all nodes"


@FAULT.recognise
def versions_differ(wreckage: Wreckage) -> Diagnosis | None:
    if seen := wreckage.seen(MISMATCH):
        return _between_ranks(seen)
    if seen := wreckage.seen(SYMBOL):
        return _in_one_process(seen)
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


def _versions(wreckage: Wreckage) -> tuple[str, ...]:
    told = (one.fields.get("version", "") for one in wreckage.seen(nccl.VERSION))
    return tuple(dict.fromkeys(version for version in told if version))


def _at_the_start(seen: Sequence[Sighting], versions: Sequence[str]) -> Diagnosis:
    differ = len(versions) > 1
    told = " and ".join(versions) if differ else ""
    return FAULT.diagnosis(
        f"{sighted.who(seen)} got another amount of start-up data than its NCCL expects: "
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
    one, other = (sighted.field(seen, name) for name in ("one", "other"))
    rank, other_rank = (sighted.field(seen, name) for name in ("rank", "other_rank"))
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
    symbol, library = sighted.field(seen, "symbol"), sighted.field(seen, "library")
    of_nccl = symbol.startswith("nccl")
    file = library.rpartition("/")[2]
    return FAULT.diagnosis(
        f"{file} needs {symbol}, and the "
        + (
            "NCCL that was loaded is too old to have it"
            if of_nccl
            else "torch that was loaded does not have it: it was built for another version of torch"
        ),
        confidence=0.95 if of_nccl else 0.85,
        seen=seen,
        culprit=Culprit(what=library),
        fix="let torch find its own NCCL: drop older copies from LD_PRELOAD and LD_LIBRARY_PATH, "
        "and keep the nvidia-nccl package at the version torch asks for"
        if of_nccl
        else f"reinstall the package that brings {file}, built for the torch that is installed",
        next="pip check; echo $LD_PRELOAD $LD_LIBRARY_PATH",
    )


def spelled(code: str) -> str:
    """NCCL's number as people write it: 22304 is 2.23.4, and 2708 was 2.7.8."""
    if not code.isdecimal():
        return code
    number = int(code)
    scale = 10000 if number >= 10000 else 1000
    return f"{number // scale}.{number % scale // 100}.{number % 100}"
