"""Checkpoints in an object store, or in any place that fsspec can reach.

    there = RemoteFolder("s3://bucket/run-7")
    there.upload("ckpts/step-000001200")         its files, the manifest last
    there.steps()                                names of whole ones, newest first
    there.download("step-000001200", "ckpts")    the same into the folder, its name last
    there.retain(3)

An object appears whole or not at all, so there the manifest does what the rename does on a disk: a
step without one is no checkpoint. What is removed loses its manifest first. Only names that a
manifest of ours lists are ever removed.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.analysis.checkpoints.manifest import (
    MANIFEST,
    FileEntry,
    Manifest,
    decode,
    is_file_name,
    order_of,
    temporary_name,
)
from holdfast.checkpoint.files import DISK, read
from holdfast.checkpoint.reader_lock import hold
from holdfast.errors import ConfigError, EnvironmentFailure

FILES_AT_ONCE = 4
_CHUNK = 16 << 20

Progress = Callable[[int], None]
"""so many bytes more are through"""


def _nothing(_size: int) -> None:
    pass


class RemoteFolder:
    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._root = _reach(self.url)

    # --- what is there -------------------------------------------------------------------------

    def steps(self) -> list[str]:
        """Of checkpoints with a manifest; newest first."""
        with self._naming(self._root):
            self._files.invalidate_cache()
            names = [posixpath.basename(path.rstrip("/")) for path in self._listed(self._root)]
            whole = [
                (order, name)
                for name in names
                if (order := order_of(name)) and self._files.exists(self._path(name, MANIFEST))
            ]
        return [name for _, name in sorted(whole, reverse=True)]

    def manifest(self, name: str) -> Manifest:
        """Raises msgspec.DecodeError for one that is not whole."""
        path = self._path(name, MANIFEST)
        with self._naming(path):
            return decode(self._files.cat_file(path))

    # --- there and back ------------------------------------------------------------------------

    def upload(self, folder: str, progress: Progress = _nothing) -> int:
        """A committed checkpoint of a disk; how many bytes it has. What is there already stays."""
        name = os.path.basename(folder)
        with hold(folder):
            text = read(DISK, os.path.join(folder, MANIFEST))
            entries = decode(text).files
            self._each(lambda entry: self._put(folder, name, entry, progress), entries)
            path = self._path(name, MANIFEST)
            with self._naming(path):
                self._files.pipe_file(path, text)
        return sum(entry.size for entry in entries)

    def download(self, name: str, root: str, progress: Progress = _nothing) -> str:
        """Into `root`, where it gets its name when all is on the disk. Its bytes are not verified
        here: resume() does that."""
        manifest = self.manifest(name)
        temporary = os.path.join(root, temporary_name(manifest.step, "fe7c4ed"))
        DISK.make_folder(temporary)
        odd = [entry.name for entry in manifest.files if not is_file_name(entry.name)]
        if odd:
            raise EnvironmentFailure(f"{self.url}/{name}: its manifest names a file {odd[0]!r:.80}")
        self._each(lambda entry: self._get(name, temporary, entry.name, progress), manifest.files)
        self._get(name, temporary, MANIFEST, progress)
        DISK.fsync_folder(temporary)
        path = os.path.join(root, name)
        DISK.rename(temporary, path)
        DISK.fsync_folder(root)
        return path

    def retain(self, keep: int, keep_every: int | None = None) -> None:
        """The newest `keep`, and the first of every `keep_every` steps."""
        names = self.steps()
        first: dict[int, str] = {}
        for name in reversed(names):
            order = order_of(name)
            if keep_every and order:
                first.setdefault(order[0] // keep_every, name)
        for name in set(names[keep:]) - set(first.values()):
            self._remove(name)

    # --- one file ------------------------------------------------------------------------------

    def _put(self, folder: str, name: str, entry: FileEntry, progress: Progress) -> None:
        path = self._path(name, entry.name)
        with self._naming(path):
            if self._has(path, entry.size):
                return progress(entry.size)
            told = _Told(progress)
            self._files.put_file(os.path.join(folder, entry.name), path, callback=told)
            if not self._has(path, entry.size):
                raise EnvironmentFailure(f"{path} has not the size of what was uploaded")
            return progress(entry.size - told.moved)

    def _get(self, name: str, folder: str, file: str, progress: Progress) -> None:
        path = self._path(name, file)
        with self._naming(path), self._files.open(path, "rb", block_size=_CHUNK) as there:
            here = DISK.create(os.path.join(folder, file))
            try:
                at = 0
                while chunk := there.read(_CHUNK):
                    here.write(memoryview(chunk), at)
                    at += len(chunk)
                    progress(len(chunk))
                here.fsync()
            finally:
                here.close()

    def _has(self, path: str, size: int) -> bool:
        self._files.invalidate_cache(posixpath.dirname(path))
        try:
            return bool(self._files.info(path)["size"] == size)
        except FileNotFoundError:
            return False

    def _remove(self, name: str) -> None:
        with contextlib.suppress(msgspec.DecodeError):
            entries = self.manifest(name).files
            for file in (MANIFEST, *(each.name for each in entries if is_file_name(each.name))):
                path = self._path(name, file)
                with self._naming(path), contextlib.suppress(FileNotFoundError):
                    self._files.rm_file(path)

    def _each(self, do: Callable[[FileEntry], None], entries: tuple[FileEntry, ...]) -> None:
        with ThreadPoolExecutor(FILES_AT_ONCE, "holdfast-remote") as pool:
            for done in [pool.submit(do, entry) for entry in entries]:
                done.result()

    def _listed(self, path: str) -> list[str]:
        try:
            return list(self._files.ls(path, detail=False))
        except FileNotFoundError:
            bucket = self._root.partition("/")[0]
            if bucket and not self._files.exists(bucket):
                raise EnvironmentFailure(f"{self.url}: there is no {bucket}") from None
            return []

    def _path(self, *names: str) -> str:
        return posixpath.join(self._root, *names)

    @contextlib.contextmanager
    def _naming(self, path: str) -> Iterator[None]:
        """Whatever the library of that store raises becomes a sentence."""
        try:
            yield
        except (EnvironmentFailure, msgspec.DecodeError):
            raise
        except Exception as problem:
            raise EnvironmentFailure(
                f"{path} in {urlsplit(self.url).scheme or 'the remote folder'}: "
                f"{type(problem).__name__}: {problem}",
            ) from problem


class _Told:
    """A callback as fsspec wants it; not every store calls it while a file is under way."""

    def __init__(self, progress: Progress) -> None:
        self.moved = 0
        self._progress = progress

    def relative_update(self, size: int = 1) -> None:
        self.moved += size
        self._progress(size)

    def set_size(self, size: int) -> None:
        """Known already."""


def check_url(url: str) -> None:
    """Raises ConfigError where nothing is installed for it; asks no server yet."""
    scheme = urlsplit(url).scheme or "file"
    try:
        import fsspec  # noqa: PLC0415 - an extra, and a tenth of a second

        fsspec.get_filesystem_class(scheme)
    except ImportError as missing:
        raise ConfigError(
            f"{url} cannot be reached: {missing}", hint="pip install 'holdfast[s3]'"
        ) from missing
    except ValueError as unknown:
        raise ConfigError(f"{url} cannot be reached: {unknown}") from unknown


def _reach(url: str) -> tuple[Any, str]:
    check_url(url)
    import fsspec  # noqa: PLC0415 - as above

    return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
