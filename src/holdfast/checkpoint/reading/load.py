"""`holdfast.load`: a checkpoint into any model, or as it is. No lock, no process group needed."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from holdfast.checkpoint import object_state
from holdfast.checkpoint.reading import fill
from holdfast.checkpoint.reading.find import opened
from holdfast.checkpoint.reading.saved_state import SavedState, open_state
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


def load(
    path: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    optimizer: Optimizer | None = None,
    rank: int | None = None,
) -> SavedState:
    """Read a checkpoint: for an evaluation beside the training, an export, a look inside.

    Nothing is locked, written, moved or removed, so the job that trains is not disturbed, and
    read-only disks and archives will do. Everything is verified against its digests first. As long
    as the answer is open, no job removes the checkpoint.

    A sharded checkpoint of many ranks loads whole into a plain model in one process, or into a
    sharded model (FSDP2, DTensor) of any number of ranks: then every rank calls this.

    Args:
        path: a checkpoint's folder (`ckpts/step-000001200`), or the folder they are in: then the
            newest that verifies.
        model: an nn.Module to fill. Names and shapes must fit; another dtype is converted.
        optimizer: an optimizer of that model to fill.
        rank: whose part to read of what was saved for each rank (`State(per_rank=…)`). Must be
            given where each rank saved a model or an optimizer of its own.

    Returns:
        What the checkpoint holds: `step`, `epoch`, `config`, `world_size`, `path`, and, read only
        when asked for, `model` (names to tensors), `optimizer`, `extras`, `of_rank(n)`. Use it in
        a `with` block, or `close()` it.

    Raises:
        ConfigError: there is no checkpoint, it does not fit the model, or `rank` is missing.
        EnvironmentFailure: none verifies, or it cannot be read.
    """
    if optimizer is not None and model is None:
        raise ConfigError("optimizer is given without model: give the model it belongs to as well")
    with contextlib.ExitStack() as held:
        found = held.enter_context(opened(os.fspath(path)))
        saved = open_state(found.path, found.manifest, notes=found.notes, rank=rank)
        if model is not None:
            object_state.refuse_unknown("model", model, per_rank=False)
            fill.refuse_other_structure(saved, model, optimizer)
            fill.model_and_optimizer(saved, model, optimizer)
        saved.keep(held.pop_all())
    return saved
