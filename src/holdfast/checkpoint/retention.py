"""Which checkpoints may go; how is in removal.py.

Only what is older than the checkpoint just committed is ever removed, and never the last few whose
files are all there: those that are not are evidence, and do not count.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from holdfast.analysis.checkpoints.manifest import order_of
from holdfast.checkpoint.choose import Candidate, inspect
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
            lambda name: not _inspect(files, root, name).problem,
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
    spared |= _firsts(older, top, keep_every)
    return [orders[order] for order in reversed(older) if order not in kept | spared]


class Dropped(NamedTuple):
    """A checkpoint that made room for the next one."""

    name: str
    size: int
    """bytes"""


def drop_oldest(
    files: Files,
    root: str,
    *,
    step: int,
    keep_every: int | None,
    freed: int,
    token: str,
    allowed: Collection[int],
) -> Dropped | None:
    """On a full disk, for the save of `step`: what retention would remove next anyway goes first.

    None when that would be the newest whole one, or when `freed` already is as much as that one
    takes: then the disk fills up with something else.
    """
    older = {name for name in _folders(files, root) if (order_of(name) or (step,))[0] < step}
    whole = {name: found for name in older if not (found := _inspect(files, root, name)).problem}
    sizes = {name: _size(found) for name, found in whole.items()}
    for name in droppable(older, sizes, step, keep_every, freed):
        with contextlib.suppress(OSError):
            remove_checkpoint(files, root, name, token, allowed)
            if not files.exists(os.path.join(root, name)):
                return Dropped(name, sizes[name])
    return None


def droppable(
    older: Iterable[str], whole: Mapping[str, int], step: int, keep_every: int | None, freed: int
) -> list[str]:
    """Oldest first; `whole` gives the sizes of those that are. Pure."""
    orders = sorted(order for name in whole if (order := order_of(name)))
    if len(orders) < 2:
        return []
    names = {order_of(name): name for name in whole}
    newest = names[orders[-1]]
    if freed and freed >= whole[newest]:
        return []
    spared = _firsts((order for name in older if (order := order_of(name))), (step, 1), keep_every)
    return [names[order] for order in orders[:-1] if order not in spared]


def _firsts(
    orders: Iterable[tuple[int, int]], newest: tuple[int, int], keep_every: int | None
) -> set[tuple[int, int]]:
    """Of every `keep_every` steps the first: these stay for good."""
    first: dict[int, tuple[int, int]] = {}
    if keep_every:
        for order in sorted({*orders, newest}):
            first.setdefault(order[0] // keep_every, order)
    return set(first.values())


def _folders(files: Files, root: str) -> list[str]:
    """Not the links: what a link leads to is not ours to remove, nor to count on."""
    return [name for name in files.folders(root) if order_of(name)]


def _inspect(files: Files, root: str, name: str) -> Candidate:
    return inspect(os.path.join(root, name), files)


def _size(whole: Candidate) -> int:
    return sum(entry.size for entry in whole.manifest.files) if whole.manifest else 0


def _remove(files: Files, root: str, name: str, token: str, allowed: Collection[int]) -> str:
    try:
        return remove_checkpoint(files, root, name, token, allowed)
    except OSError as error:
        return _why(error)


def _why(error: OSError) -> str:
    return f"{error.strerror}: {error.filename}"
