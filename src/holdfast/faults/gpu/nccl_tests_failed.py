"""nccl-tests got wrong values, or did not end.

What you see   A line `# Out of bounds values : 12 FAILED`, or numbers other than 0 in the columns
               `#wrong`; or the table stops in the middle, with `Test timeout` where `-T` was given.
Why            Wrong values: direct access between GPUs that does not work (ACS, an IOMMU, a board
               that only claims it), a GPU or a link that corrupts data, a defect of NCCL. No end:
               one rank or link does not answer. A training job meets the same, and continues with
               wrong numbers or hangs.
How to be sure Run it again with `NCCL_P2P_DISABLE=1`, then with `NCCL_SHM_DISABLE=1` too: the
               transport without which it passes is at fault. `holdfast check --smoke` does that,
               and times every pair of GPUs. `NCCL_TESTS_SPLIT="DIV 8"` tests each node by itself.
Fix            Do not train there until it passes. Fix what the rounds show: p2p-acs-iommu,
               gpu-hardware, or the network.
Known limits   The text of releases since 2.13 (2022) and the JSON (`-J`) are read; of older ones
               only the lines around the table. A log that merely ends early cannot be told from a
               test that still runs. Which GPU is at fault is not in the output.
Sources        NVIDIA/nccl-tests src/common.cu and src/util.cu
               https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.logs import nccl_tests
from holdfast.analysis.logs.nccl_tests import NcclTestsRow, NcclTestsRun
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis

FAULT = Fault(
    code="HOLD316",
    slug="nccl-tests-failed",
    related=("p2p-acs-iommu", "gpu-hardware", "slow-collectives", "group-does-not-form"),
)


@FAULT.explain
def nccl_tests_found_wrong_values(wreckage: Wreckage) -> Diagnosis | None:
    bad = [run for run in nccl_tests.runs(wreckage) if run.wrong or _wrong_rows(run)]
    if not bad:
        return None
    run = bad[0]
    sizes = [text.size(row.size) for row in _wrong_rows(run)]
    where = f", from {sizes[0]} on" if sizes else ""
    return FAULT.diagnosis(
        f"nccl-tests got wrong values{where}: collectives among these {run.ranks} ranks give wrong "
        "results, and a training job would continue with them",
        confidence=0.9,
        seen=[*run.wrong, *(row.seen for row in _wrong_rows(run))],
        culprit=Culprit(what=_machines(run)),
        fix="do not train there; find out whether direct access between GPUs is at fault "
        "(NCCL_P2P_DISABLE=1), the network, or one GPU",
        next="holdfast check --smoke --verbose",
    )


def _wrong_rows(run: NcclTestsRun) -> list[NcclTestsRow]:
    return [row for row in run.rows if row.wrong]


def _machines(run: NcclTestsRun) -> str:
    return f"GPUs of {text.names(run.nodes)}" if run.nodes else "GPUs of this test"


@FAULT.explain
def nccl_tests_did_not_end(wreckage: Wreckage) -> Diagnosis | None:
    open_end = [run for run in nccl_tests.runs(wreckage) if not run.ended]
    if not open_end or wreckage.roots():
        return None
    run = open_end[-1]
    last = f"after {text.size(run.rows[-1].size)}" if run.rows else "before its first result"
    if run.timed_out:
        limit = run.timed_out[0].fields["seconds"]
        reason = f"nccl-tests hung {last}: no result within {limit} s (-T)"
    else:
        reason = f"nccl-tests stopped {last}: it hung, was ended, or still runs"
    return FAULT.diagnosis(
        reason,
        confidence=0.5 if run.timed_out else 0.3,
        seen=[*run.timed_out, *(row.seen for row in run.rows[-1:]), run.started],
        culprit=Culprit(what=_machines(run)),
        fix="run it once more with NCCL_P2P_DISABLE=1: where that passes, direct access between "
        "GPUs is broken; NCCL_DEBUG=INFO says more",
        next="holdfast check --smoke",
        unknown=["which GPU or link: nccl-tests do not say"],
    )
