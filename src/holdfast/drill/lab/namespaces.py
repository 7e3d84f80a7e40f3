"""Linux namespaces, one thread at a time: only the thread that asks changes its place, so a test
process keeps its own network whatever it builds here."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

NEW_MOUNTS = 0x00020000
NEW_NAME = 0x04000000
NEW_IPC = 0x08000000
NEW_PIDS = 0x20000000
NEW_NETWORK = 0x40000000

OF_A_HOST = NEW_MOUNTS | NEW_NAME | NEW_IPC | NEW_PIDS | NEW_NETWORK

MOUNT_BIND = 4096
MOUNT_RECURSIVE = 16384
MOUNT_PRIVATE = 1 << 18
_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


def in_own_thread(work: Callable[[], T]) -> T:
    """Does `work` in a thread that may then stay in other namespaces: it ends with the work."""
    results: list[T] = []
    problems: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as problem:  # noqa: BLE001 (raised again below)
            problems.append(problem)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return results[0]


def unshare(kinds: int) -> None:
    _checked(_libc.unshare(kinds), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode() or None, flags, options.encode())
    _checked(_libc.mount(*arguments), f"mount {target}")


def detach(target: str) -> None:
    _checked(_libc.umount2(target.encode(), _DETACH), f"umount {target}")


def open_own(kind: str) -> int:
    """A file descriptor that keeps this thread's namespace alive: `net`, `pid_for_children`…"""
    return os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def inside_network(namespace: int) -> Iterator[None]:
    """This thread's new sockets and child processes belong to that network."""
    with _moved(namespace, NEW_NETWORK, "net"):
        yield


@contextlib.contextmanager
def children_inside(namespace: int) -> Iterator[None]:
    """This thread's new child processes are seen, and end, with that set of processes."""
    with _moved(namespace, NEW_PIDS, "pid_for_children"):
        yield


@contextlib.contextmanager
def _moved(namespace: int, kind: int, name: str) -> Iterator[None]:
    home = open_own(name)
    try:
        _checked(_libc.setns(namespace, kind), "setns")
        try:
            yield
        finally:
            _checked(_libc.setns(home, kind), "setns")
    finally:
        os.close(home)


def _checked(answer: int, what: str) -> None:
    if answer:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
