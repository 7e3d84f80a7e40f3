"""What a job wrote is remembered, also what it wrote over or removed."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.analysis.drill import checkpoints
from holdfast.drill.layout import JobFolder
from holdfast.drill.written_files import WrittenFiles


def write(file: Path, changed: float) -> None:
    file.write_text("state")
    os.utime(file, (changed, changed))


def test_every_state_that_was_seen_counts(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job").make()
    written = WrittenFiles(folder)
    last, kept, removed = (folder.work / name for name in ("last.pt", "step-2.pt", "step-1.pt"))
    write(last, 10)
    write(removed, 10)
    assert {path for path, _, _ in written.listing()} == {"last.pt", "step-1.pt"}
    write(last, 20)
    write(kept, 20)
    removed.unlink()
    listing = written.listing()
    assert listing == (("last.pt", 5, 10), ("last.pt", 5, 20), ("step-1.pt", 5, 10),
                       ("step-2.pt", 5, 20))  # fmt: skip
    found = checkpoints.find(listing)
    assert found
    assert {entry.path: entry.times for entry in found.whole} == {
        "last.pt": [10, 20], "step-1.pt": [10], "step-2.pt": [20],
    }  # fmt: skip


def test_between_two_looks_there_is_a_pause(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job").make()
    written, looks = WrittenFiles(folder), []
    listing = folder.listing
    folder.listing = lambda: looks.append(1) or listing()  # type: ignore[method-assign,func-returns-value]
    for number in range(1000):
        write(folder.work / f"{number}.pt", number)
    written.look()
    written.look()
    assert len(looks) == 1
