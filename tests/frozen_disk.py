"""A file system that hangs: an ext4 image of its own, frozen. Writers wait in the kernel."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class FrozenDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._frozen = False

    def freeze(self) -> None:
        subprocess.run(["fsfreeze", "--freeze", self.folder], check=True, timeout=30)
        self._frozen = True

    def thaw(self) -> None:
        if self._frozen:
            subprocess.run(["fsfreeze", "--unfreeze", self.folder], check=True, timeout=30)
            self._frozen = False


class NoDiskError(Exception):
    """None can be mounted here; the sentence says why."""


@contextlib.contextmanager
def disk(tmp_path: Path) -> Iterator[FrozenDisk]:
    """The same for a test, which is skipped where there is none."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(mounted_disk(tmp_path))
        except NoDiskError as problem:
            pytest.skip(str(problem))
        yield made


@contextlib.contextmanager
def mounted_disk(where: Path) -> Iterator[FrozenDisk]:
    """Thawed and unmounted whatever happens: what hangs on it ends then."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("mkfs.ext4", "fsfreeze", "mount"))):
        raise NoDiskError("needs root, mkfs.ext4 and fsfreeze")
    image, folder = where / "disk.img", where / "disk"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True, timeout=60, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, folder], check=False,
                             timeout=60, capture_output=True, text=True)  # fmt: skip
    if mounted.returncode:
        raise NoDiskError(f"no loop device: {mounted.stderr.strip()}")
    made = FrozenDisk(folder)
    try:
        yield made
    finally:
        made.thaw()
        subprocess.run(["umount", "--lazy", folder], check=True, timeout=60)
