"""torchrun's error.json, which is no log: what it says. Pure."""

from __future__ import annotations

from holdfast.analysis.logs.wreckage import LoggedException, LogLine
from holdfast.analysis.scene.scene import LastWords
from holdfast.analysis.scene.secondary_errors import consequence
from holdfast.explain.read.file_names import FileNameHints
from holdfast.explain.read.tracebacks import ParsedException


def raised(
    told: ParsedException, name: str, named: FileNameHints, *, order: int
) -> LoggedException:
    """What a rank wrote into its error file as it failed."""
    words = LastWords(kind=told.kind, text=told.text, where="", at=0.0)
    line = LogLine(
        text=f"{told.kind}: {told.text.partition(chr(10))[0]}",
        source=name,
        number=1,
        rank=named.rank,
        local_rank=named.local_rank,
    )
    return LoggedException(
        kind=told.kind,
        text=told.text,
        frames=told.frames,
        line=line,
        consequence=consequence(words),
        order=order,
    )
