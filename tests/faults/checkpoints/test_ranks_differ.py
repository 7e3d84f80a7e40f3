from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.checkpoints.test_world_size_mismatch import REFUSED
from tests.faults.table import explain_table, notices, overlooks, passes_over, recognises, run_table
from tests.run.scenes import a_scene, ended, lost_its_peer, words

DIFFER = words(
    "RanksDiffer",
    "rank 1 has other values than rank 0, and only rank 0's would be saved (model.fc.weight; 3 "
    "more): usual for expert or tensor parallelism with plain modules",
    hint='let each rank save its own: State(…, per_rank=("model", "optimizer"))',
    slugs=("ranks-differ",),
)

test_run = run_table(
    "ranks-differ",
    notices(
        a_scene([ended(0, 1, said=DIFFER), ended(1, 1, said=DIFFER), lost_its_peer(2)]),
        ranks=[0, 1],
        victims=[2],
        certain=True,
        fatal=True,
        saying=["rank 1 has other values", "per_rank="],
    ),
    overlooks(a_scene()),
    overlooks(a_scene([ended(0, 1, said=REFUSED)])),
)

test_explain = explain_table(
    "ranks-differ",
    recognises(
        wreckage(
            "holdfast.errors.RanksDiffer: ranks 1-3 have tensors of other shapes than rank 0, and "
            "only rank 0's would be saved (model.fc.weight: float32 [4, 4] on rank 0, float32 [5, "
            "4] on rank 1): usual for parallelism by hand [ranks-differ]"
        ),
        sure=0.96,
        what="model.fc.weight",
        saying=["ranks 1-3 held tensors of other shapes", "per_rank="],
    ),
    passes_over(wreckage("ranks 1-3 have other values than expected")),
)
