"""The .tar.gz that a bundle is: new, whole or not there, the same for the same content."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import ConfigError, EnvironmentFailure


class BundledFile(NamedTuple):
    name: str
    """inside the run's folder"""
    content: bytes
    written: float


class Archive:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self.files = 0
        self.bytes = 0

    def add(self, folder: str, file: BundledFile) -> None:
        entry = tarfile.TarInfo(f"{folder}/{file.name}")
        entry.size = len(file.content)
        entry.mtime = int(file.written)
        self._tar.addfile(entry, io.BytesIO(file.content))
        self.files += 1
        self.bytes += len(file.content)


@contextlib.contextmanager
def new_archive(target: str) -> Iterator[Archive]:
    """`target` must not exist yet; after a failure it does not exist."""
    try:
        # Exclusive: nothing is overwritten, and no link that waits there is followed.
        number = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as problem:
        raise ConfigError(
            f"{target} already exists", hint="give another file: `-o FILE`"
        ) from problem
    except OSError as problem:
        raise EnvironmentFailure(f"cannot write {target}: {problem.strerror}") from problem
    try:
        # No time stamp of the packing itself: the same run gives the same archive.
        with (
            open(number, "wb") as file,
            gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            yield Archive(tar)
    except BaseException as problem:
        with contextlib.suppress(OSError):
            os.unlink(target)
        if isinstance(problem, OSError):
            raise EnvironmentFailure(f"{target}: {problem.strerror or problem}") from problem
        raise
