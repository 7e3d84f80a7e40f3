"""GPUs cannot reach each other's memory, although they report that they can.

What you see   NCCL starts, connects everything (`via P2P`, `Init COMPLETE`), and the first
               collective never ends: all GPUs at 100 %, no error, then the watchdog's timeout on
               every rank. Or InfiniBand with GPUDirect fails at once with `status=4` (local
               protection error), vendor error 81. Or sums are wrong.
Why            PCIe switches with Access Control Services (ACS), and an IOMMU that translates
               addresses, route direct traffic between devices through the root complex, where it is
               lost or refused. Virtual machines need ACS, so there the hypervisor must handle it.
               Consumer cards and some boards report peer access that does not work.
How to be sure The job runs with `NCCL_P2P_DISABLE=1` (within a node), or with
               `NCCL_NET_GDR_LEVEL=0` (InfiniBand): then this is the cause. `lspci -vvv | grep
               ACSCtl` with `SrcValid+` on a bridge, `dmesg | grep -iE 'iommu|DMAR'`, and NVIDIA's
               p2pBandwidthLatencyTest show it directly.
Fix            Bare metal: disable ACS on the PCIe bridges (BIOS, or setpci at each boot), and
               disable the IOMMU or set it to passthrough (`iommu=pt`). Virtual machine: ask the
               provider for a topology with peer access; until then keep NCCL_P2P_DISABLE=1, which
               is slower.
Known limits   `check` reads ACS of the bridges (as root only) and the mode of the IOMMU, for pairs
               of devices between which NCCL would use P2P or GPUDirect; it says nothing in virtual
               machines, and does not try peer access itself: `check --smoke` does. A hang in an
               early collective only suggests this fault until the job has run with P2P disabled.
Sources        NVIDIA/nccl docs/userguide/source/troubleshooting/gpu_troubleshooting.rst
               NVIDIA/nccl src/transport/net_ib/common.h: what status 4 hints at
               NVIDIA/nccl src/graph/paths.cc: how far apart GPUs may be for P2P
               https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#iommu-on-linux
               https://github.com/NVIDIA/nccl/issues/2079 (ACS on root ports, two GPUs on AMD)
               https://github.com/NVIDIA/nccl/issues/631
               https://github.com/NVIDIA/nccl/issues/257
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import shell_words, text
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import MachineFacts, PciFacts, known
from holdfast.analysis.machine.peer_paths import PeerPath, peer_paths
from holdfast.analysis.machine.visible_gpus import NO_GPU, gpus_here
from holdfast.analysis.nccl_numbers import nccl_int
from holdfast.analysis.source.source import Source
from holdfast.analysis.variables.in_source import as_fact, at, readable, without
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD310",
    slug="p2p-acs-iommu",
    related=("p2p-peer-limit", "gpu-hardware", "ib-misconfig", "known-defect"),
)

PROTECTION = FAULT.log_pattern(
    "protection",
    r"Got completion (?:from peer (?P<peer>\S+) )?with "
    r"(?:error 4\b|status=4\b|status=IBV_WC_LOC_PROT_ERR)(?:.*vendor[ _]err[ =](?P<vendor>\d+))?",
    anchors=("with error 4,", "with status=4 ", "IBV_WC_LOC_PROT_ERR"),
    example="vm:1009:1020 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
    "192.0.2.7<41234> with error 4, opcode 32601, len 32600, vendor err 81 (Recv)",
)
IOMMU = FAULT.log_pattern(
    "iommu",
    r"DMAR: (?:DRHD: handling fault status|\[DMA (?:Read|Write)[^\]]*\] Request device "
    r"\[?(?P<device>[0-9a-f:.]+))|AMD-Vi: Event logged \[IO_PAGE_FAULT device=(?P<amd>[0-9a-f:.]+)",
    anchors=("DMAR: DRHD", "DMAR: [DMA", "IO_PAGE_FAULT"),
    example="[12345.678] nvidia 0000:3d:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT device=3d:00.0 "
    "domain=0x0021 address=0xd0001000 flags=0x0030]",
    role=Role.CONFIRMATION,
)
UNSUPPORTED = FAULT.log_pattern(
    "unsupported",
    r"peer access is not supported between these two devices|cudaErrorPeerAccessUnsupported",
    anchors=("peer access is not supported", "PeerAccessUnsupported"),
    example="vm:1009:1009 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 "
    "peer access is not supported between these two devices",
)
DIRECT = FAULT.log_pattern(
    "direct",
    r" via P2P/(?:direct pointer|IPC|CUMEM|indirect)",
    anchors=" via P2P/",
    example="vm:1009:1009 [0] NCCL INFO Channel 00/0 : 0[1b000] -> 1[1c000] via P2P/IPC",
    role=Role.CONTEXT,
)
UNTRANSLATED = FAULT.log_pattern(
    "untranslated",
    r"Missing \"iommu=pt\" from kernel command line",
    anchors='Missing "iommu=pt"',
    example='vm:1009:1009 [0] init.cc:179 NCCL WARN Missing "iommu=pt" from kernel command line '
    "which can lead to system instablity or hang!",
    # RCCL's warning at every start on such a machine: it explains a hang but does not prove one.
    role=Role.CONTEXT,
)
REDIRECTED = FAULT.log_pattern(
    "redirected",
    r"ACSCtl:\s{1,8}SrcValid(?P<valid>[+\-]) .{0,40}ReqRedir(?P<redirected>[+\-])",
    anchors="ACSCtl:",
    example="\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- "
    "DirectTrans-",
    # lspci on one bridge: many machines have ACS on, and only some have GPUs behind it.
    role=Role.CONTEXT,
)
WRONG_SUMS = FAULT.log_pattern(
    "wrong-sums",
    r"Out of bounds values : [1-9]\d* FAILED|Verification error @ element \d+: val = ",
    anchors=("Out of bounds values : ", "Verification error @ element"),
    example="# Out of bounds values : 8 FAILED",
)
EARLY_COLLECTIVE = 5
"""a collective of this number or lower: nothing has worked yet"""
DISABLE_P2P = "export NCCL_P2P_DISABLE=1"
FIX_PCIE = (
    "disable ACS on the PCIe bridges, and disable the IOMMU or set it to passthrough (`iommu=pt`); "
    "in a virtual machine ask the provider; until then"
)


# --- on a machine -------------------------------------------------------------------------------


@FAULT.check(needs=("pci", "nvidia", "settings", "rdma_devices", "gpu_direct"))
def peers_are_kept_apart(facts: MachineFacts) -> Finding:
    gpus = gpus_here(facts)
    if not gpus:
        return FAULT.does_not_apply(NO_GPU)
    pci = known(facts.pci)
    if pci.virtual_machine:
        return FAULT.does_not_apply("a virtual machine: it needs ACS, and its host sets it")
    devices = {device.bus_id for device in pci.devices}
    if hidden := [gpu for gpu in gpus if gpu.bus_id not in devices]:
        return FAULT.skipped(
            f"/sys/bus/pci does not show {text.counted(len(hidden), 'GPU')} of the driver"
        )
    paths = peer_paths(facts)
    if not paths:
        return FAULT.does_not_apply(
            "NCCL would use no direct traffic over PCIe here: one GPU, NVLink, or too far apart"
        )
    return (
        _acs_redirects(paths)
        or _iommu_translates(paths, pci)
        or _acs_not_readable(paths, pci)
        or FAULT.ok(f"nothing redirects direct traffic over PCIe ({_pairs(paths)})")
    )


def _acs_redirects(paths: Sequence[PeerPath]) -> Finding | None:
    """Across root complexes ACS alone is harmless: the traffic goes there anyway."""
    hit = [path for path in paths if path.in_switch and path.redirecting]
    if not hit:
        return None
    bridges = sorted({bridge for path in hit for bridge in path.redirecting})
    listed = " ".join(shell_words.word(bridge, "BRIDGE") for bridge in bridges)
    return FAULT.warning(
        f"PCIe ACS sends direct traffic between {_pairs(hit)} through the root complex",
        reason="it is slower there, and on some machines collectives hang or GPUDirect is refused; "
        "on bare metal NVIDIA asks for ACS to be off",
        evidence=[
            Evidence(quote=f"{bridge}: ACSCtl redirects", source="PCI configuration space")
            for bridge in bridges[:SHOWN]
        ],
        fix="disable it in the BIOS (ACS, or VT-d/AMD IOMMU), or until the next start: "
        f"`for b in {listed}; do sudo setpci -s $b ECAP_ACS+0x6.w=0000; done`",
    )


def _iommu_translates(paths: Sequence[PeerPath], pci: PciFacts) -> Finding | None:
    hit = [path for path in paths if not path.in_switch]
    if hit and pci.iommu == "unknown":
        return FAULT.skipped("the kernel does not tell what its IOMMU does to these devices")
    if not hit or pci.iommu != "translating":
        return None
    return FAULT.warning(
        f"the IOMMU translates addresses, and NCCL would use P2P between {_pairs(hit)} through it",
        reason="CUDA does not support peer access over PCIe with a translating IOMMU on bare "
        "metal: the first collective may hang, or data may be wrong",
        evidence=[
            Evidence(quote=device.iommu, source=f"/sys/bus/pci/devices/{device.bus_id}/iommu_group")
            for device in pci.devices
            if device.name in hit[0].ends
        ],
        fix="start the kernel with `iommu=pt`; until then `export NCCL_P2P_DISABLE=1`",
    )


def _acs_not_readable(paths: Sequence[PeerPath], pci: PciFacts) -> Finding | None:
    if pci.acs_readable or all(path.together for path in paths if path.in_switch):
        return None
    return FAULT.skipped(
        "only root may read ACS of PCIe bridges: `sudo holdfast check --only p2p-acs-iommu`"
    )


def _pairs(paths: Sequence[PeerPath]) -> str:
    more = f" and {text.counted(len(paths) - 1, 'other pair')}" if paths[1:] else ""
    return f"{paths[0]}{more}"


# --- in what is left of a job -------------------------------------------------------------------


@FAULT.explain
def peer_access_broken(wreckage: Wreckage) -> Diagnosis | None:
    return (
        _gpudirect_refused(wreckage)
        or _iommu_faults(wreckage)
        or _peer_access_refused(wreckage)
        or _wrong_data(wreckage)
        or _early_collective_hung(wreckage)
        or _acs_enabled(wreckage)
    )


def _gpudirect_refused(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(PROTECTION)
    if not seen:
        return None
    exact = sightings.field(seen, "vendor") == "81"
    return FAULT.diagnosis(
        f"the InfiniBand adapter of {sightings.who(seen)} was refused access to GPU memory (status "
        "4, local protection error): usually PCIe ACS or an IOMMU that blocks GPUDirect RDMA",
        confidence=0.75 if exact else 0.65,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, rank=seen[0].rank, what="GPUDirect RDMA"),
        fix=f"{FIX_PCIE} `export NCCL_NET_GDR_LEVEL=0`",
        next="sudo lspci -vvv | grep ACSCtl; dmesg | grep -iE 'iommu|DMAR'",
        unknown=["whether it runs without GPUDirect: try NCCL_NET_GDR_LEVEL=0"],
    )


def _iommu_faults(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(IOMMU)
    if not seen:
        return None
    device = sightings.field(seen, "device") or sightings.field(seen, "amd")
    return FAULT.diagnosis(
        f"the IOMMU refused accesses of device {device or '(unnamed)'}: it blocks direct "
        "traffic between devices",
        confidence=0.8,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=f"IOMMU, device {device}"),
        fix=f"{FIX_PCIE} `export NCCL_P2P_DISABLE=1`",
        next=shell_words.command("lspci -s {}", device) or "lspci -tv",
    )


def _peer_access_refused(wreckage: Wreckage) -> Diagnosis | None:
    # From shm.cc it is a defect of NCCL, see known-defect.
    seen = [one for one in wreckage.seen(UNSUPPORTED) if "shm.cc" not in one.line.text]
    if not seen:
        return None
    return FAULT.diagnosis(
        f"{sightings.who(seen)} tried to access another GPU directly and was refused: these two "
        "GPUs do not support peer access, although NCCL expected it",
        confidence=0.6,
        seen=seen,
        fix="`export NCCL_P2P_DISABLE=1`; make sure that every process sees the same GPUs "
        "(CUDA_VISIBLE_DEVICES, containers) and no container hides one of the pair",
        next="nvidia-smi topo -p2p r",
    )


def _wrong_data(wreckage: Wreckage) -> Diagnosis | None:
    """nccl-tests and CUDA's simpleP2P compare what arrived with what was sent."""
    seen = wreckage.seen(WRONG_SUMS)
    if not seen:
        return None
    return FAULT.diagnosis(
        "a test of the GPU connections found wrong data: one GPU received something else than the "
        "other sent, as with ACS or an IOMMU between them; a failing GPU or link does the same",
        confidence=0.55,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what="direct access between GPUs (P2P)"),
        fix=f"run the test again with NCCL_P2P_DISABLE=1; if it then passes: {FIX_PCIE} keep that "
        "setting",
        next="sudo lspci -vvv | grep ACSCtl; nvidia-smi topo -p2p r",
        unknown=["whether the data is right without P2P"],
    )


def _acs_enabled(wreckage: Wreckage) -> Diagnosis | None:
    """The log contains lspci output: worth reporting where nothing else explains the failure."""
    seen = wreckage.seen(REDIRECTED)
    on = [one for one in seen if "+" in one.fields.values()]
    if not on or wreckage.roots():
        return None
    redirected = sightings.saying(on, r"ReqRedir\+")
    return FAULT.diagnosis(
        "PCIe bridges of this machine have Access Control Services (ACS) enabled"
        + (
            " and redirect requests: traffic between GPUs behind them goes through the root "
            "complex, where it can be slow or lost"
            if redirected
            else ", but redirect no requests: whether that does harm depends on the bridge"
        ),
        confidence=0.55 if redirected else 0.3,
        seen=redirected or on,
        culprit=Culprit(host=on[0].line.host, what="ACS on PCIe bridges"),
        fix=f"{FIX_PCIE} `export NCCL_P2P_DISABLE=1`",
        next="lspci -tv; nvidia-smi topo -m",
        unknown=["whether the GPUs are behind those bridges"],
    )


def _early_collective_hung(wreckage: Wreckage) -> Diagnosis | None:
    """All ranks entered one of the first collectives, over P2P, and none left it."""
    seen = wreckage.seen(DIRECT)
    late = wreckage.seen(watchdog.WATCHDOG)
    if not seen or not late or wreckage.roots():
        return None
    if _rank_is_absent(wreckage, late):
        return None
    numbers = [int(n) for one in late if (n := one.fields.get("seq", "")).isdecimal()]
    if not numbers or max(numbers) > EARLY_COLLECTIVE or len(wreckage.hosts) > 1:
        return None
    ranks = sightings.writers(late)
    where = f" ({text.numbers(ranks)})" if ranks else ""
    return FAULT.diagnosis(
        f"all ranks with a timeout{where} hung in the same early collective (#{max(numbers)}) on "
        "one machine, connected by direct GPU access (P2P): that access may not work here",
        confidence=0.6 if wreckage.seen(UNTRANSLATED) else 0.45,
        seen=[*late[:2], *seen[:2], *wreckage.seen(UNTRANSLATED)[:1]],
        culprit=Culprit(host=seen[0].line.host, what="direct access between GPUs (P2P)"),
        fix=f"first confirm it with NCCL_P2P_DISABLE=1; then {FIX_PCIE} keep that setting",
        next=DISABLE_P2P,
        unknown=["whether it runs without P2P"],
    )


def _rank_is_absent(wreckage: Wreckage, late: tuple[Sighting, ...]) -> bool:
    """A rank that never entered explains the wait better."""
    for group in {name for r in wreckage.recorders.values() for name in r.entered}:
        if len({r.entered.get(group, 0) for r in wreckage.recorders.values()}) > 1:
            return True
    spoke = {one.rank for one in late if one.rank is not None}
    return bool(wreckage.world_size and spoke and len(spoke) < wreckage.world_size)


# --- lint ----------------------------------------------------------------------------------------


@FAULT.lint
def p2p_disabled(source: Source) -> Iterator[Finding]:
    """A workaround that outlives its reason; where it is needed, it is right."""
    for setting in readable(source, "NCCL_P2P_DISABLE"):
        if nccl_int(setting.value) == 1:
            finding = FAULT.note(
                "NCCL_P2P_DISABLE=1 disables direct access between GPUs, NVLink included",
                reason="all traffic between GPUs of a machine then goes through host memory, which "
                "is slower. It is right only where direct access is broken; where GPUs do not "
                "support it, NCCL detects that itself",
                fix=f"{without(as_fact(setting))}, and check that the first collective ends; if "
                "it hangs, keep the setting and say why in a comment",
            )
            yield at(finding, setting)
