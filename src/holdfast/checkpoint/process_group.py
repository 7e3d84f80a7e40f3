"""The process group as checkpoints see it: which rank this is, and a store to talk through.

torch is never imported here: where the script has not imported it, there is no group.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

from holdfast.checkpoint.answering_store import AnsweringStore
from holdfast.checkpoint.message_board import KeyValueStore, MemoryStore
from holdfast.errors import ConfigError

_count = itertools.count()


def rank_and_world_size() -> tuple[int, int]:
    """(rank, world size) of the default group; (0, 1) where there is none."""
    if (group := _initialized()) is not None:
        return group.get_rank(), group.get_world_size()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "a Checkpoint was made before the process group",
            hint="call holdfast.init() or init_process_group() first",
        )
    return 0, 1


def data_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """This rank among those that share the data: as given, else as the job has it."""
    if (rank is None) != (world_size is None):
        raise ConfigError("give both rank and world_size, or neither of them")
    if rank is None or world_size is None:
        if (group := _initialized()) is not None:
            rank, world_size = group.get_rank(), group.get_world_size()
        else:
            rank = int(os.environ.get("RANK", "0"))
            world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if not 0 <= rank < world_size:
        raise ConfigError(f"rank {rank} is out of range for world_size {world_size}")
    return rank, world_size


def job_store() -> KeyValueStore:
    """The job's store, under a prefix of this attempt and this Checkpoint.

    Checkpoints are made in the same order on all ranks, so their numbers agree. A connection of
    our own where there can be one: a call that waits would block the others that share it.
    """
    group = _initialized()
    if group is None or group.get_world_size() == 1:
        return MemoryStore()
    c10d = group.distributed_c10d
    default = c10d._get_default_store()  # noqa: SLF001 - no public way to it
    clone = getattr(default, "clone", None)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"holdfast/checkpoint/{attempt}/{next(_count)}"
    return AnsweringStore(c10d.PrefixStore(prefix, clone() if clone else default))


def _initialized() -> Any:
    """torch.distributed with its default group; None where there is none."""
    group = sys.modules.get("torch.distributed")
    return group if group and group.is_available() and group.is_initialized() else None
