"""Small files of /sys and /proc; what is not there reads as nothing: kernels and guests differ."""

from __future__ import annotations

import contextlib
import os


def listed(*path: str) -> list[str]:
    """The names in a folder, sorted."""
    try:
        return sorted(os.listdir(os.path.join(*path)))
    except OSError:
        return []


def text(*path: str) -> str:
    with contextlib.suppress(OSError), open(os.path.join(*path), "rb") as file:
        return file.read().decode(errors="replace").strip()
    return ""


def link_name(*path: str) -> str:
    """The last part of what a link points to: a driver, a group."""
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(os.path.join(*path)))
    return ""
