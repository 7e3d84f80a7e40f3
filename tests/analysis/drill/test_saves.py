"""After which steps a checkpoint was there."""

from __future__ import annotations

import msgspec

from holdfast.analysis.drill import saves
from holdfast.analysis.drill.outcome import Observed
from holdfast.analysis.drill.records import SavingRecord
from tests.analysis.drill.jobs import SECONDS, ranks, undisturbed

replace = msgspec.structs.replace


def after(step: int, later: float = 0.1) -> float:
    """When that step of a job was over, and a little more."""
    return 1 + step * SECONDS + later


def observed(*files: tuple[str, float], saved: tuple[int, ...] = ()) -> Observed:
    listing = tuple((path, 1000, changed) for path, changed in files)
    return Observed(attempts=(), starts=(0.0,), exit_codes=(0,), saved=saved, listing=listing)


def steps(seen: Observed) -> tuple[int, ...]:
    return saves.steps_saved(seen, undisturbed())


def test_as_the_runner_was_told() -> None:
    assert steps(observed(("c/step_5.pt", after(5)), saved=(20, 10))) == (10, 20)


def test_by_the_number_in_the_name() -> None:
    seen = observed(("c/step_10.pt", after(10)), ("c/step_20.pt", after(23)))
    assert steps(seen) == (10, 20)


def test_by_the_time_where_there_is_no_number() -> None:
    """One step less: a save in the background ends after its step."""
    assert steps(observed(("c/last.pt", after(20)))) == (19,)


def test_by_when_the_script_began_to_write_it() -> None:
    """Rank 0 saves after step 20, while rank 1 is not done with it; at 30 others have gone on."""
    saving = (SavingRecord(t=after(20, -0.01), step=20), SavingRecord(t=after(30, -0.2), step=30))
    rank = replace(ranks()[0], saving=saving)
    seen = observed(("c/last.pt", after(20, -0.02)), ("c/last.pt", after(30, 0.1)))
    assert steps(replace(seen, attempts=(rank,))) == (20, 30)
    in_a_thread = observed(("c/last.pt", after(27)))
    assert steps(replace(in_a_thread, attempts=(rank,))) == (26,), "what was begun is another one"


def test_a_number_that_is_no_step_is_not_taken_for_one() -> None:
    """Micro-batches: step 80 of a job of 30 steps."""
    assert steps(observed(("c/step_80.pt", after(20)))) == (19,)
    assert steps(observed(("c/last.pt", after(20)), saved=(80,))) == (19,)


def test_what_was_there_before_the_first_step_is_no_save() -> None:
    assert steps(observed(("pretrained.pt", 0.5))) == ()


def test_what_is_not_finished_is_no_save() -> None:
    assert steps(observed(("c/step_10.pt", after(10)), ("c/step_20.pt.tmp", after(20)))) == (10,)


def test_no_checkpoint_at_all() -> None:
    assert steps(observed()) == ()
