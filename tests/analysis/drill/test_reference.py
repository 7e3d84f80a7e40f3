"""The undisturbed job: what it is good for as a reference."""

from __future__ import annotations

import msgspec

from holdfast.analysis.drill.reference import reference
from tests.analysis.drill.jobs import SECONDS, Play, ranks

replace = msgspec.structs.replace


def test_the_jobs_shape() -> None:
    found = reference(ranks(world=2, until=12))
    job = found.shape(saved_after=[10, 5, 10], hosts=("alpha", "bravo"), patience=4.0)
    assert (job.ranks, job.steps, job.saved_after, job.patience) == (2, 12, (5, 10), 4.0)
    assert [job.host_of(rank) for rank in (0, 1)] == ["alpha", "bravo"]
    assert found.problems == ()
    assert found.seconds_per_step == SECONDS


def test_an_optimizer_that_had_counted_before() -> None:
    """The job begins with what another one trained."""
    whole = [
        replace(one, start=replace(one.start, optimizer_step=100)) for one in ranks() if one.start
    ]
    assert reference(whole).optimizer_start == 100


def test_a_gpu_counts_where_the_ranks_used_it() -> None:
    """CUDA_VISIBLE_DEVICES='' on a machine with GPUs: the driver lists them, no rank has one."""
    used = {"on_gpu": True}
    assert reference(ranks(before=used)).shape().on_gpu
    assert not reference([*ranks(before=used)[:3], *ranks()[3:]]).shape().on_gpu
    assert not reference([]).shape().on_gpu


def test_what_makes_it_of_little_use_is_said() -> None:
    silent = [replace(one, start=None, steps=()) for one in ranks()]
    assert reference([]).problems == ("no rank imported torch",)
    assert reference(silent).problems == ("no optimizer step was seen in any rank",)
    assert reference(ranks()[:3]).problems == ("no optimizer step was seen in rank 3",)
    again = [*ranks(until=5), *ranks(attempt=1, t=60.0)]
    assert reference(again).problems == ("the undisturbed job was restarted",)


def test_a_drill_against_a_poor_reference_is_never_kept() -> None:
    play = Play()
    play.reference = reference(ranks()[:3])
    row = play.row()
    assert row.status == "unproven"
    assert "reference: no optimizer step was seen in rank 3" in row.unchecked
    play.reference = reference([replace(one, start=None, steps=()) for one in ranks()])
    assert play.row().status == "unproven"
