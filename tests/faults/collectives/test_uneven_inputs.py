from __future__ import annotations

from tests.analysis.logs.patterns.jobs import HEALTHY, STUCK, a_job, stood, timed_out
from tests.analysis.source.made_sources import python
from tests.faults.table import (
    explain_table,
    flags,
    leaves,
    lint_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import IN_BARRIER, STEPS, a_stack, changed, entry, held_up, waiting

A_BARRIER = waiting(entry(STEPS + 1, op="barrier", shape="", finished=False))
LARGER = waiting(entry(STEPS + 1, shape="[8] Float", finished=False))
IN_OPTIMIZER = a_stack(
    *((f.function, f.file, f.line) for f in IN_BARRIER.frames[:-1]),
    ("wrapper", "/x/site-packages/torch/optim/optimizer.py", 511),
    *((f.function, f.file, f.line) for f in IN_BARRIER.frames[-1:]),
)
EARLIER = a_stack(*((f.function, f.file, f.line - 20) for f in IN_BARRIER.frames))

test_run = run_table(
    "uneven-inputs",
    notices(
        changed(held_up({}), 2, recorder=A_BARRIER, stack=IN_BARRIER),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=[
            "rank 2 (pid 4002) is past the loop, in barrier() at train.py:44",
            "while ranks 0-1,3 are still in backward (in backward() at train.py:30)",
            "or only it runs that code",
        ],
    ),
    overlooks(held_up({})),
    overlooks(changed(held_up({}), 2, recorder=LARGER, stack=IN_BARRIER)),
    overlooks(changed(held_up({}), 2, recorder=A_BARRIER, stack=EARLIER)),
    overlooks(changed(held_up({}), 2, recorder=A_BARRIER, stack=IN_OPTIMIZER)),
    overlooks(changed(held_up({}), 2, recorder=A_BARRIER, stack=None)),
    overlooks(changed(held_up({}, ranks=2), 1, recorder=A_BARRIER, stack=IN_BARRIER)),
)


EPOCH = "Epoch 3: 100%|██████████| 500/500 [12:03<00:00,  1.45s/it]"
PAST = {r: stood(11) for r in (1, 2, 3)} | {0: stood(11, op="barrier")}

test_explain = explain_table(
    "uneven-inputs",
    recognises(
        a_job(
            "[rank1]: RuntimeError: Detected at least one rank that exhausted inputs. Throwing "
            "across all ranks."
        ),
        sure=0.95,
        rank=None,
        saying=["ran out of batches"],
    ),
    recognises(
        a_job(EPOCH, *map(timed_out, range(4)), recorders=PAST),
        sure=0.6,
        rank=0,
        saying=["fewer batches"],
    ),
    recognises(
        a_job(*map(timed_out, range(4)), recorders=PAST),
        sure=0.4,
        rank=0,
        saying=["only they run that code"],
    ),
    passes_over(HEALTHY),
    passes_over(STUCK),
    passes_over(a_job(EPOCH, timed_out(0), recorders={0: stood(11), 1: stood(10, 10)}, world=2)),
)

COMMON = "import torch\nimport torch.distributed as dist\n"
WRAPPED = (
    "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n"
    "rank = dist.get_rank()\n"
)

test_lint = lint_table(
    "uneven-inputs",
    flags(
        "error",
        python(COMMON + "def f(rank):\n    for i in range(20 + rank):\n        dist.barrier()"),
        lines=[5],
        saying=["range(20 + rank)", "differs"],
    ),
    flags(
        "error",
        python(
            COMMON + "def f(rank):\n    rounds = 3 if rank == 0 else 2\n"
            "    for i in range(rounds):\n        dist.barrier()"
        ),
        lines=[6],
        saying=["range(rounds)"],
    ),
    flags(
        "warning",
        python(
            COMMON + "def f(rank, ways):\n"
            "    for x in [y for n, y in enumerate(rows) if n % ways == rank]:\n"
            "        dist.all_reduce(x)"
        ),
        lines=[5],
        saying=["enumerate(rows)", "may differ"],
    ),
    leaves(  # cut to a number that divides
        python(
            COMMON + "def f(rank, world):\n    n = len(rows) // world * world\n"
            "    cut = rows[:n]\n    for x in cut[rank::world]:\n        dist.all_reduce(x)"
        )
    ),
    leaves(
        python(
            COMMON + "def f(rank):\n    rounds = 3 if rank == 0 else 3\n"
            "    for i in range(rank, rank + rounds):\n        dist.barrier()"
        )
    ),
    flags(
        "error",
        python(COMMON + "for i in range(dist.get_rank()):\n    dist.barrier()"),
        lines=[4],
        saying=[
            "dist.barrier in a loop over `range(dist.get_rank())`",
            "differs from rank to rank",
        ],
    ),
    flags(
        "error",
        python(
            COMMON + "def f(rank, n):\n    for i in range(rank, n):\n        dist.all_reduce(x)"
        ),
        lines=[5],
        saying=["range(rank, n)"],
    ),
    flags(
        "warning",
        python(
            COMMON + "def f(rank, world_size):\n    for name in files[rank::world_size]:\n"
            "        dist.all_reduce(read(name))"
        ),
        lines=[5],
        saying=["files[rank::world_size]", "may differ", "Join([model])"],
    ),
    flags(
        "warning",
        python(
            COMMON
            + WRAPPED
            + "mine = torch.utils.data.Subset(data, range(rank, len(data), world_size))\n"
            "for batch in torch.utils.data.DataLoader(mine):\n    model(batch).sum().backward()"
        ),
        lines=[8],
        saying=["range(rank, len(data), world_size)"],
    ),
    leaves(
        python(
            COMMON + WRAPPED + "with model.join():\n    for _ in range(rank):\n"
            "        model(x).sum().backward()"
        )
    ),
    leaves(python(COMMON + "for batch in loader:\n    dist.all_reduce(batch)")),
    leaves(python(COMMON + "for r in range(world_size):\n    dist.broadcast(x, r)")),
    leaves(  # an equal part for each
        python(
            COMMON + "def f(rank, n):\n    for i in range(rank * n, (rank + 1) * n):\n        "
            "dist.all_reduce(x)"
        )
    ),
    leaves(  # only what one rank does alone
        python(
            COMMON
            + "def f(rank, world_size):\n    for n in files[rank::world_size]:\n        read(n)"
        )
    ),
    leaves(  # it sees to it
        python(
            COMMON + "def f(rank, world_size):\n    assert len(files) % world_size == 0\n"
            "    for n in files[rank::world_size]:\n        dist.all_reduce(read(n))"
        )
    ),
)
