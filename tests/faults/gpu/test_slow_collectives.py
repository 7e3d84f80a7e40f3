from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.analysis import machine as f
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.nodes.smoke import NodeNetwork, SmokeBetween
from holdfast.explain.gather import gather_bytes
from tests.analysis.logs import nccl_tests_output as made
from tests.analysis.logs.nccl_tests_output import GIB
from tests.analysis.logs.patterns.made import wreckage
from tests.check.smoke.smokes import a_smoke, error, gpu_smoke, up_to, verdict
from tests.faults import between
from tests.faults.machines import a_machine, settings
from tests.faults.made_gpus import a_gpu, an_sxm_gpu, nvidia
from tests.faults.made_nodes import name_of, replace, some_nodes
from tests.faults.made_smokes import smoked
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


def hgx(smoke: f.Smoke, world: int = 8, **changes: Any) -> f.MachineFacts:
    """Eight H100s behind NVSwitch."""
    gpus = nvidia(*(an_sxm_gpu(index) for index in range(world)))
    return a_machine(**{"nvidia": gpus, "smoke": smoke, **changes})


def pcie(smoke: f.Smoke, **changes: Any) -> f.MachineFacts:
    """Four H100s in PCIe 5.0 slots: 48 GB/s by NCCL's reckoning."""
    return a_machine(smoke=smoke, **changes)


def bridged(*joined: tuple[int, int]) -> f.NvidiaFacts:
    """Four cards of which some are joined two by two, by twelve links."""
    gpus = [a_gpu(index) for index in range(4)]
    for one, other in joined:
        for here, there in ((one, other), (other, one)):
            links = tuple(
                f.NvLink(index=n, active=True, remote="gpu", remote_bus_id=gpus[there].bus_id)
                for n in range(12)
            )
            gpus[here] = a_gpu(here, nvlinks=links)
    return nvidia(*gpus)


HELD = f.GpuHolder(pid=7, memory=1 << 30, command="python train.py", user="kim")
IN_USE = [an_sxm_gpu(index, holders=(HELD,)) for index in range(8)]
THROUGH_THE_HOST = gpu_smoke(8, way="SHM/direct/direct", speed=20e9)
ALL_OF_3 = {(n, 3): 20e9 for n in range(3)} | {(3, n): 20e9 for n in range(4, 8)}
SLOW_CLASS = {(0, 2): 20e9, (0, 3): 20e9, (1, 2): 20e9, (1, 3): 20e9}
ONE_CUT = f.Smoke(world=1, ranks=(), stages=gpu_smoke(2).stages, ladder=(), shared_gpus=False)

test_check = check_table(
    "slow-collectives",
    # --- against the median of its kind
    speaks(
        "warning",
        hgx(gpu_smoke(8, slow=ALL_OF_3)),
        saying=["GPU 3 (0000:4b:00.0) exchanges data at 20 GB/s", "each of 7 others", "300 GB/s"],
        not_saying=["GPU 2 (0000:3b:00.0) exchanges"],
    ),
    speaks(
        "warning",
        hgx(gpu_smoke(8, slow={(2, 5): 100e9})),
        saying=["link between GPU 2 (0000:3b:00.0) and GPU 5", "28 pairs joined by NV18"],
    ),
    # cards joined two by two: the others go over PCIe and are slower as they should be
    silent(
        pcie(
            gpu_smoke(4, way="P2P/IPC", speed=20e9, pair_speed=200e9, slow=SLOW_CLASS),
            nvidia=bridged((0, 1), (2, 3)),
        )
    ),
    # --- against the table
    speaks(
        "warning",
        hgx(gpu_smoke(8, speed=40e9)),
        saying=["reaches 40 GB/s of the 371 GB/s of 18 NVLinks", "P2P/CUMEM", "--nccl-tests"],
    ),
    speaks(
        "note",
        pcie(gpu_smoke(4, way="SHM/direct/direct", speed=2e9)),
        saying=["2 GB/s of the 48 GB/s of PCIe 5.0 x16"],
    ),
    silent(hgx(gpu_smoke(8, speed=480e9))),  # NVLink SHARP
    silent(hgx(gpu_smoke(8, speed=150e9))),
    silent(pcie(gpu_smoke(4, way="SHM/direct/direct", speed=8e9))),
    # two bridged H100 PCIe measure 116 of 247 GB/s and are healthy (NVIDIA/nccl issue 1161)
    silent(pcie(gpu_smoke(2, speed=116e9), nvidia=bridged((0, 1)))),
    # --- NVLink is there and not used
    speaks(
        "warning",
        hgx(THROUGH_THE_HOST),
        saying=["NVLink joins these GPUs, and NCCL does not use it", "NV18", "--ipc=host"],
    ),
    speaks(
        "note",
        hgx(
            gpu_smoke(8, way="SHM/direct/direct", speed=20e9),
            settings=settings(NCCL_P2P_DISABLE="1"),
        ),
        saying=["because NCCL_P2P_DISABLE is set", "unset NCCL_P2P_DISABLE"],
    ),
    # --- nothing to judge
    not_applicable(a_machine(), saying=["add --smoke"]),
    not_applicable(a_machine(smoke=a_smoke()), saying=["NCCL was not used"]),
    not_applicable(a_machine(smoke=ONE_CUT), saying=["one rank"]),
    skips(
        a_machine(smoke=verdict([*up_to("gloo"), error(0, "nccl", "no")])), saying=["failed over"]
    ),
    skips(
        hgx(
            gpu_smoke(8, speed=1e9),
            nvidia=nvidia(*(an_sxm_gpu(n, holders=(HELD,)) for n in range(8))),
        ),
        saying=["other processes use GPU 0-7"],
    ),
    skips(a_machine(smoke=gpu_smoke(4), nvidia=nvidia(a_gpu(0))), saying=["does not show every"]),
)


def table(speed: float, **changes: Any) -> Wreckage:
    """nccl-tests on one node that reach this many GB/s at 1 GiB."""
    return wreckage(*made.text([made.row(1 << 20, 9.0), made.row(GIB, speed)], **changes))


test_explain = explain_table(
    "slow-collectives",
    recognises(
        table(21.0),
        sure=0.6,
        saying=["21 GB/s at 1 GiB among 8 NVIDIA H100", "371 GB/s", "nvidia-smi nvlink"],
    ),
    recognises(
        gather_bytes({"out.json": made.document([(GIB, 40.0, 0.0)], gpu="NVIDIA B200")}),
        sure=0.6,
        saying=["40 GB/s", "722 GB/s"],
    ),
    passes_over(table(360.0)),
    passes_over(table(200.0, gpu="NVIDIA A100-SXM4-80GB")),
    passes_over(table(21.0, gpu="NVIDIA H100 PCIe")),
    passes_over(table(21.0, gpu="NVIDIA H200 NVL")),
    passes_over(table(21.0, ranks=2)),  # two of a board have some links
    passes_over(table(21.0, nodes=("a", "b"), ranks=16)),  # the network, not NVLink
    passes_over(wreckage(*made.text([made.row(1 << 20, 9.0)]))),  # small sizes say nothing
)


def over_ib(
    speed: float, *, cards: int = 8, without_direct: Sequence[int] = (), way: str = "IB"
) -> NodesFacts:
    """Four nodes with eight NDR cards each: 400 GB/s together."""
    networks = {
        name_of(n): NodeNetwork(way=way, cards=cards, gpu_direct=n not in without_direct)
        for n in range(4)
    }
    facts = smoked(4, backend="nccl", why_backend="", networks=networks)
    assert isinstance(facts.smoke, SmokeBetween)
    group = msgspec.structs.replace(facts.smoke.group, speed=speed)
    ports = tuple(
        f.RdmaPort(
            device=f"mlx5_{n}", number=1, state="ACTIVE", link_layer="InfiniBand", rate=400.0
        )
        for n in range(8)
    )
    nodes = tuple(
        msgspec.structs.replace(node, facts=msgspec.structs.replace(node.facts, rdma_ports=ports))
        for node in facts.nodes
    )
    return replace(facts, nodes=nodes, smoke=msgspec.structs.replace(facts.smoke, group=group))


test_check_nodes = between.table(
    "slow-collectives",
    between.speaks(
        "warning",
        over_ib(40e9),
        saying=["40 GB/s of the 400 GB/s that 8 RDMA cards", "NET/IB", "ib_write_bw"],
    ),
    between.speaks(
        "warning",
        over_ib(300e9, without_direct=[2]),
        saying=["GPUDirect on 3 nodes, and not on node-c", "nvidia-peermem"],
    ),
    between.silent(over_ib(380e9)),
    between.silent(over_ib(20e9, cards=1)),  # one GPU a node uses one card
    between.silent(over_ib(150e9, without_direct=range(4))),  # all alike: rdma-unused's matter
    between.silent(over_ib(2e9, way="Socket", cards=1, without_direct=range(4))),  # no row
    between.not_applicable(smoked(4), saying=["NCCL was not used: no GPU"]),
    between.not_applicable(some_nodes(), saying=["add --smoke"]),
    between.skips(smoked(4, backend="nccl", why_backend=""), saying=["did not say"]),
)
