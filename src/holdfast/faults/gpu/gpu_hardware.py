"""A GPU, its memory or its links are broken.

What you see   `CUDA error: uncorrectable ECC error encountered`, `GPU is lost`, `Unable to
               determine the device handle for GPU`, `uncorrectable NVLink error`, or a rank that
               disappears while the kernel log says `NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen
               off the bus`. The other ranks time out and look like the culprits. Or nothing: one
               GPU that is hot, or attached by half its lanes, makes every rank wait.
Why            Memory cells fail (ECC corrects single bits, not double ones), links lose signal,
               cards lose power or overheat, the driver's firmware hangs. The Xid number in the
               kernel log says which: 48, 64, 79, 95, 119 and NVLink's 74 and 144-150 are hardware
               or driver failures; 13, 31 and 43 are most likely a bug in a kernel, and hardware
               only if they recur on the same GPU with other programs; 45 follows another Xid.
How to be sure `sudo dmesg -T | grep -E 'Xid|SXid|AER'`, `nvidia-smi -q -d ECC,ROW_REMAPPER`,
               `nvidia-smi nvlink -e`. The bus id in the message names the GPU: `nvidia-smi
               --query-gpu=index,pci.bus_id --format=csv`. A kernel log that you may not read is not
               a clean one.
Fix            Take the machine out of the job (drain it) and start elsewhere. Then what NVIDIA says
               for that number, which `check` and `explain` print: start the program again (94),
               reset the GPU (48, 95, 119), restart the machine (79); have the card replaced when
               its memory has no spare rows left (64), or the error returns after a reset.
               Across nodes, `holdfast check --smoke` runs and reads NCCL's own diagnostics, which
               NCCL has from 2.31 on: ECC errors, NVLinks that are down, GPUs that cannot read each
               other's memory.
Known limits   An Xid is tied to a rank only by its pid or by the bus id that NCCL prints. `check`
               reads the kernel log of the last day, or the journal's copy where this user may read
               only that; whether an Xid was put right since is known only from drivers that tell a
               recovery action (570 or newer). NVLinks that are down on all GPUs alike are reported
               only for boards whose number of links is known (A100 SXM, H100 SXM, H200, B200,
               GB200). Of AMD's GPUs only the kernel's count of uncorrectable errors is judged.
Sources        https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (actions)
               https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/ (row remapping, recovery)
               https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/ (SXid)
               https://docs.nvidia.com/deploy/nvml-api/ (clock event reasons, recovery action)
               NVIDIA/DCGM: which rates of link errors count (100 CRC errors a second, 1 other)
               https://docs.kernel.org/PCI/pcieaer-howto.html
               leptonai/gpud components/accelerator/nvidia/xid, sxid
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.job import phrases, rank_gpus
from holdfast.analysis.logs import (
    failed_gpus,
    sightings,
    sxid_table,
    xid_events,
    xid_reports,
)
from holdfast.analysis.logs.patterns import gpu_errors, kernel
from holdfast.analysis.logs.patterns.gpu_errors import (
    CONTAINED,
    GPU_LOST,
    LINK,
    NO_PEER,
    PLUGIN,
    RESET,
    UNCORRECTABLE,
)
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.logs.xid_table import XidBlame
from holdfast.analysis.machine import MachineFacts, Unread, gpu_health, known
from holdfast.analysis.machine.gpu_trouble import GpuTrouble, beside_the_job, shared
from holdfast.analysis.machine.nccl_diagnostics import (
    NETWORK_CHECKS,
    SETTING_CHECKS,
    DiagnosticKind,
    DiagnosticLine,
)
from holdfast.analysis.machine.visible_gpus import NO_GPU, gpus_here, used_by_ranks
from holdfast.analysis.nodes import NodesFacts, gpu_differences
from holdfast.analysis.scene import exits, surroundings
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import SHOWN, Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Status, Verdict

FAULT = Fault(
    code="HOLD309",
    slug="gpu-hardware",
    gpus_only=True,
    traits=RunTraits(priority=190, needs_stall=True),
    related=("cuda-assert", "driver-hang", "fabric-manager", "gpu-unusable", "native-crash"),
)
FAULT.log_patterns.extend(gpu_errors.ALL)

REPLACE_GPU = (
    "take this machine out of the job and start elsewhere; reset the idle GPU (`nvidia-smi -r -i "
    "N`) or reboot; have it replaced if the error returns"
)
START_ELSEWHERE = "Until then start on other machines; have it replaced if the error returns"
SHOW_ERRORS = "dmesg -T | grep -E 'Xid|SXid|AER'; nvidia-smi -q -d ECC,ROW_REMAPPER"


# --- check ---------------------------------------------------------------------------------------


@FAULT.check(needs=("nvidia", "settings"))
def driver_reports_trouble(facts: MachineFacts) -> Finding | Sequence[Finding]:
    gpus = gpus_here(facts)
    if not gpus:
        return FAULT.does_not_apply(NO_GPU)
    links = sum(link.active for gpu in gpus for link in gpu.nvlinks)
    return _told(facts, gpu_health.troubles(gpus)) or FAULT.ok(
        f"{text.counted(len(gpus), 'GPU')} looked at: memory, clocks, PCIe link"
        + (f", {text.counted(links, 'NVLink')} up" if links else "")
    )


@FAULT.check(needs=("kernel_log", "nvidia", "settings"))
def kernel_log_names_a_gpu(facts: MachineFacts) -> Finding | Sequence[Finding]:
    nvidia = known(facts.nvidia)
    if not nvidia.present:
        return FAULT.does_not_apply(NO_GPU)
    events = known(facts.kernel_log)
    found = _told(facts, xid_events.troubles(events, nvidia.gpus))
    programs = xid_events.of_programs(events)
    return found or FAULT.ok(
        "no Xid or SXid of hardware in the kernel log of the last day"
        + (f"; Xid {text.numbers(programs)} is a program's" if programs else "")
    )


@FAULT.check(needs=("rocm",))
def amd_gpus_count_errors(facts: MachineFacts) -> Finding | Sequence[Finding]:
    rocm = known(facts.rocm)
    if not rocm.gpus:
        return ()
    counts = dict(enumerate(rocm.uncorrectable_errors))
    bad = {index: count for index, count in counts.items() if count}
    if bad:
        return FAULT.warning(
            f"AMD GPU {text.numbers(bad)} counted uncorrectable errors since the driver was loaded",
            reason="memory or caches failed; the program that met it failed or got wrong results",
            evidence=[
                Evidence(quote=f"GPU {index}: {count} uncorrectable", source="amdgpu ras")
                for index, count in bad.items()
            ],
            fix="`sudo dmesg | grep -i ras`; reset it when idle (`sudo rocm-smi --gpureset -d "
            f"{min(bad)}`); if errors return have it replaced",
        )
    if all(count is None for count in counts.values()):
        return FAULT.skipped("the kernel shows no error counts of these AMD GPUs")
    return FAULT.ok(f"{text.counted(len(rocm.gpus), 'AMD GPU')}: no uncorrectable error counted")


def _told(facts: MachineFacts, found: Sequence[GpuTrouble]) -> list[Finding]:
    known_use = not isinstance(facts.settings, Unread)
    used = used_by_ranks(facts) if known_use and known(facts.nvidia).gpus else None
    speak = {Status.ERROR: FAULT.error, Status.WARNING: FAULT.warning}
    return [
        speak.get(one.first.status, FAULT.note)(
            f"{one.who}: {one.first.what}",
            reason=one.first.meaning,
            evidence=[Evidence(quote=t.quote, source=t.source) for t in one.each[:SHOWN]],
            fix=one.remedy,
        )
        for one in shared(beside_the_job(found, used))
    ]


# --- between nodes -------------------------------------------------------------------------------


@FAULT.check_nodes
def gpus_differ_between_nodes(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is nothing to compare")
    gpus, gaps = gpu_differences.gpus_of_each(facts)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    if len(gpus) < 2:
        return unknown or FAULT.does_not_apply("at most one node has NVIDIA GPUs")
    found = [
        (FAULT.warning if one.grave else FAULT.note)(
            f"{one.what} differs between nodes: {one.listed}",
            reason=one.meaning,
            evidence=[
                Evidence(quote=f"{node}: {value}", source="NVML", host=node)
                for node, value in one.odd_first[:SHOWN]
            ],
            fix=one.remedy,
            host=one.odd[0] if len(one.odd) == 1 else "",
        )
        for one in gpu_differences.differences_between(gpus)
    ]
    if found:
        return [*found, *unknown]
    kind = next(iter(gpu_differences.kinds(gpus).values()))
    return [FAULT.ok(f"GPUs of {len(gpus)} nodes are alike: {kind}"), *unknown]


@FAULT.check(needs=("smoke",))
def nccl_diagnostics_found_here(facts: MachineFacts) -> Finding | Sequence[Finding]:
    return () if facts.smoke is None else _diagnosed(known(known(facts.smoke).diagnostics))


@FAULT.check_nodes
def nccl_diagnostics_found(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    return _diagnosed(known(known(facts.smoke).diagnostics))


def _diagnosed(lines: Sequence[DiagnosticLine]) -> Finding | Sequence[Finding]:
    mine = [one for one in lines if one.check not in (*NETWORK_CHECKS, *SETTING_CHECKS)]
    said = [
        FAULT.error(
            f"NCCL's diagnostics: {one.check}: {one.words}",
            reason="NCCL checked it before any traffic of the job, so it is the system's: a GPU, "
            "its links, or the driver's settings",
            evidence=[Evidence(quote=one.words, source="NCCL diagnostics", host=one.host)],
            fix="`dmesg -T | grep -E 'Xid|SXid'` and `nvidia-smi -q -d ECC,ROW_REMAPPER` on that "
            "rank's node",
        )
        for one in mine
        if one.kind is DiagnosticKind.FAULT
    ]
    gaps = [f"{one.check}: {one.words}" for one in mine if one.kind is DiagnosticKind.GAP]
    if gaps:
        said.append(FAULT.skipped(f"NCCL's diagnostics could not check: {'; '.join(gaps)}"))
    fine = [f"{one.check}: {one.words}" for one in mine if one.kind is DiagnosticKind.OK]
    if fine:
        said.append(FAULT.ok(f"NCCL's diagnostics: {'; '.join(fine)}"))
    return said or FAULT.skipped("NCCL's diagnostics said nothing about GPUs")


# --- explain -------------------------------------------------------------------------------------


@FAULT.explain
def gpu_hardware_failed(wreckage: Wreckage) -> Diagnosis | None:
    found = [
        d
        for look in (_by_xid, _by_cuda_error, _by_peer_access, _by_pcie_link, _by_amd_reset)
        if (d := look(wreckage)) is not None
    ]
    return max(found, key=lambda d: d.confidence, default=None)


def _by_xid(wreckage: Wreckage) -> Diagnosis | None:
    switches = wreckage.seen(kernel.SXID)
    seen = wreckage.seen(kernel.XID, PLUGIN)
    causes = xid_reports.worst_first(seen)
    if not causes:
        return _by_switch(switches) if switches else _by_recovery(seen)
    first = causes[0]
    number = xid_reports.number(first)
    xid = xid_reports.meaning(first)
    program = xid.blame is XidBlame.PROGRAM
    pci = first.fields.get("pci", "").rstrip(":.")
    rank = xid_reports.rank_on_gpu(wreckage, first)
    host = f" on {first.line.host}" if first.line.host else ""
    asked = xid_reports.asked_recovery(seen, pci)
    # The same Xid on several GPUs is more likely a bug of the program than broken hardware.
    several = program and len({one.fields.get("pci") for one in causes}) > 1
    return FAULT.diagnosis(
        f"the driver reported Xid {number} for GPU {pci}{host}: {xid.meaning}"
        + ("; that is usually a bug in a kernel, rarely the GPU" if program else "")
        + (f"; the driver asked for: {asked}" if asked else ""),
        confidence=0.2 if several else xid.confidence,
        seen=causes,
        culprit=Culprit(rank=rank, host=first.line.host, what=f"GPU {pci}"),
        fix="run the program under `compute-sanitizer`; suspect the GPU only if it also fails with "
        "other programs"
        if program
        else f"NVIDIA's action for Xid {number}: {xid.advice(_for_nvidia_smi(pci))}. "
        f"{START_ELSEWHERE}",
        next=SHOW_ERRORS,
        unknown=[] if rank is not None else ["which rank used that GPU: no line connects them"],
    )


def _by_recovery(seen: Sequence[Sighting]) -> Diagnosis | None:
    """Only the driver's conclusion is in the log (Xid 154); 'to 0x0' withdraws it."""
    asked = sightings.saying(seen, r": 154,.{0,100} to 0x[1-9a-f]")
    if not asked:
        return None
    pci = sightings.field(asked, "pci").rstrip(":.")
    return FAULT.diagnosis(
        f"the driver reported that GPU {pci} must be reset or its machine rebooted (Xid 154); an "
        "earlier Xid has the cause",
        confidence=0.7,
        seen=asked,
        culprit=Culprit(host=asked[0].line.host, what=f"GPU {pci}"),
        fix=REPLACE_GPU,
        next=SHOW_ERRORS,
    )


def _by_switch(seen: tuple[Sighting, ...]) -> Diagnosis:
    judged = [(sxid_table.judge(int(one.fields["number"]), one.line.text), one) for one in seen]
    sxid, worst = next((pair for pair in judged if pair[0].fatal), judged[0])
    pci, number = worst.fields["pci"], worst.fields["number"]
    return FAULT.diagnosis(
        f"NVSwitch {pci} reported SXid {number}: {sxid.meaning}"
        + (", which can stop every GPU of the machine" if sxid.fatal else "; the switch went on"),
        confidence=0.9 if sxid.fatal else 0.4,
        seen=[worst, *(one for one in seen if one is not worst)],
        culprit=Culprit(host=worst.line.host, what=f"NVSwitch {pci}"),
        fix=f"NVIDIA's action: {sxid.action.value}. {START_ELSEWHERE}"
        if sxid.fatal
        else REPLACE_GPU,
        next=SHOW_ERRORS,
    )


def _for_nvidia_smi(pci: str) -> str:
    """A place as `nvidia-smi -i` takes it."""
    return (
        f"{pci}.0" if re.fullmatch(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}", pci) else "N"
    )


def _by_cuda_error(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(UNCORRECTABLE, GPU_LOST)
    if not seen:
        return None
    pci = next(
        (p for n in ("pci", "handle", "failed", "index") if (p := sightings.field(seen, n))), ""
    )
    gpu = f"GPU {pci.rstrip(':.')}" if pci else ""
    what = (
        "stopped answering the driver" if wreckage.seen(GPU_LOST) else "had an uncorrectable error"
    )
    # A traceback names no rank where the watchdog's line below it does.
    line = next((one.line for one in seen if one.rank is not None), seen[0].line)
    return FAULT.diagnosis(
        f"{_gpu_of(seen)} {what}" + (f" ({gpu})" if gpu else ""),
        confidence=0.96,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what=gpu),
        fix=REPLACE_GPU,
        next=SHOW_ERRORS,
    )


def _gpu_of(seen: Sequence[Sighting]) -> str:
    owner = sightings.who(seen, "")
    return f"the GPU of {owner}" if owner else "a GPU"


def _by_peer_access(wreckage: Wreckage) -> Diagnosis | None:
    if peer := wreckage.seen(CONTAINED):
        return FAULT.diagnosis(
            f"{sightings.who(peer)} could not use the memory of another GPU over NVLink: a link or "
            "a GPU failed, or the process that owned that memory had already ended",
            confidence=0.55,
            seen=peer,
            fix=f"look for the first rank that failed and for an Xid; if there is nothing else: "
            f"{REPLACE_GPU}",
            next=SHOW_ERRORS,
            unknown=["whether the hardware is at fault: check the kernel log for an Xid"],
        )
    seen = wreckage.seen(NO_PEER)
    if not seen:
        return None
    one, other = sightings.field(seen, "one"), sightings.field(seen, "other")
    return FAULT.diagnosis(
        f"GPUs {one} and {other} are connected by NVLink but could not reach each other: NCCL "
        "considers that a hardware fault",
        confidence=0.75,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=f"NVLink between GPUs {one} and {other}"),
        fix=f"{REPLACE_GPU}; a container that hides one of the GPUs looks the same",
        next="nvidia-smi nvlink -s; nvidia-smi topo -m",
    )


def _by_pcie_link(wreckage: Wreckage) -> Diagnosis | None:
    """PCIe errors: corrected ones are common and harmless; uncorrected ones lose the device."""
    seen = wreckage.seen(LINK)
    grave = sightings.saying(
        seen, r"Uncorrected|can't recover|recovery failed|Link Down|not present"
    )
    if not grave:
        return None
    device = sightings.field(grave, "gpu") or sightings.field(grave, "port")
    of_gpu = bool(sightings.field(grave, "gpu"))
    return FAULT.diagnosis(
        f"the PCIe link of {'GPU' if of_gpu else 'device'} {device or '(unnamed)'} failed with an "
        "uncorrectable error" + ("" if of_gpu else "; `lspci -t` shows whether a GPU is behind it"),
        confidence=0.85 if of_gpu else 0.65,
        seen=grave,
        culprit=Culprit(
            host=grave[0].line.host, what=f"PCIe device {device}" if device else "PCIe"
        ),
        fix=REPLACE_GPU,
        next="lspci -tv; nvidia-smi --query-gpu=index,pci.bus_id --format=csv",
    )


def _by_amd_reset(wreckage: Wreckage) -> Diagnosis | None:
    """AMD's driver prints no numbers: it reports a hang and resets the GPU."""
    seen = wreckage.seen(RESET)
    if not seen:
        return None
    pci = sightings.field(seen, "pci")
    return FAULT.diagnosis(
        f"the driver found GPU {pci or '(unnamed)'} hanging and reset it, which ended everything "
        "that ran there: caused by a kernel that never ends, the driver, or the GPU itself",
        confidence=0.5,
        seen=seen,
        culprit=Culprit(host=seen[0].line.host, what=f"GPU {pci}" if pci else "GPU"),
        fix="run the same program on another GPU: if it works there, take this one out; if not, "
        "find the kernel that hangs, custom and fused ones first",
        next="dmesg -T | grep -i amdgpu; rocm-smi",
    )


@FAULT.run
def gpu_failed_under_a_rank(scene: Scene) -> Verdict | None:
    failed = failed_gpus.find(scene)
    if not failed:
        return None
    ranks = [one.rank for one in failed]
    lost = [one.rank for one in failed if one.lost]
    ended = {ending.rank for ending in exits.endings(scene)}
    victims = (
        exits.fallen(scene, ranks)
        if ended
        else [view.rank for view in scene.ranks if view.rank not in ranks]
    )
    nodes = {node.name for rank in lost if (node := surroundings.node_of(scene, rank))}
    result = phrases.exited_as_a_result(victims) if ended else ""
    return FAULT.verdict(
        f"the GPU of {phrases.who(scene, ranks)} failed: {failed[0].what}{result}",
        ranks=ranks,
        victims=victims,
        hosts=sorted(nodes),
        # A rank that lives may still come to its end by itself, unless its GPU is gone.
        certain=bool(lost or ended.intersection(ranks)),
        fix=f"NVIDIA's action: {failed[0].action}. {START_ELSEWHERE}"
        if failed[0].action
        else REPLACE_GPU,
        evidence=[
            *(phrases.how_it_ended(e) for e in exits.endings(scene) if e.rank in ranks),
            *rank_gpus.evidence(scene, ranks),
        ],
    )
