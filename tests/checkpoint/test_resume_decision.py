"""What the ranks see decides: a table, and what must hold for any looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.choose import CheckpointProblem
from holdfast.checkpoint.resume_decision import RankLook, confirmers, decide, none_taken

PROBLEMS = {
    "ok": None,
    "missing": CheckpointProblem("rank-1.json is missing", "missing", "rank-1.json"),
    "changed": CheckpointProblem("the bytes of rank-1.json have changed", "changed", "rank-1.json"),
    "unread": CheckpointProblem("cannot be read now: manifest.json: x", "unreadable"),
    "newer": CheckpointProblem("written by a newer holdfast: y", "newer"),
    "absent": None,
}


def looks(words: str) -> list[RankLook]:
    return [
        RankLook(rank=rank, host=f"node{rank}", problem=PROBLEMS[word], absent=word == "absent")
        for rank, word in enumerate(words.split())
    ]


@pytest.mark.parametrize(
    ("seen", "confirming", "in_time", "in_the_end"),
    [
        ("ok", False, "take", "take"),
        ("ok ok ok", False, "take", "take"),
        ("changed", False, "confirm", "confirm"),
        ("ok missing", False, "confirm", "confirm"),
        ("missing ok", False, "confirm", "confirm"),
        ("changed", True, "set-aside", "set-aside"),
        ("missing missing", True, "set-aside", "set-aside"),
        ("missing changed", True, "set-aside", "set-aside"),
        ("ok missing", True, "again", "refuse"),
        ("changed ok", True, "again", "refuse"),
        ("changed changed ok", True, "again", "refuse"),
        ("ok ok", True, "again", "refuse"),
        ("unread", False, "again", "refuse"),
        ("ok unread", False, "again", "refuse"),
        ("changed unread", True, "again", "refuse"),
        ("ok absent", False, "again", "refuse"),
        ("newer", False, "refuse", "refuse"),
        ("newer newer", False, "refuse", "refuse"),
    ],
)
def test_table(seen: str, confirming: bool, in_time: str, in_the_end: str) -> None:
    found = [
        decide("/c/step-9", looks(seen), confirming=confirming, time_is_over=over)
        for over in (False, True)
    ]
    assert [decision.action for decision in found] == [in_time, in_the_end]


def test_a_disagreement_names_both_machines() -> None:
    refused = decide("/c/s", looks("ok missing"), confirming=True, time_is_over=True)
    assert refused.sentence == (
        "/c/s: rank 1 on node1 says: rank-1.json is missing; rank 0 on node0 finds no problem"
    )
    assert "nothing was moved" in refused.hint
    assert "node1" in refused.hint


words = st.lists(st.sampled_from(sorted(PROBLEMS)), min_size=1, max_size=6)


@given(seen=words, confirming=st.booleans(), over=st.booleans())
def test_nothing_is_moved_or_taken_without_cause(
    seen: list[str], confirming: bool, over: bool
) -> None:
    found = decide("p", looks(" ".join(seen)), confirming=confirming, time_is_over=over)
    if found.action == "take":
        assert set(seen) == {"ok"}
    if found.action == "set-aside":
        assert confirming
        assert set(seen) <= {"missing", "changed"}
    if found.action == "again":
        assert not over
    if found.action in ("again", "refuse"):
        assert found.sentence
    if found.action == "refuse":
        assert found.hint


@given(
    seen=words, hosts=st.lists(st.sampled_from(["node0", "node1", "node2"]), min_size=6, max_size=6)
)
def test_damage_is_confirmed_by_rank_0_its_finder_and_another_machine(
    seen: list[str], hosts: list[str]
) -> None:
    by = confirmers(looks(" ".join(seen)), hosts)
    assert 0 in by
    assert len(by) <= 3
    if len(set(hosts)) > 1:
        assert len({hosts[rank] for rank in by}) > 1
    damaged = [rank for rank, word in enumerate(seen) if word in ("missing", "changed")]
    assert not damaged or damaged[0] in by


def test_all_that_cannot_be_used_are_named() -> None:
    one = [("/c/step-1", CheckpointProblem("manifest.json is missing"))]
    assert none_taken("/c", one).startswith(
        "the only checkpoint in /c cannot be used (step-1: manifest.json is missing)"
    )
    assert none_taken("/c", one * 9).startswith("none of the 9 checkpoints in /c can be used (")
    assert "; and 3 more)" in none_taken("/c", one * 9)
