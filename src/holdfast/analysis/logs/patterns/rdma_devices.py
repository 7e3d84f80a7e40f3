"""What NCCL prints when it finds no RDMA device or not the network it was told to use."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_pattern = functools.partial(LogPattern, slug="rdma-unused")

NO_DEVICE = _pattern(
    name="rdma-unused: no-device",
    pattern=r"NET/IB ?: No device found|Failed to open libibverbs\.so"
    r"|NET/OFI .*[Nn]o eligible providers",
    anchors=("NET/IB : No device found", "open libibverbs.so", "eligible providers"),
    example="node-a:411:411 [0] NCCL INFO NET/IB : No device found.",
    # Quite usual where there is none.
    role=Role.CONTEXT,
)
NOT_FOUND = _pattern(
    name="rdma-unused: not-found",
    pattern=r"Error: network (?P<network>.*?) not found|Failed to initialize any NET plugin",
    anchors=("Error: network ", "Failed to initialize any NET plugin"),
    example="node-a:411:411 [0] NCCL WARN Error: network IB not found.",
)
