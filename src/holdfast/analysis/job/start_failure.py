"""A script that cannot start: all ranks fail the same way before the first step. Pure.

A wrong flag, a missing module, a syntax error: a restart would fail again at once. What may come
from outside (a download, a full disk, a lost connection) is not among it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from holdfast.analysis.job import join, pace
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import RankView, Scene

TOGETHER = 5.0
"""seconds after the first end in which the other ranks may fail as well: on a busy machine their
imports end seconds apart"""
WORKED = 60.0
"""seconds in its group after which a job without a step may well have worked: not every training
has an optimizer that can be seen"""
ACTIVE = 2.0
"""seconds: a rank that shows no activity for longer is not about to fail"""
BY_PYTHON = (1, 2)
"""exit codes without last words: `sys.exit("…")` and argparse; others are the script's own"""
BY_SHELL = (2, 126, 127)
"""where a rank cannot be seen from within: wrong usage, not executable, not found"""
FROM_OUTSIDE = re.compile(
    r"(?i)OSError|IOError|BlockingIO|Interrupted|Connect|Time_?d?_?out|HTTP|Network|Socket|SSL|URL|"
    r"Remote|Unavailable|Temporary|Dist\w*Error|NCCL|Accelerator|OutOfMemory|MemoryError|"
    r"BrokenPipe|Resume|Environment"
)
"""kinds of exceptions after which the next start may go well"""


class StartFailure(msgspec.Struct, frozen=True, kw_only=True):
    ranks: tuple[int, ...]
    kind: str
    """'ModuleNotFoundError'; '' when there are no last words"""
    text: str
    where: str
    exit_code: int | None
    """of the first rank that has exited"""


def find(scene: Scene) -> StartFailure | None:
    ended = exits.endings(scene)
    if len(ended) < len(scene.ranks) or pace.steps(scene) or not _alike(ended):
        return None
    if any(ended[0].at - claim.at > WORKED for v in scene.ranks if (claim := join.claim_of(v))):
        return None
    if any(e.consequence or e.signal for e in ended) or not _from_the_script(ended):
        return None
    words, codes = ended[0].view.words, [e.view.death.code for e in ended if e.view.death]
    return StartFailure(
        ranks=tuple(sorted(e.rank for e in ended)),
        kind=words.kind if words else "",
        text=words.text if words else "",
        where=words.where if words else "",
        exit_code=codes[0] if codes else None,
    )


def others_may_follow(scene: Scene) -> bool:
    """A rank has failed on its way to the group, and the others have not come further: they may
    be about to fail the same way. None waits for another yet."""
    ended = exits.endings(scene)
    if not ended or len(ended) == len(scene.ranks) or pace.steps(scene):
        return False
    if scene.now - ended[0].at > TOGETHER or any(e.signal or e.consequence for e in ended):
        return False
    gone = {e.rank for e in ended}
    return all(_still_starts(scene, view) for view in scene.ranks if view.rank not in gone)


def _still_starts(scene: Scene, view: RankView) -> bool:
    on_its_way = not (view.death or join.claim_of(view) or join.joined(view))
    return on_its_way and scene.now - view.alive_at <= ACTIVE


def _alike(ended: Sequence[Ending]) -> bool:
    return len({_signature(e) for e in ended}) == 1


def _signature(ending: Ending) -> tuple[object, ...]:
    """Texts may name a rank, a port, a device."""
    view = ending.view
    if view.words:
        return view.words.kind, view.words.where, re.sub(r"\d+", "#", view.words.text)
    return (view.death.code if view.death else None,)


def _from_the_script(ended: Sequence[Ending]) -> bool:
    view = ended[0].view
    if view.words:
        return not FROM_OUTSIDE.search(view.words.kind)
    code = view.death.code if view.death else 0
    return code in (BY_SHELL if view.beat is None else BY_PYTHON)
