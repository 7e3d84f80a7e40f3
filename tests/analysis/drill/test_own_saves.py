"""Scripts with saves of their own: what nobody can name, and what is said once they fail."""

from __future__ import annotations

import msgspec

from holdfast.analysis.drill.injection import Then
from holdfast.analysis.drill.outcome import Spoken
from holdfast.analysis.drill.records import RankAttempt
from holdfast.analysis.drill.reference import reference
from tests.analysis.drill.jobs import Play, ranks

replace = msgspec.structs.replace


def test_a_script_may_deal_with_its_damaged_checkpoint_in_silence() -> None:
    play = Play().change_injection(told_by_checkpoint=True).change(said=(), saved=())
    row = play.row()
    assert [one.promise for one in row.broken] == []
    assert row.named_right is None


def test_holdfast_has_to_name_what_its_own_checkpoint_met() -> None:
    row = Play().change_injection(told_by_checkpoint=True).change(said=()).row()
    assert [one.promise for one in row.broken] == ["notice"]
    assert row.named_right is False


def test_what_is_said_of_a_script_that_cannot_load_is_not_about_the_fault() -> None:
    play = Play()
    (named,) = play.observed.said
    play.second = [replace(one, start=None, steps=()) for one in play.second]
    later = max(one.began.t for one in play.second) + 1
    raised = Spoken(t=later, kind="verdict", slug="python-exception", ranks=(0, 1, 2, 3))
    row = play.change(said=(named, raised), exit_codes=(1,)).row()
    assert row.named_right
    assert [one.promise for one in row.broken] == ["recover"]
    early = replace(raised, t=named.t + 0.1)  # before it was started again: it is about the fault
    assert not play.change(said=(named, early)).row().named_right


def test_a_script_that_cannot_load_what_was_damaged_was_not_silent() -> None:
    play = Play().change_injection(told_by_checkpoint=True, beside=("rank-killed",), culprits=(),
                                   slugs=("checkpoint-corrupt",), any_rank=True)  # fmt: skip
    killed, later = play.observed.said[0], play.again_at + 1
    play.second = [replace(one, start=None, steps=()) for one in play.second]
    raised = Spoken(t=later, kind="verdict", slug="python-exception", ranks=(0, 1, 2, 3))
    play.change(said=(killed, raised), saved=(), exit_codes=(1,))
    row = play.row()
    assert [one.promise for one in row.broken] == ["recover"]
    assert row.noticed == later - play.fault_at
    assert (row.named, row.named_right) == ("python-exception: ranks 0-3", None)
    by_one = replace(raised, slug="checkpoint-corrupt", ranks=(0,))
    row = play.change(said=(killed, by_one)).row()
    assert (row.named, row.named_right) == ("checkpoint-corrupt: rank 0", True)


def test_a_job_that_is_told_to_stop_may_finish_first() -> None:
    play = Play(then=Then.ENDS)
    play.first = ranks(until=30)
    play.second = [replace(one, start=None, steps=()) for one in play.second]
    assert play.row().broken == ()
    play.first = ranks(until=29)
    assert [one.promise for one in play.row().broken] == ["recover"]


def test_weights_that_never_change_do_not_tell_where_it_resumed() -> None:
    """A tutorial's loss may be 0 throughout, and a plain SGD counts no steps."""

    def unchanging(attempts: list[RankAttempt]) -> list[RankAttempt]:
        return [
            replace(
                one,
                start=one.start and replace(one.start, weights="x", values=(), optimizer_step=0),
                steps=tuple(replace(step, weights="x", values=()) for step in one.steps),
            )
            for one in attempts
        ]

    play = Play()
    play.reference = reference(unchanging(ranks(until=30)))
    play.first, play.second = unchanging(play.first), unchanging(play.second)
    row = play.row()
    assert row.repeated is None
    assert row.status == "unproven"
