"""torch could not open a shared memory object: /dev/shm is full, or too many files are open."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern

_pattern = functools.partial(LogPattern, slug="shm-too-small")

OBJECT = _pattern(
    name="shm-too-small: object",
    pattern=r"unable to open shared memory object <(?P<object>[^>]*)>(?: in \S+ mode)?:?\s*$",
    anchors=("unable to open shared memory object",),
    example="RuntimeError: unable to open shared memory object </torch_4711_12> in read-write mode",
)
ALL = (OBJECT,)
