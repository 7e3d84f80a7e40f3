from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.machine import MachineFacts, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python
from tests.faults.machines import a_machine, a_plan
from tests.faults.table import (
    check_table,
    explain_table,
    flags,
    leaves,
    lint_table,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

HEALTHY = a_machine()


def software(plan: Any = None, **changes: Any) -> MachineFacts:
    keep = {"accelerators": changes.pop("accelerators", HEALTHY.accelerators)}
    return a_machine(plan, software=msgspec.structs.replace(HEALTHY.software, **changes), **keep)


CPU_BUILD: dict[str, Any] = {"torch": "2.13.0+cpu", "torch_cuda": ""}

test_check = check_table(
    "backend-unavailable",
    speaks(
        "warning",
        software(**CPU_BUILD),
        saying=["4 GPUs are here", "2.13.0+cpu is a CPU build", "/dev/nvidia3", "get-started"],
    ),
    speaks(
        "warning",
        software(**CPU_BUILD, accelerators=("/dev/nvidia0",)),
        saying=["1 GPU is here"],
    ),
    speaks(
        "note",
        software(a_plan(environment={"CUDA_VISIBLE_DEVICES": ""}), **CPU_BUILD),
        saying=["hidden", "runs on the CPU"],
    ),
    speaks("note", software(accelerators=()), saying=["no GPU is visible here", "'gloo' works"]),
    speaks("warning", software(gloo=""), saying=["built without Gloo"]),
    speaks(
        "note",
        software(torch="", torch_cuda="", gloo=""),
        saying=["torch is not installed", "/usr/bin/python3", "python -m holdfast check"],
        not_saying=["without Gloo"],
    ),
    silent(a_machine()),
    silent(software(**CPU_BUILD, accelerators=())),
    silent(software(torch="2.13.0+rocm7.0", torch_cuda="", accelerators=("/dev/kfd",))),
    skips(software(gloo=Unread(why="cannot be mapped")), saying=["cannot be mapped"]),
    skips(a_machine(software=Unread(why="slow disk")), saying=["slow disk"]),
    skips(a_machine(accelerators=Unread(why="no /dev")), saying=["no /dev"]),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "backend-unavailable",
    recognises(
        wreckage(
            "UserWarning: Attempted to get default timeout for nccl backend, but NCCL support is "
            "not compiled"
        ),
        sure=0.95,
        what="torch without NCCL",
        saying=["has no NCCL"],
    ),
    recognises(
        wreckage("ValueError: Neither MPI nor Gloo support has been built. Try reinstalling"),
        sure=0.95,
        what="Horovod without MPI nor Gloo",
        saying=["--check-build"],
    ),
    passes_over(wreckage("the index has not been built")),
    recognises(
        wreckage("RuntimeError: makeDeviceForHostname(): unsupported gloo device"),
        sure=0.95,
        saying=["gloo"],
    ),
    recognises(
        wreckage("RuntimeError: Distributed package doesn't have NCCL built in"),
        sure=0.95,
        what="torch without NCCL",
        saying=["this build of torch has no NCCL"],
    ),
    recognises(
        wreckage("AssertionError: Torch not compiled with CUDA enabled"),
        sure=0.75,
        what="torch without CUDA",
        saying=["no CUDA"],
    ),
    recognises(
        wreckage("RuntimeError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
        sure=0.95,
        what="no visible GPU",
        saying=["CUDA_VISIBLE_DEVICES"],
    ),
    recognises(
        wreckage("[rank2]: RuntimeError: No backend type associated with device type cpu"),
        sure=0.93,
        what="tensor on cpu",
        saying=["device type cpu", "cpu:gloo,cuda:nccl"],
    ),
    recognises(
        wreckage("RuntimeError: Tensors must be CUDA and dense"),
        sure=0.93,
        what="tensor on cpu",
        saying=["device type cpu"],
    ),
    recognises(
        wreckage(
            "RuntimeError: use_libuv was requested but PyTorch was build without libuv support"
        ),
        sure=0.95,
        what="torch without libuv",
        saying=["USE_LIBUV=0"],
    ),
    recognises(
        wreckage("ValueError: Invalid backend: 'ncll'"),
        sure=0.8,
        what="backend ncll",
        saying=["the backend ncll"],
    ),
    recognises(
        wreckage("RuntimeError: Invalid scalar type"),
        sure=0.5,
        what="tensor type",
        saying=["Gloo"],
    ),
    passes_over(wreckage("RuntimeError: this optimizer does not support sparse gradients")),
)

COMMON = (
    "import torch\nimport torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
)
NCCL = COMMON + "dist.init_process_group('nccl')\n"
GLOO = COMMON + "dist.init_process_group('gloo')\n"

test_lint = lint_table(
    "backend-unavailable",
    flags(
        "error",
        python(NCCL + "d = torch.device('cpu')\nn = torch.ones(1, device=d)\ndist.all_reduce(n)"),
        lines=[7],
        saying=["`n`, a CPU tensor"],
    ),
    flags(
        "error",
        python(COMMON + "dist.init_process_group(backend='ncll')"),
        lines=[4],
        saying=["unknown backend 'ncll'", "`init_process_group('nccl')`"],
    ),
    flags(
        "error",
        python(COMMON + "dist.init_process_group('cpu:glo,cuda:nccl')"),
        lines=[4],
        saying=["unknown backend 'glo'"],
    ),
    flags(
        "error",
        python(NCCL + "total = torch.tensor(1.0)\ndist.all_reduce(total)"),
        lines=[6],
        saying=["`total`, a CPU tensor", "cpu:gloo,cuda:nccl"],
    ),
    flags("error", python(NCCL + "dist.broadcast(x.cpu(), 0)"), lines=[5], saying=["x.cpu()"]),
    flags(
        "warning",
        python(NCCL + "model = DDP(torch.nn.Linear(2, 2))"),
        lines=[5],
        saying=["DDP gets a model on the CPU"],
    ),
    flags(
        "note",
        python(GLOO + "model = DDP(net.cuda(0), device_ids=[0])"),
        lines=[4],
        saying=["through CPU memory"],
    ),
    leaves(python(NCCL + "t = torch.ones(1, device='cuda')\ndist.all_reduce(t)")),
    leaves(python(NCCL + "t = torch.ones(1)\nt = t.cuda()\ndist.all_reduce(t)")),
    leaves(python(NCCL + "torch.set_default_device('cuda')\ndist.all_reduce(torch.ones(1))")),
    leaves(python(NCCL + "dist.all_reduce(torch.ones(1), group=on_cpu)")),
    leaves(python(NCCL + "g = dist.new_group(backend='gloo')\ndist.barrier()")),
    leaves(python(NCCL + "dist.all_gather_object(out, torch.ones(1))")),
    leaves(python(GLOO + "dist.all_reduce(torch.ones(1))")),
    leaves(python(COMMON + "dist.init_process_group('GLOO')")),
    leaves(python(COMMON + "dist.init_process_group('hccl')")),
    leaves(
        python(COMMON + "dist.init_process_group(backend=chosen)\ndist.all_reduce(torch.ones(1))")
    ),
)
