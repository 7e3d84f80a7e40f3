"""Small wreckage for the tests of faults: log lines in, Wreckage out, through the real reader."""

from __future__ import annotations

import msgspec

from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.explain.gather import gather_bytes


def wreckage(*lines: str, world_size: int | None = None, **fields: object) -> Wreckage:
    """What `holdfast explain job.log` makes of these lines; `[rank3]: text` belongs to rank 3.

    Further fields of Wreckage (raised, exits, ranks, settings…) are taken as given.
    """
    log = "".join(f"{line}\n" for line in lines)
    read = gather_bytes({"job.log": log.encode()})
    if world_size is not None:
        fields["world_size"] = world_size
    return msgspec.structs.replace(read, **fields)


def traceback(error: str, *frames: str, rank: int | None = None) -> tuple[str, ...]:
    """The lines Python writes for an uncaught exception; a frame is 'train.py:57 main', the
    innermost last."""
    prefix = "" if rank is None else f"[rank{rank}]: "
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        place, _, function = frame.partition(" ")
        file, _, line = place.rpartition(":")
        lines.append(f'  File "{file}", line {line}, in {function}')
    return tuple(prefix + line for line in (*lines, error))
