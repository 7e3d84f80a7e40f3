"""A short name for a folder with a long one: sockets have room for a hundred characters.

A DataLoader's workers make sockets below TMPDIR, and a drill's folders are deep: without this a job
that is healthy anywhere else would hang in a drill.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

PLACE = "/tmp"  # noqa: S108 - the shortest there is; a link with a random name, never followed
PREFIX = "hd-"


@contextlib.contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """A link to that folder, as long as it is needed; the folder itself where none can be made."""
    link = os.path.join(PLACE, f"{PREFIX}{secrets.token_hex(4)}")
    try:
        os.symlink(folder, link)
    except OSError:
        link = ""
    try:
        yield link or str(folder)
    finally:
        if link:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(link)


def remove_links_into(folder: str) -> None:
    """That a drill which was killed had made."""
    for entry in os.scandir(PLACE):
        if entry.name.startswith(PREFIX) and entry.is_symlink():
            with contextlib.suppress(OSError):
                if os.readlink(entry.path).startswith(f"{folder}/"):
                    os.unlink(entry.path)
