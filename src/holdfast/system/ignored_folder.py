"""Folders of our own in the user's: git does not see them, as with pytest's cache."""

from __future__ import annotations

import contextlib
import os


def make(folder: str) -> None:
    """Where there is none. One that exists is the user's, and stays as it is."""
    if os.path.isdir(folder):
        return
    os.makedirs(folder, exist_ok=True)
    with (
        contextlib.suppress(OSError),
        open(os.path.join(folder, ".gitignore"), "x", encoding="utf-8") as file,
    ):
        file.write("# made by holdfast\n*\n")
