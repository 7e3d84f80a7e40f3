"""What tells this machine from another one with the same name."""

from __future__ import annotations

from pathlib import Path

from holdfast.analysis.machine import Unread

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id(file: Path = BOOT_ID) -> str | Unread:
    """The kernel's id of this boot. Containers of one machine share it; NCCL takes nodes with one
    host name and one boot id for one machine."""
    try:
        return file.read_text().strip() or Unread(why=f"{file} is empty")
    except (OSError, UnicodeDecodeError) as problem:
        return Unread(why=f"{file}: {getattr(problem, 'strerror', None) or problem}")
