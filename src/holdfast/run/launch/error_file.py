"""The root cause for whatever started us: TorchX, SageMaker and Ray read it as torchrun leaves it.

They name a file in TORCHELASTIC_ERROR_FILE. torchrun copies the file of the rank that failed first,
which only scripts with torch's `@record` write; where there is none, ours says what was seen.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.findings import Verdict
from holdfast.run.launch.pump import warn

VARIABLE = "TORCHELASTIC_ERROR_FILE"
Document = dict[str, Any]


def document(message: str, *, code: int, wall: float, callstack: str = "") -> Document:
    """As torch.distributed.elastic.multiprocessing.errors writes it."""
    extra = {"py_callstack": callstack, "timestamp": str(int(wall))}
    return {"message": {"message": message, "extraInfo": extra, "errorCode": code}}


def of_failure(
    found: Verdict | None,
    scene: Scene,
    *,
    code: int,
    wall: float,
    file_of: Callable[[int, int], str] | None,
) -> Document:
    """Of the first culprit; `file_of` is where a rank of an attempt writes its own."""
    culprits = [scene.rank(rank) for rank in (found.ranks if found else ())]
    failed = [view for view in scene.ranks if view.death and view.death.code]
    view = next(iter(culprits or failed), None)
    if view is not None and view.death:
        code = view.death.code  # of a signal negative, as torch has it
    own = _read(file_of(scene.attempt, view.rank)) if view and file_of else None
    if own is not None:
        return _with_code(own, code)
    said = found.reason if found else "a rank failed; no rank shows the cause"
    return document(
        _exception(view) or said,
        code=code,
        wall=wall,
        callstack=view.words.where if view and view.words else "",
    )


def _exception(view: RankView | None) -> str:
    if view is None or view.words is None:
        return ""
    return f"{view.words.kind}: {view.words.text}"


def _read(path: str) -> Document | None:
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        found = json.load(file)
        return found if isinstance(found, dict) and "message" in found else None
    return None


def _with_code(own: Document, code: int) -> Document:
    """A rank cannot know how it ended; the old format has no place for it."""
    message = own["message"]
    return {**own, "message": {**message, "errorCode": code}} if isinstance(message, dict) else own


def write(environment: Mapping[str, str], made: Document) -> None:
    """Where it is asked for."""
    path = environment.get(VARIABLE)
    if not path:
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(made, file)
    except OSError as problem:
        warn(f"cannot write {path} ({VARIABLE}): {problem.strerror}")
