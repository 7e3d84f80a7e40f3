"""Calls of the kernel for which not every Python has a function.

Python offers what the C library had that it was built against: those of conda and uv are built on
old ones, so that they run everywhere, and lack `os.memfd_create`, `os.pidfd_open` and
`signal.pidfd_send_signal`. The kernel has these calls. Only the standard library is used here:
ranks import this.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal

P_PIDFD = 3
"""for os.waitid"""
_CLOEXEC, _ALLOW_SEALING = 1, 2
_ADD_SEALS, _SEAL_SHRINK, _SEAL_GROW = 1033, 2, 4
_MEMFD_CREATE = {"x86_64": 319, "ppc64le": 360, "s390x": 350}
_MEMFD_CREATE_ELSEWHERE = 279
"""on all architectures that came to Linux late: aarch64, riscv64, loongarch64"""
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434
"""since 2019 a new call has one number everywhere"""


def memory_file(name: str, *, sealable: bool = False) -> int:
    """A descriptor of a file without a name in any file system: gone with its last user."""
    flags = _CLOEXEC | (_ALLOW_SEALING if sealable else 0)
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, flags)
    import ctypes  # noqa: PLC0415 - takes milliseconds, and hardly any Python needs it

    number = _MEMFD_CREATE.get(os.uname().machine, _MEMFD_CREATE_ELSEWHERE)
    return _call(number, ctypes.c_char_p(name.encode()), ctypes.c_uint(flags))


def seal_size(descriptor: int) -> None:
    """Of a memory file: neither smaller nor larger from now on."""
    fcntl.fcntl(descriptor, _ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW)


def pidfd_open(pid: int) -> int:
    """A handle that stays with the process, when its number is given again."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    import ctypes  # noqa: PLC0415

    return _call(_PIDFD_OPEN, ctypes.c_int(pid), ctypes.c_uint(0))


def pidfd_send_signal(handle: int, sign: signal.Signals) -> None:
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(handle, sign)
        return
    import ctypes  # noqa: PLC0415

    _call(
        _PIDFD_SEND_SIGNAL,
        ctypes.c_int(handle),
        ctypes.c_int(sign),
        ctypes.c_void_p(None),
        ctypes.c_uint(0),
    )


def _call(number: int, *arguments: object) -> int:
    import ctypes  # noqa: PLC0415

    libc = ctypes.CDLL(None, use_errno=True)
    answer: int = libc.syscall(ctypes.c_long(number), *arguments)
    if answer < 0:
        problem = ctypes.get_errno() or errno.ENOSYS
        raise OSError(problem, os.strerror(problem))
    return answer
