"""Small files that are not logs (torchrun's error.json, ncclras): what they say. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.analysis.logs.patterns import nccl
from holdfast.analysis.logs.wreckage import LoggedException, LogLine, Sighting
from holdfast.analysis.scene.scene import LastWords
from holdfast.analysis.scene.secondary_errors import consequence
from holdfast.explain.read.file_names import FileNameHints
from holdfast.explain.read.ras import RasRank
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


def ras(answers: Sequence[RasRank], name: str, *, order: int) -> Iterator[Sighting]:
    """The ranks that ncclras finds something wrong with; a rank number only where it is global."""
    whole = max((one.size for one in answers), default=0)
    for number, one in enumerate(answers, start=1):
        state = _state(one)
        if not state:
            continue
        fields = {"state": state, "host": one.host, "communicator": one.communicator}
        if one.pid is not None:
            fields["pid"] = str(one.pid)
        if one.rank is not None and one.size == whole:
            fields["rank"] = str(one.rank)
        who = f"rank {one.rank} of {one.communicator}" if one.rank is not None else "a process"
        text = f"{who} on {one.host or 'an unknown host'} (pid {one.pid}): {state}"
        yield Sighting(
            pattern=nccl.RAS.name,
            slug="",
            role=nccl.RAS.role,
            line=LogLine(text=text, source=name, number=one.line),
            fields={key: value for key, value in fields.items() if value},
            order=order + number,
        )


def _state(one: RasRank) -> str:
    if one.dead:
        return "considered dead"
    if one.missing:
        return "gave no answer"
    return one.error
