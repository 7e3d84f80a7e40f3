"""Texts made from the format strings of NCCL's src/diagnostics and src/ras."""

from __future__ import annotations

import pytest

from holdfast.analysis.machine.nccl_diagnostics import (
    DiagnosticKind,
    DiagnosticLine,
    has_diagnostics,
    read_report,
)

EDGE = (
    "srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=1 dstCudaDev=1 dstNvmlDev=1 path=NVL "
    "handle=CUMEM_POSIX_FD"
)
OK, GAP, FAULT = DiagnosticKind.OK, DiagnosticKind.GAP, DiagnosticKind.FAULT
CASES = [
    # src/diagnostics/p2p.cc
    (
        (
            "[OK]   p2p: verified P2P access in both directions between every GPU pair "
            "(56 peer accesses)"
        ),
        "p2p",
        DiagnosticKind.OK,
    ),
    ("[OK]   p2p: all 56 directed GPU P2P edges verified", "p2p", DiagnosticKind.OK),
    ("[INFO] p2p: 52/56 directed GPU P2P edges verified", "p2p", DiagnosticKind.FAULT),
    (
        "[INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification",
        "p2p",
        DiagnosticKind.FAULT,
    ),
    (
        (
            f"[INFO] p2p: write mismatch {EDGE} expected=0x00000000000000ff got=0x0000000000000000 "
            "verify=0x0000000000000000; check the single-node NVLink topology and peer-access state"
        ),
        "p2p",
        DiagnosticKind.FAULT,
    ),
    (
        f"[INFO] p2p: peer-memory import failed {EDGE} reason=import; check CUDA IPC support",
        "p2p",
        DiagnosticKind.FAULT,
    ),
    ("[INFO] p2p: setup failed on rank 3 result=1", "p2p", DiagnosticKind.GAP),
    # src/ras/diagnostics_xid.cc and others of 2.32.3
    (
        (
            "[INFO] Xid 79 detected 3 minutes ago on host a. The NVIDIA Xid catalog recommends "
            "resetting the affected GPU. Follow the documented GPU-reset capabilities: https://x"
        ),
        "Xid",
        DiagnosticKind.FAULT,
    ),
    (
        (
            "[INFO] Xid 31 detected 3 minutes ago on host a. Restart the affected application. "
            "For guidance, see the NVIDIA Xid documentation: https://x"
        ),
        "Xid",
        DiagnosticKind.GAP,
    ),
    ("[OK]   Xid/SXid: no events requiring immediate attention across 2 hosts", "Xid/SXid", OK),
    ("[INFO] Xid/SXid: no kernel-log source was available on host a", "Xid/SXid", GAP),
    ("[INFO] NVLink: inconsistent link speeds on rank(s) {3} across 8 ranks", "NVLink", FAULT),
    ("[INFO] IOMMU groups: GPU and NIC groups differ on 8 pair(s)", "IOMMU groups", GAP),
    # src/diagnostics/ib_write_bw.cc
    (
        (
            "[OK] net bw: 376.1/391.5/398.2 Gbit/s min/median/max same-nic bw (across 8 ranks) "
            "in comm 0x7a3f9b2c41d05e88"
        ),
        "net bw",
        DiagnosticKind.OK,
    ),
    (
        (
            "[INFO] net bw: cross-nic rank 3 (node0): 265.1 Gbit/s, >30% off median 391.5 Gbit/s "
            "in comm 0x7a3f9b2c41d05e88"
        ),
        "net bw",
        DiagnosticKind.FAULT,
    ),
    (
        (
            "[INFO] net bw: mode=same server_rank=0 server_host=node0 server_device=mlx5_0 "
            "client_rank=8 client_host=node1 client_device=mlx5_0 memory=cuda tool run timed out "
            "in comm 0x7a3f9b2c41d05e88"
        ),
        "net bw",
        DiagnosticKind.FAULT,
    ),
    (
        "[INFO] net bw: required external tool missing in comm 0x7a3f9b2c41d05e88",
        "net bw",
        DiagnosticKind.GAP,
    ),
    # src/ras/diagnostics*.cc
    (
        "[OK]   GPU inventory: 8x NVIDIA H100 per node consistent across 8 ranks in comm 0x1234",
        "GPU inventory",
        DiagnosticKind.OK,
    ),
    (
        (
            "[INFO] ECC: no uncorrected volatile errors across 4 of 8 ranks in comm 0x1234 "
            "(ECC counters unavailable via NVML on 4 ranks)"
        ),
        "ECC",
        DiagnosticKind.GAP,
    ),
    (
        "[INFO] ECC: uncorrected volatile errors on rank(s) {3} in comm 0x1234",
        "ECC",
        DiagnosticKind.FAULT,
    ),
    (
        "[INFO] NCCL environment: mismatch across 16 ranks in comm 0x5fa31c27 for NCCL_BUFFSIZE",
        "NCCL environment",
        DiagnosticKind.FAULT,
    ),
    (
        (
            "[INFO] CUDA driver version: diagnostics incomplete, gathered 1/2 ranks in comm "
            "0x3000/0x3001/0x3002 (RAS overlay may not be ready)"
        ),
        "CUDA driver version",
        DiagnosticKind.GAP,
    ),
]


@pytest.mark.parametrize(("line", "check", "kind"), CASES)
def test_a_result_line_is_read_with_and_without_host_and_pid(
    line: str, check: str, kind: DiagnosticKind
) -> None:
    (bare,) = read_report([f"NCCL DIAG {line}"])
    assert (bare.check, bare.kind, bare.host) == (check, kind, "")
    (prefixed,) = read_report([f"node-7.cluster:24563 NCCL DIAG {line}\n"])
    assert (prefixed.check, prefixed.kind, prefixed.host) == (check, kind, "node-7.cluster")
    assert prefixed.words == bare.words


def test_the_communicator_is_left_out_so_that_repeated_lines_are_said_once() -> None:
    line = "node0:7 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 8 ranks in comm {}"
    assert read_report([line.format("0x12"), line.format("0xff")]) == (
        DiagnosticLine(
            check="ECC",
            kind=DiagnosticKind.OK,
            words="no uncorrected volatile errors across 8 ranks",
            host="node0",
        ),
    )


@pytest.mark.parametrize(
    "line",
    [
        "NCCL DIAG === NCCL Diagnostics ===",
        "NCCL DIAG NCCL diagnostics completed in 245.3 ms across 8 ranks",
        "node0:1 NCCL DIAG RAS diagnostics completed in 12.3 ms across 8 RAS peers",
        "node0:1:1 [0] NCCL INFO NCCL_RUN_DIAGNOSTICS set by environment to 1.",
        "",
    ],
)
def test_everything_else_is_passed_over(line: str) -> None:
    assert read_report([line]) == ()


@pytest.mark.parametrize(
    ("version", "has"),
    [("2.28.9", False), ("2.30.7", False), ("2.31.2", True), ("3.0", True), ("", False)],
)
def test_which_versions_have_them(version: str, has: bool) -> None:
    assert has_diagnostics(version) is has


PRINTED = """
vm:2292 NCCL DIAG === NCCL Diagnostics ===
vm:2292 NCCL DIAG [INFO] net bw: required external tool missing in comm 0xdd7ce9498780edb3
vm:2292 NCCL DIAG [INFO] net bw: setup failed on rank 0 in comm 0xdd7ce9498780edb3
vm:2292 NCCL DIAG NCCL diagnostics completed in 25.1 ms across 3 ranks
vm:2292 NCCL DIAG === RAS Diagnostics ===
vm:2292 NCCL DIAG [OK]   GPU inventory: 1x NVIDIA H200 per node consistent across 3 ranks
vm:2292 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 3 ranks in comm 0xdd7ce9498780
vm:2292 NCCL DIAG [INFO] rdma_topo check: not usable on 3/3 ranks in comm 0xdd7ce94 (unavailable)
vm:2292 NCCL DIAG [INFO] IOMMU mode: unable to identify relevant GPU/NIC pairs on 3/3 ranks
vm:2292 NCCL DIAG [INFO] ATS state: unable to identify relevant NICs on 3/3 ranks in comm 0xdd7
vm:2292 NCCL DIAG [OK]   Paths: self+NET across 3 ranks in comm 0xdd7ce9498780edb3
"""
"""by NCCL 2.32.3 on a healthy H200 without a network card"""


def test_what_a_healthy_machine_printed_holds_no_fault() -> None:
    found = read_report(PRINTED.splitlines())
    assert len(found) == 8
    assert not [one for one in found if one.kind is DiagnosticKind.FAULT]
    assert {one.host for one in found} == {"vm"}
