"""One flaw of a script breaks the same promises in every drill: it is said once."""

from __future__ import annotations

from holdfast.analysis.drill.causes import broken_by_cause
from holdfast.analysis.drill.outcome import BrokenPromise, DrillRow

LOST = BrokenPromise(promise="data", seen="again", fix="save it", slug="data-position-lost")
LOSS = BrokenPromise(promise="loss", seen="other")
LOAD = BrokenPromise(promise="load", seen="loaded", fix="verify it", slug="checkpoint-corrupt")
LEFT = BrokenPromise(promise="clean", seen="left behind: x")


def a_row(drill: str, *broken: BrokenPromise, left: tuple[str, ...] = ()) -> DrillRow:
    return DrillRow(drill=drill, does="it", status="broken", broken=broken, left=left)


def test_what_drills_share_is_said_once_after_what_one_has_alone() -> None:
    rows = [
        a_row("killed", LOST, LOSS),
        a_row("stuck", LEFT, LOST, LOSS, left=("x",)),
        a_row("corrupt", LOAD, LOST, LOSS),
    ]
    left, load, shared = broken_by_cause(rows)
    assert [(one.row.drill, one.promises, one.same_in) for one in (left, load)] == [
        ("stuck", (LEFT,), ""),
        ("corrupt", (LOAD,), ""),
    ]
    assert (shared.promises, shared.same_in) == ((LOST, LOSS), "same cause in 3 drills")
    assert [row.drill for row in shared.rows] == ["killed", "stuck", "corrupt"]
    assert (left.left, shared.left) == (["x"], [])


def test_another_cause_or_a_single_drill_stays_by_itself() -> None:
    other = BrokenPromise(promise="loss", seen="other", slug="checkpoint-lacks-state")
    rows = [a_row("killed", LOST, LOSS), a_row("stuck", LOST, other), a_row("frozen", LEFT)]
    assert [(one.row.drill, one.same_in) for one in broken_by_cause(rows)] == [
        ("killed", ""), ("stuck", ""), ("frozen", ""),
    ]  # fmt: skip
    assert [one.promises for one in broken_by_cause(rows)] == [row.broken for row in rows]
