"""file:// stores named by the environment: a file left by an earlier run breaks the next."""

from __future__ import annotations

import os
import re
import time
from urllib.parse import urlsplit

from holdfast.analysis.machine import Plan, RendezvousFile
from holdfast.system.holders import holders

_SPEAKS_OF_MEETING = re.compile(r"init|dist|rdzv|rendezvous", re.IGNORECASE)


def read_rendezvous_files(plan: Plan) -> tuple[RendezvousFile, ...]:
    named = {
        variable: path
        for variable, value in plan.environment.items()
        if _SPEAKS_OF_MEETING.search(variable) and (path := store_path(value))
    }
    held = holders(named.values()).pids if named else {}
    return tuple(_read(variable, path, held[path]) for variable, path in named.items())


def store_path(url: str) -> str:
    """The path as torch's file:// handler takes it; '' for any other kind of value."""
    try:
        parts = urlsplit(url)
    except ValueError:  # '//[' looks like a broken IPv6 address to it
        return ""
    return parts.path if parts.scheme == "file" else ""


def _read(variable: str, path: str, held_by: tuple[int, ...]) -> RendezvousFile:
    try:
        seen = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return RendezvousFile(
            variable=variable, path=path, exists=False, size=0, age=0.0, held_by=()
        )
    return RendezvousFile(
        variable=variable,
        path=path,
        exists=True,
        size=seen.st_size,
        age=max(0.0, time.time() - seen.st_mtime),
        held_by=held_by,
    )
