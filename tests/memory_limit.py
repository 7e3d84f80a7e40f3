"""A cgroup of our own with a memory limit, for a child that is to run out of memory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from holdfast.system.cgroup_tree import find

LIMITS = {1: "memory.limit_in_bytes", 2: "memory.max"}


class CannotLimitError(Exception):
    """No such cgroup can be made here; the message says why."""


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[Callable[[], None]]:
    """Yields what the child calls before exec (`preexec_fn`): it moves itself into the cgroup.

    The cgroup lies inside our own, so that our own limits hold for it too.
    """
    place = find("memory")
    if place is None:
        raise CannotLimitError("this process is in no memory cgroup")
    folder = os.path.join(place.folders[0], f"holdfast-test-{os.getpid()}-{time.monotonic_ns()}")
    try:
        os.mkdir(folder)
    except OSError as problem:
        raise CannotLimitError(f"no cgroup can be made: {problem}") from problem
    try:
        _write(folder, LIMITS[place.version], str(size))
        yield lambda: _write(folder, "cgroup.procs", str(os.getpid()))
    finally:
        _remove(folder)


def _write(folder: str, name: str, text: str) -> None:
    path = os.path.join(folder, name)
    # cgroup v2 makes memory.max only where the parent passes the controller on, which a cgroup
    # with processes in it may not.
    if not os.path.exists(path):
        raise CannotLimitError(f"{path} does not exist")
    with open(path, "w") as file:
        file.write(text)


def _remove(folder: str, seconds: float = 10.0) -> None:
    """The kernel keeps a cgroup for a moment after its last process went."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            return os.rmdir(folder)
        time.sleep(0.05)
    os.rmdir(folder)
    return None
