"""One archive of a run for a colleague: what we wrote, without secrets, and not too large."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.job.run_paths import SECRET_VALUES, RunPaths, is_ours
from holdfast.run.runs import redact
from holdfast.run.runs.archive import BundledFile, new_archive
from holdfast.text import size

LARGEST_FILE = 8 << 20
"""bytes kept of one file: its first quarter, where things start, and its end, where they fail"""
LARGEST_BUNDLE = 64 << 20
LARGEST_OF_ALL_NODES = 256 << 20
LEAST_OF_A_NODE = 2 << 20
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
    notes: list[str] = []
    with new_archive(target) as archive:
        for file in files_of(paths, environment=environment, notes=notes):
            archive.add(paths.run_id, file)
        packed = archive.files
        archive.add(paths.run_id, contents(notes))
    return Bundle(target, packed, tuple(notes))


def write_nodes(
    run: str, folders: Mapping[str, RunPaths], target: str, *, environment: Mapping[str, str]
) -> Bundle:
    """The same for the folders of one run's nodes on a shared disk: RUN/NODE/… in the archive."""
    notes: list[str] = []
    most = share(len(folders))
    with new_archive(target) as archive:
        for node, paths in folders.items():
            of_node: list[str] = []
            for file in files_of(paths, environment=environment, notes=of_node, most=most):
                archive.add(f"{run}/{node}", file)
            notes += [f"{node}: {note}" for note in of_node]
        packed = archive.files
        archive.add(run, contents(notes))
    return Bundle(target, packed, tuple(notes))


def share(nodes: int) -> int:
    """Bytes for each of so many nodes: all of a small cluster, the essence of a large one."""
    return max(LEAST_OF_A_NODE, min(LARGEST_BUNDLE, LARGEST_OF_ALL_NODES // max(1, nodes)))


def contents(notes: Sequence[str]) -> BundledFile:
    said = "".join(f"{note}\n" for note in notes) or "nothing was cut or left out\n"
    return BundledFile(CONTENTS, said.encode(errors="replace"), 0.0)


def files_of(
    paths: RunPaths,
    *,
    environment: Mapping[str, str],
    notes: list[str],
    most: int | None = None,
) -> Iterator[BundledFile]:
    """The files of one folder without their secrets, marker and journal before all logs;
    `notes` gets what is cut or left out to stay below `most` bytes."""
    values = redact.longest_first({*redact.values_of(environment), *_of_the_run(paths)})
    largest = LARGEST_FILE if most is None else min(LARGEST_FILE, most // 4)
    most = LARGEST_BUNDLE if most is None else most
    total = 0
    for name, content, written in _files(paths.folder, notes, largest):
        if total + len(content) > most:
            notes.append(f"{name}: left out, the bundle holds {size(most)} at most")
            continue
        clean = redact.from_file(name, content, values)
        total += len(clean)
        yield BundledFile(name, clean, written)


def _of_the_run(paths: RunPaths) -> list[str]:
    """[] for a run of an earlier version, or another user's."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        number = os.open(paths.secret_values, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(number, "rb") as file:
            return msgspec.json.decode(file.read(LARGEST_FILE), type=list[str])
    return []


def _files(folder: str, notes: list[str], largest: int) -> Iterator[tuple[str, bytes, float]]:
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
            content, written, note = _read(name, handle, largest)
            if note:
                notes.append(f"{shown}: {note}")
            if content is not None:
                yield shown, content, written


def _read(name: str, folder: int, largest: int) -> tuple[bytes | None, float, str]:
    """Content, time, and a note where it is not the whole story."""
    # A link is refused by the kernel, and a named pipe does not keep us waiting.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with open(os.open(name, flags, dir_fd=folder), "rb") as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                return None, 0.0, "left out, not a plain file"
            content, note = _capped(file, seen.st_size, largest)
            return content, seen.st_mtime, note
    except OSError as problem:
        why = "a link" if problem.errno == errno.ELOOP else problem.strerror
        return None, 0.0, f"left out, {why}"


def _capped(file: io.BufferedReader, length: int, largest: int) -> tuple[bytes, str]:
    if length <= largest:
        return file.read(largest), ""
    # Cut at the ends of lines: half a secret would not be recognised.
    head = file.read(largest // 4)
    head = head[: head.rfind(b"\n") + 1]
    file.seek(length - largest * 3 // 4)
    tail = file.read(largest).partition(b"\n")[2]
    left_out = size(length - len(head) - len(tail))
    mark = f"[holdfast: {left_out} left out here]\n".encode()
    return head + mark + tail, f"{left_out} of {size(length)} left out"
