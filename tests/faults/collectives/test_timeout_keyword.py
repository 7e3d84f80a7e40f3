from __future__ import annotations

from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "timeout-keyword",
    # --- where none is taken ---
    flags(
        "error",
        python("""
            import torch.distributed as dist
            from functools import partial
            quickly = partial(dist.all_reduce, timeout=30)
            begin = partial(dist.init_process_group, "gloo", timeout=limit)
            fetch = partial(download, timeout=30)
        """),
        lines=[3],
        saying=["dist.all_reduce has no timeout="],
    ),
    flags(
        "error",
        python("""
            import torch
            from datetime import timedelta
            torch.distributed.reduce_scatter_tensor(
                out, grads,
                timeout=timedelta(seconds=30),
            )
        """),
        lines=[5],
        saying=["reduce_scatter_tensor has no timeout=", "TypeError", "async_op=True"],
    ),
    flags(
        "error",
        python("""
            from datetime import timedelta as td
            from torch.distributed import recv as fetch, broadcast_object_list
            class Worker:
                def pull(self):
                    fetch(self.buffer, src=0, timeout=td(minutes=1))
                    broadcast_object_list([1], timeout=td(minutes=1))
        """),
        lines=[5, 6],
        saying=["irecv(…).wait(", "give the group a timeout"],
    ),
    flags(
        "error",
        python("""
            from datetime import timedelta
            from torch.distributed import *
            from torch.nn.parallel import DistributedDataParallel as DDP
            all_gather(parts, x, timeout=timedelta(1))
            model = DDP(model, timeout=timedelta(hours=1))
        """),
        lines=[4, 5],
        saying=["DDP has no timeout="],
    ),
    flags(
        "error",
        python("import torch.distributed as dist\ndist.barrier(timeout=limit)", torch="2.11.0"),
        lines=[2],
        saying=["in torch 2.11.0", "was added in torch 2.12", "monitored_barrier"],
    ),
    leaves(python("import torch.distributed as dist\ndist.barrier(timeout=limit)", torch="2.12.1")),
    leaves(python("import torch.distributed as dist\ndist.barrier(timeout=limit)", torch="")),
    leaves(python("import torch.distributed as dist\ndist.all_reduce(x, **options)")),
    leaves(python("from mine import dist\ndist.all_reduce(x, timeout=5)  # torch's? who knows")),
    leaves(python("from torch.distributed import rpc\nrpc.rpc_sync('w', f, timeout=5)")),
    # --- a number instead ---
    flags(
        "error",
        python("""
            import torch.distributed as dist
            MINUTES = 30
            LIMIT = MINUTES * 60
            def start():
                dist.init_process_group("gloo", timeout=LIMIT)
                dist.new_group([0, 1], 2 * 60)
                dist.monitored_barrier(timeout=10)
        """),
        lines=[5, 6, 7],
        saying=["LIMIT, which is 1800", "timedelta(seconds=LIMIT)", "timedelta(seconds=2 * 60)"],
    ),
    flags(
        "error",
        python("""
            import argparse, os
            import torch.distributed as dist
            parser = argparse.ArgumentParser()
            parser.add_argument("--group-timeout", type=int, default=1800)
            options = parser.parse_args()
            dist.init_process_group("nccl", timeout=options.group_timeout)
            dist.init_process_group("nccl", timeout=int(os.environ.get("LIMIT", 60)))
            dist.init_process_group("nccl", timeout=os.environ["LIMIT"])
        """),
        lines=[6, 7, 8],
        saying=["options.group_timeout", "it must be a timedelta"],
    ),
    flags(
        "error",
        python("""
            import torch.distributed as dist
            def start(rank, timeout=1800):
                dist.init_process_group("nccl", rank=rank, timeout=timeout)
            def part(ranks, seconds: int):
                return dist.new_group(ranks, timeout=seconds)
        """),
        lines=[3, 5],
        saying=["is timeout: it must be a timedelta"],
    ),
    flags(
        "error",
        python("""
            import torch.distributed as dist
            handle = dist.all_reduce(x, async_op=True)
            handle.wait(5)
            dist.irecv(y, 0).wait(timeout=5)
            waiting = []
            waiting.append(dist.isend(x, 1))
            for one in waiting:
                one.wait(10)
            for one in dist.batch_isend_irecv(ops):
                one.wait(10)
        """),
        lines=[3, 4, 8, 10],
        saying=["handle.wait is 5"],
    ),
    flags(
        "error",
        python("""
            from torch.distributed import TCPStore
            import torch.distributed as dist
            store = TCPStore("node-a", 29400, 2, True, 60)
            store.set_timeout(60)
            store.wait(["ready"], 5)
        """),
        lines=[3, 4, 5],
        saying=["store.set_timeout is 60"],
    ),
    flags(
        "error",
        python("""
            import deepspeed
            from datetime import timedelta
            from accelerate import InitProcessGroupKwargs
            from lightning.pytorch.strategies import DDPStrategy
            deepspeed.init_distributed(timeout=1800)
            kwargs = InitProcessGroupKwargs(timeout=5400)
            strategy = DDPStrategy(timeout=timedelta(minutes=5).total_seconds())
        """),
        lines=[5, 6, 7],
        saying=["5400"],
    ),
    flags(
        "error",
        python("""
            from datetime import timedelta
            from transformers import TrainingArguments
            model = model.cuda()
            arguments = TrainingArguments(ddp_timeout=timedelta(hours=2))
        """),
        lines=[4],
        saying=["ddp_timeout counts seconds", "ddp_timeout=7200"],
    ),
    leaves(  # C++ takes a float as seconds
        python("""
            import torch.distributed as dist
            work = dist.all_reduce(x, async_op=True)
            work.wait(5.0)
            store = dist.TCPStore("node-a", 29400, timeout=60.0)
        """)
    ),
    leaves(  # other things wait, too
        python("""
            import threading, torch
            done = threading.Event()
            done.wait(5)
            process.wait(timeout=5)
        """)
    ),
    leaves(
        python("""
            from datetime import timedelta
            import torch.distributed as dist
            def start(timeout=1800, other=None):
                if not isinstance(timeout, timedelta):
                    timeout = timedelta(seconds=timeout)
                dist.init_process_group("nccl", timeout=timeout)
                dist.new_group([0], timeout=other)
                dist.new_group([0], timeout=timeout * 2)
                dist.new_group([0], timeout=None)
                dist.new_group([0], **other)
        """)
    ),
    # --- timedelta itself ---
    flags(
        "warning",
        python("""
            import datetime, torch.distributed as dist
            dist.init_process_group("nccl", timeout=datetime.timedelta(1800))
        """),
        lines=[2],
        saying=["is 1800 days", "timedelta(seconds=1800)"],
    ),
    flags(
        "error",
        python("""
            from datetime import timedelta
            import torch.distributed as dist
            dist.init_process_group("nccl", timeout=timedelta(second=1800))
        """),
        lines=[3],
        saying=["no argument 'second'"],
    ),
    leaves(
        python("""
            from datetime import timedelta
            import torch.distributed as dist
            dist.init_process_group("nccl", timeout=timedelta(days=2))
            dist.init_process_group("nccl", timeout=timedelta(0, 1800))
        """)
    ),
    # --- not imported ---
    flags(
        "error",
        python("""
            import torch.distributed as dist
            dist.init_process_group("nccl", timeout=timedelta(minutes=5))
        """),
        lines=[2],
        saying=["timedelta is used for this timeout but never imported", "from datetime import"],
    ),
    flags(
        "error",
        python("""
            from datetime import datetime
            import torch.distributed as dist
            dist.new_group([0], timeout=datetime.timedelta(minutes=5))
        """),
        lines=[3],
        saying=["AttributeError"],
    ),
    flags(
        "warning",
        python(
            """
            import torch.distributed as dist
            work.wait(3)
            dist.new_group([0], timeout=timedelta(minutes=5))
            """,
            complete=False,
        ),
        lines=[3],
        saying=["never imported"],
    ),
    leaves(  # an excerpt without imports has them elsewhere
        python("dist.init_process_group('nccl', timeout=timedelta(minutes=5))", complete=False)
    ),
    leaves(
        python("""
            from mine import *
            import torch.distributed as dist
            dist.init_process_group("nccl", timeout=timedelta(minutes=5))
        """)
    ),
    # --- a limit that limits nothing ---
    flags(
        "warning",
        python("""
            import torch.distributed as dist
            class Sync:
                def mean(self, x, *, timeout_s=10):
                    dist.all_reduce(x)
                    return x / dist.get_world_size()
        """),
        lines=[3],
        saying=["timeout_s of mean is never used", "timedelta(seconds=timeout_s)"],
    ),
    leaves(
        python("""
            import torch.distributed as dist
            class Quick(Base):
                def barrier(self, timeout=None):
                    dist.barrier()
            @patient
            def also(timeout=3):
                dist.barrier()
            def used(x, timeout=3):
                dist.all_reduce(x, async_op=True).wait(patience(timeout))
            def nothing_of_ours(timeout=3):
                return 1
        """)
    ),
)
