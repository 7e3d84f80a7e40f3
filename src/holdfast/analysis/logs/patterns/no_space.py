"""'No space left on device', on a disk or in shared memory."""

from __future__ import annotations

import functools
import re

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import LogPattern
from holdfast.analysis.logs.wreckage import Sighting, Wreckage

_pattern = functools.partial(LogPattern, slug="disk-full")

FULL = _pattern(
    name="disk-full: full",
    pattern=r"(?i:no space left on device)|\[Errno (?:28|122)\](?! inotify)"
    r"|(?i:disk quota exceeded)"
    r"|\(os error (?:28|122)\)|database or disk is full|Not enough disk space\. Needed"
    r"|\bENOSPC\b(?!: System limit)|not enough space on the disk",
    anchors=(
        "o space left on device",
        "isk quota exceeded",
        "[Errno 28]",
        "[Errno 122]",
        "(os error 28)",
        "(os error 122)",
        "database or disk is full",
        "Not enough disk space. Needed",
        "ENOSPC",
        "enough space on the disk",
    ),
    example="OSError: [Errno 28] No space left on device: '/ckpt/step-1200/model.pt'",
)
ALL = (FULL,)

SHARED_MEMORY = re.compile(
    r"\B/dev/shm|</?torch_\d|\bnccl-\w{6}|'/(?:psm|wnsm|mp)[_-]|/sem\.|[Ss]hared memory"
    r"|posix_fallocate"
)
SHARING_CODE = re.compile(
    r"multiprocessing/(?:synchronize|heap|shared_memory|sharedctypes|reductions|managers)\.py"
)
SHARING_CALL = re.compile(r"_share_\w+|_new_shared\w*|share_memory_?|SemLock|reduce_storage")


def in_shared_memory(wreckage: Wreckage, sighting: Sighting) -> bool:
    """Whether /dev/shm was full and not a disk: by the text, or by the code that allocated."""
    if SHARED_MEMORY.search(sighting.line.text):
        return True
    raised = sightings.raised_at(wreckage, sighting)
    return raised is not None and any(
        SHARING_CODE.search(frame.file) or SHARING_CALL.fullmatch(frame.function)
        for frame in raised.frames
    )
