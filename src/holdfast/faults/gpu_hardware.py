"""A GPU, its memory or its links are broken.

What you see   `CUDA error: uncorrectable ECC error encountered`, `GPU is lost`, `Unable to
               determine the device handle for GPU`, `uncorrectable NVLink error`, or a rank that
               vanishes while the kernel log says `NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen
               off the bus`. The others time out and look guilty.
Why            Memory cells fail (ECC corrects single bits, not double ones), links lose signal,
               cards lose power or overheat, the driver's firmware hangs. The Xid number in the
               kernel log says which: 48, 64, 79, 95, 119 and NVLink's 74 and 144-150 are the
               machine's fault; 13, 31 and 43 are first of all a bug in a kernel, and hardware only
               if they come back on the same GPU with other programs; 45 follows another.
How to be sure `dmesg -T | grep -E 'Xid|SXid|AER'`, `nvidia-smi -q -d ECC,ROW_REMAPPER`,
               `nvidia-smi nvlink -e`. The bus id in the message tells which GPU:
               `nvidia-smi --query-gpu=index,pci.bus_id --format=csv`. A kernel log that may not be
               read is not a clean one.
Fix            Take the machine out of the job (drain it) and start elsewhere. Reset the GPU or
               reboot; after 64, 79 again or repeated 48, have it replaced. Contained errors (94)
               need only a restart of the program, and a reset when convenient.
Sources        https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
               https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
               https://docs.kernel.org/PCI/pcieaer-howto.html
               leptonai/gpud components/accelerator/nvidia/xid
"""

from __future__ import annotations

from holdfast.fault import Fault
from holdfast.inference import sighted, xids
from holdfast.inference.xids import Blame
from holdfast.model import Culprit, Diagnosis
from holdfast.remains import kernel, nccl
from holdfast.remains.nouns import Sighting, Wreckage
from holdfast.remains.signature import Role

FAULT = Fault(code="HOLD309", slug="gpu-hardware")

ECC = FAULT.wording(
    "ecc",
    r"uncorrectable ECC error|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE"
    r"|[Uu]ncorrectable NVLink error|NvlinkUncorrectable|NVLINK_UNCORRECTABLE"
    r"|[Rr]emapping [Ff]ailure.*[Yy]es",
    anchors=(
        "uncorrectable ECC",
        "ECCUncorrectable",
        "ECC_UNCORRECTABLE",
        "ncorrectable NVLink",
        "NvlinkUncorrectable",
        "NVLINK_UNCORRECTABLE",
        "apping Failure",
    ),
    example="RuntimeError: CUDA error: uncorrectable ECC error encountered",
)
LOST = FAULT.wording(
    "lost",
    r"(?:GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F]{4}:[0-9a-fA-F:.]+).*?)?fallen off the bus"
    r"|GPU is lost|Unable to determine the device handle for (?:GPU|gpu) ?(?P<handle>[\da-fA-F:.]*)"
    r"|GPU (?P<failed>[\da-fA-F:.]+): RmInitAdapter failed",
    anchors=(
        "fallen off the bus",
        "GPU is lost",
        "Unable to determine the device handle",
        "RmInitAdapter failed",
    ),
    example="Unable to determine the device handle for GPU 0000:3D:00.0: Unknown Error",
)
LINK = FAULT.wording(
    "link",
    r"(?P<port>[0-9a-fA-F]{4}:[0-9a-fA-F:.]+)?:? ?(?:AER: )?PCIe Bus Error: "
    r"severity=(?P<severity>\w+)|nvidia (?P<gpu>[0-9a-fA-F]{4}:[0-9a-fA-F:.]+): AER: can't recover"
    r"|AER: (?:Multiple )?Uncorrected \((?P<kind>\w+)\) error"
    r"|pciehp.*(?:Link Down|Card not present)|AER: device recovery failed",
    anchors=("PCIe Bus Error", "AER: ", "Link Down", "Card not present"),
    example="[12345.678] pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), "
    "type=Transaction Layer, (Requester ID)",
    role=Role.CONFIRMATION,
)
NO_PEER = FAULT.wording(
    "no-peer",
    r"P2P is disabled between NVLINK connected GPUs (?P<one>\d+) and (?P<other>\d+)",
    anchors="P2P is disabled between NVLINK",
    example="vm:1009:1009 [0] graph/paths.cc:325 NCCL WARN P2P is disabled between NVLINK "
    "connected GPUs 1 and 0. This should not be the case given their connectivity",
)
ILLEGAL = r"illegal memory access|unspecified launch failure|unknown error"
AWAY = (
    "take this machine out of the job and start elsewhere; reset the GPU (`nvidia-smi -r -i N`, "
    "idle) or reboot; have it replaced if it comes back"
)
SHOW = "dmesg -T | grep -E 'Xid|SXid|AER'; nvidia-smi -q -d ECC,ROW_REMAPPER"


@FAULT.recognise
def the_gpu_failed(wreckage: Wreckage) -> Diagnosis | None:
    found = [
        d for d in (_by_xid(wreckage), _by_cuda(wreckage), _by_the_link(wreckage)) if d is not None
    ]
    return max(found, key=lambda d: d.confidence, default=None)


def _by_xid(wreckage: Wreckage) -> Diagnosis | None:
    switches = wreckage.seen(kernel.SXID)
    seen = sorted(wreckage.seen(kernel.XID), key=_weight)
    told = [(int(one.fields["number"]), one) for one in seen]
    told = [(n, one) for n, one in told if xids.look_up(n).blame is not Blame.AFTERMATH]
    if not told:
        return _by_switch(switches) if switches else None
    number, first = told[0]
    xid = xids.look_up(number)
    program = xid.blame is Blame.PROGRAM
    pci = first.fields.get("pci", "").rstrip(":.")
    rank = _rank_of(wreckage, first)
    host = f" on {first.line.host}" if first.line.host else ""
    # Hardware does not care which GPU: the same Xid on several of them is rather the program's.
    several = program and len({one.fields.get("pci") for _, one in told}) > 1
    return FAULT.diagnosis(
        f"the driver reported Xid {number} for GPU {pci}{host}: {xid.meaning}"
        + ("; that is mostly a bug in a kernel, seldom the GPU" if program else ""),
        confidence=0.2 if several else xid.confidence,
        seen=[one for _, one in told],
        culprit=Culprit(rank=rank, host=first.line.host, what=f"GPU {pci}"),
        fix="run the program under `compute-sanitizer`; suspect the GPU only if the same one fails "
        "with other programs too"
        if program
        else AWAY,
        next=SHOW,
        unknown=[] if rank is not None else ["which rank sat on that GPU: no line ties them"],
    )


def _by_switch(seen: tuple[Sighting, ...]) -> Diagnosis:
    fatal = bool(sighted.saying(seen, r"\bFatal"))
    pci, number = sighted.field(seen, "pci"), sighted.field(seen, "number")
    return FAULT.diagnosis(
        f"NVSwitch {pci} reported SXid {number}: a link or port of the switch failed, which can "
        "hit every GPU of the machine",
        confidence=0.9 if fatal else 0.6,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=f"NVSwitch {pci}"),
        fix=AWAY,
        next=SHOW,
    )


def _by_cuda(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(ECC, LOST)
    if seen:
        pci = next((p for n in ("pci", "handle", "failed") if (p := sighted.field(seen, n))), "")
        line = seen[0].line
        lost = bool(wreckage.seen(LOST))
        return FAULT.diagnosis(
            f"{sighted.who(seen, 'a GPU')}: "
            + (
                "its GPU no longer answers the driver"
                if lost
                else "its GPU met an error that it could not correct"
            )
            + (f" (GPU {pci.rstrip(':.')})" if pci else ""),
            confidence=0.96,
            seen=seen,
            culprit=Culprit(
                rank=line.rank,
                host=line.host,
                pid=line.pid,
                what=f"GPU {pci.rstrip(':.')}" if pci else "",
            ),
            fix=AWAY,
            next=SHOW,
        )
    seen = wreckage.seen(NO_PEER)
    if not seen:
        return None
    one, other = sighted.field(seen, "one"), sighted.field(seen, "other")
    return FAULT.diagnosis(
        f"GPUs {one} and {other} have NVLink between them but cannot reach each other: NCCL takes "
        "that for a hardware fault",
        confidence=0.75,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=f"NVLink between GPUs {one} and {other}"),
        fix=f"{AWAY}; a container that hides one of the GPUs gives the same picture",
        next="nvidia-smi nvlink -s; nvidia-smi topo -m",
    )


def _by_the_link(wreckage: Wreckage) -> Diagnosis | None:
    """PCIe errors: corrected ones are common and harmless; uncorrected ones lose the device."""
    seen = wreckage.seen(LINK)
    grave = sighted.saying(seen, r"Uncorrected|can't recover|recovery failed|Link Down|not present")
    if not grave:
        return None
    device = sighted.field(grave, "gpu") or sighted.field(grave, "port")
    of_gpu = bool(sighted.field(grave, "gpu"))
    return FAULT.diagnosis(
        f"the PCIe link of {'GPU' if of_gpu else 'device'} {device or '(unnamed)'} failed with an "
        "error that could not be corrected"
        + ("" if of_gpu else "; whether a GPU is behind it, `lspci -t` tells"),
        confidence=0.85 if of_gpu else 0.65,
        seen=grave,
        culprit=Culprit(
            host=grave[0].line.host, what=f"PCIe device {device}" if device else "PCIe"
        ),
        fix=AWAY,
        next="lspci -tv; nvidia-smi --query-gpu=index,pci.bus_id --format=csv",
    )


def _weight(sighting: Sighting) -> tuple[float, int]:
    xid = xids.look_up(int(sighting.fields["number"]))
    return (-xid.confidence, sighting.order)


def _rank_of(wreckage: Wreckage, sighting: Sighting) -> int | None:
    """By the pid in the driver's line, or by the bus id that NCCL shows at its start."""
    pid = sighting.fields.get("pid", "")
    owner = next((r.rank for r in wreckage.ranks if pid.isdecimal() and r.pid == int(pid)), None)
    if owner is not None:
        return owner
    bus, host = _bus(sighting.fields.get("pci", "")), sighting.line.host
    on_it = {
        one.rank
        for one in wreckage.seen(nccl.INIT_START, nccl.INIT_COMPLETE)
        if one.fields.get("bus", "").lower() == bus and (not host or one.line.host in ("", host))
    }
    return on_it.pop() if len(on_it) == 1 else None


def _bus(pci: str) -> str:
    """0000:3d:00 or 0000:3d:00.0 as NCCL writes it: 3d000."""
    device, _, function = pci.lower().partition(".")
    return (device.replace(":", "") + (function or "0")).lstrip("0")
