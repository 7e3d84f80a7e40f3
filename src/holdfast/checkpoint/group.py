"""The process group as checkpoints see it: this rank's place, and a store to speak through."""

from __future__ import annotations

import itertools
import os
from typing import cast

import torch.distributed as dist

from holdfast.checkpoint.announce import Memory, Store
from holdfast.errors import ConfigError

_count = itertools.count()


def place() -> tuple[int, int]:
    """(rank, world size); (0, 1) where there is no group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "a Checkpoint was made before the process group",
            hint="call holdfast.init() or init_process_group() first",
        )
    return 0, 1


def store() -> Store:
    """The job's own, under a name of this attempt and this Checkpoint.

    Checkpoints are made in the same order on all ranks, so their numbers agree. A connection of
    our own where there can be one: a call that waits would hold up whoever shares it.
    """
    if place()[1] == 1:
        return Memory()
    default = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way to it
    clone = getattr(default, "clone", None)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"holdfast/checkpoint/{attempt}/{next(_count)}"
    made = dist.distributed_c10d.PrefixStore(prefix, clone() if clone else default)
    return cast("Store", made)
