"""A short-named folder for the ranks' sockets: their names may have 108 bytes at most, and a
run's own folder may lie too deep for that."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile

_NAME = re.compile(r"holdfast-(\d+)-\w+")


def make() -> str:
    """A new one; those of launchers that were killed are removed on this occasion."""
    sweep(tempfile.gettempdir())
    return tempfile.mkdtemp(prefix=f"holdfast-{os.getpid()}-")


def sweep(where: str) -> None:
    """Remove our own folders whose launcher is gone; a pid in use again only delays it."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(where):
            named = _NAME.fullmatch(entry.name)
            if named and not os.path.exists(f"/proc/{named[1]}"):
                ours = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                if ours and entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
