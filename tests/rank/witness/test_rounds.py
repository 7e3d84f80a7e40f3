"""When a step is over: optimizers alone, in turn, one inside another, one that raised."""

from __future__ import annotations

import pytest

from holdfast.rank.witness.rounds import StepRounds

TURNS = {
    "alone": ("A A A A", 4),
    "two take turns": ("A B A B A B", 3),
    "one for each parameter": ("A B C D " * 3, 3),
    "replaced by another": ("A A B B B", 5),
    "one of two now and then": ("D D D G D D D G D", 7),
    "a wrapper and the inner one": ("(W I ) (W I ) (W I )", 3),
    "a wrapper of two": ("(W I J ) (W I J )", 2),
    "nothing": ("", 0),
}


def steps(calls: str) -> int:
    """Of a script: `A` a whole call of an optimizer, `(W … )` one with others inside it."""
    rounds, count = StepRounds(), 0
    opened: list[str] = []
    for word in calls.split():
        if word == ")":
            count += rounds.after(ord(opened[-1]), ord(opened.pop()))
            continue
        name = word.strip("(")
        count += rounds.before(ord(name), ord(name))
        if word.startswith("("):
            opened.append(name)
        else:
            count += rounds.after(ord(name), ord(name))
    return count + rounds.finish()


@pytest.mark.parametrize(("calls", "expected"), TURNS.values(), ids=TURNS)
def test_a_round_is_a_step(calls: str, expected: int) -> None:
    assert steps(calls) == expected


def test_once_a_round_was_seen_the_next_is_over_with_its_last_optimizer() -> None:
    rounds = StepRounds()
    for name in (1, 2):
        assert not rounds.before(name, name)
        assert not rounds.after(name, name)
    assert rounds.before(1, 1), "it comes again: the first round is over"
    assert not rounds.after(1, 1)
    rounds.before(2, 2)
    assert rounds.after(2, 2), "at once"


def test_an_optimizer_that_raised_is_not_taken_for_one_that_is_still_at_work() -> None:
    rounds = StepRounds()
    rounds.before(1, 1)  # and raises
    assert not rounds.before(1, 1)
    assert not rounds.after(1, 1)
    assert rounds.finish()


def test_one_that_is_made_again_for_each_step_is_told_by_its_parameters() -> None:
    rounds = StepRounds()
    over = [(rounds.before(made, 7), rounds.after(made, 7)) for made in range(1, 5)]
    assert over == [(False, False), (True, True), (False, True), (False, True)]
