"""Which checkpoints may go; how is in removal.py.

Only what is older than the checkpoint just committed is ever removed, and never the last few whose
files are all there: those that are not are evidence, and do not count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable

from holdfast.analysis.checkpoints.manifest import order_of
from holdfast.checkpoint.choose import inspect
from holdfast.checkpoint.files import Files
from holdfast.checkpoint.removal import owners, remove_checkpoint, sweep


def retain(
    files: Files, root: str, *, keep: int, keep_every: int | None, newest: str, token: str
) -> str:
    """After a commit of `newest` (a path): remove the rest; '' or why something is still there."""
    try:
        sweep(files, root, spare=token)
        allowed = owners(files, root, newest)
        gone = removable(
            _folders(files, root),
            os.path.basename(newest),
            keep,
            keep_every,
            lambda name: _is_whole(files, root, name),
        )
    except OSError as error:
        return _why(error)
    notes = (_remove(files, root, name, token, allowed) for name in gone)
    return "; ".join(note for note in notes if note)


def removable(
    names: Iterable[str],
    newest: str,
    keep: int,
    keep_every: int | None,
    is_whole: Callable[[str], bool],
) -> list[str]:
    """Oldest first. A folder whose step was reached again counts as older than the later one."""
    top = order_of(newest)
    assert top, newest
    orders = {order: name for name in names if (order := order_of(name)) and order < top}
    older = sorted(orders, reverse=True)
    kept = {top}
    spared = set()
    for order in older:
        if len(kept) >= max(keep, 1):
            break
        if order[0] in {step for step, _ in kept}:
            continue
        if is_whole(orders[order]):
            kept.add(order)
        else:
            spared.add(order)
    if keep_every:
        first: dict[int, tuple[int, int]] = {}
        for order in [*older[::-1], top]:
            first.setdefault(order[0] // keep_every, order)
        spared |= set(first.values())
    return [orders[order] for order in reversed(older) if order not in kept | spared]


def _folders(files: Files, root: str) -> list[str]:
    """Not the links: what a link leads to is not ours to remove, nor to count on."""
    return [name for name in files.folders(root) if order_of(name)]


def _is_whole(files: Files, root: str, name: str) -> bool:
    return not inspect(os.path.join(root, name), files).problem


def _remove(files: Files, root: str, name: str, token: str, allowed: Collection[int]) -> str:
    try:
        return remove_checkpoint(files, root, name, token, allowed)
    except OSError as error:
        return _why(error)


def _why(error: OSError) -> str:
    return f"{error.strerror}: {error.filename}"
