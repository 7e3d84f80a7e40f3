"""What is printed about a rank that others wait for: NCCL's start, and Horovod's stall report."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_PATTERN = functools.partial(LogPattern, slug="rank-stuck")

UNIQUE_ID = _PATTERN(
    name="rank-stuck: unique-id",
    # Misspelt until torch 2.0. Since 2.15 only the key tells: the first rank of the group sets it.
    pattern=r"retr(?:ie|ei)ving ncclUniqueId from \[(?P<owner>\d+)\]"
    r"|wait timeout after \d+ms, keys: \S{0,200}nccl_storekey_\d+$",
    anchors=(
        *("retrieving ncclUniqueId from [", "retreiving ncclUniqueId from ["),
        "nccl_storekey_",
    ),
    example="torch.distributed.DistBackendError: [3] is setting up NCCL communicator and "
    "retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') "
    "got error: Socket Timeout",
    role=Role.CASCADE,
)
HOROVOD_OLD = _PATTERN(
    name="rank-stuck: horovod-stalled",
    pattern=r"\[missing ranks: (?P<ranks>[\d, ]+)\]",
    anchors=("[missing ranks: ",),
    example="DistributedAdam_Allreduce/grads_0 [missing ranks: 2]",
    role=Role.CONFIRMATION,
)
HOROVOD_READY = _PATTERN(
    name="rank-stuck: horovod-ready",
    # Until Horovod 0.16 the report listed the ready ranks, not the missing ones.
    pattern=r"\[ready ranks: (?P<ready>[\d, ]{1,4000})",
    anchors=("[ready ranks: ",),
    example="Stalled ops: allreduce.fc.weight [ready ranks: 0, 1, 3]",
    role=Role.CONFIRMATION,
)

ALL = (
    UNIQUE_ID,
    HOROVOD_OLD,
    HOROVOD_READY,
)
