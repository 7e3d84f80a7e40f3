"""Real trainings: their steps are counted, and their records say what they did."""

from __future__ import annotations

import json
import sys

import pytest

from holdfast.analysis.drill.records import RankAttempt, StepRecord
from tests.places import TARGETS
from tests.rank.witness.jobs import ended, recorded, started


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> tuple[RankAttempt, list[dict[str, object]]]:
    folder = tmp_path_factory.mktemp("job")
    ((out, err, code),) = ended(started(folder, TARGETS / "witnessed.py"))
    assert code == 0, err
    assert "holdfast>" not in err
    (attempt,) = recorded(folder)
    return attempt, [json.loads(line) for line in out.splitlines()]


def steps_of(shapes: tuple[RankAttempt, list[dict[str, object]]], name: str) -> list[StepRecord]:
    attempt, parts = shapes
    part = next(one for one in parts if one["name"] == name)
    return [one for one in attempt.steps if part["from"] <= one.step <= part["to"]]  # type: ignore[operator]


Shapes = tuple[RankAttempt, list[dict[str, object]]]


def test_every_step_of_every_shape_is_counted_once(shapes: Shapes) -> None:
    attempt, parts = shapes
    assert [one.step for one in attempt.steps] == list(range(1, int(str(parts[-1]["to"])) + 1))
    assert attempt.began.world == 1
    assert attempt.start is not None
    assert attempt.start.weights
    assert attempt.start.optimizer_step == 0


def test_the_samples_are_those_of_the_outermost_module_in_training(shapes: Shapes) -> None:
    """The same batch gives the same sum in every shape, however it was passed."""
    positional = set()
    for part in shapes[1]:
        if "samples" in part:
            found = steps_of(shapes, str(part["name"]))
            assert {one.samples for one in found} == {part["samples"]}, part
            sums = {one.data for one in found}
            assert len(sums) == 1, part
            positional |= sums if part["name"] != "keywords" else set()
    assert len(positional) == 1
    assert positional != {None}
    assert [one.samples for one in steps_of(shapes, "scaler")] == [16, 16], "of a skipped one, too"


def test_the_loss_is_what_backward_was_called_on(shapes: Shapes) -> None:
    told = next(one for one in shapes[1] if one["name"] == "accumulation")
    assert steps_of(shapes, "accumulation")[-1].loss == told["loss"]
    assert all(one.loss is not None for one in shapes[0].steps)
    (nan,) = steps_of(shapes, "not finite")
    assert nan.loss == sys.float_info.max


def test_weights_change_with_every_step(shapes: Shapes) -> None:
    for name in ("accumulation", "keywords", "in backward", "turns", "computed again", "sharded"):
        found = steps_of(shapes, name)
        assert len({one.weights for one in found} - {""}) == len(found), name
        assert all(one.values for one in found), name
