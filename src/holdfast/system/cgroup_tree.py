"""Where the cgroup of this process is in the file system: v1, v2 and hybrid."""

from __future__ import annotations

import os
from typing import NamedTuple

UNIFIED = ""
"""the name of v2's one hierarchy, which holds every controller that v1 does not"""


class CgroupFolder(NamedTuple):
    """Where one controller keeps its limits for this process."""

    version: int
    path: str
    """as the kernel names the cgroup"""
    folders: tuple[str, ...]
    """its own folder first, then the ancestors up to the mount point"""


class Mount(NamedTuple):
    root: str
    """which cgroup is mounted: '/' or, in many containers, the container's own"""
    point: str
    kind: str
    options: tuple[str, ...]


def find(controller: str, root: str = "/") -> CgroupFolder | None:
    """Where this controller keeps our limits; None when no hierarchy has it.

    On a hybrid machine both versions are mounted, and each controller belongs to one of
    them: a v1 line in /proc/self/cgroup that names the controller decides.
    """
    joined = memberships(_text(root, "proc/self/cgroup"))
    version = 1 if controller and controller in joined else 2
    path = joined.get(controller if version == 1 else UNIFIED)
    if path is None:
        return None
    for mount in mounts(_text(root, "proc/self/mountinfo")):
        below = _below(path, mount.root)
        if below is not None and _holds(mount, controller, version):
            top = os.path.join(root, mount.point.lstrip("/"))
            if os.path.isdir(os.path.join(top, below)):
                return CgroupFolder(version, path, _upwards(top, below))
    raise LookupError(f"the cgroup of this process ({controller}: {path}) is not visible here")


def memberships(text: str) -> dict[str, str]:
    """The cgroup by controller from /proc/self/cgroup; that of v2 under UNIFIED."""
    found = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def mounts(text: str) -> list[Mount]:
    """The cgroup mounts of /proc/self/mountinfo."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) >= 5 and len(kind) >= 3 and kind[0] in ("cgroup", "cgroup2"):
            # A blank in a name is written as \040.
            cgroup, point = (name.replace("\\040", " ") for name in place[3:5])
            found.append(Mount(cgroup, point, kind[0], tuple(kind[2].split(","))))
    return found


def _holds(mount: Mount, controller: str, version: int) -> bool:
    if version == 2:
        return mount.kind == "cgroup2"
    return mount.kind == "cgroup" and controller in mount.options


def _below(path: str, mounted: str) -> str | None:
    """The path relative to the mounted cgroup; None when it is outside."""
    if mounted in ("/", path) or path.startswith(f"{mounted}/"):
        return path.removeprefix(mounted).strip("/")
    return None


def _upwards(top: str, below: str) -> tuple[str, ...]:
    steps = [step for step in below.split("/") if step]
    return tuple(os.path.join(top, *steps[:depth]) for depth in range(len(steps), -1, -1))


def _text(root: str, name: str) -> str:
    with open(os.path.join(root, name), encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
