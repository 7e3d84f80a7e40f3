from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.machine import (
    CudaFacts,
    Gpu,
    GpuFabric,
    MachineFacts,
    NvidiaFacts,
    Unread,
)
from holdfast.analysis.nodes import NodesFacts
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_machine, a_plan, settings
from tests.faults.made_gpus import (
    a_service,
    an_sxm_gpu,
    cuda,
    no_fabric,
    nvidia,
)
from tests.faults.made_nodes import on_node, some_nodes
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

replace = msgspec.structs.replace
HIDDEN = Unread(why="services of the machine are not visible from this container")
UNTOLD = Unread(why="late")
IN_PROGRESS = GpuFabric(state="in progress", status="")
NOT_STARTED = GpuFabric(state="not started", status="")
REJECTED = GpuFabric(state="completed", status="insufficient resources")
RACK = GpuFabric(
    state="completed",
    status="success",
    clique=4026,
    cluster="9c6f5af3-53bf-49b5-a436-b66766c413c3",
)
SPARE = replace(RACK, cluster="11111111-53bf-49b5-a436-b66766c413c3")
ONE_NODE = replace(RACK, clique=0, cluster="00000000-0000-0000-0000-000000000000")


def gpus(fabric: GpuFabric | None, count: int = 8, odd: int | None = None) -> tuple[Gpu, ...]:
    """All with this fabric state, or only the GPU numbered `odd`."""
    return tuple(
        an_sxm_gpu(n, **({"fabric": fabric} if odd in (None, n) else {})) for n in range(count)
    )


def probed(count: int = 8, **odd: Any) -> CudaFacts:
    """GPU 3 met this; the others work."""
    facts = cuda(count)
    probes = tuple(replace(p, **odd) if p.index == 3 else p for p in facts.probes)
    return replace(facts, probes=probes)


def every(code: int = 802, error: str = "CUDA_ERROR_SYSTEM_NOT_READY") -> CudaFacts:
    facts = cuda(8)
    return replace(
        facts,
        probes=tuple(replace(p, step="init", code=code, error=error) for p in facts.probes),
    )


def hgx(
    shown: tuple[Gpu, ...] | None = None,
    tried: CudaFacts | Unread | None = None,
    **fabric: Any,
) -> MachineFacts:
    """A machine with eight H100 and four NVSwitches, on which the fabric manager runs."""
    services = no_fabric(**{"nvswitches": 4, "manager": a_service(), **fabric})
    return a_machine(
        nvidia=nvidia(*(gpus(ONE_NODE) if shown is None else shown)),
        cuda=cuda(8) if tried is None else tried,
        fabric=services,
    )


def on_a100(tried: CudaFacts | Unread, **fabric: Any) -> MachineFacts:
    """Its driver tells nothing of the registration."""
    shown = gpus(GpuFabric(state="not supported", status=""))
    return hgx(shown, tried, nvswitches=6, **fabric)


def rack(shown: GpuFabric = RACK, nodes: int = 2, **fabric: Any) -> MachineFacts:
    """A node of a GB200 rack: no fabric manager and no switch to be seen."""
    services = no_fabric(
        imex=a_service(), imex_channels=("/dev/nvidia-caps-imex-channels/channel0",)
    )
    return a_machine(
        a_plan(min_nodes=nodes, max_nodes=nodes),
        nvidia=nvidia(*gpus(shown, 4)),
        cuda=cuda(4),
        fabric=replace(services, **fabric),
    )


def guest(fabric: GpuFabric, tried: CudaFacts, count: int = 2) -> MachineFacts:
    """A virtual machine with GPUs passed through, and no switch."""
    shown = tuple(an_sxm_gpu(n, fabric=fabric, virtualization="passthrough") for n in range(count))
    return a_machine(nvidia=nvidia(*shown), cuda=tried, fabric=no_fabric())


OLD = a_service("failed", version="580.65.06", result="don't match with driver version 580.95.05")
NOTHING_TO_DO = a_service("failed", result="NV_WARN_NOTHING_TO_DO")
YOUNG = {"boot_seconds": 40.0, "manager": a_service("activating", up_seconds=None)}

test_check = check_table(
    "fabric-manager",
    # --- CUDA does not start
    speaks(
        "error",
        hgx(gpus(IN_PROGRESS), every(), manager=OLD),
        saying=[
            "not ready for GPUs 0-7: CUDA programs cannot start",
            "its version 580.65.06 is not the driver's, 580.95.05",
            "GPUs 0-7: cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802)",
            "GPUs 0-7: fabric state in progress",
            "install the fabric manager of exactly driver 580.95.05",
            "sudo systemctl restart nvidia-fabricmanager",
            "use another machine",
        ],
    ),
    speaks(
        "error",
        on_a100(every(), manager=a_service("inactive")),
        saying=["GPUs 0-7", "the fabric manager is inactive", "nvidia-smi -r"],
        not_saying=["fabric state", "install"],
    ),
    speaks(
        "error",
        on_a100(every(), manager=HIDDEN),
        saying=["on the machine itself and not visible from here", "no job on its GPUs: `sudo"],
    ),
    speaks(
        "error",  # neither NVML nor the services could be read: CUDA says it plainly
        a_machine(nvidia=UNTOLD, cuda=every(), fabric=UNTOLD),
        saying=["GPUs 0-7", "could not be read (late)"],
    ),
    speaks(
        "error",  # one GPU alone, after its reset
        hgx(gpus(IN_PROGRESS, odd=3), probed(step="init", code=802, error="NOT_READY")),
        saying=["not ready for GPU 3:", "the fabric manager is active"],
    ),
    speaks(
        "error",  # on newer racks CUDA waits instead
        hgx(
            gpus(IN_PROGRESS, odd=3),
            probed(step="init", code=-1, error="no answer within 15 s", timed_out=True),
        ),
        saying=["GPU 3:", "or hang", "no answer within 15 s"],
    ),
    speaks("error", hgx(gpus(NOT_STARTED), UNTOLD), saying=["fabric state not started"]),
    speaks(
        "error",
        hgx(gpus(REJECTED), UNTOLD),
        saying=["fabric state completed, insufficient resources"],
    ),
    speaks(
        "error",
        hgx(gpus(IN_PROGRESS), every(), **YOUNG),
        saying=["wait a few minutes", "being set up"],
        not_saying=["nvidia-smi -r"],
    ),
    speaks(
        "error",  # B200 without its subnet manager: no switch to be seen, nothing to do
        hgx(gpus(IN_PROGRESS), every(), nvswitches=0, manager=NOTHING_TO_DO),
        saying=["the fabric manager has failed (NV_WARN_NOTHING_TO_DO)"],
    ),
    speaks(
        "error",
        guest(IN_PROGRESS, every()),
        saying=["no NVSwitch of its own", "on its host", "activate the NVLink partition"],
        not_saying=["systemctl"],
    ),
    speaks(
        "error",  # confidential computing that is not ready, on a card without any fabric
        a_machine(cuda=every()),
        saying=["CUDA does not start on GPUs 0-7: the system is not ready", "conf-compute -srs 1"],
    ),
    # --- CUDA starts all the same
    speaks(
        "warning",
        hgx(gpus(REJECTED, odd=3)),
        saying=["GPU 3 is not registered", "though CUDA starts there", "NVLS"],
    ),
    speaks("warning", guest(IN_PROGRESS, cuda(2)), saying=["GPUs 0-1 are not registered"]),
    # --- registered, but
    speaks(
        "warning",
        hgx(gpus(replace(ONE_NODE, unhealthy=("degraded bandwidth",), health_mask=0xA9), odd=3)),
        saying=["fabric of GPU 3 is not healthy: degraded bandwidth", "health mask 0xa9"],
    ),
    speaks(
        "warning",
        hgx(gpus(replace(ONE_NODE, summary="limited capacity"))),
        saying=["GPUs 0-7 is not healthy: limited capacity"],
    ),
    speaks(
        "warning",
        hgx(manager=a_service("failed", result="exit-code")),
        saying=[
            "the fabric manager has failed, though",
            "nvidia-fabricmanager has failed: exit-code",
        ],
    ),
    speaks("warning", on_a100(cuda(8), manager=a_service("not installed")), saying=["A100"]),
    speaks(
        "warning",
        hgx(manager=a_service(version="580.105.08")),
        saying=["fabric manager 580.105.08 is installed, and driver 580.95.05 is loaded", "reboot"],
    ),
    # --- NVLink between nodes
    speaks(
        "warning",
        rack(imex_channels=(), imex=HIDDEN),
        saying=["no IMEX channel", "NVLink domain 9c6f5af3", "NCCL_MNNVL_ENABLE=0"],
    ),
    speaks(
        "warning",
        rack(imex=a_service("failed", result="timeout")),
        saying=["but nvidia-imex has failed", "nvidia-imex-ctl -N"],
    ),
    # --- healthy
    silent(hgx()),
    silent(hgx(gpus(replace(ONE_NODE, health_mask=0xAA)))),
    silent(hgx(manager=HIDDEN)),  # a container with all GPUs
    silent(hgx(nvswitches=0, manager=a_service("not installed"))),  # B200 in a virtual machine
    silent(on_a100(cuda(8))),
    silent(on_a100(cuda(8), manager=HIDDEN)),
    silent(rack()),
    silent(rack(imex=HIDDEN)),  # the service runs in a container of its own
    silent(rack(imex=a_service("failed"), nodes=1)),  # one node: NCCL does not ask for it
    silent(replace(rack(imex_channels=()), settings=settings(NCCL_MNNVL_ENABLE="0"))),
    silent(guest(ONE_NODE, cuda(8), 8)),
    silent(guest(IN_PROGRESS, cuda(1), 1)),  # one GPU has no peer
    silent(hgx(gpus(IN_PROGRESS, odd=3), replace(cuda(8), probes=cuda(8).probes[:2]))),  # not ours
    # --- no fabric at all
    not_applicable(a_machine(), saying=["no NVSwitch"]),
    not_applicable(a_machine(fabric=no_fabric(manager=NOTHING_TO_DO)), saying=["no NVSwitch"]),
    not_applicable(
        guest(GpuFabric(state="not supported", status=""), cuda(1), 1), saying=["no NVSwitch"]
    ),
    not_applicable(
        a_machine(nvidia=NvidiaFacts(present=False, error="NVML Shared Library Not Found")),
        saying=["no NVIDIA GPU on this machine"],
    ),
    not_applicable(
        hgx(tuple(replace(g, mig=True) for g in gpus(IN_PROGRESS)), UNTOLD), saying=["MIG"]
    ),
    # --- could not look
    skips(a_machine(nvidia=UNTOLD), saying=["late"]),
    skips(replace(hgx(), fabric=UNTOLD), saying=["late"]),
    skips(
        a_machine(nvidia=nvidia(gpus=(), error="Unknown Error", error_code=999)),
        saying=["could not be asked: Unknown Error"],
    ),
    skips(on_a100(UNTOLD), saying=["the driver does not say", "GPUs 0-7"]),
)


def node(name: str, facts: NodesFacts | None = None, shown: GpuFabric = ONE_NODE) -> NodesFacts:
    return on_node(facts or eight_each(), name, nvidia=nvidia(*gpus(shown)))


def eight_each(shown: GpuFabric = ONE_NODE, count: int = 4) -> NodesFacts:
    facts = some_nodes(count)
    for one in facts.nodes:
        facts = on_node(facts, one.name, nvidia=nvidia(*gpus(shown)))
    return facts


test_check_nodes = between.table(
    "fabric-manager",
    between.speaks(
        "warning",  # by itself it looks like a machine without a fabric
        node("node-c", shown=GpuFabric(state="not supported", status="")),
        saying=["node-c has no GPU registered, the others every GPU", "replace the node"],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        on_node(eight_each(), "node-b", nvidia=nvidia(*gpus(REJECTED, odd=3))),
        saying=["node-b has 7 of 8 GPUs registered", "systemctl restart"],
        hosts=["node-b"],
    ),
    between.speaks(
        "warning",  # two nodes: neither is the odd one
        node("node-b", eight_each(count=2), IN_PROGRESS),
        saying=["every GPU on node-a, no GPU on node-b"],
        hosts=[""],
    ),
    between.speaks(
        "note",
        node("node-d", eight_each(RACK), SPARE),
        saying=["in 2 NVLink domains", "NCCL uses the network"],
        hosts=["node-d"],
    ),
    between.silent(eight_each()),
    between.silent(eight_each(RACK)),
    between.silent(eight_each(IN_PROGRESS)),  # each node says so of itself
    between.silent(some_nodes(4)),
    between.silent(on_node(eight_each(), "node-c", nvidia=nvidia())),  # cards without a fabric
    between.silent(on_node(eight_each(), "node-c", nvidia=nvidia(*gpus(ONE_NODE, 4)))),
    between.skips(on_node(eight_each(), "node-b", nvidia=UNTOLD), saying=["late"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
    between.not_applicable(
        on_node(some_nodes(2), "node-b", nvidia=NvidiaFacts(present=False)), saying=["fewer than"]
    ),
)

test_explain = explain_table(
    "fabric-manager",
    recognises(
        wreckage(
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 "
            "'out of memory'."
        ),
        sure=0.5,
        saying=["no room for another multicast group", "NCCL_NVLS_ENABLE=0"],
    ),
    recognises(
        wreckage("[802] Call to cuInit results in UNKNOWN_CUDA_ERROR"),
        sure=0.95,
        saying=["fabric manager is down"],
    ),
    recognises(wreckage("cudaGetDeviceProperties returned 802"), sure=0.95, saying=["802"]),
    recognises(
        wreckage("systemd[1]: Failed to start NVIDIA fabric manager service."),
        sure=0.8,
        saying=["did not start"],
    ),
    passes_over(wreckage("systemd[1]: Started NVIDIA fabric manager service.")),
    passes_over(wreckage("the sampler returned 802 rows")),
    recognises(
        wreckage("[rank3]: init.cc:1843 NCCL WARN Cuda failure 802 'system not yet initialized'"),
        sure=0.95,
        rank=3,
        saying=["fabric manager is down", "systemctl status nvidia-fabricmanager"],
    ),
    recognises(
        wreckage(
            "RuntimeError: cuda runtime error (802) : system not yet initialized at THC.cpp:50"
        ),
        sure=0.95,
        saying=["802"],
    ),
    recognises(
        wreckage(
            "[rank3]: RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system "
            "not yet initialized",
            "fabric manager NVIDIA GPU driver interface version 535.129.03 don't match with driver "
            "version 535.161.08. Please update with matching NVIDIA driver package.",
        ),
        sure=0.97,
        rank=3,
        saying=["fabric manager 535.129.03 refuses driver 535.161.08"],
    ),
    recognises(
        wreckage("[rank0]: transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'"),
        sure=0.8,
        rank=0,
        saying=["multicast (NVLS)", "NCCL_NVLS_ENABLE=0"],
    ),
    recognises(
        wreckage("mnnvl.cc:70 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this"),
        sure=0.85,
        saying=["IMEX"],
    ),
    recognises(
        wreckage("systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'."),
        sure=0.8,
        saying=["did not start"],
    ),
    passes_over(
        wreckage("[rank0]: transport/nvls.cc:254 NCCL WARN Cuda failure 2 'out of memory'")
    ),
    passes_over(wreckage("[rank0]: RuntimeError: Default process group has not been initialized")),
    passes_over(wreckage("nvidia-fabricmanager.service: Started FabricManager service.")),
)
