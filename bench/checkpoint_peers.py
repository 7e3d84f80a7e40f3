"""Other runtimes' own checkpoints of the same state, where they are installed.

torchft has none to compare: its checkpoints go from a living rank to a recovering one, not to a
disk.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import time
from typing import Any

import torch

import holdfast
from bench.checkpoint_ways import Took, Way, device_of, give, plain

_LONGEST = 600.0
"""seconds for a save that never comes to its end"""


def peers(state: holdfast.State) -> dict[str, Way]:
    found = {}
    with contextlib.suppress(ImportError):
        found["DLRover flash checkpoint"] = dlrover(state)
    if device_of(state).type == "cuda":  # it synchronizes with a GPU at every save
        with contextlib.suppress(ImportError):
            found["nvidia-resiliency-ext, async"] = resiliency_extension(state)
    return found


def dlrover(state: holdfast.State) -> Way:
    """To shared memory, and from there to the disk by its own process, which does not sync."""
    module: Any = importlib.import_module("dlrover.trainer.torch.flash_checkpoint.ddp")
    logging.disable(logging.WARNING)
    made: list[Any] = []
    own_folder: list[str] = []
    step = [0]

    def save(place: str) -> Took:
        if not made:
            own_folder.append(f"{place}-dlrover")
            made.append(module.DdpCheckpointer(own_folder[0]))
        os.makedirs(place)
        step[0] += 1
        began = time.monotonic()
        path = f"{place}/all.pt"
        made[0].save_checkpoint(step[0], plain(state), path, storage_type=module.StorageType.DISK)
        stall = time.monotonic() - began
        _wait_for(f"{own_folder[0]}/dlrover_latest.txt", str(step[0]), began)
        return Took(stall, time.monotonic() - began)

    def load(place: str) -> None:
        saved = torch.load(f"{place}/all.pt", map_location=device_of(state), weights_only=True)
        give(state, saved.get("model_states", saved))

    def close() -> None:
        for each in made:
            each._engine.close()  # noqa: SLF001 - it has no other way to end its process

    return Way(save, load, close)


def _wait_for(path: str, text: str, began: float) -> None:
    while time.monotonic() - began < _LONGEST:
        with contextlib.suppress(FileNotFoundError), open(path) as file:
            if file.read().strip() == text:
                return
        time.sleep(0.005)
    raise TimeoutError(path)


def resiliency_extension(state: holdfast.State) -> Way:
    """torch.save in a process of its own; its copy goes into pinned memory."""
    name = "nvidia_resiliency_ext.checkpointing.async_ckpt.torch_ckpt"
    queue: Any = importlib.import_module(name).TorchAsyncCheckpoint()

    def save(place: str) -> Took:
        os.mkdir(place)
        began = time.monotonic()
        queue.async_save(plain(state), f"{place}/all.pt")
        stall = time.monotonic() - began
        queue.finalize_async_save(blocking=True)
        return Took(stall, time.monotonic() - began)

    return Way(save, None, lambda: queue.finalize_async_save(blocking=True, terminate=True))
