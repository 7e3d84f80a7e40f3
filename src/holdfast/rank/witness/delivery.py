"""How the witness gets into the ranks of a drilled job, under any launcher (the drill's side)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = "HOLDFAST_DRILL"
"""where the witness writes; the folder above it is the job's own, which it may write into"""
WRITES = "HOLDFAST_DRILL_WRITES"
"""folders that the script may write into as well, with colons between them"""

SITE = str(Path(__file__).resolve().parent / "site")


def environment(
    folder: Path, outer: Mapping[str, str], *, writes_to: Iterable[Path] = ()
) -> dict[str, str]:
    """`outer`, and what the witness needs; `folder` is where it writes."""
    before = outer.get("PYTHONPATH")
    made = {
        **outer,
        "PYTHONPATH": f"{SITE}{os.pathsep}{before}" if before else SITE,
        FOLDER: str(folder.absolute()),
    }
    if allowed := [str(Path(one).resolve()) for one in writes_to]:
        made[WRITES] = os.pathsep.join(allowed)
    return made
