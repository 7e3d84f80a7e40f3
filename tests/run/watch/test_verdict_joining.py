"""Ranks that do not find together: which fault is named when several might be."""

from __future__ import annotations

import pytest

from holdfast.analysis.scene.scene import Scene
from holdfast.run.watch.verdict import judge
from tests.faults.joiners import CONNECTING, gave_up, joiner, late, starting
from tests.run.scenes import NOW, a_rank, words

KEYS = "wait timeout after 1800000ms, keys: /default_pg/0//cpu//0/1"
REFUSED = "The client socket has failed to connect to any network address of (127.0.0.1, 29500)."
TIMED_OUT = "The client socket has timed out after 9ms while trying to connect to (127.0.0.1, 1)."
BEYOND = "[enforce fail at gloo/context.cc:23] rank < size. 5 vs 2"
PAIR = "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"
WRONG = "127.0.0.1:29500"
SILENT = {"alive_at": NOW - 9.0}


def said(scene: Scene) -> tuple[str, tuple[int, ...], bool] | None:
    verdict = judge(scene)
    return (verdict.slug, verdict.ranks, verdict.certain) if verdict else None


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        # its exception is no mere python-exception
        (
            starting(joiner(0), gave_up(1, "RuntimeError", BEYOND, rank=5)),
            ("rank-assignment", (1,), True),
        ),
        (
            starting(joiner(0), gave_up(1, "DistNetworkError", REFUSED, store=WRONG)),
            ("master-not-listening", (1,), True),
        ),
        # nobody serves because nobody is number 0: the numbers are the cause
        (
            starting(
                joiner(0, rank=1, store=WRONG),
                gave_up(1, "DistNetworkError", TIMED_OUT, store=WRONG),
            ),
            ("rank-assignment", (0,), True),
        ),
        (starting(gave_up(0, "DistStoreError", KEYS), late(1)), ("join-timeout", (1,), True)),
        (
            starting(a_rank(0), a_rank(1, words=words("DistBackendError", PAIR))),
            ("duplicate-gpu", (0, 1), True),
        ),
        # while they wait
        (starting(joiner(0, view=SILENT), late(1)), ("ranks-missing", (1,), False)),
        (
            starting(joiner(0, at=NOW - 400, timeout=600.0, view=SILENT), late(1)),
            ("join-timeout", (1,), False),
        ),
        (
            starting(
                *(joiner(r, store=WRONG, view={**SILENT, "stack": CONNECTING}) for r in (0, 1))
            ),
            ("master-not-listening", (0, 1), False),
        ),
        # before it is worth a look, nothing is said
        (starting(joiner(0, at=NOW - 400, timeout=600.0), late(1), started_at=NOW - 5), None),
    ],
)
def test_ranks_that_do_not_find_together(
    scene: Scene, expected: tuple[str, tuple[int, ...], bool] | None
) -> None:
    assert said(scene) == expected
