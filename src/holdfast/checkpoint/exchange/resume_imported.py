"""A resume from a checkpoint that was imported: what is in it is restored, the rest starts fresh.

It has no configuration to compare, no data position, no random numbers, and often no optimizer.
Names and shapes of the model must fit; each rank reads all of it, or its shards.
"""

from __future__ import annotations

from holdfast.analysis.checkpoints.manifest import Manifest
from holdfast.checkpoint.reading import fill
from holdfast.checkpoint.reading.saved_state import open_state
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError, ResumeRefused


def restore(path: str, saved: Manifest, state: State) -> list[str]:
    """Returns what was not in it, in sentences."""
    found = open_state(path, saved)
    if state.model is None:
        raise ResumeRefused(f"{path} holds a model, the State has none", slugs=["config-changed"])
    optimizer = state.optimizer if found.optimizer_on_disk is not None else None
    try:
        fill.refuse_other_structure(found, state.model, optimizer)
    except ConfigError as differs:
        raise ResumeRefused(differs.sentence, hint=differs.hint, slugs=["config-changed"]) from None
    fill.model_and_optimizer(found, state.model, optimizer)
    state.step, state.epoch = found.step, found.epoch
    restored = {"model"} | ({"optimizer"} if optimizer is not None else set())
    fresh = sorted(state.names - restored)
    rest = f"; fresh from the script: {', '.join(fresh)}" if fresh else ""
    what = "model and optimizer" if optimizer is not None else "model"
    lost = "data position and random numbers are not in it"
    return [f"imported from {saved.imported}: {what} restored; {lost}{rest}"]
