"""Meetings that some ranks miss."""

from __future__ import annotations

import pytest

from tests.analysis.source.ranks.rank_scripts import check, scripts

ONE_SIDED = scripts("""
if rank == 0:
    dist.barrier()  #!
---
if rank != 0:
    pass
else:
    dist.all_reduce(x)  #!
---
if rank == 0:
    pass
elif rank == 1:
    dist.broadcast(x, 0)  #!
---
if rank == 0:
    with torch.no_grad():
        for t in ts:
            dist.reduce(t, 0)  #!
---
y = dist.all_gather_object(o, x) if rank == 0 else None  #!
---
rank == 0 and dist.barrier()  #!
---
rank or dist.barrier()  #!
---
[dist.all_reduce(t) for t in ts if rank == 0]  #!
---
while rank == 0 and more():
    dist.barrier()  #!
---
match rank:
    case 0:
        dist.barrier()  #!
    case _:
        pass
---
if rank == 0 and step % 10 == 0:
    dist.barrier()  #!
---
if rank == 0:
    if debug:
        dist.barrier()  #!
---
if rank in (0, 1):
    dist.barrier()  #!
---
if rank in ranks:
    dist.barrier()  #?
---
if rank in ranks:
    g = dist.new_group(ranks)  #!
---
if rank < 4:
    g = dist.new_group([0, 1, 2, 3])  #!
else:
    g = dist.new_group([4, 5, 6, 7])  #!
---
if rank == 0:
    dist.barrier(group=None)  #!
---
if rank == 0:
    dist.all_reduce(x, group=dist.group.WORLD)  #!
---
if rank == 0:
    dist.all_reduce(x, group=pair)  #?
---
if dist.get_rank(g) == 0:
    dist.all_reduce(x, group=g)  #!
---
me = dist.get_rank(g)
if me == 0:
    dist.broadcast(x, src, g)  #!
---
if tp_rank == 0:
    dist.barrier()  #?
---
if rank == 0:
    dist.barrier()  #!
if rank == 0:
    dist.barrier()  #!
---
if rank == 0:
    dist.barrier()  #!
else:
    dist.monitored_barrier()  #!
---
if os.environ['LOCAL_RANK'] == '0':
    dist.barrier()  #!
---
def is_boss():
    return rank == 0
if is_boss():
    dist.barrier()  #!
""")
LEAVING = scripts("""
def f():
    if rank != 0:
        return  #!
    dist.barrier()
---
def f():
    if rank == 0:
        go()
    else:
        return  #!
    dist.barrier()
---
def f():
    if rank:
        sys.exit(0)  #!
    dist.barrier()
---
for b in data:
    if rank == 1:
        continue  #!
    dist.all_reduce(b)
---
for b in data:
    dist.all_reduce(b)
    if rank == 1:
        break  #!
---
for b in data:
    dist.all_reduce(b)
    if rank == 0 and stop(b):
        break  #?
---
def f():
    if rank == 0:
        if done():
            return  #?
    dist.barrier()
---
def f():
    for b in data:
        dist.all_reduce(b)
        if rank == 0:
            return  #!
---
def meet():
    dist.barrier()
def f():
    if rank != 0:
        return  #!
    meet()
""")
DEEP = scripts("""
def meet():
    dist.barrier()
if rank == 0:
    meet()  #!
---
def inner():
    dist.barrier()
def meet():
    inner()
if rank == 0:
    meet()  #!
---
def meet():
    if dist.is_initialized():
        dist.barrier()
if rank == 0:
    meet()  #!
---
def meet():
    if flag:
        dist.barrier()
if rank == 0:
    meet()  #?
---
class T:
    def meet(self):
        dist.barrier()
    def f(self):
        if rank == 0:
            self.meet()  #!
---
@rank_zero_only
def f():
    dist.barrier()  #!
---
@utils.run_on_main_process
def f():
    dist.barrier()  #!
""")
FRAMEWORKS = scripts("""
if accelerator.is_main_process:
    accelerator.wait_for_everyone()  #!
---
from accelerate import Accelerator
a = Accelerator()
if a.is_main_process:
    y = a.gather(x)  #!
---
import horovod.torch as hvd
if hvd.rank() == 0:
    hvd.allreduce(x)  #!
---
import deepspeed
engine, opt, _, _ = deepspeed.initialize(model=m)
if rank == 0:
    engine.save_checkpoint('d')  #!
---
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(net)
if rank == 0:
    state = model.state_dict()  #!
---
import torch.distributed.checkpoint as dcp
if rank == 0:
    dcp.save(state)  #!
---
from torch.distributed import all_reduce as total
if rank == 0:
    total(x)  #!
""")


@pytest.mark.parametrize("script", ONE_SIDED + LEAVING + DEEP + FRAMEWORKS)
def test_some_ranks_miss_it(script: str) -> None:
    check(script)
