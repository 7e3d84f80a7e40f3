"""Which notices of a stall are said, and how often."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job.notices import MOST, Notices, place_of
from holdfast.findings import Verdict
from tests.run.scenes import IN_SAVE, NOW, held_up

IN_EVALUATION = ("evaluate",)
SAVING = ("save",)


def a_notice(rank: int = 0, *, slug: str = "rank-stuck", certain: bool = False) -> Verdict:
    return Verdict(
        code="HOLD606", slug=slug, reason="", ranks=(rank,), victims=(1,), certain=certain,
        evidence=(), fix="",
    )  # fmt: skip


def said(notices: Notices, *, lasts: float, since: float, place: tuple[str, ...]) -> list[float]:
    """Seconds into a stall at which it is said; a look every second."""
    looks = [float(second) for second in range(2, int(lasts) + 1)]
    due = [
        second for second in looks if notices.is_due(a_notice(), place, since=since, lasted=second)
    ]
    notices.over()
    return due


def test_early_then_ever_more_rarely() -> None:
    times = said(Notices(), lasts=20_000, since=NOW, place=SAVING)
    assert times == [2, 60, 300, 1800, 3600, 7200, 14400]


def test_what_came_back_by_itself_is_news_only_when_it_takes_clearly_longer() -> None:
    notices = Notices()
    assert said(notices, lasts=4, since=NOW, place=IN_EVALUATION) == [2]
    for number in range(1, 1000):
        since = NOW + 20 * number
        assert said(notices, lasts=4 + number % 2, since=since, place=IN_EVALUATION) == []
    assert said(notices, lasts=9, since=NOW + 1e6, place=IN_EVALUATION) == [8]
    assert said(notices, lasts=4, since=NOW + 2e6, place=SAVING) == [2], "another place is news"


def test_habits_survive_a_restart_and_what_was_said_does_not() -> None:
    notices = Notices()
    said(notices, lasts=10, since=NOW, place=SAVING)
    notices.new_attempt()
    assert said(notices, lasts=10, since=NOW + 50, place=SAVING) == []
    assert notices.is_due_while_steps_continue(NOW, a_notice(slug="slow-rank"))
    assert not notices.is_due_while_steps_continue(NOW + 1000, a_notice(slug="slow-rank"))
    assert notices.is_due_while_steps_continue(NOW + 1801, a_notice(slug="slow-rank"))
    notices.new_attempt()
    assert notices.is_due_while_steps_continue(NOW + 1900, a_notice(slug="slow-rank"))


def test_what_is_certain_is_said_whatever_the_habit() -> None:
    notices = Notices()
    said(notices, lasts=100, since=NOW, place=SAVING)
    certain = a_notice(slug="collective-mismatch", certain=True)
    assert notices.is_due(certain, SAVING, since=NOW + 200, lasted=2)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=300))
def test_ranks_that_are_named_in_turn_do_not_fill_the_screen(ranks: list[int]) -> None:
    notices = Notices()
    due = [
        notices.is_due(a_notice(rank), SAVING, since=NOW, lasted=2 + n / 10)
        for n, rank in enumerate(ranks)
    ]
    assert 1 <= sum(due) <= MOST


def test_a_place_is_who_is_waited_for_and_where() -> None:
    one, other = held_up({2: {"stack": IN_SAVE}}), held_up({2: {}})
    notice = a_notice(2)
    assert place_of(one, notice) == ((2,), "/home/me/ckpt.py", "checkpoint")
    assert place_of(one, notice) != place_of(other, notice)
