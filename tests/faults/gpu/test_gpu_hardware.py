from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis import machine as f
from holdfast.analysis.logs.wreckage import RankRemains
from holdfast.analysis.machine.nccl_diagnostics import read_report
from holdfast.catalogue import by_slug
from holdfast.check.smoke.stages import Record
from tests.analysis.logs.patterns.made import wreckage
from tests.check.smoke.smokes import gpu_smoke
from tests.faults import between
from tests.faults.gpu import failing_gpus
from tests.faults.machines import a_machine, a_plan, settings
from tests.faults.made_gpus import a_gpu, an_sxm_gpu, nvidia
from tests.faults.made_nodes import on_all, on_node, some_nodes
from tests.faults.made_smokes import smoked
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)

replace = msgspec.structs.replace
BUS = "NVRM: Xid (PCI:0000:3d:00): 79, pid=1011, name=python, GPU has fallen off the bus."
INIT = "[rank5]: NCCL INFO comm 0x1b67ca30 rank 5 nranks 8 cudaDev 5 busId 3d000 - Init COMPLETE"

test_run = run_table("gpu-hardware", *failing_gpus.CASES)

test_explain = explain_table(
    "gpu-hardware",
    recognises(
        wreckage(
            "NVRM: Xid (PCI:0000:04:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x00000013)"
        ),
        sure=0.5,
        what="GPU 0000:04:00",
        saying=["had an error and went on", "nothing has to be done now"],
    ),
    recognises(
        wreckage("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress"),
        sure=0.4,
        what="NVSwitch 0000:05:00.0",
        saying=["a GPU sent to an address that is not mapped; the switch went on"],
    ),
    recognises(
        wreckage(
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 22003, Fatal, Link 48 Minion Halt",
        ),
        sure=0.9,
        what="NVSwitch 0000:06:00.0",
        saying=["SXid 22003: a link's controller halted", "restart it"],
    ),
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
        saying=["Xid 79", "fell off the bus", "NVIDIA's action for Xid 79: take this machine out"],
    ),
    recognises(
        wreckage(
            INIT,
            "NVRM: Xid (PCI:0000:3d:00): 95, pid=77, name=python, Uncontained error",
            "NVRM: Xid (PCI:0000:3d:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
            "(Node Reboot Required)",
        ),
        sure=0.95,
        rank=5,
        saying=[
            "not contained; the driver asked for: node reboot required",
            "`sudo nvidia-smi -r -i 0000:3d:00.0`",
        ],
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


def gpus(*changed: f.Gpu, **driver: Any) -> f.MachineFacts:
    """Four in PCIe slots; those given replace the one of their number."""
    kept = {gpu.index: gpu for gpu in map(a_gpu, range(4))}
    return a_machine(nvidia=nvidia(*(kept | {g.index: g for g in changed}).values(), **driver))


def board(*changed: f.Gpu) -> f.MachineFacts:
    kept = {gpu.index: gpu for gpu in map(an_sxm_gpu, range(8))}
    return a_machine(nvidia=nvidia(*(kept | {g.index: g for g in changed}).values()))


def boards(*changed: f.Gpu) -> f.NvidiaFacts:
    facts = board(*changed).nvidia
    assert isinstance(facts, f.NvidiaFacts)
    return facts


def logged(*lines: str, kind: str = "xid", gpu: f.Gpu | None = None, count: int = 1) -> Any:
    machine = gpus(*([gpu] if gpu else []))
    events = tuple(
        f.KernelEvent(kind=kind, text=line, seconds_ago=7200.0, count=count) for line in lines
    )
    return replace(machine, kernel_log=events)


def links(active: int, of: int = 18, *, remote: str = "switch") -> tuple[f.NvLink, ...]:
    return tuple(
        f.NvLink(index=n, active=n < active, remote=remote if n < active else "") for n in range(of)
    )


def with_growth(**counters: int) -> tuple[f.NvLink, ...]:
    bad = f.NvLink(index=5, active=True, remote="switch", growing=counters)
    return (*links(5), bad, *links(18)[6:])


def _pcie(width: int = 16, generation: int = 1) -> f.PcieLink:
    return f.PcieLink(width=width, width_possible=16, generation=generation, generation_possible=5)


ROWS = f.RemappedRows(correctable=3, uncorrectable=1, pending=False, failed=False)
BUS_1 = "0000:2b:00"
FELL_OFF = f"NVRM: Xid (PCI:{BUS_1}): 79, pid=11, name=python, GPU has fallen off the bus."
UNCONTAINED = f"NVRM: Xid (PCI:{BUS_1}): 95, pid=11, name=python, Uncontained ECC error"
SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 55 sourcetrack timeout"
OLD = a_gpu(1, recovery_action=None)


INACTIVE = "1 inactive link(s) on rank(s) {3}"


def diagnosed(words: str) -> Record:
    """A line of NCCL's diagnostics, printed by rank 0."""
    return Record(rank=0, kind="nccl", stage="nccl", text=f"n:1 NCCL DIAG {words} in comm 0x1")


test_check = check_table(
    "gpu-hardware",
    # What NCCL's own diagnostics said in a smoke test of this machine.
    speaks(
        "error",
        a_machine(
            smoke=gpu_smoke(more=[diagnosed("[INFO] NVLink: 1 inactive link(s) on rank(s) {3}")])
        ),
        saying=[f"NVLink: {INACTIVE}", "ROW_REMAPPER"],
    ),
    silent(a_machine(smoke=gpu_smoke(more=[diagnosed("[OK]   p2p: verified P2P access")]))),
    # What the driver says of each GPU.
    silent(a_machine()),
    silent(board()),
    speaks(
        "error",
        gpus(f.Gpu(index=2, bus_id="0000:3b:00.0", unread="GPU is lost", unread_kind="lost")),
        saying=["GPU 2: does not answer its driver: GPU is lost", "fell off the bus", "restart"],
    ),
    speaks(
        "error",
        gpus(a_gpu(1, unread="GPU requires reset", unread_kind="reset required")),
        saying=["GPU 1: cannot be used before a reset", "`sudo nvidia-smi -r -i 1`"],
    ),
    speaks(
        "warning",
        gpus(f.Gpu(index=3, unread="no answer within 18 s", unread_kind="no answer")),
        saying=["GPU 3: gave the driver no answer", "timeout 60 nvidia-smi -i 3"],
    ),
    silent(gpus(f.Gpu(index=3, unread="Insufficient Permissions", unread_kind="no permission"))),
    speaks(
        "error",
        gpus(*(a_gpu(n, recovery_action="gpu reset") for n in (0, 1, 3))),
        saying=["GPUs 0-1,3: needs a recovery action", "nvidia-smi -r -i 0,1,3"],
    ),
    speaks(
        "warning",
        gpus(a_gpu(1, recovery_action="unknown (9)")),
        saying=["needs a recovery action, says the driver: unknown (9)"],
    ),
    speaks(
        "error",
        gpus(a_gpu(1, remapped=replace(ROWS, failed=True))),
        saying=["no spare is left", "have the GPU replaced"],
    ),
    speaks(
        "note",
        gpus(a_gpu(1, remapped=replace(ROWS, pending=True))),
        saying=["repairs its memory at the next reset", "jobs may run meanwhile"],
    ),
    silent(gpus(a_gpu(1, remapped=ROWS))),  # repaired long ago
    speaks("note", gpus(a_gpu(1, retired_pages_pending=True)), saying=["at the next reset"]),
    speaks(
        "warning",
        gpus(a_gpu(1, ecc=f.EccErrors(corrected=0, uncorrected=2))),
        saying=["GPU 1: had 2 memory errors that ECC could not correct"],
    ),
    speaks(
        "error",
        gpus(a_gpu(1, ecc=f.EccErrors(corrected=0, uncorrected=0, sram_threshold_exceeded=True))),
        saying=["more cache (SRAM) errors than NVIDIA allows"],
    ),
    silent(
        gpus(a_gpu(1, ecc=f.EccErrors(corrected=812, uncorrected=0, uncorrected_ever=4)))
    ),  # corrected, and of earlier days
    speaks(
        "warning",
        gpus(a_gpu(1, clock_events=("hw slowdown", "hw thermal slowdown"), temperature=93)),
        saying=["GPU 1: has slowed itself down: it is too hot, 93 °C of 92"],
    ),
    speaks(
        "warning",
        gpus(a_gpu(1, clock_events=("hw slowdown", "hw power brake"))),
        saying=["the power supply told it to slow down"],
    ),
    speaks("warning", gpus(a_gpu(1, temperature=95)), saying=["it is too hot, 95 °C of 92"]),
    silent(
        gpus(a_gpu(1, clock_events=("sw power cap",), busy=100, power=349.0, pcie=_pcie(16, 5)))
    ),
    speaks(
        "warning",
        board(an_sxm_gpu(3, nvlinks=links(16))),
        saying=["GPU 3: has 16 of 18 NVLinks up (down: 16-17)", "nvidia-fabricmanager"],
    ),
    speaks(
        "warning",
        a_machine(nvidia=nvidia(*(an_sxm_gpu(n, nvlinks=links(13)) for n in range(8)))),
        saying=["GPUs 0-7: has 13 of 18 NVLinks up"],
    ),
    # Bridges between some cards only, a board with fewer links by design, one GPU given to a
    # virtual machine, whose links are all down.
    silent(gpus(*(a_gpu(n, nvlinks=links(12, remote="gpu")) for n in (0, 1)))),
    silent(
        a_machine(
            nvidia=nvidia(
                *(an_sxm_gpu(n, name="NVIDIA H800", nvlinks=links(8, 18)) for n in range(8))
            )
        )
    ),
    silent(a_machine(nvidia=nvidia(an_sxm_gpu(0, nvlinks=links(0), name="NVIDIA H200")))),
    silent(
        a_machine(
            nvidia=nvidia(
                *(a_gpu(n, nvlinks=links(12 if n < 4 else 0, 12, remote="gpu")) for n in range(6))
            )
        )
    ),
    speaks(
        "note",
        gpus(*(a_gpu(n, nvlinks=links(12 if n else 11, 12, remote="gpu")) for n in range(4))),
        saying=["GPU 0: has 11 of 12 NVLinks up", "a bridge is missing, or links failed"],
    ),
    speaks(
        "warning",
        board(an_sxm_gpu(3, nvlinks=links(0))),
        saying=["GPU 3: has 0 of 18 NVLinks up"],
    ),
    silent(board(an_sxm_gpu(3, mig=True, mig_devices=(), nvlinks=links(0)))),
    speaks(
        "warning",
        board(an_sxm_gpu(3, nvlinks=with_growth(replay=2))),
        saying=["GPU 3: has NVLinks whose errors grow: 5", "replay +2"],
    ),
    speaks(
        "warning",
        board(an_sxm_gpu(3, nvlinks=with_growth(crc_flit=900))),
        saying=["crc_flit +900"],
    ),
    silent(board(an_sxm_gpu(3, nvlinks=with_growth(crc_flit=9, symbol_errors=70)))),
    speaks(
        "warning",
        gpus(a_gpu(1, pcie=_pcie(width=8, generation=5))),
        saying=["GPU 1: is attached by PCIe x8 gen 5 where x16 gen 5 is possible", "reseated"],
    ),
    speaks(
        "warning",
        gpus(a_gpu(1, pcie=_pcie(width=8))),  # asleep, but its equals sleep with 16 lanes
        saying=["x8 gen 1"],
    ),
    speaks(
        "note",
        a_machine(nvidia=nvidia(a_gpu(0, pcie=_pcie(width=8)))),
        saying=["its way to save power"],
    ),
    speaks(
        "note",
        a_machine(nvidia=nvidia(a_gpu(0, pcie=_pcie(width=8, generation=5)))),
        saying=["its slot may be wired so"],
    ),
    # A board that divides a slot, and a cloud's card: wired so for good.
    silent(a_machine(nvidia=nvidia(*(a_gpu(n, pcie=_pcie(8, 5)) for n in range(2))))),
    silent(a_machine(nvidia=nvidia(a_gpu(0, virtualization="passthrough", pcie=_pcie(8, 5))))),
    speaks(
        "warning",
        gpus(a_gpu(1, busy=98, power=300.0, pcie=_pcie(generation=3))),
        saying=["x16 gen 3 where x16 gen 5"],
    ),
    silent(gpus(a_gpu(1, pcie=_pcie(generation=2)))),  # idle
    silent(
        a_machine(
            nvidia=nvidia(
                a_gpu(0, busy=98, power=300.0, pcie=_pcie(16, 3), virtualization="passthrough")
            )
        )
    ),
    silent(  # a guest does not see how its host's slot is wired
        a_machine(
            nvidia=nvidia(a_gpu(0, pcie=_pcie(width=8, generation=5), virtualization="passthrough"))
        )
    ),
    speaks(
        "note",
        gpus(a_gpu(1, busy=100, power=60.0)),
        saying=["100 % busy but takes only 60 of 350 W", "hangs in a collective looks so"],
    ),
    speaks(
        "warning",
        gpus(a_gpu(1, power_limit=200.0)),
        saying=["GPU 1: may take only 200 W, its equals 350 W", "-pl 350 -i 1"],
    ),
    silent(gpus(*(a_gpu(n, power_limit=250.0) for n in range(4)))),  # on purpose
    speaks("note", gpus(a_gpu(1, persistence=False)), saying=["GPU 1: has persistence mode off"]),
    silent(gpus(*(a_gpu(n, persistence=False) for n in range(4)))),
    silent(a_machine(nvidia=nvidia(*(an_sxm_gpu(n, persistence=False) for n in range(8))))),
    speaks(
        "note",  # the job does not use it
        a_machine(
            settings=settings(CUDA_VISIBLE_DEVICES="0,1"),
            nvidia=nvidia(*map(a_gpu, range(3)), a_gpu(3, recovery_action="gpu reset")),
        ),
        saying=["GPU 3: needs a recovery action", "This job does not use it"],
    ),
    speaks(
        "note",
        a_machine(
            a_plan(nproc=2, nproc_named=True),
            nvidia=nvidia(*map(a_gpu, range(3)), a_gpu(3, recovery_action="gpu reset")),
        ),
        saying=["This job does not use it"],
    ),
    silent(
        a_machine(
            settings=settings(CUDA_VISIBLE_DEVICES="0,1"),
            nvidia=nvidia(*map(a_gpu, range(3)), a_gpu(3, temperature=95)),
        )
    ),
    not_applicable(a_machine(nvidia=f.NvidiaFacts(present=False)), saying=["no NVIDIA GPU"]),
    skips(
        a_machine(nvidia=nvidia(error="Driver/library version mismatch", gpus=())),
        saying=["Driver/library version mismatch"],
    ),
    # What the kernel log says.
    skips(
        a_machine(kernel_log=f.Unread(why="kernel log is not readable by this user")),
        saying=["not readable by this user"],
    ),
    speaks(
        "error",
        logged(FELL_OFF, gpu=a_gpu(1, unread="GPU is lost", unread_kind="lost")),
        saying=["GPU 1: reported Xid 79: the GPU fell off the bus", "cannot be read now"],
    ),
    speaks(
        "error",
        logged(UNCONTAINED, gpu=a_gpu(1, recovery_action="gpu reset"), count=3),
        saying=["Xid 95", "3 times, last 2 hours ago; the driver asks for: gpu reset"],
    ),
    speaks(
        "note",  # put right since
        logged(UNCONTAINED),
        saying=["GPU 1: reported Xid 95", "2 hours ago; it was reset since, or needs no reset"],
    ),
    speaks(
        "warning",
        logged(UNCONTAINED, gpu=OLD),
        saying=["this driver does not tell", "`sudo nvidia-smi -r -i 1`"],
    ),
    speaks(
        "error",
        logged(
            UNCONTAINED,
            f"NVRM: Xid (PCI:{BUS_1}): 154, GPU recovery action changed from 0x0 (None) to 0x1 "
            "(GPU Reset Required)",
            gpu=OLD,
        ),
        saying=["the driver asks for: gpu reset required"],
    ),
    speaks(
        "warning",
        logged(FELL_OFF.replace(BUS_1, "0000:99:00")),
        saying=["GPU 0000:99:00: reported Xid 79", "not among those visible here"],
    ),
    speaks(
        "note",
        logged(f"NVRM: Xid (PCI:{BUS_1}): 94, pid=11, name=python, Contained ECC error"),
        saying=["contained to one program", "start the program again"],
    ),
    silent(logged(f"NVRM: Xid (PCI:{BUS_1}): 31, pid=11, name=python, MMU Fault")),
    silent(logged(f"NVRM: Xid (PCI:{BUS_1}): 45, pid=11, name=python, Ch 00000010")),
    silent(logged(f"NVRM: Xid (PCI:{BUS_1}): 63, pid=11, Row Remapper: New row marked")),
    speaks(
        "warning",
        logged(SWITCH, kind="sxid"),
        saying=["NVSwitch 0000:c1:00.0: reported SXid 24007", "stop every GPU"],
    ),
    silent(logged(SWITCH.replace("Fatal", "Non-fatal"), kind="sxid")),
    speaks(
        "warning",
        logged("NVRM: GPU 0000:99:00.0: RmInitAdapter failed! (0x26:0xffff:1290)", kind="gpu"),
        saying=["GPU 0000:99:00: could not be started by the driver"],
    ),
    silent(
        logged(f"NVRM: GPU {BUS_1}.0: RmInitAdapter failed! (0x26:0xffff:1290)", kind="gpu")
    ),  # it started later
    # AMD.
    speaks(
        "warning",
        a_machine(
            nvidia=f.NvidiaFacts(present=False),
            rocm=f.RocmFacts(gpus=("MI300X", "MI300X"), driver="6.8", uncorrectable_errors=(0, 3)),
        ),
        saying=["AMD GPU 1 counted uncorrectable errors"],
    ),
    skips(
        a_machine(rocm=f.RocmFacts(gpus=("MI300X",), driver="6.8", uncorrectable_errors=(None,))),
        saying=["shows no error counts"],
    ),
)


def test_a_gpu_that_fell_off_is_said_once_by_the_kernel_log() -> None:
    lines = [("xid", FELL_OFF), ("gpu", f"NVRM: GPU {BUS_1}.0: GPU has fallen off the bus.")]
    events = tuple(f.KernelEvent(kind=kind, text=line, seconds_ago=9.0) for kind, line in lines)
    facts = replace(gpus(a_gpu(1, unread="GPU is lost", unread_kind="lost")), kernel_log=events)
    said = [one.summary for one in by_slug("gpu-hardware").ask_check(facts) if one.status.concern]
    assert said == [
        "GPU 1: does not answer its driver: GPU is lost",
        "GPU 1: reported Xid 79: the GPU fell off the bus: it no longer answers",
    ]


def test_a_switch_whose_gpus_are_all_back_in_the_fabric_is_only_noted() -> None:
    event = f.KernelEvent(kind="sxid", text=SWITCH, seconds_ago=60.0)
    facts = replace(board(), kernel_log=(event,))
    (said,) = [one for one in by_slug("gpu-hardware").ask_check(facts) if one.status.concern]
    assert said.status.value == "note"
    assert "put right" in said.reason


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
    between.speaks(
        "warning",
        on_node(
            some_nodes(4), "node-c", nvidia=nvidia(*(a_gpu(n, name="NVIDIA A10") for n in (0, 1)))
        ),
        saying=["node-c has NVIDIA A10, the others NVIDIA H100 PCIe", "slowest GPU"],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        on_node(
            on_all(some_nodes(4), lambda _: {"nvidia": boards()}),
            "node-c",
            nvidia=boards(an_sxm_gpu(3, nvlinks=links(16))),
        ),
        saying=["number of NVLinks up differs", "node-c has 7 x 18 and 1 x 16, the others 18"],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        on_node(
            some_nodes(4), "node-c", nvidia=nvidia(*(a_gpu(n, power_limit=200.0) for n in range(4)))
        ),
        saying=["power limit differs", "node-c has 200 W, the others 350 W"],
        hosts=["node-c"],
    ),
    between.speaks(
        "note",
        on_node(
            some_nodes(2), "node-b", nvidia=nvidia(*(a_gpu(n, ecc_enabled=False) for n in range(4)))
        ),
        saying=["ECC mode differs between nodes: off on node-b, on on node-a"],
        hosts=[""],
    ),
    between.skips(
        on_node(some_nodes(3), "node-b", nvidia=nvidia(error="Unknown Error", gpus=())),
        saying=["Unknown Error"],
    ),
    between.silent(on_node(some_nodes(3), "node-b", nvidia=f.NvidiaFacts(present=False))),
    between.not_applicable(some_nodes(3), saying=["add --smoke"]),
)
