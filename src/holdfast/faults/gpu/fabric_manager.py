"""The NVSwitch fabric is not ready.

What you see   `Cuda failure 802 'system not yet initialized'` (cudaErrorSystemNotReady) at the
               first use of a GPU, while nvidia-smi looks fine. Or NCCL's initialization fails in
               nvls.cc: `Failed to bind NVLink SHARP (NVLS) Multicast memory`, `Cuda failure 1
               'invalid argument'` or 401. On multi-node NVLink: `MNNVL … is available but not
               working`. The other nodes wait.
Why            On HGX and DGX machines (A100 SXM and later, with NVSwitch) the GPUs work only after
               nvidia-fabricmanager has set up the switches, and it starts only if its version is
               exactly the driver's: an unattended driver upgrade breaks that. Multicast (NVLS) also
               needs a registered fabric, and across nodes an IMEX domain.
How to be sure On the machine itself, not in the container: `systemctl status nvidia-fabricmanager`,
               and from H100 on `nvidia-smi -q | grep -A3 Fabric` must say Completed, Success (A100
               shows N/A even when healthy). A one-process CUDA program fails there as well.
Fix            In this order: make the versions equal, start the service, reset the GPUs or reboot;
               otherwise use another machine. `NCCL_NVLS_ENABLE=0` avoids broken multicast at the
               cost of speed; it does not help against error 802.
Known limits   `check` does not query the fabric manager; this is read from logs only. From a
               container the service's state is not visible.
Sources        https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
               NVIDIA/nccl src/transport/nvls.cc, src/mnnvl.cc: the messages
               https://github.com/NVIDIA/nccl/issues/976 (a restart without a reset)
               https://github.com/NVIDIA/gpu-operator/issues/544
               https://github.com/hiyouga/LlamaFactory/issues/8968
"""

from __future__ import annotations

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.fault import Fault
from holdfast.findings import Diagnosis

FAULT = Fault(
    code="HOLD301",
    slug="fabric-manager",
    related=("driver-mismatch", "gpu-hardware", "container-flags"),
)

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
SHOW_FABRIC = "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric"
CASES = (
    (
        NOT_READY,
        0.95,
        (
            "CUDA reported 'system not yet initialized' (802): on a machine with NVSwitch the "
            "fabric manager is down, or its version differs from the driver's"
        ),
        (
            "on that machine, as root: install the fabric manager of exactly the driver's version, "
            "`systemctl enable --now nvidia-fabricmanager`, then reset the GPUs or reboot"
        ),
    ),
    (
        MULTICAST,
        0.8,
        (
            "NVLink multicast (NVLS) could not be set up: the fabric manager or a switch has a "
            "problem, or the container lacks the devices it needs"
        ),
        (
            "check the fabric manager and its version, then reset the GPUs or reboot: restarting "
            "the manager alone leaves them unregistered; until then `export NCCL_NVLS_ENABLE=0`"
        ),
    ),
    (
        EXHAUSTED,
        0.5,
        (
            "the switches had no room for another multicast group (NVLS): many communicators use "
            "it at once, or the fabric has a problem"
        ),
        (
            "`export NCCL_NVLS_ENABLE=0`, or use fewer communicators; the fabric manager's log on "
            "that machine shows which of the two it is"
        ),
    ),
    (
        IMEX,
        0.85,
        (
            "NVLink between the nodes is present but does not work: the IMEX domain is not set up "
            "for these nodes, or its channel is missing in the container"
        ),
        (
            "start nvidia-imex with the same node list on every node, and give the container "
            "/dev/nvidia-caps-imex-channels; until then `export NCCL_MNNVL_ENABLE=0`"
        ),
    ),
    (
        ILLEGAL_STATE,
        0.5,
        (
            "CUDA refused a call in the present state (401), which happens when the NVLink fabric "
            "is not registered"
        ),
        "check the fabric manager; until then `export NCCL_NVLS_ENABLE=0`",
    ),
)


@FAULT.explain
def fabric_not_ready(wreckage: Wreckage) -> Diagnosis | None:
    versions = wreckage.seen(VERSIONS)
    versions_differ = ""
    if versions:
        manager, driver = (sightings.field(versions, name) for name in ("manager", "driver"))
        versions_differ = f"; fabric manager {manager} refuses driver {driver}"
    for pattern, confidence, what, fix in CASES:
        seen = wreckage.seen(pattern)
        if seen:
            return FAULT.diagnosis(
                f"{sightings.who(seen)}: {what}{versions_differ}",
                confidence=0.97 if versions else confidence,
                seen=[*seen, *versions],
                fix=fix,
                next=SHOW_FABRIC,
            )
    seen = versions or wreckage.seen(SERVICE)
    if not seen:
        return None
    host = f" on {seen[0].line.host}" if seen[0].line.host else ""
    return FAULT.diagnosis(
        f"the fabric manager{host} did not start{versions_differ}; GPUs behind NVSwitch do not "
        "work without it",
        confidence=0.97 if versions else 0.8,
        seen=seen,
        fix="install the fabric manager of exactly the driver's version, then `systemctl enable "
        "--now nvidia-fabricmanager`",
        next=SHOW_FABRIC,
    )
