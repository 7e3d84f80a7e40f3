from __future__ import annotations

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import LoggedException, LogLine, Sighting, Wreckage


def seen(text: str, number: int = 1, **where: object) -> Sighting:
    line = LogLine(text=text, source="job.log", number=number, **where)  # type: ignore[arg-type]
    return Sighting(pattern="s", slug="", role=Role.ROOT, line=line)


def test_who_names_ranks_then_hosts() -> None:
    assert sightings.who([seen("a", rank=3)]) == "rank 3"
    assert sightings.who([seen("a", rank=1), seen("b", rank=0), seen("c", rank=1)]) == "ranks 0-1"
    assert sightings.who([seen("a", host="node7")]) == "a process on node7"
    assert sightings.who([seen("a")]) == "a rank"


def test_the_exception_of_a_line_is_found_by_place_or_by_text() -> None:
    line = LogLine(text="OSError: [Errno 28] No space", source="job.log", number=9, rank=1)
    raised = LoggedException(kind="OSError", text="[Errno 28] No space", line=line)
    wreckage = Wreckage(raised=(raised,))
    assert sightings.raised_at(wreckage, seen("OSError", 9, rank=1)) is raised
    assert sightings.raised_at(wreckage, seen("again: [Errno 28] No space", 30, rank=1)) is raised
    assert sightings.raised_at(wreckage, seen("[Errno 28] No space", 30, rank=2)) is None
