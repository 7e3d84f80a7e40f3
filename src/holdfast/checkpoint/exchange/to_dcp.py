"""A checkpoint as torch.distributed.checkpoint keeps it, written by it, in one process.

    state = {"model": get_model_state_dict(model),
             "optimizer": get_optimizer_state_dict(model, optimizer)}
    torch.distributed.checkpoint.load(state, checkpoint_id=OUT)

The optimizer's state has the names of parameters as keys, as get_optimizer_state_dict gives it.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from holdfast.checkpoint.exchange.new_folder import new_folder
from holdfast.checkpoint.exchange.tensor_stream import Progress
from holdfast.checkpoint.exchange.to_huggingface import Exported, one_of_many
from holdfast.checkpoint.reading.saved_state import SavedState, TensorOnDisk, by_names
from holdfast.errors import EnvironmentFailure

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import MetadataIndex


class _ReadWhenWritten(DefaultSavePlanner):
    """Planned with tensors that have no memory; each is read when its turn to be written comes."""

    def __init__(self, tensors: dict[str, TensorOnDisk], progress: Progress) -> None:
        super().__init__()
        self._tensors, self._progress = tensors, progress

    def lookup_object(self, index: MetadataIndex) -> Any:
        if index.fqn not in self._tensors:
            return super().lookup_object(index)
        self._progress(self._tensors[index.fqn].size)
        return self._tensors[index.fqn].read()


def export(saved: SavedState, target: str, *, progress: Progress = lambda _: None) -> Exported:
    notes: list[str] = []
    nested: dict[str, Any] = {"model": dict(saved.model.on_disk)}
    optimizer = by_names(saved)
    if optimizer is not None:
        nested["optimizer"] = optimizer
        if saved.parameter_groups is None:
            notes.append("the names of the optimizer's parameters were not saved: its state is "
                         "numbered, as in optimizer.state_dict()")  # fmt: skip
    nested |= {"step": saved.step, "epoch": saved.epoch}
    tensors: dict[str, TensorOnDisk] = {}
    planned = _without_memory(nested, tensors, ())
    left_out = [name for name in saved.model if name not in saved.model.on_disk]
    notes += [f"{name} is no tensor: left out" for name in left_out]
    notes += one_of_many(saved)
    with new_folder(target) as folder, warnings.catch_warnings():
        try:
            # A file for each tensor: of a larger one DCP would keep all tensors in memory.
            writer = FileSystemWriter(folder, single_file_per_rank=False)
            warnings.simplefilter("ignore")  # that there is no process group is intended
            save(planned, storage_writer=writer, planner=_ReadWhenWritten(tensors, progress),
                     no_dist=True)  # fmt: skip
        except CheckpointException as failed:
            cause = next(iter(failed.failures.values()), (failed,))[0]
            raise EnvironmentFailure(f"DCP could not write {target}: {cause}") from failed
        names = sorted(os.listdir(folder))
    return Exported(
        path=os.path.abspath(target),
        files=tuple(names),
        tensors=len(tensors),
        bytes=sum(each.size for each in tensors.values()),
        notes=tuple(notes),
    )


def _without_memory(value: Any, found: dict[str, TensorOnDisk], path: tuple[str, ...]) -> Any:
    """The same nest with tensors on the meta device; DCP's own names -> what they stand for."""
    if isinstance(value, TensorOnDisk):
        found[".".join(path)] = value
        return torch.empty(value.shape, dtype=value.dtype, device="meta")
    if isinstance(value, dict):
        return {k: _without_memory(v, found, (*path, str(k))) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_memory(v, found, (*path, str(i))) for i, v in enumerate(value))
    return value
