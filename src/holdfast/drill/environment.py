"""The environment of a drill's job: the user's, less what an outer launcher had set, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.drill.layout import JobFolder
from holdfast.rank.witness import delivery

OUTER = ("PET_", "TORCHELASTIC_", "HOLDFAST_", "MASTER_", "RANK", "LOCAL_RANK", "WORLD_SIZE",
         "LOCAL_WORLD_SIZE", "GROUP_", "ROLE_")  # fmt: skip
"""how variables begin that place a process in another job"""


def of_job(
    folder: JobFolder, outer: Mapping[str, str], *, writes_to: tuple[str, ...]
) -> dict[str, str]:
    kept = {
        name: value.replace("{folder}", str(folder.work))
        for name, value in outer.items()
        if not name.startswith(OUTER)
    }
    ours = {"PYTHONUNBUFFERED": "1", "TMPDIR": str(folder.tmp)}
    allowed = [Path(one) for one in writes_to]
    return delivery.environment(folder.witness, {**kept, **ours}, writes_to=allowed)
