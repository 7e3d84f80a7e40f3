"""The run's own verdict beside what the logs show."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.logs.wreckage import LiveVerdict, LogLine, RankRemains, Wreckage
from holdfast.explain import live_verdict
from holdfast.findings import Culprit, Diagnosis


def told(slug: str, *, verdict: bool = True, ranks: tuple[int, ...] = (2,)) -> LiveVerdict:
    line = LogLine(text=f"it was {slug}", source="journal.jsonl", number=7)
    return LiveVerdict(
        code="HOLD600", slug=slug, ranks=ranks, victims=(0,), reason=f"it was {slug}",
        verdict=verdict, line=line,
    )  # fmt: skip


def answer(slug: str, confidence: float, rank: int | None = 2) -> Diagnosis:
    return Diagnosis(
        code="HOLD601",
        slug=slug,
        confidence=confidence,
        culprit=Culprit(rank=rank),
        reason=slug,
    )


def order(wreckage: Wreckage, *answers: Diagnosis) -> list[str]:
    weighed = live_verdict.weigh(wreckage, answers)
    return [one.slug for one in sorted(weighed, key=lambda one: -one.confidence)]


@pytest.mark.parametrize(
    ("said", "answers", "first"),
    [
        ([told("rank-frozen")], [answer("rank-killed", 0.75)], "rank-frozen"),
        # A log pattern of a fault is the better name for 'it raised'…
        ([told("python-exception")], [answer("gpu-oom", 0.95)], "gpu-oom"),
        # …but not when it stands in the log of another rank, or is only a guess.
        ([told("python-exception")], [answer("gpu-oom", 0.95, rank=1)], "python-exception"),
        ([told("python-exception")], [answer("gpu-oom", 0.6)], "python-exception"),
        # A special verdict is not overruled.
        ([told("collective-mismatch")], [answer("gpu-oom", 0.95)], "collective-mismatch"),
        # The last verdict counts, whatever was noticed before or after.
        (
            [
                told("slow-rank", verdict=False),
                told("rank-killed"),
                told("rank-stuck", verdict=False),
            ],
            [],
            "rank-killed",
        ),
        ([told("slow-rank", verdict=False)], [answer("gpu-oom", 0.95)], "gpu-oom"),
    ],
)
def test_who_leads(said: list[LiveVerdict], answers: list[Diagnosis], first: str) -> None:
    assert order(Wreckage(live_verdicts=tuple(said)), *answers)[0] == first


def test_without_a_run_folder_nothing_changes() -> None:
    answers = [answer("gpu-oom", 0.9), answer("rank-killed", 0.3)]
    assert live_verdict.weigh(Wreckage(), answers) == answers


def test_the_culprit_is_found_among_the_ranks() -> None:
    rank = RankRemains(rank=2, host="node7", pid=4711)
    (found,) = live_verdict.weigh(Wreckage(live_verdicts=(told("rank-frozen"),), ranks=(rank,)), [])
    assert found.culprit == Culprit(rank=2, host="node7", pid=4711)
    assert (found.victims, found.evidence[0].line) == ((0,), 7)


@pytest.mark.parametrize(
    ("slug", "ranks", "hosts", "culprit"),
    [
        ("node-lost", (4, 5), ("c",), Culprit(host="c", what="c")),
        ("network-partition", (4, 5), ("c", "d"), Culprit(what="c and d")),
        ("peer-unreachable", (), ("b", "c"), Culprit(what="path between b and c")),
        ("rank-frozen", (2,), ("c",), Culprit(rank=2)),
        ("cpu-contention", (), ("c",), None),
    ],
)
def test_the_culprit_is_a_node_a_path_or_a_rank(
    slug: str, ranks: tuple[int, ...], hosts: tuple[str, ...], culprit: Culprit | None
) -> None:
    said = msgspec.structs.replace(told(slug, ranks=ranks), hosts=hosts)
    (opinion,) = live_verdict.weigh(Wreckage(live_verdicts=(said,)), [])
    assert opinion.culprit == culprit
