"""After a resume the job does not know which samples it has already seen.

What you see   Nothing breaks. Some samples of the epoch are seen again, others never: a validation
               score that is a little too good, a loss that dips after every restart. With holdfast:
               `… samples would be skipped or seen twice`.
Why            Weights and optimizer were saved, but not the position in the data: a DataLoader
               starts its epoch over. Or the position was saved per rank and the number of ranks has
               changed. Or the data, the seed or the batch size are no longer the same.
How to be sure The manifest of a checkpoint says 'data': 'global' fits any number of ranks,
               'per-rank' only the same number, 'unknown' means that no position was given.
Fix            `holdfast.State(…, data=sampler)` with `holdfast.Sampler(…, global_batch_size=…,
               micro_batch_size=…)`, or torchdata's StatefulDataLoader. If it does not matter that
               some samples are repeated, no action is needed.
Known limits   holdfast knows the position only of loaders that use `holdfast.Sampler` or have a
               `state_dict()`; whether any other loader skips the samples it has seen is not
               visible at run time.
Sources        https://docs.pytorch.org/docs/stable/data.html (DistributedSampler.set_epoch)
               https://meta-pytorch.org/data/main/stateful_dataloader_tutorial.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.job import resume_refused
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.checkpoints import own_calls
from holdfast.analysis.source.checkpoints.drawn_batches import drawn_again
from holdfast.analysis.source.checkpoints.epochs import EpochLoop, epoch_loops
from holdfast.analysis.source.checkpoints.resuming import load_calls
from holdfast.analysis.source.checkpoints.saving import SaveCall, save_calls
from holdfast.analysis.source.checkpoints.training_state import bound_to
from holdfast.analysis.source.program import Call, Program, constant
from holdfast.analysis.source.python.flow import reached
from holdfast.analysis.source.ranks.data_loaders import evaluates, uses_a_trainer
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD808",
    slug="data-position-lost",
    traits=RunTraits(priority=250),
    related=("world-size-mismatch", "config-changed", "checkpoint-lacks-state"),
)


@FAULT.run
def ranks_refused_to_resume(scene: Scene) -> Verdict | None:
    return resume_refused.verdict(FAULT.verdict, scene, FAULT.slug)


@FAULT.run
def no_data_position_was_saved(scene: Scene) -> Verdict | None:
    resumed = [r for r in scene.checkpoints.resumed if r.attempt == scene.attempt and r.step > 0]
    if not resumed or resumed[-1].data != "unknown":
        return None
    last = resumed[-1]
    return FAULT.verdict(
        f"resumed at step {last.step} without a saved data position: a loader that starts its "
        "epoch over repeats samples that were already seen",
        ranks=(),
        certain=False,
        fix="save it: `holdfast.State(…, data=sampler)` with a `holdfast.Sampler`",
        evidence=[Evidence(quote="manifest: data is unknown", source=last.path)],
    )


# --- in what a user wrote -----------------------------------------------------------------------

SAMPLERS = (
    "torch.utils.data.DistributedSampler",
    "torch.utils.data.distributed.DistributedSampler",
)
SKIPS = re.compile(r"(?i)skip|islice|stateful|start_batch|resume_step|batches_done|fast_forward")


@FAULT.lint_python
def epochs_repeat_the_same_order(program: Program, _: Source) -> Iterator[Finding]:
    if "DistributedSampler" not in program.text or uses_a_trainer(program):
        return
    if any(call.method == "set_epoch" for call in program.calls) or "set_epoch" in program.text:
        return
    again = epoch_loops(program)
    for call in program.called(*SAMPLERS):
        shuffle = call.argument(3, "shuffle")
        if again and not call.starred and _shuffles(shuffle) and not evaluates(program, call):
            yield _same_order(program, call, again[0])


def _shuffles(shuffle: object) -> bool:
    """Left to its default (True), or given as True."""
    return shuffle is None or constant(shuffle) is True  # type: ignore[arg-type]


def _same_order(program: Program, call: Call, again: EpochLoop) -> Finding:
    name = next(iter(sorted(bound_to(program, [call]))), "sampler")
    line = again.outer.lineno
    return FAULT.warning(
        "DistributedSampler shuffles, but nothing calls set_epoch(): every epoch has the same "
        "order",
        reason="its shuffle is seeded with seed + epoch, and epoch stays 0: the epoch loop in line "
        f"{line} sees the same batches in every epoch, also after a resume",
        fix=f"call `{name}.set_epoch(epoch)` first in that loop",
        at=program.place(call.node),
    )


@FAULT.lint_python
def resume_restarts_the_epoch(program: Program, _: Source) -> Iterator[Finding]:
    if not save_calls(program) or not load_calls(program) or uses_a_trainer(program):
        return
    if SKIPS.search(program.text):
        return
    again = epoch_loops(program)
    for save in save_calls(program):
        if save.loaded and any(
            _inside(program, save, loop) for one in again for loop in one.batches
        ):
            yield FAULT.note(
                "this checkpoint is saved in the middle of an epoch, and a resume starts the epoch "
                "over",
                reason="nothing here skips the batches already seen or saves the position in the "
                "data: after a resume some samples are seen twice in that epoch",
                fix="use torchdata's StatefulDataLoader, or `holdfast.State(…, data=sampler)` with "
                "a `holdfast.Sampler`; ignore this if repeated samples do not matter",
                at=program.place(save.call.node),
            )


def _inside(program: Program, save: SaveCall, loop: ast.For) -> bool:
    """In the loop over batches itself, or in a function that it calls."""
    if program.inside(save.call, loop):
        return True
    function = program.function_of(save.call.node)
    targets = (program.target(call) for call in program.calls_in(loop))
    return any(one is not None and function in reached(program, one, 1) for one in targets)


@FAULT.lint_python
def drawn_batches_come_again(program: Program, _: Source) -> Iterator[Finding]:
    found = drawn_again(program)
    if found is not None:
        generator = found.draw.name.partition(".")[0]
        state = "torch.get_rng_state()" if generator == "torch" else "numpy.random.get_state()"
        yield FAULT.warning(
            "after a resume the batches of the first steps are drawn again",
            reason=f"{found.draw.written} draws them, from the seed of line "
            f"{found.seed.node.lineno} at every start, and the checkpoint "
            f"`{found.save.written}` does not hold the generator's state",
            fix=f'save `"rng": {state}` in it and set it after the load, or seed with the step '
            "that is resumed from",
            at=program.place(found.draw.node),
        )


@FAULT.lint_python
def sampler_is_not_followed(program: Program, _: Source) -> Iterator[Finding]:
    for loop, sampler, loader in own_calls.loops_without_follow(program):
        yield FAULT.error(
            f"this loop does not follow {sampler}: its data position is unknown",
            reason="a loader asks its sampler for batches long before they are trained on; a save "
            "is refused after a loop that was not followed",
            fix=f"write `for … in {sampler}.follow({loader}):`",
            at=program.place(loop.iter),
        )


@FAULT.lint_python
def steps_are_counted_within_a_batch(program: Program, _: Source) -> Iterator[Finding]:
    for one in own_calls.steps_within_a_batch(program):
        yield FAULT.error(
            f"{one.call.written}() runs after every micro-batch, {one.optimizer.written}() only "
            f"if {one.condition}",
            reason="a step is counted and saved within a global batch: after a resume its first "
            "micro-batches are trained on twice",
            fix=f"call {one.call.written}() right after {one.optimizer.written}(), under the same "
            "condition",
            at=program.place(one.call.node),
        )
