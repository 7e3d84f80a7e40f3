"""Small wreckage for the tests of faults: log lines in, Wreckage out, without the readers."""

from __future__ import annotations

import re

import msgspec

from holdfast import catalogue
from holdfast.analysis.logs.wreckage import Line, RankRemains, Sighting, Wreckage

_RANK = re.compile(r"\[rank(\d+)\]: ?")


def wreckage(*lines: str, world_size: int | None = None, **fields: object) -> Wreckage:
    """`[rank3]: text` belongs to rank 3; every known wording is looked for in every line.

    Further fields of Wreckage (raised, exits, ranks, settings…) are taken as given.
    """
    sightings = []
    for number, raw in enumerate(lines, start=1):
        head = _RANK.match(raw)
        line = Line(
            text=raw[head.end() :] if head else raw,
            source="job.log",
            number=number,
            rank=int(head[1]) if head else None,
        )
        for signature in catalogue.log_patterns():
            found = signature.regex.search(line.text)
            if found and any(anchor in raw for anchor in signature.anchors):
                sightings.append(
                    Sighting(
                        signature=signature.name,
                        slug=signature.slug,
                        role=signature.role,
                        line=line,
                        fields={k: v for k, v in found.groupdict().items() if v is not None},
                        order=number,
                    )
                )
    spoke = {s.rank for s in sightings if s.rank is not None}
    ranks = tuple(
        RankRemains(rank=rank, sightings=tuple(s for s in sightings if s.rank == rank))
        for rank in sorted(spoke)
    )
    made = Wreckage(sightings=tuple(sightings), ranks=ranks, world_size=world_size)
    return msgspec.structs.replace(made, **fields)
