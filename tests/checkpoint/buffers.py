"""What was staged, as the writer sees it; and a kernel that has no more memory to give."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from holdfast.checkpoint.staging import StagedState, StagingBuffer


def written(buffer: StagingBuffer, staged: StagedState, folder: Path) -> Path:
    """As the writer does: each piece is a range of the descriptor."""
    for piece in staged.pieces(0, buffer.fd):
        (folder / piece.name).write_bytes(os.pread(piece.fd, piece.size, piece.offset))
    return folder / "rank-0.safetensors"


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """It holds for a memfd, too: the kernel's own EFBIG."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
