from __future__ import annotations

import msgspec
import pytest

from holdfast.catalogue import by_slug
from holdfast.findings import Diagnosis
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import a_rank, a_scene, ended, lost_its_peer, words

ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [0,0,0], thread: "
    '[32,0,0] Assertion `index >= -sizes[i] && index < sizes[i] && "index out of bounds"` failed.'
)
TRIGGERED = "[rank1]: RuntimeError: CUDA error: device-side assert triggered"

ASSERTED = words("AcceleratorError", "CUDA error: device-side assert triggered\nSearch for `cud…")
WRAPPED = msgspec.structs.replace(
    words("RuntimeError", "[Stage 2] failed to run forward"),
    root_kind=ASSERTED.kind,
    root_text=ASSERTED.text,
)
WATCHDOG = words(
    "c10::DistBackendError",
    "[PG ID 0 PG GUID 0 Rank 1] Process group watchdog thread terminated with exception: CUDA "
    "error: an illegal memory access was encountered",
)

test_run = run_table(
    "cuda-assert",
    notices(
        a_scene([lost_its_peer(0), ended(1, 1, said=ASSERTED)]),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=[
            "a kernel of rank 1 (pid 4001) failed on the GPU after step 100: device-side assert",
            "triggered, noticed at train.py:88 in f; rank 0 exited as a result",
            "CUDA_LAUNCH_BLOCKING=1",
        ],
    ),
    # CUDA aborts the process when it comes apart
    notices(
        a_scene([lost_its_peer(0), ended(1, -6, said=WRAPPED)]),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["device-side assert"],
    ),
    notices(
        a_scene([lost_its_peer(0), ended(1, -6, said=WATCHDOG)]),
        ranks=[1],
        certain=True,
        saying=["an illegal memory access was encountered"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene([a_rank(0), a_rank(1, words=words("ValueError", "device-side asserts"))])),
)

test_explain = explain_table(
    "cuda-assert",
    recognises(
        wreckage(
            "unknown:0: unknown: block: [0,0,0], thread: [31,0,0] Assertion `index out of bounds: "
            "0 <= tmp4 < 16000` failed."
        ),
        sure=0.95,
        what="unknown:0",
        saying=["an index is out of range"],
    ),
    recognises(
        wreckage(
            "/w/aten/src/ATen/native/cuda/Indexing.cu:975: indexSelectLargeIndex: block: [1,0,0], "
            "thread: [2,0,0] Assertion `srcIndex < srcSelectDimSize"
        ),
        sure=0.95,
        what="Indexing.cu:975",
        saying=["srcIndex < srcSelectDimSize"],
    ),
    recognises(
        wreckage(
            "/w/Loss.hip:123: operator(): Device-side assertion `t >= 0 && t < n_classes' failed."
        ),
        sure=0.95,
        what="Loss.hip:123",
        saying=["a label is out of range"],
    ),
    recognises(
        wreckage(
            "Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f00. Reason: "
            "Unknown."
        ),
        sure=0.55,
        saying=["usually a bug in a kernel"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: CUDA error: the launch timed out and was terminated"),
        sure=0.4,
        rank=0,
        saying=["longer than the driver allows", "display"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        sure=0.45,
        rank=0,
        saying=["EXECUTION_FAILED"],
    ),
    passes_over(wreckage("train.cu:12: host code Assertion `n > 0` failed.")),
    recognises(
        wreckage(ASSERTION, TRIGGERED),
        sure=0.95,
        rank=1,
        what="IndexKernel.cu:92",
        saying=[
            "rank 1",
            "index < sizes[i]",
            "an index is out of range for its table",
            "LAUNCH_BLOCKING",
        ],
    ),
    recognises(wreckage(TRIGGERED), sure=0.95, rank=1, saying=["assertion on the GPU"]),
    recognises(
        wreckage(
            "/tmp/torchinductor_u/ab/cd.py:23: unknown: block: [3,0,0], thread: [0,0,0] Assertion "
            "`index out of bounds: 0 <= tmp4 < 50257` failed."
        ),
        sure=0.95,
        what="cd.py:23",
        saying=["tmp4 < 50257"],
    ),
    recognises(
        wreckage("[rank2]: NCCL WARN Cuda failure 700 'an illegal memory access was encountered'"),
        sure=0.55,
        rank=2,
        saying=["usually a bug in a kernel", "compute-sanitizer"],
    ),
    recognises(
        wreckage("[rank2]: RuntimeError: CUDA error: unspecified launch failure"),
        sure=0.45,
        rank=2,
        saying=["unspecified launch failure"],
    ),
    passes_over(wreckage("train.cpp:12: main: Assertion `batch` failed.")),
    passes_over(wreckage("For debugging consider passing CUDA_LAUNCH_BLOCKING=1")),
)


@pytest.mark.parametrize(
    ("xid", "ruled_out", "unknown"),
    [
        ("31, pid=1008, name=python3, channel 0x0000000a, intr 0", "Xid 31 only", ""),
        ("48, pid=1008, name=python3, DBE", "", ""),
        ("", "", "check the kernel log for an Xid"),
    ],
)
def test_an_xid_says_whether_the_gpu_is_at_fault(xid: str, ruled_out: str, unknown: str) -> None:
    line = f"NVRM: Xid (PCI:0000:3d:00): {xid}" if xid else "step 3"
    error = "[rank2]: RuntimeError: CUDA error: an illegal memory access was encountered"
    seen = wreckage(error, line)
    (found,) = by_slug("cuda-assert").ask_explain(seen)
    assert isinstance(found, Diagnosis)
    assert [ruled_out in one for one in found.ruled_out] == ([True] if ruled_out else [])
    assert [unknown in one for one in found.unknown] == ([True] if unknown else [])
