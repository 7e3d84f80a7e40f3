"""One archive of a run for a colleague: what we wrote, without secrets, and not too large."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from holdfast.analysis.job.run_paths import SECRET_VALUES, RunPaths, is_ours
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.run.runs import redact
from holdfast.text import size

LARGEST_FILE = 8 << 20
"""bytes kept of one file: its first quarter, where things start, and its end, where they fail"""
LARGEST_BUNDLE = 64 << 20
CONTENTS = "BUNDLE.txt"


class Bundle(NamedTuple):
    path: str
    files: int
    notes: tuple[str, ...]
    """what was cut or left out, and why; also in the archive as BUNDLE.txt"""


def write(paths: RunPaths, target: str, *, environment: Mapping[str, str]) -> Bundle:
    """Pack the run into `target` (.tar.gz), which must not exist yet.

    What a variable with a secret's name holds, in the run or in `environment`, is struck out
    wherever it appears.
    """
    values = redact.longest_first({*redact.values_of(environment), *_of_the_run(paths)})
    notes: list[str] = []
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
        with open(number, "wb") as file:
            files = _pack(paths, file, values, notes)
    except BaseException as problem:
        with contextlib.suppress(OSError):
            os.unlink(target)
        if isinstance(problem, OSError):
            raise EnvironmentFailure(f"{target}: {problem.strerror or problem}") from problem
        raise
    return Bundle(target, files, tuple(notes))


def _of_the_run(paths: RunPaths) -> list[str]:
    """[] for a run of an earlier version, or another user's."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        number = os.open(paths.secret_values, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(number, "rb") as file:
            return msgspec.json.decode(file.read(LARGEST_FILE), type=list[str])
    return []


def _pack(paths: RunPaths, file: io.BufferedWriter, values: list[str], notes: list[str]) -> int:
    packed = total = 0
    # No time stamp of the packing itself: the same run gives the same archive.
    with (
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content, written in _files(paths.folder, notes):
            if total + len(content) > LARGEST_BUNDLE:
                notes.append(f"{name}: left out, the bundle holds {size(LARGEST_BUNDLE)} at most")
                continue
            clean = redact.from_file(name, content, values)
            total += len(clean)
            packed += 1
            _add(archive, f"{paths.run_id}/{name}", clean, written)
        said = "".join(f"{note}\n" for note in notes) or "nothing was cut or left out\n"
        _add(archive, f"{paths.run_id}/{CONTENTS}", said.encode(errors="replace"), 0.0)
    return packed


def _add(archive: tarfile.TarFile, name: str, content: bytes, written: float) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mtime = int(written)
    archive.addfile(entry, io.BytesIO(content))


def _files(folder: str, notes: list[str]) -> Iterator[tuple[str, bytes, float]]:
    """Name, content and time of each plain file that is ours, in the order of their names."""
    for where, folders, names, handle in os.fwalk(folder):
        inside = os.path.relpath(where, folder)
        at_top = inside == "."
        for name in sorted(folders):
            shown = name if at_top else os.path.join(inside, name)
            if os.path.islink(os.path.join(where, name)):
                notes.append(f"{shown}: left out, a link")
            elif at_top and not is_ours(name):
                notes.append(f"{shown}: left out, not written by holdfast")
                folders.remove(name)
        folders.sort()
        for name in sorted(names):
            shown = name if at_top else os.path.join(inside, name)
            if at_top and name == SECRET_VALUES:
                continue
            if at_top and not is_ours(name):
                notes.append(f"{shown}: left out, not written by holdfast")
                continue
            content, written, note = _read(name, handle)
            if note:
                notes.append(f"{shown}: {note}")
            if content is not None:
                yield shown, content, written


def _read(name: str, folder: int) -> tuple[bytes | None, float, str]:
    """Content, time, and a note where it is not the whole story."""
    # A link is refused by the kernel, and a named pipe does not keep us waiting.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with open(os.open(name, flags, dir_fd=folder), "rb") as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                return None, 0.0, "left out, not a plain file"
            content, note = _capped(file, seen.st_size)
            return content, seen.st_mtime, note
    except OSError as problem:
        why = "a link" if problem.errno == errno.ELOOP else problem.strerror
        return None, 0.0, f"left out, {why}"


def _capped(file: io.BufferedReader, length: int) -> tuple[bytes, str]:
    if length <= LARGEST_FILE:
        return file.read(LARGEST_FILE), ""
    # Cut at the ends of lines: half a secret would not be recognised.
    head = file.read(LARGEST_FILE // 4)
    head = head[: head.rfind(b"\n") + 1]
    file.seek(length - LARGEST_FILE * 3 // 4)
    tail = file.read(LARGEST_FILE).partition(b"\n")[2]
    left_out = size(length - len(head) - len(tail))
    mark = f"[holdfast: {left_out} left out here]\n".encode()
    return head + mark + tail, f"{left_out} of {size(length)} left out"
