from __future__ import annotations

from tests.analysis.collectives.nccl_documents import Written
from tests.analysis.collectives.test_gpu_side import IN_ALL_REDUCE
from tests.analysis.collectives.test_gpu_side import a_job as gpu_job
from tests.analysis.logs.patterns.jobs import (
    HEALTHY,
    STUCK,
    a_job,
    a_raise,
    differ,
    stood,
    timed_out,
)
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
from tests.run.scenes import (
    IN_BARRIER,
    IN_SAVE,
    NOW,
    PAST,
    STEPS,
    TORCH,
    WALL,
    a_recorder,
    a_stack,
    changed,
    entry,
    held_up,
)

OTHER = entry(1, group="5", op="barrier", shape="", finished=False)
IN_RECV = a_stack(
    ("recv", f"{TORCH}/distributed/distributed_c10d.py", 2500), ("train", "/home/me/train.py", 50)
)
ALONE = a_recorder(*PAST, OTHER)
KNOWN = (entry(1, group="5"), entry(2, group="5", op="barrier", shape="", finished=False))
IN_KNOWN = a_recorder(*PAST, *KNOWN)
BEFORE = a_recorder(*PAST, KNOWN[0], entry(STEPS + 1, finished=False))
CROSSED = held_up({2: {"recorder": ALONE, "stack": IN_BARRIER}})

STAGES = [
    Written().past(1).batch("started", "send 0->1"),
    Written().past(1).batch("started", "send 1->2"),
    Written().past(1).batch("retired", "recv 2<-1"),
    Written().past(1).batch("started", "recv 3<-2"),
]

PAIRS = {"pp 0,1": (0, 1), "pp 2,3": (2, 3), "dp 0,2": (0, 2), "dp 1,3": (1, 3)}
REPLICAS = [
    Written(PAIRS).past(2, group="dp 0,2").batch("started", "recv 0<-1", group="pp 0,1"),
    Written(PAIRS).past(2, group="dp 1,3").batch("retired", "recv 1<-0", group="pp 0,1"),
    Written(PAIRS).past(2, group="dp 0,2").collective("started", group="dp 0,2"),
    Written(PAIRS).past(2, group="dp 1,3").collective("started", group="dp 1,3"),
]

test_run = run_table(
    "rank-conditional-code",
    notices(
        CROSSED,
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=[
            "rank 2 waits in barrier #1 of group 5 (in train() at train.py:44)",
            "which no other rank calls; ranks 0-1,3 wait in all_reduce #101 for it",
        ],
    ),
    notices(
        held_up({2: {"recorder": IN_KNOWN, "stack": IN_BARRIER}}, victim={"recorder": BEFORE}),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=["barrier #2 of group 5"],
    ),
    notices(
        held_up({1: {"recorder": ALONE, "stack": IN_BARRIER}}, ranks=2),
        ranks=[0, 1],
        certain=True,
        saying=["undecided", "rank 0 waits in all_reduce #101", "rank 1 waits in barrier #1"],
    ),
    # NCCL makes the second group's connections only now: no recorder knows of that collective,
    # and its own threads keep a core busy meanwhile
    notices(
        held_up({2: {"stack": IN_BARRIER, "alive_at": NOW}}),
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=[
            "rank 2 waits in barrier (in train() at train.py:44)",
            "which no other rank calls",
        ],
    ),
    # the stages of a pipeline wait for each other; one of them calls what no other does
    notices(
        gpu_job(STAGES, {2: IN_ALL_REDUCE}),
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=[
            "rank 2 waits in all_reduce (in train() at train.py:30)",
            "which no other rank calls; ranks 0-1,3 wait in send or recv for it",
        ],
    ),
    # the same where the stages have gradients to share: each waits somewhere else
    notices(
        gpu_job(REPLICAS, {1: IN_ALL_REDUCE}),
        ranks=[1],
        victims=[0, 2, 3],
        certain=False,
        saying=[
            "rank 1 waits in all_reduce (in train() at train.py:30), which no other rank calls"
        ],
    ),
    # a message that Gloo never records may have come just now
    overlooks(held_up({2: {"stack": IN_RECV, "alive_at": NOW}})),
    # it may be that it only started it, and saves meanwhile: without its stack nothing is sure
    overlooks(changed(CROSSED, 2, stack=IN_SAVE, alive_at=NOW)),
    overlooks(changed(CROSSED, 2, stack=None)),
    notices(
        held_up({2: {"recorder": IN_KNOWN, "stack": None}}, victim={"recorder": BEFORE}),
        ranks=[2],
        certain=False,
        saying=["rank 2"],
    ),
    # no steps, but collectives complete: they have only just entered these
    overlooks(
        changed(
            held_up(
                {2: {"recorder": ALONE, "stack": IN_BARRIER}},
                evidence_wall=WALL + (STEPS + 1) * 0.05 + 0.3,
            ),
            2,
            alive_at=NOW,
        )
    ),
    overlooks(held_up({})),
    overlooks(held_up({2: {}})),
    overlooks(changed(CROSSED, 0, recorder=None)),
)


HOROVOD = "Missing ranks:", "0: [broadcast.sizes]", "1: [allreduce.fc.weight]"
RING = a_job(
    recorders={
        0: stood(3, group="7", members=(0, 1)),
        1: stood(5, group="8", members=(0, 1)),
    },
    world=2,
)

test_explain = explain_table(
    "rank-conditional-code",
    recognises(
        a_job("Stalled ops: a [ready ranks: 3], b [ready ranks: 2, 0, 1]"),
        sure=0.65,
        what="ranks 0-2 versus rank 3",
        saying=["only ranks 0-2 submitted", "only rank 3 submitted"],
    ),
    # A rank that is merely late lacks both.
    passes_over(a_job("Stalled ops: a [ready ranks: 3], b [ready ranks: 3, 0, 1]")),
    recognises(
        a_job(
            *map(timed_out, range(4)),
            recorders={r: stood(11) for r in (1, 2, 3)} | {0: stood(11, op="barrier")},
        ),
        sure=0.7,
        rank=0,
        victims=[1, 2, 3],
        saying=["rank 0 barrier", "different operations"],
    ),
    recognises(
        a_job(
            timed_out(0, seq=959),
            *(timed_out(r, seq=963) for r in (1, 2, 3)),
            recorders={r: stood(963) for r in (1, 2, 3)} | {0: stood(959)},
            dumped=(),
        ),
        sure=0.7,
        rank=0,
        saying=["rank 0 all_reduce #959", "one side counts further"],
    ),
    recognises(
        a_job(
            *map(timed_out, range(4)),
            recorders={r: stood(11) for r in (0, 1, 3)} | {2: stood(11, shape="[8] Float")},
        ),
        sure=0.5,
        rank=2,
        saying=["sizes differ"],
    ),
    recognises(
        a_job(differ("OpType=ALLREDUCE, TensorShape=[90000]", "OpType=BARRIER")),
        sure=0.75,
        what="rank 0 versus rank 1",
        saying=["BARRIER"],
    ),
    recognises(
        a_job(
            differ("OpType=ALLREDUCE, TensorShape=[90000]", "OpType=ALLREDUCE, TensorShape=[8000]")
        ),
        sure=0.7,
        what="rank 0 versus rank 1",
        saying=["skipped a part of the model"],
    ),
    recognises(
        a_job(
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running "
            "collective: CollectiveFingerPrint(SequenceNumber=21, OpType=BROADCAST, "
            "TensorShape=[1], TensorDtypes=Long, TensorDeviceTypes=TensorOptions("
        ),
        sure=0.7,
        saying=["the order of calls differs"],
    ),
    recognises(
        a_job(timed_out(0), recorders={0: stood(11)} | {r: stood(10, 10) for r in (1, 2, 3)}),
        sure=0.6,
        rank=0,
        victims=[1, 2, 3],
        saying=["only rank 0 entered all_reduce #11"],
    ),
    recognises(RING, sure=0.75, what="one of ranks 0-1", saying=["waited for each other"]),
    recognises(
        a_job(*HOROVOD), sure=0.7, what="rank 0 versus rank 1", saying=["different missing tensors"]
    ),
    passes_over(HEALTHY),
    passes_over(STUCK),
    # A broadcast may be over for one side and not for the other.
    passes_over(
        a_job(recorders={0: stood(9, usual="broadcast"), 1: stood(7, usual="broadcast")}, world=2)
    ),
    passes_over(a_job(timed_out(0), raised=[a_raise(1, "ValueError")], recorders={0: stood(11)})),
)

COMMON = "import torch.distributed as dist\n"

OWN = """
    import holdfast
    import torch.distributed as dist

    rank = dist.get_rank()
    ckpt = holdfast.Checkpoint("ckpts", state)
    if rank == 0:
        ckpt.METHOD()
"""

test_lint_of_our_own_library = lint_table(
    "rank-conditional-code",
    flags(
        "error",
        python(OWN.replace("METHOD", "step")),
        lines=[7],
        saying=["ckpt.step() runs only", "rank == 0", "no save is ever completed"],
    ),
    flags("error", python(OWN.replace("METHOD", "save")), lines=[7], saying=["ckpt.save runs"]),
    flags("error", python(OWN.replace("METHOD", "resume")), lines=[7], saying=["ckpt.resume"]),
    leaves(python(OWN.replace("METHOD", "request_save"))),  # any rank may
    leaves(python(OWN.replace("METHOD", "step").replace("holdfast.Checkpoint", "mine.Checkpoint"))),
    leaves(python(OWN.replace("METHOD", "step").replace("if rank == 0", "if loss < best"))),
)

test_lint = lint_table(  # more of them in tests/source/test_parting*.py
    "rank-conditional-code",
    flags(
        "error",
        python(
            COMMON + "from torch.nn.parallel import DistributedDataParallel as DDP\n"
            "if dist.get_rank() == 0:\n    net = DDP(net)"
        ),
        lines=[4],
        saying=["DDP runs only where"],
    ),
    flags(
        "error",
        python(
            COMMON + "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "def save(net, rank):\n    net = FSDP(net)\n    if rank == 0:\n"
            "        torch.save(net.state_dict(), path)"
        ),
        lines=[6],
        saying=["net.state_dict runs only where `rank == 0`"],
    ),
    flags(
        "error",
        python(
            COMMON + "import torch.distributed.fsdp as fsdp\n"
            "def save(net: fsdp.FullyShardedDataParallel):\n    if dist.get_rank() == 0:\n"
            "        torch.save(net.state_dict(), path)"
        ),
        lines=[5],
        saying=["net.state_dict runs only where"],
    ),
    flags(
        "error",
        python(
            "import lightning as L\ntrainer = L.Trainer()\nif trainer.is_global_zero:\n"
            "    trainer.save_checkpoint('x.ckpt')"
        ),
        lines=[4],
        saying=["trainer.save_checkpoint"],
    ),
    flags(
        "error",
        python(
            "import lightning as L\nclass Net(L.LightningModule):\n    def step(self, x):\n"
            "        if self.global_rank == 0:\n            return self.all_gather(x)"
        ),
        lines=[5],
        saying=["self.all_gather"],
    ),
    flags(
        "error",
        python(
            "import deepspeed\nclass T:\n    def make(self):\n"
            "        self.engine, *_ = deepspeed.initialize()\n    def save(self, rank):\n"
            "        if rank == 0:\n            self.engine.save_checkpoint('x')"
        ),
        lines=[7],
        saying=["self.engine.save_checkpoint"],
    ),
    leaves(  # some other trainer, some other all_gather
        python(
            "import lightning as L\nfrom mine import Trainer\ntrainer = Trainer()\n"
            "class Net:\n    def step(self, x):\n        if self.global_rank == 0:\n"
            "            self.all_gather(x)\n            trainer.save_checkpoint('x')"
        )
    ),
    flags(
        "error",
        python(COMMON + "if dist.get_rank() == 0:\n    dist.barrier()"),
        lines=[3],
        saying=["dist.barrier runs only where `dist.get_rank() == 0`", "move dist.barrier(…) out"],
    ),
    flags(
        "error",
        python(COMMON + "def f(rank):\n    if rank > 0:\n        return\n    dist.all_reduce(x)"),
        lines=[4],
        saying=["ranks where `rank > 0` return here, before dist.all_reduce (line 5)"],
    ),
    flags(
        "error",
        python(COMMON + "def meet():\n    dist.barrier()\nif is_main_process():\n    meet()"),
        lines=[5],
        saying=["meet, which calls dist.barrier (line 3), runs only where `is_main_process()`"],
    ),
    flags(
        "warning",
        python(COMMON + "def f(rank, g):\n    if rank == 0:\n        dist.barrier(g)"),
        lines=[4],
        saying=["unless `g` has no other members"],
    ),
    flags(
        "warning",
        python(
            COMMON + "for b in data:\n    try:\n        x = work(b)\n        dist.all_reduce(x)\n"
            "    except RuntimeError:\n        continue"
        ),
        lines=[6],
        saying=["a rank that fails in this `try` skips dist.all_reduce (line 5)"],
    ),
    leaves(python(COMMON + "if dist.is_initialized():\n    dist.barrier()")),
    leaves(python(COMMON + "if args.local_rank != -1:\n    dist.barrier()")),
    leaves(python(COMMON + "if dist.get_rank() == 0:\n    print('x')\ndist.barrier()")),
)
