"""Different versions of NCCL are in play.

What you see   A job that behaves differently from nccl-tests on the same machine, bugs of a
               version that 'is not installed', or `ncclUnhandledCudaError` and missing symbols at
               import. With several nodes: hangs at init when the versions differ.
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
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug
"""

from __future__ import annotations

from holdfast.facts import MachineFacts, NcclLibrary, known
from holdfast.model import Evidence, Fault, Finding

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
