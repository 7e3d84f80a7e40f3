"""The NVSwitch fabric is not ready.

What you see   `Cuda failure 802 'system not yet initialized'` (cudaErrorSystemNotReady) at the
               first touch of a GPU, while nvidia-smi looks fine. Or NCCL's start fails in
               nvls.cc: `Failed to bind NVLink SHARP (NVLS) Multicast memory`, `Cuda failure 1
               'invalid argument'` or 401. On multi-node NVLink: `MNNVL … is available but not
               working`. The other nodes just wait.
Why            On HGX and DGX machines (A100 SXM and later, with NVSwitch) GPUs work only once
               nvidia-fabricmanager has set up the switches, and it starts only if its version is
               the driver's to the last digit: an unattended driver upgrade breaks that. Multicast
               (NVLS) further needs a registered fabric, and across nodes an IMEX domain.
How to be sure On the machine itself, not in the container: `systemctl status nvidia-fabricmanager`,
               and from H100 on `nvidia-smi -q | grep -A3 Fabric` must say Completed, Success (A100
               shows N/A even when healthy). A one-process CUDA program fails there as well.
Fix            In this order: make the versions equal, start the service, reset the GPUs or reboot;
               else take another machine. `NCCL_NVLS_ENABLE=0` goes round a broken multicast, at
               the price of speed; it does not help against error 802.
Sources        https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
               NVIDIA/nccl src/transport/nvls.cc, src/mnnvl.cc: the wordings
               https://github.com/NVIDIA/nccl/issues/976 (a restart without a reset)
               https://github.com/NVIDIA/gpu-operator/issues/544
               https://github.com/hiyouga/LlamaFactory/issues/8968
"""

from __future__ import annotations

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.fault import Fault
from holdfast.findings import Diagnosis

FAULT = Fault(code="HOLD301", slug="fabric-manager")

NOT_READY = FAULT.log_pattern(
    "not-ready",
    r"system not yet initialized|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY"
    r"|[Cc]uda failure 802\b|[Ee]rror:? 802\b|cuda runtime error \(802\)"
    r"|\[802\] Call to cu|\bcu\w{1,60} returned 802\b",
    anchors=(
        "system not yet initialized",
        "SystemNotReady",
        "SYSTEM_NOT_READY",
        "uda failure 802",
        "rror 802",
        "rror: 802",
        "error (802)",
        "[802] Call to ",
        "returned 802",
    ),
    example="vm:1009:1009 [0] init.cc:1843 NCCL WARN Cuda failure 802 'system not yet initialized'",
)
VERSIONS = FAULT.log_pattern(
    "versions",
    r"interface version (?P<manager>[\d.]+) (?:don't|doesn't|does not|do not) match with driver "
    r"version (?P<driver>[\d.]+)",
    anchors="match with driver version",
    example="fabric manager NVIDIA GPU driver interface version 535.129.03 don't match with driver "
    "version 535.161.08. Please update with matching NVIDIA driver package.",
)
SERVICE = FAULT.log_pattern(
    "service",
    r"nvidia-fabricmanager(?:\.service)?[:\]].*(?:[Ff]ailed|error)|FAILED TO INITIALIZE.*FABRIC"
    r"|Failed to start (?:nvidia-fabricmanager|NVIDIA [Ff]abric)"
    r"|nv-fabricmanager.{0,200}(?:failed with error|NV_WARN_NOTHING_TO_DO)",
    anchors=("nvidia-fabricmanager", "nv-fabricmanager", "NVIDIA fabric", "NVIDIA Fabric"),
    example="systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.",
)
MULTICAST = FAULT.log_pattern(
    "multicast",
    r"Failed to bind NVLink SHARP(?!.*out of mem)"
    r"|nvls\.cc:\d+ (?:\(\w+\) )?NCCL WARN Cuda failure (?!.*out of mem)"
    r"|nvls\.cc:\d+ Cuda failure (?!.*out of mem)",
    anchors=("Failed to bind NVLink SHARP", "nvls.cc:"),
    example="vm:1009:1009 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'",
)
EXHAUSTED = FAULT.log_pattern(
    "exhausted",
    r"Failed to bind NVLink SHARP.*out of mem",
    anchors="Failed to bind NVLink SHARP",
    example="Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 "
    "'out of memory'.",
)
ILLEGAL_STATE = FAULT.log_pattern(
    "illegal-state",
    r"[Cc]uda failure 401\b|operation cannot be performed in the present state",
    anchors=("uda failure 401", "in the present state"),
    example="vm:1009:1009 [0] NCCL WARN Cuda failure 401 'the operation cannot be performed in the "
    "present state'",
)
IMEX = FAULT.log_pattern(
    "imex",
    r"MNNVL \(cliqueSize \d+\) is available but not working|[Cc]heck the IMEX",
    anchors=("available but not working", "eck the IMEX"),
    example="vm:1009:1009 [0] mnnvl.cc:70 NCCL WARN MNNVL (cliqueSize 8) is available but not "
    "working on this system. Check the IMEX configuration",
)
START = "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric"
CASES = (
    (
        NOT_READY,
        0.95,
        (
            "CUDA says that the system is not yet initialized (802): on a machine with NVSwitch "
            "its fabric manager is down, or of another version than the driver"
        ),
        (
            "on that machine, as root: install the fabric manager of the driver's very version, "
            "`systemctl enable --now nvidia-fabricmanager`, then reset the GPUs or reboot"
        ),
    ),
    (
        MULTICAST,
        0.8,
        (
            "NVLink multicast (NVLS) could not be set up: the fabric manager or a switch is not in "
            "order, or the container lacks what it needs"
        ),
        (
            "see to the fabric manager and its version, and reset the GPUs or reboot: a restart of "
            "the manager alone leaves them unregistered; meanwhile `export NCCL_NVLS_ENABLE=0`"
        ),
    ),
    (
        EXHAUSTED,
        0.5,
        (
            "the switches had no room left for another multicast group (NVLS): many communicators "
            "use it at once, or the fabric is not in order"
        ),
        (
            "`export NCCL_NVLS_ENABLE=0`, or fewer communicators; the fabric manager's log on that "
            "machine tells which of the two it is"
        ),
    ),
    (
        IMEX,
        0.85,
        (
            "NVLink between the nodes is there but does not work: the IMEX domain is not set up "
            "for these nodes, or its channel is missing in the container"
        ),
        (
            "start nvidia-imex with the same node list on every node, and give the container "
            "/dev/nvidia-caps-imex-channels; to run meanwhile: `export NCCL_MNNVL_ENABLE=0`"
        ),
    ),
    (
        ILLEGAL_STATE,
        0.5,
        (
            "CUDA refused a call in the present state (401), as it does when the NVLink fabric is "
            "not registered"
        ),
        "see to the fabric manager; to run meanwhile: `export NCCL_NVLS_ENABLE=0`",
    ),
)


@FAULT.explain
def the_fabric_was_not_ready(wreckage: Wreckage) -> Diagnosis | None:
    versions = wreckage.seen(VERSIONS)
    told = ""
    if versions:
        manager, driver = (sightings.field(versions, name) for name in ("manager", "driver"))
        told = f"; fabric manager {manager} refuses to work with driver {driver}"
    for signature, confidence, what, fix in CASES:
        seen = wreckage.seen(signature)
        if seen:
            return FAULT.diagnosis(
                f"{sightings.who(seen)}: {what}{told}",
                confidence=0.97 if versions else confidence,
                seen=[*seen, *versions],
                fix=fix,
                next=START,
            )
    seen = versions or wreckage.seen(SERVICE)
    if not seen:
        return None
    host = f" on {seen[0].line.host}" if seen[0].line.host else ""
    return FAULT.diagnosis(
        f"the fabric manager{host} did not start{told}, and GPUs behind NVSwitch do not work "
        "without it",
        confidence=0.97 if versions else 0.8,
        seen=seen,
        fix="install the fabric manager of the driver's very version, then `systemctl enable "
        "--now nvidia-fabricmanager`",
        next=START,
    )
