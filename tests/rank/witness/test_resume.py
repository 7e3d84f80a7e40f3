"""A job that is broken at its gate and resumed on another number of ranks: where it resumed, and
which samples it saw, follows from the records alone."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.analysis.drill.records import RankAttempt
from tests.places import TARGETS
from tests.rank.witness.jobs import ended, recorded, started

SCRIPT = TARGETS / "witnessed_resume.py"


def samples_of(ranks: list[RankAttempt], step: int) -> int:
    return sum(one.steps[step - 1].data or 0 for one in ranks) % 2**64


def test_broken_at_the_gate_and_resumed_on_fewer_ranks(tmp_path: Path) -> None:
    (tmp_path / "witness").mkdir()
    order = tmp_path / "witness" / "order-1.json"
    order.write_text(json.dumps({"step": 5, "how": "raise", "seconds": 0}))
    (_, _, first), (_, said, code) = ended(started(tmp_path, SCRIPT, "7", ranks=2))
    assert "InjectedFault: injected by holdfast drill after step 5" in said
    assert (first, code) == (1, 1)
    assert not order.exists()
    assert order.with_name("order-1.json.taken").exists()
    ranks = recorded(tmp_path)
    assert [(one.began.rank, one.began.world, len(one.steps)) for one in ranks] == [
        (0, 2, 5),
        (1, 2, 5),
    ], "neither a loader's worker nor a process of the script speaks for its rank"
    assert ranks[1].gate is not None
    assert (ranks[1].gate.step, ranks[1].gate.how, ranks[0].gate) == (5, "raise", None)
    assert {one.steps[4].samples for one in ranks} == {4}
    assert ranks[0].steps[2].weights == ranks[1].steps[2].weights
    assert [[one.step for one in rank.saving] for rank in ranks] == [[3], []]

    ((_, said, code),) = ended(started(tmp_path, SCRIPT, "5", TORCHELASTIC_RESTART_COUNT="1"))
    assert code == 0, said
    again = next(one for one in recorded(tmp_path) if one.began.attempt == 1)
    assert again.start is not None
    assert again.start.weights == ranks[0].steps[2].weights
    assert again.start.optimizer_step == 3
    for step in (4, 5):
        assert samples_of([again], step - 3) == samples_of(ranks, step)
    assert samples_of(ranks, 4) != samples_of(ranks, 5)
