"""The kernel keeps a drilled job from writing outside of the drill's own folder (Landlock).

    python -I -S write_fence.py FOLDER:FOLDER COMMAND [ARGUMENT…]     becomes COMMAND

The guard in each rank (rank/witness/write_guard.py) says what was refused and what to do, but sees
only what Python does: native code (safetensors, pyarrow) and programs that a script starts (`rm`,
`cp`) meet this fence. It is around the launcher, so that all ranks are in one domain: they may
still look into each other. The kernel is asked before a drill starts; where it has no fence, the
user must have typed `--unfenced`. A command that is to be inside a fence never runs without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterable

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION = 1
"""flag of CREATE_RULESET: ask what the kernel knows"""
BENEATH = 1
"""a rule for everything below a folder"""
NO_NEW_PRIVILEGES = 38
WRITES = sum(1 << bit for bit in (1, *range(4, 14)))
"""write, remove, make anything, and (13) rename from folder to folder, which version 1 forbids"""
TRUNCATE = 1 << 14
SYSTEM = ("/dev", "/proc", "/sys")
NO_FENCE = 125
"""exit code of a command that was not started"""


def around(command: list[str], folders: Iterable[str]) -> list[str]:
    """The same command, inside the fence."""
    told = os.pathsep.join(folders)
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), told, *command]


def problem() -> str:
    """Why the kernel cannot raise a fence here, in half a sentence; '' when it can. It is tried."""
    tried = subprocess.run(around(["true"], []), capture_output=True, text=True, check=False)
    return "" if tried.returncode != NO_FENCE else tried.stderr.strip()


def not_stopped() -> str:
    """What Landlock has no right for: programs and native code may do it anywhere."""
    truncates = _Kernel().version() < 3
    return "chmod, chown, touch and truncate" if truncates else "chmod, chown and touch"


class _Kernel:
    def __init__(self) -> None:
        self._c = ctypes.CDLL(None, use_errno=True)

    def call(self, *arguments: object) -> int:
        """The answer of a system call; -1 where it fails."""
        return int(self._c.syscall(*arguments))

    def version(self) -> int:
        """Of its Landlock; -1 where it has none."""
        return self.call(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION)

    def refusal(self) -> str:
        number = ctypes.get_errno()
        if number == errno.ENOSYS:
            return "this kernel has no Landlock (Linux 5.19 or later)"
        if number == errno.EOPNOTSUPP:
            return "Landlock is switched off at boot (`lsm=` on the kernel's command line)"
        return f"this kernel refuses Landlock ({os.strerror(number)})"

    def give_up_privileges(self) -> None:
        self._c.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def raise_fence(folders: Iterable[str]) -> str:
    """This process and all that it starts write below these folders only, for good. Else why the
    kernel cannot do that."""
    kernel = _Kernel()
    version = kernel.version()
    if version < 1:
        return kernel.refusal()
    if version < 2:  # it would forbid every rename from folder to folder, as of a checkpoint
        return "this kernel's Landlock is too old (version 1; Linux 5.19 or later has 2)"
    rights = WRITES | (TRUNCATE if version > 2 else 0)
    handled = struct.pack("=Q", rights)
    rules = kernel.call(CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if rules < 0:
        return kernel.refusal()
    for folder in (*SYSTEM, *folders):
        with contextlib.suppress(OSError):  # a cache that is not there
            descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            kernel.call(ADD_RULE, rules, BENEATH, struct.pack("=Qi", rights, descriptor), 0)
            os.close(descriptor)
    if kernel.call(RESTRICT_SELF, rules, 0):
        kernel.give_up_privileges()  # what the kernel asks of a process that is not root
        if kernel.call(RESTRICT_SELF, rules, 0):
            return kernel.refusal()
    os.close(rules)
    return ""


def main() -> None:
    if why := raise_fence(sys.argv[1].split(os.pathsep)):
        print(why, file=sys.stderr)
        sys.exit(NO_FENCE)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - becoming the launcher is its purpose


if __name__ == "__main__":
    main()
