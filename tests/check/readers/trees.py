"""Small trees of /proc and /sys as other machines have them, and real cgroups of this one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from holdfast.analysis.machine import Unread
from holdfast.system import deadline
from holdfast.system.cgroup_tree import find

T = TypeVar("T")


def plant(root: Path, files: Mapping[str, str]) -> str:
    """Write these files below the root; returns the root as a reader wants it."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


def elsewhere(question: Callable[[], object], kind: type[T], *, seconds: float = 30) -> T:
    """The answer of a function that runs in a process of its own, as readers do."""
    answer = deadline.ask({"it": lambda: msgspec.json.encode(question())}, seconds=seconds)["it"]
    assert not isinstance(answer, Unread), answer.why
    return msgspec.json.decode(answer, type=kind)


@contextlib.contextmanager
def a_cgroup(controller: str) -> Iterator[Path]:
    """A v1 cgroup below our own; a process that joins it must have ended when the block ends."""
    needs_root()
    place = find(controller)
    if place is None or place.version != 1:
        pytest.skip(f"needs the {controller} controller of cgroup v1")
    folder = Path(place.folders[0]) / f"holdfast-test-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        _remove(folder)


def join(cgroup: Path) -> None:
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))


def _remove(folder: Path) -> None:
    """Innermost first; the kernel says EBUSY for a moment after the last process has ended."""
    for inner in sorted(p for p in folder.iterdir() if p.is_dir()):
        _remove(inner)
    end = time.monotonic() + 5
    while folder.exists():
        assert time.monotonic() < end, f"{folder} cannot be removed"
        with contextlib.suppress(OSError):
            folder.rmdir()
