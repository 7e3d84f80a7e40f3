"""Which checkpoints may go, and how: a half-removed one must never look like one.

Only what is older than the checkpoint just committed is ever removed, and never the last few whose
files are all there: those that are not are evidence, and do not count.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable

from holdfast.analysis.checkpoints.manifest import MANIFEST, order_of, step_of_temporary
from holdfast.checkpoint.choose import inspect
from holdfast.checkpoint.files import Files


def retain(
    files: Files, root: str, *, keep: int, keep_every: int | None, newest: str, token: str
) -> str:
    """After a commit of `newest` (a path): remove the rest; '' or why something is still there."""

    def is_whole(name: str) -> bool:
        return not inspect(os.path.join(root, name), files).problem

    try:
        sweep(files, root, spare=token)
        names = files.listdir(root)
        for name in removable(names, os.path.basename(newest), keep, keep_every, is_whole):
            dead = os.path.join(root, f".tmp-{name}-{token}")
            files.rename(os.path.join(root, name), dead)
            # Else a crash could bring the name back over a folder that is half empty.
            files.fsync_folder(root)
            remove_tree(files, dead)
    except OSError as error:
        return f"{error.strerror}: {error.filename}"
    return ""


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


def sweep(files: Files, root: str, *, spare: str = "") -> list[str]:
    """Remove the temporary folders of saves that ended, but for the token `spare`."""
    swept = []
    for name in files.listdir(root) if files.exists(root) else ():
        if step_of_temporary(name) is None or (spare and name.endswith(f"-{spare}")):
            continue
        with contextlib.suppress(OSError):
            remove_tree(files, os.path.join(root, name))
            swept.append(name)
    return swept


def remove_tree(files: Files, path: str) -> None:
    """The manifest first: without it the rest is nothing, whatever the folder is called."""
    names = files.listdir(path)
    for name in sorted(names, key=lambda name: name != MANIFEST):
        with contextlib.suppress(FileNotFoundError):  # swept by another rank as well
            files.remove(os.path.join(path, name))
    with contextlib.suppress(FileNotFoundError):
        files.remove_folder(path)
