"""Digests of replicas, as ranks report them: what is compared, and what is not."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.run.watch.replica_tracker import MOST_OPEN, ReplicaTracker

NAMES = ("a.weight", "b.weight")
EQUAL = "11111111" + "22222222"


def told(number: int, world: int, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "step": 0, "number": number, "members": f"0+{world}", "ranks": list(range(world)),
        "layout": "l", "parts": list(NAMES), "digest": EQUAL, "device": "H200", "bytes": 1 << 20,
        "gpu": 0.001, "host": 0.002, "usual_step": 0.1,
    }  # fmt: skip
    return fields | more


def a_check(tracker: ReplicaTracker, world: int, **fields: Any) -> list[str]:
    return [tracker.add(number, told(number, world, **fields)) for number in range(world)]


def test_equal_replicas_are_counted_and_the_cost_is_said_once() -> None:
    tracker = ReplicaTracker()
    assert set(a_check(tracker, 4)) == {""}, "how long a step takes is not known yet"
    said = a_check(tracker, 4, step=10)
    assert said[:3] == ["", "", ""]
    assert said[3] == (
        "replicas are compared: a check of 1 MiB takes 1 ms of the GPU and 2 ms of the script, "
        "0.30% of the training time at this interval"
    )
    assert set(a_check(tracker, 4, step=20)) == {""}
    record = tracker.record()
    assert record
    assert (record.checks, record.last_step, record.different) == (3, 20, ())
    assert (record.gpu, record.host, record.share) == (0.001, 0.002, 0.003)
    assert tracker.differences == ()


def test_the_odd_one_is_found_with_the_step_and_the_parameter() -> None:
    tracker = ReplicaTracker(attempt=1)
    a_check(tracker, 4, step=10)
    for number in (3, 1, 2, 0):
        odd = "11111111" + "2222222f"
        digest = odd if number == 2 else EQUAL
        tracker.add(number, told(number, 4, step=20, digest=digest, ranks=[], parts=[], device=""))
    (found,) = tracker.differences
    assert (found.attempt, found.step, found.equal_until) == (1, 20, 10)
    assert found.kinds == ((0, 1, 3), (2,))
    assert found.where == ("b.weight",)
    assert found.devices == dict.fromkeys(range(4), "H200")
    a_check(tracker, 4, step=30)
    assert len(tracker.differences) == 1, "the first is the one to look at"


def test_what_is_missing_or_unlike_blames_no_rank() -> None:
    tracker = ReplicaTracker()
    for step in range(MOST_OPEN + 2):
        for number in (0, 1):
            assert tracker.add(number, told(number, 3, step=step, digest=EQUAL[::-1])) == ""
    assert tracker.checks == 0
    record = tracker.record()
    assert record
    assert record.refused == ("some ranks reported no digest",)

    tracker = ReplicaTracker()
    assert [tracker.add(n, told(n, 2, layout=f"{n}", digest=f"{n}")) for n in (0, 1)][1] == (
        "--verify-replicas: ranks 0-1 not compared at step 0: they hold different parameters"
    )
    assert tracker.differences == ()


def test_a_set_is_compared_for_itself() -> None:
    """HSDP: ranks 0 and 2 hold one shard, ranks 1 and 3 the other."""
    tracker = ReplicaTracker()
    for number in range(4):
        half = [number % 2, number % 2 + 2]
        digest = f"{number % 2}" * 16
        tracker.add(number, told(number, 4, members=str(half), ranks=half, digest=digest))
    assert (tracker.checks, tracker.differences) == (2, ())


def test_two_optimizers_count_for_themselves() -> None:
    tracker = ReplicaTracker()
    for number in range(2):
        for series in range(2):
            tracker.add(number, told(number, 2, series=series, digest=f"{series}" * 16))
    assert (tracker.checks, tracker.differences) == (2, ())


def test_a_reason_why_nothing_is_compared_is_said_once() -> None:
    tracker = ReplicaTracker()
    said = [tracker.refused(rank, "FSDP shards are not replicas") for rank in range(3)]
    assert said == [
        "--verify-replicas: rank 0 cannot be compared: FSDP shards are not replicas", "", ""
    ]  # fmt: skip
    assert ReplicaTracker().record() is None, "nothing was asked for"


@given(st.permutations(range(12)), st.integers(0, 5))
def test_the_order_in_which_digests_come_does_not_matter(order: list[int], odd: int) -> None:
    tracker = ReplicaTracker()
    for place in order:
        number, step = place % 6, place // 6
        differs = step == 1 and number == odd
        digest = EQUAL[::-1] if differs else EQUAL
        tracker.add(number, told(number, 6, step=step, digest=digest))
    (found,) = tracker.differences
    assert tracker.checks == 2
    assert found.step == 1
    assert found.kinds[1:] == ((odd,),)
