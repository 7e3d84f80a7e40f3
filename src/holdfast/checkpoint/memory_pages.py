"""New memory, many pages at a time: touched one by one, each costs a trap into the kernel."""

from __future__ import annotations

import ctypes
import mmap

_POPULATE_WRITE = 23
"""MADV_POPULATE_WRITE, Linux 5.14; it changes no byte"""
_FEW = 16 * mmap.PAGESIZE

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def map_pages(address: int, size: int) -> int:
    """All of whole pages; 0, or the number of the error (EINVAL: this kernel cannot)."""
    return ctypes.get_errno() if _madvise(address, size, _POPULATE_WRITE) else 0


def map_inner_pages(address: int, size: int) -> None:
    """Of memory that is about to be written: a wish, which may be refused."""
    start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if end - start >= _FEW:
        map_pages(start, end - start)
