"""Which promises were kept: a table of what can happen to a job, and what must hold for any."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.drill.host_acts import DamageCheckpoint
from holdfast.analysis.drill.injection import Then
from holdfast.analysis.drill.outcome import DrillRow, Happened, Spoken
from holdfast.analysis.drill.records import RankAttempt, StepRecord
from tests.analysis.drill.jobs import Play, digest, number, rank_attempt, ranks

replace = msgspec.structs.replace


def promises(row: DrillRow) -> list[str]:
    return [one.promise for one in row.broken]


# --- all goes well -------------------------------------------------------------------------------


@pytest.mark.parametrize("then", [Then.RESTARTS, Then.ENDS, Then.GOES_ON])
def test_a_perfect_recovery_is_kept(then: Then) -> None:
    row = Play(then=then).row()
    assert (row.status, row.broken, row.unchecked) == ("kept", (), ())
    assert (row.data, row.loss, row.weights) == ("identical", "identical", "identical")
    assert row.repeated == (0 if then is Then.GOES_ON else 5)
    assert row.named == "rank-killed: rank 2"
    assert row.named_right
    assert row.noticed == pytest.approx(0.5)
    assert row.repeats_itself


def test_a_start_that_was_refused_and_then_went_well_is_kept() -> None:
    play = Play(fault=25)
    play.rehearsal = replace(play.rehearsal, at_step=0)
    play.first, play.second = [], ranks(t=50.0)
    play.change_injection(then=Then.REFUSES)
    play.change(starts=(0.0, 49.0), exit_codes=(1, 0), injected=0.0, saved=())
    assert play.row().status == "kept"
    assert play.row().recovered == pytest.approx(51.5)


@st.composite
def plays(draw: st.DrawFn) -> Play:
    steps = draw(st.integers(4, 16))
    fault = draw(st.integers(1, steps - 1))
    saves = draw(st.sets(st.integers(1, steps), min_size=1, max_size=5))
    there = [at for at in saves if at <= fault]
    newest = max(there, default=0)
    resumes = draw(st.integers(newest, fault))  # a script may save on its way out
    then = draw(st.sampled_from([Then.RESTARTS, Then.ENDS, Then.GOES_ON]))
    return Play(
        steps=steps,
        world=draw(st.integers(2, 4)),
        saves=sorted(saves),
        fault=fault,
        resumes=resumes,
        then=then,
        sharded=draw(st.booleans()),
    )


@given(play=plays())
def test_any_perfect_recovery_is_kept(play: Play) -> None:
    row = play.row()
    assert (row.status, row.broken, row.unchecked) == ("kept", (), ())
    again = play.rehearsal.at_step - play.resumes if play.second else 0
    assert row.repeated == again


# --- one thing goes wrong ------------------------------------------------------------------------


def last_attempt(play: Play) -> list[RankAttempt]:
    return play.second or play.first


def change_step(
    attempts: list[RankAttempt], rank: int, at: int, change: Callable[[StepRecord], StepRecord]
) -> None:
    one = attempts[rank]
    steps = list(one.steps)
    steps[at] = change(steps[at])
    attempts[rank] = replace(one, steps=tuple(steps))


CORRUPTIONS: dict[str, Callable[[StepRecord], StepRecord]] = {
    "weights": lambda record: replace(record, weights=digest("another", record.step)),
    "loss": lambda record: replace(record, loss=(record.loss or 0.0) + 1e-7),
    "data": lambda record: replace(record, data=number("another", record.step)),
}


@pytest.mark.parametrize("what", CORRUPTIONS)
@given(play=plays(), draw=st.data())
def test_one_wrong_number_in_any_step_is_never_kept(
    what: str, play: Play, draw: st.DataObject
) -> None:
    """Whichever step of the attempt that finished the job, and whichever rank."""
    attempts = last_attempt(play)
    rank = draw.draw(st.integers(0, len(attempts) - 1))
    at = draw.draw(st.integers(0, len(attempts[rank].steps) - 1))
    change_step(attempts, rank, at, CORRUPTIONS[what])
    row = play.row()
    assert row.status == "broken"
    assert what in promises(row)
    assert getattr(row, what) == "differs"


@pytest.mark.parametrize("what", CORRUPTIONS)
@given(play=plays(), draw=st.data())
def test_one_wrong_number_before_the_fault_is_never_kept(
    what: str, play: Play, draw: st.DataObject
) -> None:
    """All else is bit for bit that of the undisturbed job, so the job repeats its bits."""
    rank = draw.draw(st.integers(0, len(play.first) - 1))
    at = draw.draw(st.integers(0, play.rehearsal.at_step - 1))
    change_step(play.first, rank, at, CORRUPTIONS[what])
    assert play.row().status == "broken"


@given(play=plays(), draw=st.data())
def test_a_number_that_is_missing_is_never_kept(play: Play, draw: st.DataObject) -> None:
    attempts = last_attempt(play)
    rank = draw.draw(st.integers(0, len(attempts) - 1))
    blank: dict[str, object] = draw.draw(
        st.sampled_from([{"weights": ""}, {"loss": None}, {"data": None}])
    )
    after = play.rehearsal.at_step if not play.second else 0
    at = draw.draw(st.integers(after, len(attempts[rank].steps) - 1) if after < len(
        attempts[rank].steps) else st.just(len(attempts[rank].steps) - 1))  # fmt: skip
    change_step(attempts, rank, at, lambda record: replace(record, **blank))
    row = play.row()
    assert row.status == "unproven"
    assert row.unchecked
    assert row.why


@given(play=plays(), early=st.floats(1.5, 5))
def test_a_false_alarm_before_the_fault_is_never_kept(play: Play, early: float) -> None:
    said = replace(play.observed.said[0], t=play.fault_at - early)
    row = play.change(said=(said, *play.observed.said)).row()
    assert row.status == "broken"
    assert promises(row) == ["name"]
    assert "false alarm" in row.broken[0].seen


@given(play=plays(), draw=st.data())
def test_blaming_another_rank_is_never_kept(play: Play, draw: st.DataObject) -> None:
    right = play.observed.said[0]
    other = draw.draw(st.sets(st.integers(0, len(play.first) - 1)).filter(
        lambda ranks: ranks != set(right.ranks)))  # fmt: skip
    wrong = replace(right, ranks=tuple(other), kind="notice", t=right.t + 1)
    row = play.change(said=draw.draw(st.permutations([right, wrong]))).row()
    assert row.status == "broken"
    assert promises(row) == ["name"]
    assert row.named_right is False


@given(play=plays())
def test_another_name_is_never_kept(play: Play) -> None:
    right = play.observed.said[0]
    wrong = replace(right, slug="native-crash", t=right.t + 1)
    assert promises(play.change(said=(right, wrong)).row()) == ["name"]
    assert promises(play.change(said=(wrong,)).row()) == ["name"]


@given(play=plays())
def test_saying_nothing_is_never_kept(play: Play) -> None:
    row = play.change(said=()).row()
    assert promises(row) == ["notice"]
    assert (row.noticed, row.named) == (None, "")


@given(play=plays())
def test_what_is_left_is_never_kept(play: Play) -> None:
    row = play.change(left=("process 4711: python train.py",)).row()
    assert promises(row) == ["clean"]


@given(play=plays(), code=st.sampled_from([1, -9, None]))
def test_a_job_that_does_not_end_well_is_never_kept(play: Play, code: int | None) -> None:
    codes = (*play.observed.exit_codes[:-1], code)
    assert "recover" in promises(play.change(exit_codes=codes).row())


@given(play=plays(), draw=st.data())
def test_a_job_that_stops_before_its_last_step_is_never_kept(
    play: Play, draw: st.DataObject
) -> None:
    attempts = last_attempt(play)
    lacking = draw.draw(st.integers(1, len(attempts[0].steps)))
    for rank, one in enumerate(attempts):
        attempts[rank] = replace(one, steps=one.steps[:-lacking])
    assert promises(play.row()) == ["recover"]


@given(steps=st.integers(6, 16), draw=st.data(), then=st.sampled_from([Then.RESTARTS, Then.ENDS]))
def test_resuming_before_the_newest_checkpoint_is_never_kept(
    steps: int, draw: st.DataObject, then: Then
) -> None:
    fault = draw.draw(st.integers(2, steps - 1))
    newest = draw.draw(st.integers(1, fault))
    resumes = draw.draw(st.integers(0, newest - 1))
    row = Play(steps=steps, fault=fault, saves=[newest], resumes=resumes, then=then).row()
    assert promises(row) == ["repeat"]
    assert (row.broken[0].slug == "restart-from-zero") == (resumes == 0)
    assert row.repeated == fault - resumes
    assert row.broken[0].fix


@given(play=plays())
def test_a_restart_where_none_was_needed_is_never_kept(play: Play) -> None:
    """Or none where one was: each outcome is wrong for each other expectation."""
    wrong = Then.GOES_ON if play.second else Then.RESTARTS
    assert "recover" in promises(play.change_injection(then=wrong).row())


def test_a_run_that_ends_instead_of_restarting() -> None:
    play = Play(then=Then.ENDS).change_injection(then=Then.RESTARTS)
    row = play.row()
    assert promises(row) == ["recover"]
    assert row.broken[0].seen == "the run exited with code 143 instead of restarting the ranks"


def test_ranks_that_were_restarted_before_the_fault() -> None:
    play = Play()
    play.second = [
        *ranks(base=2, until=25, attempt=1, t=4.0),
        *ranks(base=20, attempt=2, t=play.again_at),
    ]
    row = play.row()
    assert "recover" in promises(row)
    assert "before the fault" in row.broken[0].seen


def test_noticed_too_late() -> None:
    play = Play()
    said = replace(play.observed.said[0], t=play.fault_at + 5.5)
    row = play.change(said=(said,)).row()
    assert promises(row) == ["notice"]
    assert row.broken[0].seen == "noticed after 5.5 s, promised within 5 s"


def test_a_fault_that_never_came_is_skipped() -> None:
    row = Play().change(injected=None, said=()).row()
    assert row.status == "skipped"
    assert "never came" in row.why


def test_a_fault_that_never_came_excuses_no_false_alarm_and_no_failure() -> None:
    assert promises(Play().change(injected=None).row()) == ["name"]
    assert promises(Play().change(injected=None, said=(), exit_codes=(1,)).row()) == ["recover"]


def test_fewer_ranks_than_before() -> None:
    play = Play()
    play.second = ranks(world=3, base=20, attempt=1, t=play.again_at)
    row = play.row()
    assert "recover" in promises(row)
    assert row.broken[0].seen == "it went on with 3 ranks instead of 4"


# --- what the script lacks -----------------------------------------------------------------------


def test_a_script_without_resume() -> None:
    row = Play(resumes=0, saves=[]).row()
    (broken,) = row.broken
    assert (broken.promise, broken.slug) == ("repeat", "restart-from-zero")
    assert "holdfast.Checkpoint" in broken.fix
    assert row.repeated == 25


def test_a_script_that_was_kept_from_writing_is_told_so() -> None:
    play = Play(resumes=0, saves=[])
    play.first = [replace(one, refused=("/data/ckpt/last.pt",)) for one in play.first]
    assert "/data/ckpt/last.pt" in play.row().broken[0].fix


def test_a_fault_before_the_first_checkpoint_costs_all_steps() -> None:
    row = Play(resumes=0, saves=[28], fault=25).row()
    assert row.status == "kept"
    assert row.repeated == 25


def test_a_save_that_wrote_over_the_only_copy() -> None:
    play = Play().change_injection(
        cannot_load="checkpoint-not-atomic", fails_without="os.replace it"
    )
    play.second = [
        replace(one, start=None, steps=())
        for attempt in (1, 2, 3)
        for one in ranks(attempt=attempt, t=play.again_at + attempt)
    ]
    row = play.change(exit_codes=(1,)).row()
    (broken,) = row.broken
    assert (broken.promise, broken.slug) == ("recover", "checkpoint-not-atomic")
    assert "no attempt got past loading" in broken.seen
    assert "os.replace" in broken.fix


FLIP = {"act": DamageCheckpoint(how="flip"), "costs_saves": 1}
ONE = (("c/last.pt", 9, 11.1),)


def test_a_damaged_checkpoint_that_was_the_only_one() -> None:
    play = Play(resumes=0).change_injection(**FLIP).change(saved=(), listing=ONE)
    (broken,) = play.row().broken
    assert "only one it had kept" in broken.seen
    assert "two checkpoints" in broken.fix


def test_a_background_save_that_came_too_late_leaves_nothing_to_rehearse() -> None:
    """The fault comes at a step; the saves of the steps before it may still be written."""
    play = Play(resumes=0).change_injection(**FLIP).change(saved=(10,), exit_codes=(1,))
    play.second = [replace(one, start=None, steps=()) for one in play.second]
    row = play.row()
    assert (row.status, row.broken) == ("skipped", ())
    assert row.why == (
        "only the checkpoint of step 10 was there at step 25, and the undisturbed job had more: "
        "there was none to fall back to"
    )
    assert play.change(saved=(10, 20)).row().status == "broken"


def test_a_damaged_checkpoint_costs_one_save() -> None:
    assert Play(resumes=10).change_injection(**FLIP).row().status == "kept"
    assert promises(Play(resumes=0).change_injection(**FLIP).row()) == ["repeat"]


def test_a_damaged_checkpoint_that_was_loaded_unnoticed() -> None:
    """One flipped bit, which torch.load does not see: the weights are almost those of the step."""
    play = Play(resumes=20).change_injection(**FLIP)
    play.second = [
        replace(one, start=replace(one.start, weights="flipped"))
        for one in play.second
        if one.start
    ]
    other_from(play, 1, weights=other_weights, loss=other_loss)
    row = play.row()
    assert promises(row) == ["load", "loss", "weights"]
    assert row.broken[0].slug == "checkpoint-corrupt"
    assert "step 20 was loaded as if it were whole" in row.broken[0].seen
    assert "verify" in row.broken[0].fix
    assert [one.fix for one in row.broken[1:]] == ["", ""], "one cause, said once"


def lost_its_place(play: Play) -> Play:
    """As nanoGPT does, which saves no random numbers: it sees the first batches again, and trains
    otherwise than the undisturbed job, in the same way after every resume."""
    other_from(play, 1, data=lambda step, rank: number("data", step, rank),
               weights=other_weights, loss=other_loss)  # fmt: skip
    return play


def test_a_flipped_bit_is_seen_by_a_resume_without_damage() -> None:
    """It is among the optimizer's moments: the weights that were loaded are right. By the
    undisturbed job it cannot be told, since every resume of this script differs from it."""
    usual = lost_its_place(Play(resumes=20))
    assert promises(usual.row()) == ["data", "loss", "weights"]
    undamaged = usual.traces()

    def damaged() -> Play:
        made = lost_its_place(Play(resumes=20))
        return made.change_injection(**FLIP, told_by_checkpoint=True).change(said=())

    flipped = damaged()
    other_from(flipped, 2, weights=lambda step, _: digest("flipped", step))
    row = flipped.row(undamaged)
    assert promises(row)[0] == "load"
    assert row.broken[0].seen.startswith(
        "the damaged checkpoint of step 20 was loaded as if it were whole: at step 22 the weights "
    )
    assert row.broken[0].seen.endswith("unlike the same resume without damage")
    assert (row.named, row.named_right) == ("", False), "never"

    same = damaged().row(undamaged)
    assert "load" not in promises(same)
    assert "just as without damage" in same.remarks[-1]
    alone = flipped.row()
    assert "load" not in promises(alone)
    assert "whether it loaded the damage cannot be told" in alone.remarks[-1]
    lonely = lost_its_place(Play(resumes=20)).change_injection(**FLIP)
    assert "cannot be told" in lonely.row().remarks[-1]


def test_resumes_that_differ_by_themselves_say_nothing_of_the_damage() -> None:
    one, other = (lost_its_place(Play(resumes=20)) for _ in range(2))
    other_from(other, 1, weights=lambda step, _: digest("another", step))
    flipped = lost_its_place(Play(resumes=20)).change_injection(**FLIP)
    other_from(flipped, 1, weights=lambda step, _: digest("flipped", step))
    assert "load" not in promises(flipped.row([*one.traces(), *other.traces()]))


def test_who_resumes_from_the_checkpoint_before_the_damaged_one_loaded_no_damage() -> None:
    play = lost_its_place(Play(resumes=10)).change_injection(**FLIP)
    row = play.row(lost_its_place(Play(resumes=20)).traces())
    assert "load" not in promises(row)
    assert row.remarks == ()


def test_what_a_script_deals_with_itself_need_not_be_named_but_excuses_no_false_alarm() -> None:
    """The runner was told of no save: it cannot know of what became of one."""
    play = Play(resumes=10).change_injection(costs_saves=1, told_by_checkpoint=True)
    listing = tuple((f"c/step_{at}.pt", 9, 1 + at / 2 + 0.1) for at in (10, 20))
    play.change(saved=(), listing=listing, said=())
    assert play.row().status == "kept"
    early = Spoken(t=2.0, kind="notice", slug="rank-stuck", ranks=(1,))
    assert promises(play.change(said=(early,)).row()) == ["name"]


def other_from(play: Play, first: int, **fields: Callable[[int, int], object]) -> None:
    """From that step of the resumed attempt on, other values in these fields."""
    for rank, one in enumerate(play.second):
        steps = [
            replace(record, **{name: make(record.step, rank) for name, make in fields.items()})
            if record.step >= first
            else record
            for record in one.steps
        ]
        play.second[rank] = replace(one, steps=tuple(steps))


def other_weights(step: int, rank: int) -> str:
    return digest("other", step)


def other_loss(step: int, rank: int) -> float:
    return 1.5 + step / 100 + rank


def test_random_numbers_that_are_not_restored() -> None:
    """Dropout: the very first loss is another one, with the same weights and the same samples."""
    play = Play()
    other_from(play, 1, weights=other_weights, loss=other_loss)
    row = play.row()
    assert promises(row) == ["loss", "weights"]
    assert row.data == "identical"
    assert {one.slug for one in row.broken} == {"checkpoint-lacks-state"}
    assert "RNG state" in row.broken[0].fix
    assert row.broken[0].seen.startswith("after the resume at step 20, at step 21 the loss of rank")


def test_an_optimizer_that_is_not_restored() -> None:
    """The first loss is right, the first update is not."""
    play = Play()
    other_from(play, 1, weights=other_weights)
    other_from(play, 2, loss=other_loss)
    row = play.row()
    assert promises(row) == ["loss", "weights"]
    assert "optimizer" in row.broken[0].fix


def test_weights_that_are_not_those_of_the_step() -> None:
    """Loaded in half precision, say: only the optimizer's count tells the step."""
    play = Play()
    play.second = [
        replace(one, start=replace(one.start, weights="half", values=()))
        for one in play.second
        if one.start
    ]
    other_from(play, 1, weights=other_weights, loss=other_loss, values=lambda step, rank: ())
    row = play.row()
    assert row.repeated == 5
    assert "the weights that were loaded" in row.broken[0].fix


def test_ranks_that_load_different_checkpoints() -> None:
    play = Play(sharded=True)
    play.second[3] = rank_attempt(3, base=10, attempt=1, t=play.again_at, sharded=True)
    row = play.row()
    assert promises(row) == ["weights"]
    assert row.broken[0].slug == "ranks-differ"
    assert row.broken[0].seen.endswith("rank 3 at step 10, ranks 0-2 at step 20")


@pytest.mark.parametrize(
    ("sees", "said"),
    [
        (lambda step: step, "the batches of steps 1-10 come again"),
        (lambda step: step + 15, "the batches of steps 16-25 come again"),
        (lambda step: step + 25, "steps 26-30 come: those of steps 21-25 are skipped"),
        (lambda step: 31 - step, "the same samples come in another order"),
        (lambda step: step + 1000, "other samples come than in the undisturbed job"),
    ],
)
def test_a_data_position_that_is_lost(sees: Callable[[int], int], said: str) -> None:
    play = Play()
    other_from(
        play,
        1,
        data=lambda step, rank: number("data", sees(step), rank),
        weights=other_weights,
        loss=other_loss,
    )
    row = play.row()
    assert promises(row) == ["data", "loss", "weights"]
    assert (row.broken[0].slug, row.data) == ("data-position-lost", "differs")
    assert "sampler or loader" in row.broken[0].fix
    assert "random generator" in row.broken[0].fix
    assert row.broken[0].seen.startswith("after the resume at step 20, from step 21 on")
    assert said in row.broken[0].seen
    assert [one.fix for one in row.broken[1:]] == ["", ""]


# --- what is said --------------------------------------------------------------------------------


def test_other_launchers_are_measured_by_the_same_rows() -> None:
    play = Play()
    play.rehearsal = replace(play.rehearsal, job=replace(play.rehearsal.job, runner="torchrun"))
    line = Spoken(t=play.fault_at + 40, kind="line", ranks=(2,), reason="local_rank: 2 failed")
    row = play.change(said=(line,)).row()
    assert (row.status, row.named_right) == ("kept", True)
    assert row.noticed == pytest.approx(40)
    other = replace(line, ranks=(0,))
    row = play.change(said=(other,)).row()
    assert (row.status, row.named_right, row.named) == ("kept", False, "rank 0")
    row = play.change(said=()).row()
    assert (row.status, row.named_right, row.noticed) == ("kept", False, None)


def test_what_follows_from_the_drill_may_be_said() -> None:
    play = Play()
    more = [Spoken(t=play.fault_at + 2, kind="notice", slug=slug, ranks=(1,))
            for slug in ("cpu-contention", "rank-stuck")]  # fmt: skip
    play.change(said=(*play.observed.said, *more)).change_injection(beside=("rank-stuck",))
    assert play.row().status == "kept"


def test_what_may_be_said_beside_the_name_is_a_wrong_name_when_it_is_alone() -> None:
    play = Play().change_injection(slugs=("rank-frozen",), beside=("rank-stuck",))
    stuck = Spoken(t=play.fault_at + 2.4, kind="notice", slug="rank-stuck", ranks=(2,))
    row = play.change(said=(stuck, replace(stuck, t=play.fault_at + 4.1, kind="verdict"))).row()
    assert promises(row) == ["name"]
    assert row.broken[0].seen == "said rank-stuck: rank 2; it was rank-frozen: rank 2"
    assert row.noticed == pytest.approx(2.4)
    assert row.named == "rank-stuck: rank 2"
    assert row.named_right is False
    right = replace(stuck, t=play.fault_at + 4, slug="rank-frozen")
    assert play.change(said=(stuck, right)).row().status == "kept"
    other = replace(stuck, ranks=(1,))
    assert promises(play.change(said=(other,)).row()) == ["notice"], "it is about another rank"


def test_restart_from_zero_may_be_said_only_where_it_is_true() -> None:
    for resumes, right in ((20, False), (0, True)):
        play = Play(resumes=resumes, saves=[20] if resumes else [])
        more = Spoken(t=play.again_at + 2, kind="notice", slug="restart-from-zero", ranks=())
        row = play.change(said=(*play.observed.said, more)).row()
        assert ("name" not in promises(row)) == right


def test_named_rightly_while_the_fault_was_being_noted() -> None:
    play = Play()
    said = replace(play.observed.said[0], t=play.fault_at - 0.2)
    row = play.change(said=(said,)).row()
    assert (row.status, row.noticed) == ("kept", 0.0)


def test_the_host_may_be_named_instead_of_the_rank() -> None:
    play = Play()
    job = replace(play.rehearsal.job, hosts=("alpha", "bravo"))
    play.rehearsal = replace(play.rehearsal, rank=3, job=job)
    play.change_injection(slugs=("node-lost",), culprits=(), hosts=("bravo",))
    right = Spoken(t=play.fault_at + 1, kind="verdict", slug="node-lost", hosts=("bravo",))
    cases = [
        (right, True),
        (replace(right, ranks=(2, 3)), True),
        (replace(right, ranks=(1, 2)), False),
        (replace(right, hosts=("alpha",)), False),
        (replace(right, hosts=("alpha", "bravo")), False),
        (replace(right, hosts=()), False),
    ]
    for said, is_right in cases:
        assert play.change(said=(said,)).row().named_right == is_right, said


def test_the_timeline_is_in_order_and_says_each_thing_once() -> None:
    play = Play()
    noted = Happened(t=play.fault_at, what="SIGKILL", kind="fault")
    action = Happened(t=play.fault_at + 1, what="restart", kind="action")
    row = play.change(happened=(noted, action)).row()
    assert [one.kind for one in row.timeline] == [
        "start", "step", "fault", "said", "action", "resume", "end",
    ]  # fmt: skip
    assert [len(one.points) for one in row.trained] == [25, 10]
    assert row.trained[1].points[0][1] == 21


def test_a_name_that_blames_no_rank_and_one_that_may_blame_any() -> None:
    play = Play()
    about = Spoken(t=play.fault_at + 1, kind="notice", slug="slow-rank", ranks=())
    play.change_injection(slugs=("slow-rank",), culprits=(2,), blameless=("disk-full",))
    for slug, named, is_right in (
        ("slow-rank", (2,), True),
        ("slow-rank", (1,), False),
        ("slow-rank", (), False),
        ("disk-full", (), True),
        ("disk-full", (1,), False),
    ):
        said = replace(about, slug=slug, ranks=named)
        assert play.change(said=(said,)).row().named_right == is_right, said
    play.change_injection(any_rank=True)
    assert play.change(said=(replace(about, ranks=(1,)),)).row().named_right


def test_a_fault_that_a_small_job_never_meets_proves_nothing() -> None:
    """No packet of that size was sent: the job trained on, and there was nothing to say."""
    play = Play(then=Then.GOES_ON).change(said=()).change_injection(then=Then.RESTARTS)
    assert play.row().status == "broken"
    missed = play.change_injection(may_miss=True).row()
    assert (missed.status, missed.broken) == ("unproven", ())
    assert "did not touch this job" in missed.why
    assert play.change(exit_codes=(1,)).row().status == "broken"
    assert play.change(exit_codes=(0,), left=("process 1: x",)).row().status == "broken"
