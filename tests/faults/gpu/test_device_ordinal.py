from __future__ import annotations

from typing import Any

from holdfast.analysis import machine as f
from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.source.source import Flag, Launch
from holdfast.findings import Place
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python
from tests.faults import between
from tests.faults.machines import a_machine, a_plan, settings
from tests.faults.made_gpus import a_gpu, nvidia
from tests.faults.made_nodes import on_node, some_nodes
from tests.faults.table import (
    check_table,
    explain_table,
    flags,
    leaves,
    lint_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

test_explain = explain_table(
    "device-ordinal",
    recognises(
        wreckage("RuntimeError: No HIP GPUs are available"), sure=0.6, saying=["saw no GPU"]
    ),
    recognises(
        wreckage("Invalid number of GPUs: 8 requested but only 4 were found."),
        sure=0.93,
        saying=["8 requested, 4 found"],
    ),
    recognises(
        wreckage(
            "ValueError: Invalid CUDA 'device=0,1,2,3' requested. Use 'device=cpu' or pass valid "
            "CUDA device(s)"
        ),
        sure=0.7,
        saying=["number that it cannot see"],
    ),
    recognises(
        wreckage(
            "[rank0]: RuntimeError: Attempting to deserialize object on CUDA device 3 but "
            "torch.cuda.device_count() is 1."
        ),
        sure=0.9,
        rank=0,
        what="torch.load",
        saying=["saved on GPU 3", "map_location='cpu'"],
    ),
    recognises(wreckage("No devices were found"), sure=0.6, saying=["saw no GPU"]),
    passes_over(wreckage("No devices were found by the audio backend")),
    passes_over(
        wreckage(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is "
            "False."
        )
    ),
    recognises(
        wreckage(
            "[rank4]: RuntimeError: CUDA error: invalid device ordinal",
            settings={"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        ),
        sure=0.93,
        rank=4,
        saying=["CUDA_VISIBLE_DEVICES=0,1,2,3", "LOCAL_RANK"],
    ),
    recognises(
        wreckage(
            "[rank4]: RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "
            '"CUDAContext.cpp":50, device=4, num_gpus=4'
        ),
        sure=0.93,
        rank=4,
        saying=["(device 4; 4 visible)"],
    ),
    recognises(
        wreckage(
            "MisconfigurationException: You requested gpu: [0, 1, 2, 3]",
            "But your machine only has: [0]",
        ),
        sure=0.93,
        saying=["requested 0, 1, 2, 3; found 0"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: No CUDA GPUs are available"),
        sure=0.6,
        rank=0,
        saying=["saw no GPU"],
    ),
    passes_over(wreckage("[rank0]: RuntimeError: CUDA error: out of memory")),
)

COMMON = "import os, torch\nimport torch.distributed as dist\nrank = dist.get_rank()\n"
NODES = Flag(name="nnodes", value="2", place=Place(file="run.sh", line=1))
TWO = Launch(kind="torchrun", flags=(NODES,), place=Place(file="run.sh", line=1))
SPAWN = (
    "import os, torch\nimport torch.multiprocessing as mp\n"
    "os.environ['CUDA_VISIBLE_DEVICES'] = '{}'\n"
    "def run(rank):\n    torch.cuda.set_device(rank)\n"
    "if __name__ == '__main__':\n    mp.spawn(run, nprocs=4)"
)

test_lint = lint_table(
    "device-ordinal",
    flags(
        "note",
        python(
            "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
            "net.to(dist.get_rank())"
        ),
        lines=[3],
        saying=["net.to uses `dist.get_rank()`"],
    ),
    flags(
        "error",
        python(COMMON + "torch.cuda.set_device(rank)", started_by=(TWO,)),
        lines=[4],
        saying=["several machines", "LOCAL_RANK"],
    ),
    flags(
        "note",
        python(COMMON + "torch.cuda.set_device(rank)\nmodel.to(f'cuda:{rank}')"),
        lines=[5],
        saying=["on a second machine"],
    ),
    flags(
        "note",
        python(COMMON + "DDP(model.cuda(), device_ids=[int(os.environ['RANK'])])"),
        lines=[4],
        saying=["DDP uses"],
    ),
    flags(
        "error",
        python(SPAWN.format("0,1")),
        lines=[7],
        saying=["starts 4 ranks", "shows 2 GPUs"],
    ),
    leaves(python(SPAWN.format("0,1,2,3"))),
    leaves(python(COMMON + "torch.cuda.set_device(rank % torch.cuda.device_count())")),
    leaves(python(COMMON + "torch.cuda.set_device(rank % 8)", started_by=(TWO,))),
    leaves(python(COMMON + "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))")),
    leaves(  # of mp.spawn: counted on this machine
        python("import torch\ndef run(rank):\n    torch.cuda.set_device(rank)", started_by=(TWO,))
    ),
)


# --- between nodes -------------------------------------------------------------------------------


def gpus(*counts: int, **plan: Any) -> NodesFacts:
    facts = some_nodes(len(counts), **plan)
    for node, count in zip(facts.nodes, counts, strict=True):
        devices = tuple(f"/dev/nvidia{n}" for n in range(count))
        driver = nvidia(gpus=tuple(map(a_gpu, range(count))))
        facts = on_node(facts, node.name, accelerators=devices, nvidia=driver)
    return facts


LATE = Unread(why="late")
LOST = f.Gpu(index=7, unread="GPU is lost", unread_kind="lost")


test_check_nodes = between.table(
    "device-ordinal",
    between.speaks(
        "error",
        gpus(8, 8, 7),
        saying=[
            "the number of GPUs differs between nodes: 8 on node-a and node-b, 7 on node-c",
            "8 ranks on each node need 8 GPUs",
            "`nvidia-smi -L` on node-c",
            "--nproc-per-node 7",
        ],
        hosts=["node-c"],
    ),
    between.speaks(
        "error", gpus(8, 0), saying=["8 on node-a", "leave node-b out of the job"], hosts=[""]
    ),
    between.speaks(
        "note", gpus(8, 8, 4, nproc=4, nproc_named=True), saying=["4 ranks on each node fit"]
    ),
    between.silent(gpus(8, 8, 8)),
    between.silent(gpus(0, 0)),
    between.skips(
        on_node(gpus(8, 8, 8), "node-c", accelerators=LATE, nvidia=LATE), saying=["late"]
    ),
    # Where the driver was not asked, or shows nothing, the device nodes count.
    between.silent(on_node(gpus(8, 8, 8), "node-c", nvidia=LATE)),
    between.silent(on_node(gpus(8, 8, 8), "node-c", nvidia=f.NvidiaFacts(present=False))),
    between.speaks(
        "error",
        on_node(gpus(8, 8, 8), "node-c", nvidia=nvidia(*map(a_gpu, range(7)), LOST)),
        saying=["8 on node-a and node-b, 7 on node-c"],
        hosts=["node-c"],
    ),
    between.speaks(
        "error",
        on_node(gpus(4, 4, 4), "node-b", settings=settings(CUDA_VISIBLE_DEVICES="0,1")),
        saying=["4 on node-a and node-c, 2 on node-b"],
        hosts=["node-b"],
    ),
    between.not_applicable(gpus(8), saying=["one node"]),
)


def shown(devices: str, *, ranks: int | None = None, **facts: Any) -> f.MachineFacts:
    plan = a_plan() if ranks is None else a_plan(nproc=ranks, nproc_named=True)
    return a_machine(plan, settings=settings(CUDA_VISIBLE_DEVICES=devices), **facts)


MIXED = nvidia(a_gpu(0), a_gpu(1, name="NVIDIA T400"))

test_check = check_table(
    "device-ordinal",
    silent(a_machine()),
    silent(a_machine(a_plan(nproc=4, nproc_named=True))),
    silent(a_machine(a_plan(nproc=2, nproc_named=True))),
    silent(a_machine(a_plan(nproc=8))),  # a guess
    speaks(
        "warning",
        a_machine(a_plan(nproc=8, nproc_named=True)),
        saying=[
            "8 ranks are to start here, but 4 GPUs are visible",
            "ranks 4-7 would fail",
            "torchrun --nproc-per-node 4",
        ],
    ),
    speaks(
        "warning",
        shown("0,1", ranks=4),
        saying=["4 ranks", "2 GPUs are visible", "`export CUDA_VISIBLE_DEVICES=0,1,2,3`"],
    ),
    silent(shown("0,1", ranks=2)),
    silent(shown("3,2,1,0", ranks=4)),
    silent(shown("", ranks=4)),  # a job on CPUs
    silent(shown("-1", ranks=4)),
    speaks(
        "warning",
        shown("0,1,9,2"),
        saying=[
            "shows only 2 GPUs: its entry 9 is not one of 4 GPUs",
            "CUDA_VISIBLE_DEVICES=0,1,9",
        ],
    ),
    speaks(
        "error",
        shown('"0,1"'),
        saying=[
            'CUDA_VISIBLE_DEVICES shows no GPU: its entry "0 is not a number',
            "without quotes",
        ],
    ),
    speaks("error", shown("all"), saying=["shows no GPU: its entry all is not a number"]),
    speaks("error", shown("0,1,1"), saying=["1 is named twice", "leaves none at all"]),
    speaks(
        "error",
        shown("GPU-77777777-1111"),
        saying=["its entry GPU-77777777-1111 is not on this machine", "nvidia-smi -L"],
    ),
    silent(shown(f"{a_gpu(2).uuid},{a_gpu(0).uuid}", ranks=2)),
    speaks("warning", shown("0;1;2;3"), saying=["'0;1;2;3'", "1 GPU is visible"]),
    speaks(
        "note",
        shown("1", nvidia=MIXED),
        saying=["may mean other GPUs than in nvidia-smi", "CUDA_DEVICE_ORDER=PCI_BUS_ID"],
    ),
    silent(shown("0,1", nvidia=MIXED)),
    silent(shown("MIG-1", nvidia=nvidia(a_gpu(0, mig=True, mig_devices=("MIG-1",))))),
    skips(
        shown("MIG-1", nvidia=nvidia(a_gpu(0, mig=True, mig_devices=None))),
        saying=["MIG instances"],
    ),
    not_applicable(a_machine(nvidia=f.NvidiaFacts(present=False)), saying=["no NVIDIA GPU"]),
    skips(a_machine(nvidia=nvidia(error="Unknown Error", gpus=())), saying=["Unknown Error"]),
)
