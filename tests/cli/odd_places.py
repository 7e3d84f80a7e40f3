"""Places that are unlike an ordinary login on an ordinary machine, each as a command prefix and an
environment: what a container, a sandbox, a cluster's shell or another build of Python lacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.places import ROOT, TESTS

REFUSED_CALLS = str(TESTS / "refused_calls.py")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
UNKNOWN_USER = ("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups")
OWN_PIDS = ("pid", "fork", "kill-child")
PY_SPY = os.path.join(os.path.dirname(sys.executable), "py-spy")

CLUSTERS_OWN = """
print("welcome to this cluster", flush=True)
raise RuntimeError("the module system is not set up")
"""
"""a sitecustomize that speaks on stdout, where programs read each other, and then fails"""

OLD_BUILD = """
import fcntl, os, signal
for module, names in (
    (os, "memfd_create MFD_CLOEXEC MFD_ALLOW_SEALING pidfd_open P_PIDFD"),
    (signal, "pidfd_send_signal"),
    (fcntl, "F_ADD_SEALS F_GET_SEALS F_SEAL_SEAL F_SEAL_SHRINK F_SEAL_GROW F_SEAL_WRITE"),
):
    for name in names.split():
        vars(module).pop(name, None)
"""
"""Python as conda and uv build it: against a C library older than these calls"""


NOTHING_TO_READ = """
import sys
def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        path = arguments[0]
        kernels = path.startswith(("/proc", "/sys", "/dev/kmsg", "/run", "/var/run"))
        if kernels and not path.startswith("/proc/self/fd/"):
            raise PermissionError(13, "Permission denied", arguments[0])
if "holdfast" in sys.orig_argv:
    sys.addaudithook(refuse)
"""
"""for the launcher alone: its ranks open their page through /proc"""

EVERY_READER_RAISES = """
import sys
if "holdfast" in sys.orig_argv:
    import importlib, inspect, pkgutil
    import holdfast.check.readers, holdfast.system

    WORKS_WITH = "deadline deaths ignored_folder kernel_calls proc".split()
    WORKS_WITH += "pyproject rule_files rule_process rule_worker".split()

    def readers():
        for package in (holdfast.check.readers, holdfast.system):
            for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
                if found.name.rpartition(".")[2] not in WORKS_WITH:
                    yield importlib.import_module(found.name)

    def refuse(*_, **__):
        raise LookupError("not here")

    modules = list(readers())
    refused = {
        value
        for module in modules
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and name[0] != "_"
    }
    for module in [m for name, m in sys.modules.items() if name.startswith("holdfast.")]:
        for name, value in list(vars(module).items()):
            if inspect.isfunction(value) and value in refused:
                setattr(module, name, refuse)
"""
"""in the launcher, all that looks at the machine; what it ends ranks with is left"""


class Place(NamedTuple):
    name: str
    inside: tuple[str, ...] = ()
    """a command that ends with the one to run in that place"""
    environment: Mapping[str, str | None] = {}
    """None: this variable is taken away"""
    site: str = ""
    """a sitecustomize of the user's own"""
    below: str = ""
    """the working folder, below that of the test"""
    root: bool = True
    """only root can go there"""
    refused: str = ""
    """the fault by which no job starts there, with torchrun neither"""


def _way_for_all() -> str:
    """Shell words by which every user of a mount namespace reaches Python and this project, which
    may be in somebody's private home."""
    needed = dict.fromkeys(Path(one) for one in (sys.base_prefix, sys.prefix, ROOT))
    private = {folder: _first_private(folder) for folder in needed}
    hidden = {folder: above for folder, above in private.items() if above}
    if not hidden:
        return ""
    places = {folder: f"/mnt/{number}" for number, folder in enumerate(hidden)}
    return "\n".join(
        [
            "mount -t tmpfs -o mode=755 none /mnt",
            *(f"mkdir {at}; mount --bind '{one}' {at}" for one, at in places.items()),
            *(f"mount -t tmpfs -o mode=755 none '{a}'" for a in dict.fromkeys(hidden.values())),
            *(f"mkdir -p '{one}'; mount --bind {at} '{one}'" for one, at in places.items()),
        ]
    )


def _first_private(folder: Path) -> Path | None:
    above = reversed(folder.parents)
    return next((one for one in above if not one.stat().st_mode & 0o001), None)


def _shell(setup: str, *kinds: str) -> tuple[str, ...]:
    unshare = ("unshare", *(f"--{kind}" for kind in kinds)) if kinds else ()
    return (*unshare, "sh", "-ec", f'{setup}\nexec "$@"', "sh")


PLACES = (
    Place("no cgroup", _shell("umount -R -l /sys/fs/cgroup", "mount")),
    Place("no /sys", _shell("mount -t tmpfs none /sys", "mount")),
    Place("another user", (*_shell(_way_for_all(), "mount"), *NOBODY)),
    Place(
        "no HOME and no passwd entry",
        (*_shell(_way_for_all(), "mount"), *UNKNOWN_USER),
        dict.fromkeys(("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME")),
    ),
    Place(
        "the processes of others hidden",
        (
            *_shell(f"{_way_for_all()}\nmount -t proc -o hidepid=2 proc /proc", *OWN_PIDS, "mount"),
            *NOBODY,
        ),
    ),
    Place("read-only /dev/shm", _shell("mount -t tmpfs -o ro none /dev/shm", "mount")),
    Place(
        "read-only home, and the job started there",
        _shell('mount --bind "$PWD" "$PWD"; mount -o remount,ro,bind "$PWD"; cd "$PWD"', "mount"),
        {"HOME": "."},
    ),
    Place("own pid namespace", _shell("", *OWN_PIDS, "mount-proc")),
    Place("own pid namespace with the outer /proc", _shell("", *OWN_PIDS)),
    Place("own user namespace", _shell("", "user", "map-root-user")),
    Place(
        "ip netns exec",
        _shell("ip link set lo up; umount -R -l /sys; mount -t sysfs none /sys", "net", "mount"),
    ),
    Place("own network without a loopback", _shell("", "net"), refused="loopback-blocked"),
    Place(
        "chroot",
        _shell(
            "mount --rbind / /mnt; umount -R -l /mnt/sys\n"
            'set -- chroot /mnt sh -ec \'cd "$0"; exec "$@"\' "$PWD" "$@"',
            "mount",
        ),
    ),
    Place(
        "ASCII and a folder of 200 other characters",
        environment={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        below="/".join(["ü" * 80, "学" * 60, "é" * 58]),
        root=False,
    ),
    Place("256 descriptors", _shell("ulimit -n 256"), root=False),
    Place("stdin closed", _shell("exec <&-"), root=False),
    Place("stdout and stderr closed", _shell("exec >&- 2>&-"), root=False),
    Place("umask 077", _shell("umask 077"), root=False),
    Place("a sitecustomize that speaks and fails", site=CLUSTERS_OWN, root=False),
    Place(
        "no py-spy",
        _shell(f"mount --bind /dev/null '{PY_SPY}'", "mount"),
        {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
    ),
    Place("no ptrace", (sys.executable, REFUSED_CALLS, "ptrace"), root=False),
    Place("no IPv6", (sys.executable, REFUSED_CALLS, "ipv6"), root=False),
    Place("no netlink", (sys.executable, REFUSED_CALLS, "netlink"), root=False),
    Place(
        "no docstrings, no folder of the script on the path",
        environment={"PYTHONOPTIMIZE": "2", "PYTHONSAFEPATH": "1"},
        root=False,
    ),
    Place("nothing of the machine may be read", site=NOTHING_TO_READ, root=False),
    Place("every reader raises", site=EVERY_READER_RAISES, root=False),
    Place("a Python built long ago", site=OLD_BUILD, root=False),
)
