"""Questions about the checkpoints found in a folder, the same for every fault that asks."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import text
from holdfast.analysis.machine.host import CheckpointItem
from holdfast.findings import Evidence

NO_FOLDER = "no checkpoint folder given: add --ckpt DIR"
JUST_WRITTEN = 60.0
"""seconds: what was written more recently may be a save in progress"""


def complete(items: Iterable[CheckpointItem]) -> list[CheckpointItem]:
    """Those that a resume could use, newest first."""
    usable = (item for item in items if not item.problem and item.kind != "temporary")
    return sorted(usable, key=lambda item: item.age)


def evidence(item: CheckpointItem) -> list[Evidence]:
    """'/ckpts/step_9.pt: cut short: … (3 GiB, 10 minutes old)'"""
    what = f"{item.path}: {item.problem}" if item.problem else item.path
    quote = f"{what} ({text.size(item.size)}, {text.duration(item.age)} old)"
    return [Evidence(quote=quote, source=item.path)]
