"""A disk in memory that stops after any operation, and then forgets what was never synced.

It promises no more than POSIX does: a file's bytes are safe after its fsync, a name after the
fsync of its folder, a rename happens whole or not at all. Everything else may be lost or kept, in
any combination: a later write without an earlier one, half a write, a name without its bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Keep = Callable[[int], int]
"""how many of n things survive a crash: for a change of names n is 1, for a write its length"""


class Crash(BaseException):
    """The machine is gone; no `except Exception` may continue as if it were not."""


@dataclass
class File:
    data: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    unsafe: list[tuple[int, bytes]] = field(default_factory=list)

    def after_crash(self, keep: Keep) -> File:
        image = bytearray(self.safe)
        for start, data in self.unsafe:
            if count := keep(len(data)):
                image.extend(b"\0" * (start + count - len(image)))  # a hole reads as zeros
                image[start : start + count] = data[:count]
        return File(data=image, safe=bytes(image))


@dataclass(eq=False)
class Folder:
    entries: dict[str, Node] = field(default_factory=dict)
    safe: dict[str, Node] = field(default_factory=dict)
    unsafe: list[Change] = field(default_factory=list)

    def after_crash(self, kept: Callable[[Change], bool], keep: Keep) -> Folder:
        names = dict(self.safe)
        for change in self.unsafe:
            if kept(change):
                change.apply(self, names)
        entries: dict[str, Node] = {
            name: node.after_crash(keep) if isinstance(node, File) else node.after_crash(kept, keep)
            for name, node in names.items()
        }
        return Folder(entries=entries, safe=dict(entries))


Node = File | Folder


@dataclass(eq=False)
class Change:
    """(folder, name, node or None for gone), all of them at once."""

    edits: tuple[tuple[Folder, str, Node | None], ...]

    def apply(self, folder: Folder, names: dict[str, Node]) -> None:
        for where, name, node in self.edits:
            if where is folder and node is not None:
                names[name] = node
            elif where is folder:
                names.pop(name, None)


class CrashingFiles:
    """`stop` is the number of operations it does; `fail` gives the errno of the nth instead."""

    def __init__(self, stop: int | None = None, fail: dict[int, int] | None = None) -> None:
        self.root = Folder()
        self.done = 0
        self.stop = stop
        self.fail = fail or {}
        self.capacity: int | None = None
        """bytes of all files together; a write beyond it is ENOSPC, with a part of it done"""
        self.log: list[str] = []

    def crash(self, keep: Keep) -> CrashingFiles:
        """What is found after the restart."""
        fate: dict[int, bool] = {}  # a rename between folders survives in both or in neither

        def kept(change: Change) -> bool:
            return fate.setdefault(id(change), bool(keep(1)))

        image = CrashingFiles()
        image.root = self.root.after_crash(kept, keep)
        return image

    def make_folder(self, path: str) -> bool:
        folder, name = self._operation("mkdir", path)
        if name in folder.entries:
            return False
        self._change((folder, name, Folder()))
        return True

    def create(self, path: str) -> Handle:
        folder, name = self._operation("create", path)
        self._change((folder, name, file := File()))
        return Handle(self, path, file)

    def chunks(self, path: str, start: int = 0, end: int | None = None) -> Iterator[memoryview]:
        self._operation("read", path)
        yield memoryview(bytes(self._file(path).data[start:end]))

    def size(self, path: str) -> int:
        self._operation("stat", path)
        return len(self._file(path).data)

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._operation("rename", old)
        target, new_name = self._parent(new)
        node = self._node(old)
        there = target.entries.get(new_name)
        if isinstance(there, Folder) and there.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        self._change((source, old_name, None), (target, new_name, node))

    def fsync_folder(self, path: str) -> None:
        self._operation("fsync", path)
        folder = self._folder(path)
        for change in folder.unsafe[:]:
            for where in {where for where, _, _ in change.edits}:
                change.apply(where, where.safe)
                where.unsafe.remove(change)

    def remove(self, path: str) -> None:
        folder, name = self._operation("remove", path)
        self._file(path)
        self._change((folder, name, None))

    def remove_folder(self, path: str) -> None:
        folder, name = self._operation("rmdir", path)
        if self._folder(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._change((folder, name, None))

    def listdir(self, path: str) -> list[str]:
        self._operation("list", path)
        return sorted(self._folder(path).entries)

    def exists(self, path: str) -> bool:
        self._operation("exists", path)
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def is_folder(self, path: str) -> bool:
        self._operation("lstat", path)
        try:
            return isinstance(self._node(path), Folder)
        except OSError:
            return False

    def folders(self, path: str) -> list[str]:
        self._operation("list", path)
        entries = self._folder(path).entries
        return sorted(name for name, node in entries.items() if isinstance(node, Folder))

    def owner(self, path: str) -> int:
        self._operation("lstat", path)
        self._node(path)
        return os.geteuid()

    def claim(self, path: str) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(True)

    def operation(self, what: str, path: str) -> None:
        """Before it is done: this is the moment at which the machine may stop."""
        if self.stop is not None and self.done >= self.stop:
            raise Crash(what)
        number, self.done = self.done, self.done + 1
        self.log.append(f"{what} {path}")
        if number in self.fail:
            raise OSError(self.fail[number], os.strerror(self.fail[number]), path)

    def check_room(self, more: int, path: str) -> None:
        if self.capacity is not None and _bytes(self.root) + more > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _operation(self, what: str, path: str) -> tuple[Folder, str]:
        self.operation(what, path)
        return self._parent(path)

    def _change(self, *edits: tuple[Folder, str, Node | None]) -> None:
        change = Change(edits)
        for folder in {folder for folder, _, _ in edits}:
            change.apply(folder, folder.entries)
            folder.unsafe.append(change)

    def _node(self, path: str) -> Node:
        node: Node = self.root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            if not isinstance(node, Folder) or name not in node.entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = node.entries[name]
        return node

    def _folder(self, path: str) -> Folder:
        node = self._node(path)
        if not isinstance(node, Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder, name = os.path.split(path)
        return self._folder(folder), name


def _bytes(node: Node) -> int:
    if isinstance(node, File):
        return len(node.data)
    return sum(_bytes(each) for each in node.entries.values())


class Handle:
    def __init__(self, files: CrashingFiles, path: str, file: File) -> None:
        self._files, self._path, self._file = files, path, file

    def write(self, data: memoryview, at: int = 0) -> None:
        # The bytes may be on their way when the machine stops or the disk fails: half of them.
        half = len(data) // 2
        self._put(at, bytes(data[:half]))
        self._files.operation("write", self._path)
        self._files.check_room(len(data) - half, self._path)
        self._put(at + half, bytes(data[half:]))

    def _put(self, at: int, data: bytes) -> None:
        image = self._file.data
        image.extend(b"\0" * (at + len(data) - len(image)))  # a hole reads as zeros
        image[at : at + len(data)] = data
        self._file.unsafe.append((at, data))

    def fsync(self) -> None:
        self._files.operation("fsync", self._path)
        self._file.safe, self._file.unsafe = bytes(self._file.data), []

    def close(self) -> None:
        pass
