"""Meetings that all come to, or that only look one-sided: nothing may be said."""

from __future__ import annotations

import pytest

from tests.analysis.source.ranks.rank_scripts import check, scripts

MEANT = scripts("""
dist.barrier()
---
if world_size > 1:
    dist.barrier()
---
if args.local_rank != -1:
    dist.barrier()
---
if rank == 0:
    dist.send(x, 1)
else:
    dist.recv(x, 0)
---
if rank == 0:
    dist.gather(x, xs)
else:
    dist.gather(x)
---
def f():
    if rank != 0:
        dist.barrier()
    load()
    if rank == 0:
        dist.barrier()
---
def first(local_rank):
    if local_rank not in [-1, 0]:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()
---
if rank == 0:
    dist.broadcast(x, 0)
else:
    receive_weights()
---
if rank in ranks:
    dist.all_reduce(x, group=g)
---
if local_rank == 0:
    dist.all_reduce(x, group=leaders)
---
if tp_rank == 0:
    dist.broadcast(x, src, group=dp_group)
---
if rank == 0:
    if g is not None:
        dist.all_reduce(x, group=g)
---
if rank == 0:
    dist.all_reduce(x, **options)
---
g = dist.new_group([0]) if rank == 9 else dist.new_group([0])
---
if rank < 4:
    mine, _ = dist.new_group(left), dist.new_group(right)
else:
    _, mine = dist.new_group(left), dist.new_group(right)
---
if rank in ranks:
    dist.new_group(ranks, use_local_synchronization=True)
---
for r in range(8):
    if rank == r:
        dist.barrier()
---
for rank in range(8):
    if rank == 0:
        dist.broadcast(x, rank)
---
if rank == 0:
    trainer.evaluate()
---
if rank == 0:
    def later():
        dist.barrier()
---
if rank == 0:
    def go():
        dist.barrier()
    run(go)
else:
    dist.barrier()
---
if rank == 0:
    with self.assertRaises(RuntimeError):
        dist.barrier()
---
def f():
    if rank != 0:
        dist.barrier()
        return
    save()
    dist.barrier()
---
def f():
    if rank == 0 and missing:
        raise ValueError('no data')
    dist.barrier()
---
def f():
    if rank != 0:
        return
    print('done')
---
def f():
    try:
        if rank != 0:
            return
    finally:
        dist.barrier()
---
def f(sync):
    if sync:
        dist.barrier()
if rank == 0:
    f(False)
---
def f():
    if rank == 0:
        dist.barrier()  #!
def g():
    f()
---
for b in data:
    dist.all_reduce(b)
    for c in b:
        if rank == 0:
            break
---
if dist.get_rank() == 0 or verbose:
    dist.barrier()
---
if rank <= 1:
    dist.init_process_group('gloo', rank=rank, world_size=2)
---
import hydra
@hydra.main()
def main():
    dist.barrier()
---
def f():
    if rank == 0:
        if a():
            return x
    else:
        if b():
            return y
    dist.barrier()
""")


@pytest.mark.parametrize("script", MEANT)
def test_what_is_meant_is_left_alone(script: str) -> None:
    check(script)
