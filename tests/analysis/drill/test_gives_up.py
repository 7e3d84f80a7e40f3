"""A failure that recurs: the run restarts once, ends, and trains when it is started again."""

from __future__ import annotations

from holdfast.analysis.drill.injection import Then
from holdfast.analysis.drill.outcome import Spoken
from holdfast.analysis.drill.records import RankAttempt
from tests.analysis.drill.jobs import Play, ranks


def recurring(*, restarts: int = 1, codes: tuple[int | None, ...] = (1, 0)) -> Play:
    play = Play(fault=5, resumes=0)
    play.change_injection(
        then=Then.GIVES_UP, slugs=("restart-loop",), beside=("rank-killed",), notice_within=600.0
    )
    attempts: list[RankAttempt] = []
    for number in range(1, restarts + 1):
        attempts += ranks(until=5, attempt=number, t=play.again_at + 20 * number)
    last = play.again_at + 200
    if len(codes) > 1:
        attempts += ranks(attempt=0, t=last)
    play.second = attempts
    ended = Spoken(t=last - 10, kind="verdict", slug="restart-loop", ranks=(2,))
    starts = (-1.0, last - 1)[: len(codes)]
    return play.change(starts=starts, exit_codes=codes, said=(*play.observed.said, ended))


def test_one_restart_and_an_end_is_what_was_promised() -> None:
    row = recurring().row()
    assert (row.status, row.broken) == ("kept", ())
    assert row.named == "restart-loop: rank 2"
    assert row.recovered is not None
    assert row.recovered > 100  # not the restart that failed again


def test_more_restarts_are_a_loop() -> None:
    row = recurring(restarts=3).row()
    assert [one.promise for one in row.broken] == ["recover"]
    assert "started again 3 times" in row.broken[0].seen


def test_a_run_that_does_not_end_gave_up_nothing() -> None:
    row = recurring(codes=(None,)).row()
    assert "recover" in [one.promise for one in row.broken]
