from __future__ import annotations

from holdfast.analysis.logs.wreckage import RankRemains
from holdfast.analysis.machine.nccl_diagnostics import read_report
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.gpu import failing_gpus
from tests.faults.made_nodes import some_nodes
from tests.faults.made_smokes import smoked
from tests.faults.table import explain_table, passes_over, recognises, run_table

BUS = "NVRM: Xid (PCI:0000:3d:00): 79, pid=1011, name=python, GPU has fallen off the bus."
INIT = "[rank5]: NCCL INFO comm 0x1b67ca30 rank 5 nranks 8 cudaDev 5 busId 3d000 - Init COMPLETE"

test_run = run_table("gpu-hardware", *failing_gpus.CASES)

test_explain = explain_table(
    "gpu-hardware",
    recognises(
        wreckage("amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"),
        sure=0.5,
        what="GPU 0000:c1:00.0",
        saying=["hanging and reset it"],
    ),
    passes_over(wreckage("amdgpu 0000:c1:00.0: amdgpu: GPU mode1 reset supported")),
    recognises(
        wreckage(
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=1011, name=python, Ch 00000001 caused by previous "
            "Xid 149"
        ),
        sure=0.95,
        what="GPU 0000:dc:00",
        saying=["Xid 149", "NVLink connection failed"],
    ),
    recognises(
        wreckage("XidCriticalError: Xid=48 on Device=GPU-0a1b2c3d; marking device as unhealthy."),
        sure=0.95,
        what="GPU GPU-0a1b2c3d",
        saying=["Xid 48"],
    ),
    recognises(
        wreckage(
            "NVRM: Xid (PCI:0000:dc:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
            "(OS Reboot)"
        ),
        sure=0.7,
        what="GPU 0000:dc:00",
        saying=["must be reset"],
    ),
    recognises(
        wreckage(
            "[rank5]: torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over "
            "nvlink or a hardware error"
        ),
        sure=0.55,
        rank=5,
        saying=["over NVLink", "first rank that failed"],
    ),
    recognises(
        wreckage("[rank1]: RuntimeError: CUDA error: hardware stack error"),
        sure=0.96,
        rank=1,
        saying=["uncorrectable error"],
    ),
    recognises(
        wreckage("pynvml.nvml.NVMLError_GpuIsLost: GPU is lost"),
        sure=0.96,
        saying=["stopped answering"],
    ),
    passes_over(
        wreckage(
            "NVRM: Xid (PCI:0000:dc:00): 154, GPU recovery action changed from 0x1 (GPU Reset "
            "Required) to 0x0 (None)"
        )
    ),
    recognises(
        wreckage(BUS, ranks=(RankRemains(rank=2, pid=1011),)),
        sure=0.97,
        rank=2,
        what="GPU 0000:3d:00",
        saying=["Xid 79", "fell off the bus", "take this machine out"],
    ),
    recognises(
        wreckage(INIT, "NVRM: Xid (PCI:0000:3d:00): 95, pid=77, name=python, Uncontained error"),
        sure=0.95,
        rank=5,
        saying=["not contained"],
    ),
    recognises(
        wreckage("[rank12]: RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        sure=0.96,
        rank=12,
        saying=["uncorrectable error", "nvidia-smi -q -d ECC"],
    ),
    recognises(
        wreckage("Unable to determine the device handle for GPU 0000:3D:00.0: Unknown Error"),
        sure=0.96,
        what="GPU 0000:3D:00.0",
        saying=["stopped answering"],
    ),
    recognises(
        wreckage("NVRM: Xid (PCI:0000:3d:00): 31, pid=1011, name=python, Ch 00000008, MMU Fault"),
        sure=0.35,
        what="GPU 0000:3d:00",
        saying=["usually a bug in a kernel", "compute-sanitizer"],
    ),
    recognises(
        wreckage(
            "NVRM: Xid (PCI:0000:3d:00): 31, pid=11, name=python, MMU Fault",
            "NVRM: Xid (PCI:0000:4d:00): 31, pid=12, name=python, MMU Fault",
        ),
        sure=0.2,
        what="GPU 0000:3d:00",
        saying=["Xid 31"],
    ),
    recognises(
        wreckage(
            "NVRM: Xid (PCI:0000:3d:00): 45, pid=11, name=python, Ch 00000010",
            "NVRM: Xid (PCI:0000:3d:00): 48, pid=11, name=python, DBE (double bit error)",
        ),
        sure=0.95,
        what="GPU 0000:3d:00",
        saying=["Xid 48", "ECC could not correct"],
    ),
    recognises(
        wreckage("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 55"),
        sure=0.9,
        what="NVSwitch 0000:c1:00.0",
        saying=["SXid 24007"],
    ),
    recognises(
        wreckage(
            "pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction",
            "nvidia 0000:03:00.0: AER: can't recover (no error_detected callback)",
        ),
        sure=0.85,
        what="PCIe device 0000:03:00.0",
        saying=["PCIe link of GPU 0000:03:00.0"],
    ),
    recognises(
        wreckage(
            "NCCL WARN P2P is disabled between NVLINK connected GPUs 1 and 0. This should not"
        ),
        sure=0.75,
        what="NVLink between GPUs 1 and 0",
        saying=["could not reach each other"],
    ),
    passes_over(wreckage("NVRM: Xid (PCI:0000:3d:00): 45, pid=11, name=python, Ch 00000010")),
    passes_over(
        wreckage("pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=Data Link")
    ),
    passes_over(wreckage("NCCL INFO P2P is disabled between connected GPUs 0 and 1.")),
)


SAID = "node0:24563 NCCL DIAG {} in comm 0x1234"

test_check_nodes = between.table(
    "gpu-hardware",
    between.speaks(
        "error",
        smoked(
            4,
            diagnostics=read_report(
                [
                    SAID.format("[OK]   ECC: no uncorrected volatile errors across 8 ranks"),
                    SAID.format("[INFO] NVLink: 1 inactive link(s) on rank(s) {3}"),
                ]
            ),
        ),
        saying=["NCCL's diagnostics: NVLink: 1 inactive link(s) on rank(s) {3}"],
    ),
    between.skips(
        smoked(
            4,
            diagnostics=read_report(
                [SAID.format("[INFO] ECC: unavailable via NVML across 8 ranks")]
            ),
        ),
        saying=["ECC: unavailable via NVML"],
    ),
    between.silent(
        smoked(
            4,
            diagnostics=read_report(
                [SAID.format("[OK]   ECC: no uncorrected volatile errors across 8 ranks")]
            ),
        )
    ),
    between.skips(smoked(4), saying=["NCCL 2.28.9 has no diagnostics (2.31 has)"]),
    between.not_applicable(some_nodes(3), saying=["add --smoke"]),
)
