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
               shows N/A even when healthy). A one-process CUDA program fails there as well:
               `holdfast check --only fabric-manager` starts one for each GPU and reads the rest.
Fix            In this order: make the versions equal, start the service, reset the GPUs or reboot;
               otherwise use another machine. `NCCL_NVLS_ENABLE=0` avoids broken multicast at the
               cost of speed; it does not help against error 802.
Known limits   From a container the service is not visible: there the GPUs' registration and the
               CUDA program decide. On A100 the driver tells nothing of the registration. The
               switches of NVLink 5 (B200 and later) are not seen themselves, only through their
               GPUs. Confidential computing that is not ready gives error 802 too
               (`nvidia-smi conf-compute -grs`).
Sources        https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
               NVIDIA/nccl src/transport/nvls.cc, src/mnnvl.cc: the messages
               https://github.com/NVIDIA/nccl/issues/976 (a restart without a reset)
               https://docs.nvidia.com/deploy/nvml-api/ nvmlGpuFabricInfo_v3_t: states and health
               https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/imexchannels.html
               https://github.com/NVIDIA/gpu-operator/issues/544
               https://github.com/NVIDIA/gpu-operator/issues/610 (nothing to do without NVSwitch)
               https://github.com/NVIDIA/NVSentinel/issues/883 (In Progress for ever)
               https://github.com/leptonai/gpud/pull/1140 (one GPU alone: Not Supported)
               https://github.com/siderolabs/extensions/pull/717 (NVLink 5)
               https://github.com/NVIDIA/nccl-tests/issues/260 (virtual machines)
               https://github.com/NVIDIA/nvtrust/issues/37 (confidential computing)
               https://github.com/hiyouga/LlamaFactory/issues/8968
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import text
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import (
    FabricFacts,
    Gpu,
    MachineFacts,
    NvidiaFacts,
    ServiceState,
    Unread,
    known,
)
from holdfast.analysis.machine import nvlink_fabric as fabric_of
from holdfast.analysis.machine.gpu_lines import gpu_numbers, together
from holdfast.analysis.nodes import NodesFacts, differences
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD301",
    slug="fabric-manager",
    gpus_only=True,
    related=("driver-mismatch", "gpu-unusable", "gpu-hardware", "container-flags"),
)


@FAULT.check(needs=("nvidia", "cuda", "fabric", "settings"))
def fabric_is_not_ready(facts: MachineFacts) -> Finding | Sequence[Finding]:
    state = fabric_of.of_machine(facts.nvidia, facts.cuda)
    if state.broken or (state.unregistered and len(state.members) > 1):
        return _not_ready(facts, state)
    nvidia, fabric = known(facts.nvidia), known(facts.fabric)
    if nothing := fabric_of.why_there_is_none(nvidia, fabric, state):
        return FAULT.does_not_apply(nothing)
    found = [
        *_unhealthy(state.unhealthy),
        *_stopped_service(fabric, nvidia),
        *_imex(facts, fabric, state.members),
    ]
    if found:
        return found
    if state.unproven:
        return FAULT.skipped(
            f"{gpu_numbers([g.index for g in state.unproven])}: the driver does not say "
            "whether it is registered with the fabric, and no CUDA program was tried on it"
        )
    registered = sum(map(fabric_of.registered, state.members))
    working = sum(gpu.index in state.working for gpu in state.members)
    return FAULT.ok(
        f"of {text.counted(len(state.members), 'GPU')} {registered} are registered with the NVLink "
        f"fabric, and CUDA starts on {working}"
    )


def _not_ready(facts: MachineFacts, state: fabric_of.FabricState) -> Finding:
    driver = "" if isinstance(facts.nvidia, Unread) else facts.nvidia.module
    numbers = sorted({*state.broken, *(gpu.index for gpu in state.unregistered)})
    which = gpu_numbers(numbers)
    why = fabric_of.cause(facts.fabric, driver, state.members)
    fix = fabric_of.advice(facts.fabric, driver, state.members)
    evidence = [
        *_probes(state),
        *_registrations(state.unregistered),
        *_service(facts.fabric, driver),
    ]
    if state.broken:
        unseen = isinstance(facts.fabric, FabricFacts) and not fabric_of.has_fabric(
            facts.fabric, state.members
        )
        return FAULT.error(
            f"CUDA does not start on {which}: the system is not ready"
            if unseen
            else f"the NVLink fabric is not ready for {which}: CUDA programs cannot start there",
            reason=f"{why}; the ranks of this node fail with error 802 (system not yet "
            "initialized), or hang, and those of other nodes wait for them",
            evidence=evidence,
            fix=fix,
        )
    return FAULT.warning(
        f"{which} {text.plural(numbers, 'is', 'are')} not registered with the NVLink fabric, "
        "though CUDA starts there",
        reason=f"{why}; NCCL finds no NVLink multicast (NVLS), and perhaps no NVLink, between "
        "these GPUs",
        evidence=evidence,
        fix=fix,
    )


def _probes(state: fabric_of.FabricState) -> list[Evidence]:
    told = (
        (p.index, f"cuInit: {p.error}" + (f" ({p.code})" if p.code > 0 else ""))
        for p in state.refused
    )
    return [Evidence(quote=line, source="CUDA") for line in together(told)]


def _registrations(gpus: Sequence[Gpu]) -> list[Evidence]:
    told = (
        (g.index, f"fabric state {g.fabric.state}" + (f", {s}" if (s := g.fabric.status) else ""))
        for g in gpus
        if g.fabric is not None
    )
    return [Evidence(quote=line, source="NVML") for line in together(told)]


def _service(fabric: FabricFacts | Unread, driver: str) -> Iterator[Evidence]:
    if isinstance(fabric, Unread) or isinstance(fabric.manager, Unread):
        return
    manager = fabric.manager
    words = f": {manager.result}" if manager.result else ""
    yield Evidence(
        quote=f"nvidia-fabricmanager {fabric_of.in_words(manager)}{words}", source=manager.sign
    )
    if manager.version:
        yield Evidence(
            quote=f"fabric manager {manager.version}, driver {driver or 'of unknown version'}",
            source="nv-fabricmanager --version",
        )


def _unhealthy(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    if not gpus:
        return
    faults = sorted({fault for gpu in gpus for fault in fabric_of.faults_of(gpu)})
    yield FAULT.warning(
        f"the NVLink fabric of {gpu_numbers([g.index for g in gpus])} is not healthy: "
        f"{text.names(faults)}",
        reason="the driver says so of registered GPUs; NVLink is slower there, or collectives on "
        "it fail",
        evidence=[
            Evidence(quote=line, source="NVML")
            for line in together(
                (g.index, f"{', '.join(fabric_of.faults_of(g))}{fabric_of.mask_in_words(g)}")
                for g in gpus
            )
        ],
        fix="look into the fabric manager's log on that machine (/var/log/fabricmanager.log, or "
        "that of the rack's switches); `sudo nvidia-smi -r` with nothing on the GPUs; else use "
        "another machine",
    )


def _stopped_service(fabric: FabricFacts, nvidia: NvidiaFacts) -> Iterator[Finding]:
    """The GPUs work. Where no switch is seen the manager has nothing to do here."""
    manager = fabric.manager
    if not isinstance(manager, ServiceState) or not fabric.nvswitches:
        return
    evidence = list(_service(fabric, nvidia.module))
    if manager.state in fabric_of.STOPPED:
        yield FAULT.warning(
            f"the fabric manager {fabric_of.in_words(manager)}, though the GPUs are still set up",
            reason="after a reset or the next boot CUDA programs will not start (error 802), and "
            "faults of NVLink are not handled now; on A100 running programs were ended when it "
            "stopped",
            evidence=evidence,
            fix=fabric_of.advice(fabric, nvidia.module, nvidia.gpus),
        )
    elif fabric_of.versions_differ(manager, nvidia.module):
        yield FAULT.warning(
            f"fabric manager {manager.version} is installed, and driver {nvidia.module} is loaded",
            reason="it starts only with a driver of exactly its version: after its next restart "
            "CUDA programs will not start (error 802)",
            evidence=evidence,
            fix=f"install the fabric manager of driver {nvidia.module}, or reboot where the new "
            "driver is installed already",
        )


def _imex(facts: MachineFacts, fabric: FabricFacts, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """NVLink between nodes needs a channel in the job's view, and the service on each node."""
    if not any(map(fabric_of.domain, gpus)) or facts.plan.max_nodes < 2:
        return
    known(facts.settings)
    setting = facts.setting("NCCL_MNNVL_ENABLE")
    if setting is not None and setting.value == "0":
        return
    imex = fabric.imex
    if fabric.imex_channels and (isinstance(imex, Unread) or imex.state not in fabric_of.STOPPED):
        return
    seen = (
        "no IMEX channel is there (/dev/nvidia-caps-imex-channels)"
        if not fabric.imex_channels
        else f"nvidia-imex {fabric_of.in_words(imex)}"
        if isinstance(imex, ServiceState)
        else ""
    )
    evidence = [Evidence(quote=f"NVLink domain {d}", source="NVML") for d in _domains(gpus)]
    if isinstance(imex, ServiceState):
        words = f": {imex.result}" if imex.result else ""
        evidence.append(
            Evidence(quote=f"nvidia-imex {fabric_of.in_words(imex)}{words}", source=imex.sign)
        )
    yield FAULT.warning(
        f"NVLink reaches other nodes, but {seen}",
        reason="NCCL stops where nodes of one NVLink domain cannot share memory (`MNNVL … is "
        "available but not working`); the service may run in a container that is not visible here",
        evidence=evidence,
        fix="start nvidia-imex with the same node list on every node (`nvidia-imex-ctl -N` shows "
        "all), and give the job /dev/nvidia-caps-imex-channels/channel0; without NVLink between "
        "nodes: `export NCCL_MNNVL_ENABLE=0`",
    )


def _domains(gpus: Sequence[Gpu]) -> list[str]:
    return sorted({fabric_of.domain(gpu) for gpu in gpus} - {""})


# --- between nodes -------------------------------------------------------------------------------


@FAULT.check_nodes
def fabric_differs_between_nodes(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is nothing to compare")
    drivers, gaps = differences.of_each(facts, lambda node: node.facts.nvidia)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    having = {node: driver for node, driver in drivers.items() if driver.gpus}
    if len(having) < 2:
        return [*unknown, FAULT.does_not_apply("fewer than two nodes have NVIDIA GPUs")]
    found = [*_fewer_registered(having), *_other_domain(having)]
    if found:
        return [*found, *unknown]
    return [FAULT.ok(f"the NVLink fabric is the same on {len(having)} nodes"), *unknown]


def _registered(driver: NvidiaFacts) -> str:
    registered = sum(map(fabric_of.registered, driver.gpus))
    if registered == len(driver.gpus):
        return "every GPU"
    return f"{registered} of {len(driver.gpus)} GPUs" if registered else "no GPU"


def _fewer_registered(having: dict[str, NvidiaFacts]) -> Iterator[Finding]:
    """Among nodes with the same GPUs. What a node says of itself may be right ('not supported'):
    only the others show that it is the odd one."""
    alike: dict[tuple[str, ...], dict[str, str]] = {}
    for node, driver in having.items():
        kinds = tuple(gpu.name for gpu in driver.gpus)
        alike.setdefault(kinds, {})[node] = _registered(driver)
    for counts in alike.values():
        if unequal := differences.compare(counts):
            yield _unequal(counts, unequal)


def _unequal(counts: dict[str, str], unequal: differences.Difference) -> Finding:
    odd = unequal.odd
    listed = (
        f"{text.names(odd)} {text.plural(odd, 'has', 'have')} "
        f"{text.names(counts[node] for node in odd)} registered, the others {unequal.usual}"
        if odd
        else unequal.listed
    )
    return FAULT.warning(
        f"the NVLink fabric differs between nodes: {listed}",
        reason="NCCL uses NVLink multicast (NVLS) in a group only where every node has it; a node "
        "whose GPUs are not registered may not start CUDA at all",
        evidence=[
            Evidence(quote=f"{count} registered", source="NVML", host=node)
            for node, count in sorted(counts.items(), key=lambda one: (one[0] not in odd, one[0]))
        ][:SHOWN],
        fix="on the odd node: make the versions of driver and fabric manager equal, `sudo "
        "systemctl restart nvidia-fabricmanager`, reset its GPUs; else replace the node",
        host=odd[0] if len(odd) == 1 else "",
    )


def _other_domain(having: dict[str, NvidiaFacts]) -> Iterator[Finding]:
    """Nodes of two racks are healthy, only slower than one rack."""
    domains = {node: ", ".join(_domains(driver.gpus)) for node, driver in having.items()}
    if not any(domains.values()) or (unequal := differences.compare(domains)) is None:
        return
    racks = sorted(set(domains.values()) - {""})
    yield FAULT.note(
        f"the nodes are in {text.counted(len(racks), 'NVLink domain')}"
        + ("" if all(domains.values()) else ", and some in none"),
        reason="between domains NCCL uses the network; keep ranks that exchange most in one domain",
        evidence=[
            Evidence(quote=f"NVLink domain {domain or 'none'}", source="NVML", host=node)
            for node, domain in sorted(unequal.values.items())
        ][:SHOWN],
        host=unequal.odd[0] if len(unequal.odd) == 1 else "",
    )


# --- explain -------------------------------------------------------------------------------------

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
