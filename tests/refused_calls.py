"""Run a command that the kernel refuses some calls, as in a sandbox or on another kernel.

    python refused_calls.py {netlink | ipv6 | ptrace} COMMAND [ARGUMENT…]

A seccomp filter holds for all that the command starts, also as root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from typing import NamedTuple

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
LOAD, EQUAL, ANSWER = 0x20, 0x15, 0x06
NUMBER_AT, FIRST_ARGUMENT_AT = 0, 16
AF_INET6, AF_NETLINK = 10, 16

X86 = {"socket": 41, "ptrace": 101, "process_vm_readv": 310, "pidfd_getfd": 438}
ARM = {"socket": 198, "ptrace": 117, "process_vm_readv": 270, "pidfd_getfd": 438}


class Refusal(NamedTuple):
    call: str
    error: int
    first_argument: int | None = None


REFUSALS = {
    "netlink": [Refusal("socket", errno.EPERM, AF_NETLINK)],
    "ipv6": [Refusal("socket", errno.EAFNOSUPPORT, AF_INET6)],
    "ptrace": [Refusal(call, errno.EPERM) for call in ("ptrace", "process_vm_readv")],
}


def refuse(refusals: list[Refusal]) -> None:
    """From now on, for this process and all that it starts."""
    numbers = X86 if platform.machine() == "x86_64" else ARM
    steps = []
    for one in refusals:
        tests = [(NUMBER_AT, numbers[one.call])]
        if one.first_argument is not None:
            tests.append((FIRST_ARGUMENT_AT, one.first_argument))
        for left, (place, wanted) in zip(range(len(tests), 0, -1), tests, strict=True):
            steps += [(LOAD, 0, 0, place), (EQUAL, 0, 2 * left - 1, wanted)]
        steps.append((ANSWER, 0, 0, REFUSE | one.error))
    steps.append((ANSWER, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the filter was not taken")


if __name__ == "__main__":
    refuse(REFUSALS[sys.argv[1]])
    os.execvp(sys.argv[2], sys.argv[2:])
