"""Asks one libnccl which interface it takes: `python ask_nccl.py LIBRARY [--comm]`.

Nothing but ctypes, so that it starts at once. `ncclGetUniqueId` starts NCCL's bootstrap, which
needs no GPU; with `--comm` a communicator of one rank is made on the first GPU, which starts the
socket transport as well. What NCCL prints is the answer (NCCL_DEBUG=INFO).
"""

from __future__ import annotations

import ctypes
import os
import sys


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


def main(library: str, *, comm: bool) -> int:
    nccl = ctypes.CDLL(library)
    version = ctypes.c_int()
    nccl.ncclGetVersion(ctypes.byref(version))
    print(f"version {version.value}", flush=True)
    unique = UniqueId()
    result = nccl.ncclGetUniqueId(ctypes.byref(unique))
    if result == 0 and comm:
        handle = ctypes.c_void_p()
        nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        result = nccl.ncclCommInitRank(ctypes.byref(handle), 1, unique, 0)
    print(f"result {result}", flush=True)
    return int(result)


if __name__ == "__main__":
    code = main(sys.argv[1], comm="--comm" in sys.argv[2:])
    os._exit(min(code, 100))  # at once: NCCL's threads may wait for a connection
