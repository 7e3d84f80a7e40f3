"""A command on a kernel without Landlock: its first system call answers "not implemented", by a
real filter of the kernel (seccomp), for all that the command starts.

    python -m tests.no_landlock COMMAND [ARGUMENT…]
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL_WITH = 0x7FFF0000, 0x00050000
CREATE_RULESET = 444


def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def main() -> None:
    program = (
        instruction(LOAD_WORD, 0)
        + instruction(JUMP_IF_EQUAL, CREATE_RULESET, 0, 1)
        + instruction(RETURN, FAIL_WITH | errno.ENOSYS)
        + instruction(RETURN, ALLOW)
    )
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.prctl(SET_SECCOMP, FILTER, ctypes.c_char_p(described), 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp filter")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
