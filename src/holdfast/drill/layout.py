"""The folder of a drill: one folder for each job, with all that it may write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class JobFolder:
    """`work` is the folder that the job runs in, `tmp` its TMPDIR; the rest is ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / "work"
        self.seen = self.work
        """`work` as the job sees it, from outside: not the same where it has mounts of its own"""
        self.tmp = path / "tmp"
        self.witness = path / "witness"
        self.runs = path / "runs"
        self.screens = path / "screens"
        self.clock_ahead: dict[str, float] = {}
        """seconds by which the wall clock of a host is wrong: times that are read from what was
        written there are corrected by it"""

    def make(self) -> JobFolder:
        for folder in (self.work, self.tmp, self.witness, self.screens):
            folder.mkdir(parents=True)
        return self

    def records(self) -> Iterator[Path]:
        return self.witness.glob("rank-*.jsonl")

    def listing(self) -> tuple[tuple[str, int, float], ...]:
        """Files that the job wrote: path below `work`, bytes, time of the last change. What is
        linked there is the user's."""
        found = []
        for folder, folders, files in os.walk(self.seen):
            folders[:] = [one for one in folders if not os.path.islink(os.path.join(folder, one))]
            for name in files:
                path = Path(folder, name)
                with contextlib.suppress(OSError):  # it was renamed meanwhile
                    if not path.is_symlink():
                        state = path.stat()
                        place = str(path.relative_to(self.seen))
                        found.append((place, state.st_size, state.st_mtime))
        return tuple(sorted(found))

    def order(self, rank: int) -> Path:
        """A rank renames it when it obeys: it is obeyed once, whatever the attempt."""
        return self.witness / f"order-{rank}.json"

    def go(self, rank: int) -> Path:
        return self.witness / f"go-{rank}"

    def screen(self, host: str) -> Path:
        return self.screens / f"{host or 'here'}.txt"
