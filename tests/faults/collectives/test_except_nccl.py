from __future__ import annotations

import msgspec

from holdfast.analysis.source.source import Launch, SourceSetting
from holdfast.findings import Place
from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

CAUGHT = """
    import os
    import torch.distributed as dist
    {before}
    dist.init_process_group({backend})
    def mean(x):
        try:
            dist.all_reduce(x{more})
        except RuntimeError as e:
            print("a peer timed out:", e)
            return None
"""


def caught(backend: str = '"nccl"', before: str = "", more: str = "") -> str:
    return CAUGHT.format(backend=backend, before=before, more=more)


AT = Place(file="run.sh", line=1)
BLOCKING = Launch(
    kind="torchrun",
    flags=(),
    place=AT,
    settings=(SourceSetting(name="TORCH_NCCL_BLOCKING_WAIT", value="1", place=AT),),
)

test_lint = lint_table(
    "except-nccl",
    flags(  # it would save before it leaves
        "warning",
        python("""
            import sys
            import torch.distributed as dist
            dist.init_process_group("nccl")
            try:
                dist.barrier()
            except dist.DistBackendError:
                keep(model)
                sys.exit(1)
        """),
        lines=[6],
        saying=["dist.barrier"],
    ),
    flags(  # one call deep, where the handler says what it expects
        "warning",
        python("""
            import torch.distributed as dist
            dist.init_process_group("nccl")
            def mean(x):
                dist.all_reduce(x)
            try:
                mean(loss)
            except RuntimeError:
                print("a node has gone")
        """),
        lines=[7],
        saying=["dist.all_reduce (in mean)"],
    ),
    leaves(  # written for whatever may go wrong
        python("""
            import sys
            import torch.distributed as dist
            dist.init_process_group("nccl")
            def step(x):
                dist.all_reduce(x)
            try:
                dist.all_reduce(x)
            except Exception as e:
                print("training failed", e)
                sys.exit(1)
            try:
                step(x)
            except Exception as e:
                failures.append(e)
        """)
    ),
    flags(
        "warning",
        python(caught()),
        lines=[8],
        saying=["the group uses NCCL", "watchdog ends the process", "work.wait(timedelta"],
    ),
    flags("warning", python(caught('backend="cuda:nccl"')), lines=[8], saying=["NCCL"]),
    flags(
        "warning",
        python(caught(before='os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "0"')),
        lines=[8],
        saying=["dist.all_reduce"],
    ),
    flags(
        "note",
        python("""
            import torch.distributed as dist
            NCCL = "nccl"
            dist.init_process_group(NCCL)
            try:
                dist.broadcast(x, 0)
            except Exception as e:
                ok = False
        """),
        lines=[6],
        saying=["dist.broadcast"],
    ),
    flags(  # no group in sight, but a GPU
        "note",
        python("""
            import torch
            import torch.distributed as dist
            try:
                dist.all_reduce(torch.ones(3, device="cuda"))
            except RuntimeError as e:
                print("timed out", e)
        """),
        lines=[5],
        saying=["if the group uses NCCL"],
    ),
    leaves(python(caught('"gloo"'))),
    leaves(python(caught('"cpu:gloo,cuda:nccl"'))),
    leaves(python(caught("args.backend"))),
    leaves(python(caught(more=", group=cpu_group"))),
    leaves(python(caught(before='os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"'))),
    leaves(msgspec.structs.replace(python(caught()), started_by=(BLOCKING,))),
    leaves(  # a wait with a limit raises; others only report, clear up, or mean something else
        python("""
            import torch.distributed as dist
            from datetime import timedelta
            try:
                dist.init_process_group("nccl")
            except RuntimeError:
                print("no group")
            try:
                work = dist.all_reduce(x, async_op=True)
                work.wait(timedelta(seconds=60))
            except RuntimeError as e:
                print("timed out")
            try:
                dist.barrier()
            except Exception as e:
                log.exception("timeout?")
                raise
            def cleanup():
                try:
                    dist.barrier()
                except Exception:
                    pass
            try:
                dist.all_reduce(model(batch))
            except RuntimeError as e:
                if "out of memory" in str(e):
                    skip(batch)
            try:
                dist.all_gather_object(parts, x)
            except ValueError:
                parts = None
        """)
    ),
)
