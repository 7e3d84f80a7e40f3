from __future__ import annotations

from typing import Any

from holdfast.analysis.scene.checkpoints import CheckpointAccount, Saved
from holdfast.analysis.scene.numbers import RankNumbers, ReplicaDifference
from holdfast.analysis.scene.scene import Scene
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import a_rank, a_scene

H100 = "NVIDIA H100, torch 2.13.0"


def differing(*kinds: tuple[int, ...], devices: dict[int, str] | None = None, **more: Any) -> Scene:
    ranks = [rank for kind in kinds for rank in kind]
    fields: dict[str, Any] = {
        "attempt": 0, "step": 40, "equal_until": 20, "kinds": kinds, "where": ("fc.weight",),
        "devices": dict.fromkeys(ranks, H100) | (devices or {}),
    }  # fmt: skip
    scene_fields = {name: more.pop(name) for name in ("checkpoints", "attempt") if name in more}
    found = ReplicaDifference(**(fields | more))
    numbers = RankNumbers(differences=(found,))
    return a_scene(
        [a_rank(rank) for rank in range(max(ranks) + 1)], numbers=numbers, **scene_fields
    )


SAVES = CheckpointAccount(
    base=100,
    saves=tuple(
        Saved(attempt=0, step=step, path=f"/c/{step}", bytes=1, stall=0.0, seconds=1.0, at=1.7e9)
        for step in (110, 120, 140)
    ),
)

test_run = run_table(
    "replica-mismatch",
    notices(
        differing((0, 1, 3), (2,)),
        ranks=[2],
        certain=False,
        saying=[
            "rank 2 (pid 4002) holds other parameters than the 3 ranks that agree at step 40",
            "in fc.weight; at step 20 they were equal",
            "dcgmi diag -r 3",
        ],
    ),
    # The job resumed at step 100; the newest checkpoint may hold the wrong values already.
    notices(differing((0, 1), (2,), checkpoints=SAVES), ranks=[2], certain=False,
            saying=["at step 140", "at step 120 they were equal", "resume from /c/120"]),
    notices(differing((0,), (1,)), ranks=[], certain=False,
            saying=["undecided: of two ranks neither has a majority"]),
    notices(differing((0,), (1,), (2,), (3,)), ranks=[], certain=False,
            saying=["no two ranks hold the same", "no_sync()"]),
    notices(differing((0, 1), (2, 3)), ranks=[], certain=False, saying=["no kind has a majority"]),
    notices(differing((0, 1, 2, 3, 4), (5, 6, 7)), ranks=[], certain=False,
            saying=["3 of 8 ranks differ from the rest"]),
    notices(differing((0, 1, 2), (3,), devices={3: "NVIDIA A100"}), ranks=[], certain=False,
            saying=["rank 3 computes on other hardware"]),
    notices(differing((0, 1, 3), (2,), equal_until=None), ranks=[2], certain=False,
            saying=["no earlier check found them equal", "load the same checkpoint"]),
    notices(differing((0, 1, 3), (2,), where=tuple(f"{n}.weight" for n in range(9))), ranks=[2],
            certain=False, saying=["0.weight, 1.weight, 2.weight and 6 more"]),
    overlooks(a_scene()),
    overlooks(differing((0, 1, 3), (2,), attempt=1)),  # it was restarted since
)  # fmt: skip

test_explain = explain_table(
    "replica-mismatch",
    recognises(
        wreckage("[rank3]: AssertionError: Parameter hashes not matching across DP replicas"),
        sure=0.9,
        rank=None,
        saying=["replicas held different parameters"],
    ),
    passes_over(wreckage("[rank0]: >>> Weight hashes match after 100 iterations...")),
)
