from __future__ import annotations

from typing import Any

from holdfast.analysis import machine as f
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python
from tests.faults import between
from tests.faults.joiners import gave_up, joined, starting
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
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import NOW, a_rank, a_scene, ended, words

NCCL = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, invalid usage "
    "(run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9\nncclInvalidUsage: This usually "
    "reflects invalid usage of NCCL library.\nLast error:\n"
)
PAIR = f"{NCCL}Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"
SAME = f"{NCCL}Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1"
REMOTE = "NCCL error in: x.cpp:1, remote process exited or there was a network error"

test_run = run_table(
    "duplicate-gpu",
    # one speaks, the other is named by it
    notices(
        starting(a_rank(0), a_rank(1, words=words("DistBackendError", PAIR)), a_rank(2)),
        ranks=[0, 1],
        victims=[2],
        certain=True,
        saying=["ranks 0-1 shared CUDA device 1b000 (PCI bus id), which NCCL refuses"],
    ),
    # the script numbers its ranks the other way round
    notices(
        starting(
            joined(0, rank=2, world_size=3),
            joined(1, rank=0, world_size=3),
            gave_up(2, "DistBackendError", PAIR, rank=1, world_size=3),
        ),
        ranks=[1, 2],
        victims=[0],
        certain=True,
        saying=["ranks 1-2 share"],
    ),
    # numbers of a subgroup are not ours: only the speaker is sure
    notices(
        starting(a_rank(0), a_rank(1), a_rank(3, words=words("DistBackendError", PAIR))),
        ranks=[3],
        certain=True,
        saying=["rank 3 (pid 4003) shared CUDA device 1b000"],
    ),
    # NCCL 2.30 names no rank, the pages do
    notices(
        starting(
            joined(0, device="GPU-a"),
            gave_up(1, "DistBackendError", SAME, device="GPU-b"),
            joined(2, device="GPU-b"),
        ),
        ranks=[1, 2],
        victims=[0],
        certain=True,
        saying=["ranks 1-2 used the same GPU"],
    ),
    notices(
        starting(
            ended(0, 1, said=words("DistBackendError", REMOTE, at=NOW - 3)),
            ended(1, 1, said=words("DistBackendError", SAME)),
        ),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["rank 1 (pid 4001) used the same GPU as another rank", "rank 0 exited as a result"],
    ),
    overlooks(a_scene()),
    # on purpose, by NCCL_HOSTID, or with Gloo
    overlooks(starting(joined(0, device="GPU-a"), joined(1, device="GPU-a"))),
    overlooks(
        starting(
            ended(0, 1, said=words("ValueError", "bad", at=NOW - 5)),
            ended(1, 1, said=words("DistBackendError", PAIR)),
        )
    ),
)

test_explain = explain_table(
    "duplicate-gpu",
    recognises(
        wreckage(
            "[rank1]: RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:957, invalid usage, "
            "NCCL version 21.0.3"
        ),
        sure=0.45,
        rank=1,
        saying=["most often two ranks", "NCCL_DEBUG=WARN"],
    ),
    passes_over(
        wreckage(
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
            "Last error:",
            "Bootstrap : no socket interface found",
        )
    ),
    recognises(
        wreckage(
            "[rank1]: init.cc:785 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on "
            "CUDA device 1b000"
        ),
        sure=0.97,
        rank=1,
        what="CUDA device 1b000",
        saying=["ranks 1 and 0 of a communicator", "LOCAL_RANK"],
    ),
    recognises(
        wreckage(
            "[rank1]: Multiple Ranks are using the same GPU/Partition. Set "
            "NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.",
            settings={"CUDA_VISIBLE_DEVICES": "0"},
        ),
        sure=0.97,
        rank=1,
        saying=["CUDA_VISIBLE_DEVICES=0 is set"],
    ),
    passes_over(
        wreckage(
            "[rank1]: ncclInvalidUsage: This usually reflects invalid usage of NCCL",
            "[rank1]: Last error:",
            "[rank1]: an error that no pattern knows",
        )
    ),
)

NCCL = (
    "import os, torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
    "rank = int(os.environ['LOCAL_RANK'])\n"
)

test_lint = lint_table(
    "duplicate-gpu",
    flags(
        "warning",
        python(NCCL + "device = torch.device('cuda:1')\nmodel = net().to(device)"),
        lines=[6],
        saying=["`net().to(device)` selects the same GPU, cuda:1, on every rank"],
    ),
    flags("warning", python(NCCL + "DDP(net(), device_ids=[0])"), lines=[5], saying=["cuda:0"]),
    leaves(python(NCCL + "logits = net().to('cuda:0')\ntorch.cuda.set_device(rank)")),
    leaves(python(NCCL + "net().to('cuda:0' if gpu_id is None else gpu_id)")),
    leaves(
        python(NCCL.replace("'nccl'", "'nccl', rank=0, world_size=1") + "net().to('cuda:0')"),
    ),
    flags(
        "warning",
        python(NCCL + "model = net().cuda()"),
        lines=[5],
        saying=["`net().cuda()` is the first GPU on every rank", "LOCAL_RANK"],
    ),
    flags("warning", python(NCCL + "model = net().to('cuda')"), lines=[5], saying=["first GPU"]),
    flags(
        "warning",
        python(NCCL + "torch.cuda.set_device(0)\nmodel = net().cuda()"),
        lines=[5],
        saying=["`torch.cuda.set_device(0)` selects the same GPU, cuda:0, on every rank"],
    ),
    flags(
        "warning",
        python(NCCL + "x = torch.ones(1, device='cuda')\ntorch.cuda.set_device(rank)"),
        lines=[5],
        saying=["runs before torch.cuda.set_device (line 6)", "move line 6 up"],
    ),
    leaves(python(NCCL + "torch.cuda.set_device(rank)\nmodel = net().cuda()")),
    leaves(python(NCCL + "model = net().to(f'cuda:{rank}')")),
    leaves(python(NCCL + "model = net().cuda(rank)")),
    leaves(python(NCCL + "os.environ['CUDA_VISIBLE_DEVICES'] = str(rank)\nmodel = net().cuda()")),
    leaves(python(NCCL.replace("nccl", "gloo") + "model = net().cuda()")),
    leaves(python(NCCL + "model = net().cuda()", complete=False)),
    leaves(python("import torch\nmodel = net().cuda()")),
    leaves(  # of a library: its user chooses
        python(
            "import torch.distributed as dist\ndef join():\n    dist.init_process_group('nccl')\n"
            "def make():\n    return net().cuda()"
        )
    ),
)


def ranks(count: int, *, named: bool = True, **facts: Any) -> f.MachineFacts:
    return a_machine(a_plan(nproc=count, nproc_named=named), **facts)


PARTS = nvidia(a_gpu(0, mig=True, mig_devices=("MIG-1", "MIG-2")))

test_check = check_table(
    "duplicate-gpu",
    silent(ranks(4)),
    speaks(
        "warning",
        ranks(4, settings=settings(CUDA_VISIBLE_DEVICES="2")),
        saying=["CUDA_VISIBLE_DEVICES shows one GPU to 4 ranks", "=0,1,2,3`"],
    ),
    speaks(
        "warning",
        ranks(4, nvidia=nvidia(a_gpu(0)), settings=settings(CUDA_VISIBLE_DEVICES="0")),
        saying=["torchrun --nproc-per-node 1"],
    ),
    silent(ranks(4, settings=settings(CUDA_VISIBLE_DEVICES="2", NCCL_MULTI_RANK_GPU_ENABLE="1"))),
    # Too few GPUs are device-ordinal's.
    silent(ranks(4, settings=settings(CUDA_VISIBLE_DEVICES="2,1"))),
    silent(ranks(4, nvidia=nvidia(a_gpu(0)))),
    speaks(
        "warning",
        ranks(2, nvidia=PARTS, settings=settings(CUDA_VISIBLE_DEVICES="MIG-1,MIG-2")),
        saying=["2 ranks would use the MIG instance MIG-1", "the first that is listed"],
    ),
    not_applicable(
        ranks(1, settings=settings(CUDA_VISIBLE_DEVICES="2")), saying=["--nproc-per-node"]
    ),
    not_applicable(
        ranks(4, named=False, settings=settings(CUDA_VISIBLE_DEVICES="2")), saying=["not given"]
    ),
    not_applicable(ranks(4, nvidia=f.NvidiaFacts(present=False)), saying=["no NVIDIA GPU"]),
    skips(ranks(4, nvidia=nvidia(error="Unknown Error", gpus=())), saying=["Unknown Error"]),
    skips(ranks(4, nvidia=nvidia(a_gpu(0, mig=True))), saying=["MIG instances"]),
)

SAME_HOST = on_node(
    on_node(some_nodes(3), "node-a", nvidia=nvidia()), "node-b", nvidia=nvidia(a_gpu(2), a_gpu(3))
)

test_check_nodes = between.table(
    "duplicate-gpu",
    between.silent(some_nodes(3)),
    between.speaks(
        "error",
        SAME_HOST,
        saying=[
            "2 GPUs would be used by ranks of more than one node: node-a and node-b",
            "GPU-0000",
        ],
    ),
    between.silent(on_node(SAME_HOST, "node-a", settings=settings(CUDA_VISIBLE_DEVICES="0,1"))),
    between.skips(on_node(some_nodes(3), "node-b", nvidia=f.Unread(why="late")), saying=["late"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)
