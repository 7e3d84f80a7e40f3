"""Batches drawn from a generator that starts from the same seed after every resume.

    torch.manual_seed(1337 + rank)
    def get_batch(): ix = torch.randint(len(data) - block, (batch,)); …
    checkpoint = torch.load(…)          weights, optimizer and step, but not the generator

Nothing says which samples come next but the generator: where it is not restored, a resumed run
trains on the batches of its first steps again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.checkpoints.saving import SaveCall, save_calls
from holdfast.analysis.source.checkpoints.training_state import first_backward
from holdfast.analysis.source.program import Call, Program
from holdfast.analysis.source.python.flow import callers
from holdfast.analysis.source.python.name_values import names

DRAWS = ("torch.randint", "torch.randperm", "numpy.random.randint", "numpy.random.choice")
SEEDS = {
    "torch.": ("torch.manual_seed", "torch.random.manual_seed"),
    "numpy.": ("numpy.random.seed",),
}
RESTORED = re.compile(r"(?i)rng_state|set_state|generator|getstate|bit_generator|default_rng|skip")
"""words of a script that keeps its generators, or goes past what it has seen"""
MOVING = re.compile(r"(?i)step|iter|epoch|time|urandom|entropy|resum|start|count")
"""words of a seed that is another one after a resume"""
BATCH = re.compile(r"(?i)batch|sample")


class DrawnBatches(NamedTuple):
    draw: Call
    seed: Call
    save: SaveCall


def drawn_again(program: Program) -> DrawnBatches | None:
    """The draw of a training's batches that begins again with each resume."""
    if RESTORED.search(program.text) or first_backward(program) is None:
        return None
    save = next((one for one in save_calls(program) if one.loaded and one.repeated), None)
    if save is None or not any(call.method == "load_state_dict" for call in program.calls):
        return None
    for draw, seed in _draws(program):
        return DrawnBatches(draw, seed, save)
    return None


def _draws(program: Program) -> Iterator[tuple[Call, Call]]:
    for draw in program.called(*DRAWS):
        kind = draw.name.partition(".")[0] + "."
        seeds = program.called(*SEEDS[kind])
        if len(seeds) == 1 and _fixed(program, seeds[0]) and _of_a_batch(program, draw):
            yield draw, seeds[0]


def _fixed(program: Program, seed: Call) -> bool:
    """Called once, with what does not change between two starts of the job."""
    given = seed.argument(0, "seed")
    if given is None or seed.starred or program.function_of(seed.node) is not None:
        return False
    inner = (names(program).follow(n) for n in ast.walk(given) if isinstance(n, ast.expr))
    words = " ".join([ast.unparse(given), *(ast.unparse(node) for node in inner)])
    return MOVING.search(words) is None and not any(
        isinstance(above, ast.For | ast.While) for above in program.above(seed.node)
    )


def _of_a_batch(program: Program, draw: Call) -> bool:
    """In a function that makes batches, which a loop calls."""
    function = program.function_of(draw.node)
    if function is None or not BATCH.search(function.name):
        return False
    return any(
        isinstance(above, ast.For | ast.While)
        for call in callers(program, function)
        for above in program.above(call.node)
    )
