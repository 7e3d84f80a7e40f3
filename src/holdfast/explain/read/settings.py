"""What the logs show of environment variables and versions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.analysis.logs.patterns import all_patterns, nccl
from holdfast.analysis.logs.wreckage import Sighting

_MORE = re.compile(
    r"(?:^|\s)(?P<name>[A-Z][A-Z0-9]*_[A-Z0-9_]+)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;]+)"
)
"""`A=1 B=2 torchrun …`: several in one line"""


def settings(sightings: Iterable[Sighting]) -> dict[str, str]:
    """The first value of each. Where ranks differ, the faults look at the sightings themselves."""
    found: dict[str, str] = {}
    for seen in sightings:
        if seen.pattern == nccl.ENV_SET.name:
            found.setdefault(seen.fields["name"], seen.fields["value"].strip())
        elif seen.pattern == all_patterns.SETTING.name:
            found.setdefault(seen.fields["name"], seen.fields["value"].strip("\"'"))
            for more in _MORE.finditer(seen.line.text):
                found.setdefault(more["name"], more["value"].strip("\"'"))
    return found


def versions(sightings: Iterable[Sighting]) -> dict[str, str]:
    found: dict[str, str] = {}
    for seen in sightings:
        if seen.pattern == nccl.VERSION.name:
            found.setdefault("nccl", seen.fields["version"])
        if seen.pattern in (nccl.VERSION.name, all_patterns.VERSIONS.name):
            for name in ("torch", "cuda", "driver", "python"):
                if name in seen.fields:
                    found.setdefault(name, seen.fields[name])
    return found
