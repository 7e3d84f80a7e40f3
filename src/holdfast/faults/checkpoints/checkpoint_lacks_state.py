"""A checkpoint holds the weights but not everything needed to resume.

What you see   After a resume the loss jumps up and takes hundreds of steps to recover; the learning
               rate starts its warm-up again; epochs count from 0. Nothing fails.
Why            A training run is more than its weights: Adam's moments, the position in the
               schedule, the gradient scaler, the step that was reached, the random number
               generators and the position in the data. What is not saved starts over, and the run
               is no longer the same run.
How to be sure `python -c "import torch; print(torch.load('ckpt.pt', map_location='cpu').keys())"`
Fix            Save them together: `{"model": model.state_dict(), "optimizer":
               optimizer.state_dict(), "scheduler": scheduler.state_dict(), "step": step, "rng":
               torch.get_rng_state()}`, and load all of them. `holdfast.State(model, optimizer, …)`
               collects them.
Known limits   Only what is visible in the script is judged: what a function from another module
               puts into the checkpoint, or a dict assembled at run time, is not followed.
Sources        https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html (general
               checkpoint: more than the state_dict of the model)
               https://docs.pytorch.org/docs/stable/notes/randomness.html
               torch 2.13.0: torch/optim/adam.py (exp_avg, exp_avg_sq)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.checkpoints.saving import (
    EXPORTS,
    LOADERS,
    RESUMES,
    SaveCall,
    SavedContent,
    save_calls,
    save_functions,
    saved_content,
)
from holdfast.analysis.source.checkpoints.training_state import (
    TrainingParts,
    bound_to,
    training_parts,
)
from holdfast.analysis.source.program import Call, Program, constant
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD810",
    slug="checkpoint-lacks-state",
    related=("data-position-lost", "restart-from-zero", "config-changed"),
)

OPTIMIZER = re.compile(r"(?i)optim|(?:^|[_.])opts?(?:$|[_.])|(?:^|[_.])trainer")
SCHEDULER = re.compile(r"(?i)sched|(?:^|[_.])lr")
SCALER = re.compile(r"(?i)scaler|amp")
COUNTER = re.compile(r"(?i)epoch|step|iter|round|batch|progress|counter|trained|state$")
RANDOM = re.compile(r"(?i)rng|random|seed|generator")


@FAULT.lint_python
def saved_state_cannot_resume(program: Program, _: Source) -> Iterator[Finding]:
    for save in save_calls(program):
        made = training_parts(program)
        held = saved_content(program, save)
        if not made.optimizers or not _meant_for_resume(program, save, held):
            continue
        if held is not None:
            yield from _lacks(program, save, held, made)
        elif _model_alone(save):
            yield from _only_weights(program, save, made)


def _meant_for_resume(program: Program, save: SaveCall, held: SavedContent | None) -> bool:
    """The file is meant to be resumed from: by its name, or because it holds an optimizer."""
    what = save.call.argument(0, "obj") or save.what
    words = " ".join([save.written, ast.unparse(save.path), ast.unparse(what)])
    if EXPORTS.search(words):
        return False
    functions = " ".join(save_functions(program, save)[:1])
    again = save.repeated or re.search(r"(?i)save", functions)
    whole = held is not None and any(OPTIMIZER.search(name) for name in held.states)
    meant = whole or save.loaded or RESUMES.search(f"{words} {functions}")
    return bool(again and (meant or (held is not None and _read_back(program, held))))


def _read_back(program: Program, held: SavedContent) -> bool:
    """`start = torch.load(args.resume)["epoch"]`: it continues from the count saved here."""
    counts = {key for key in held.keys if COUNTER.search(key)}
    for node in program.parents:
        if isinstance(node, ast.Subscript) and constant(node.slice) in counts:
            made = names(program).follow(node.value)
            if isinstance(made, ast.Call) and program.name_of(made.func) in LOADERS:
                return True
    return False


def _lacks(
    program: Program, save: SaveCall, held: SavedContent, made: TrainingParts
) -> Iterator[Finding]:
    words = (*held.keys, *held.states)
    if not held.states - {name for name in held.states if OPTIMIZER.search(name)}:
        return  # no model in it: it is saved beside others

    def absent(pattern: re.Pattern[str], calls: list[Call]) -> bool:
        names = bound_to(program, calls)
        return bool(calls) and not any(pattern.search(w) or w in names for w in words)

    missing = []
    if made.momentum and absent(OPTIMIZER, made.optimizers):
        missing.append("optimizer")
    if absent(SCHEDULER, made.schedulers):
        missing.append("scheduler")
    lesser = []
    if absent(SCALER, made.scalers):
        lesser.append("GradScaler")
    if save.fixed and not any(COUNTER.search(w) for w in words):
        lesser.append("step or epoch")
    if missing or lesser:
        yield _missing(program, save, missing, lesser)
    elif save.loaded and not any(RANDOM.search(w) for w in words):
        yield _no_random_state(program, save)


EFFECTS = {
    "optimizer": "its moments start at zero and the loss jumps",
    "scheduler": "the learning rate schedule starts over",
    "GradScaler": "the loss scale has to be found again",
    "step or epoch": "the position in the run is unknown",
}


def _missing(program: Program, save: SaveCall, missing: list[str], lesser: list[str]) -> Finding:
    absent = missing + lesser
    listed = " and no ".join([", no ".join(absent[:-1]), absent[-1]] if absent[1:] else absent)
    report = FAULT.warning if missing else FAULT.note
    return report(
        f"the checkpoint `{save.written}` has no {listed}",
        reason="after a resume " + "; ".join(EFFECTS[one] for one in absent) + "; nothing fails",
        fix="save and load it too: "
        + ", ".join(
            '`"step": step`' if one == "step or epoch" else f"`{_entry(one)}`" for one in absent
        ),
        at=program.place(save.call.node),
    )


def _entry(one: str) -> str:
    name = "scaler" if one == "GradScaler" else one
    return f'"{name}": {name}.state_dict()'


def _no_random_state(program: Program, save: SaveCall) -> Finding:
    return FAULT.note(
        f"the checkpoint `{save.written}` has no state of the random number generators",
        reason="a resumed run draws other random numbers (dropout, augmentation, shuffling) than "
        "an uninterrupted one; it trains just as well, but is not reproducible",
        fix='if that matters, save `"rng": torch.get_rng_state()`, '
        "`torch.cuda.get_rng_state_all()`, `numpy.random.get_state()` and `random.getstate()`",
        at=program.place(save.call.node),
    )


def _model_alone(save: SaveCall) -> bool:
    """`torch.save(model.state_dict(), …)`"""
    what = save.what
    return (
        isinstance(what, ast.Call)
        and isinstance(what.func, ast.Attribute)
        and what.func.attr == "state_dict"
        and not OPTIMIZER.search(ast.unparse(what.func.value))
    )


def _only_weights(program: Program, save: SaveCall, made: TrainingParts) -> Iterator[Finding]:
    others = [other for other in save_calls(program) if OPTIMIZER.search(ast.unparse(other.what))]
    if not save.loaded or not save.repeated or not made.momentum or others:
        return
    yield FAULT.warning(
        f"`{save.written}` holds only the weights, and this script resumes from it",
        reason="the optimizer's moments and the step are not saved: after a resume the script "
        "counts from 0 again and the loss jumps; nothing fails",
        fix='save `{"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": '
        "step}`, and load all of it",
        at=program.place(save.call.node),
    )
