"""A cgroup of our own with a memory limit, for a child that is to run out of memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from holdfast.system.own_cgroup import CannotLimitError, OwnCgroup

__all__ = ["CannotLimitError", "memory_limit"]


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[Callable[[], None]]:
    """Yields what the child calls before exec (`preexec_fn`): it moves itself into the cgroup."""
    cgroup = OwnCgroup("memory")
    try:
        cgroup.limit_memory(size)
        yield lambda: cgroup.add(os.getpid())
    finally:
        cgroup.remove()
