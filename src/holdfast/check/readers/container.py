"""Do we run in a container, of which kind, and what of the host does it share?

A virtual machine or a bare machine is no container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from holdfast.analysis.machine import Container, Plan

FIRST_NAMESPACES = {
    "ipc": "ipc:[4026531839]",
    "uts": "uts:[4026531838]",
    "user": "user:[4026531837]",
    "pid": "pid:[4026531836]",
    "cgroup": "cgroup:[4026531835]",
}
"""the machine's own: these numbers are fixed in linux/proc_ns.h (PROC_IPC_INIT_INO…)"""


def read_container(plan: Plan, root: str = "/") -> Container:
    kind, sign = _kind(root, plan.environment)
    return Container(
        kind=kind,
        sign=sign or "no sign of a container",
        rootless=_rootless(root) if kind else None,
        network=_network(root),
        ipc=_ipc(root),
    )


# --- which kind --------------------------------------------------------------------------------


def _kind(root: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """The innermost first: apptainer also runs inside pods, and pods may be made by Docker."""
    signs: tuple[tuple[str, Callable[[str, Mapping[str, str]], str]], ...] = (
        ("apptainer", _apptainer),
        ("kubernetes", _kubernetes),
        ("podman", _podman),
        ("docker", _docker),
    )
    for kind, look in signs:
        if sign := look(root, environment):
            return kind, sign
    return _told_by_init(root)


def _apptainer(root: str, environment: Mapping[str, str]) -> str:
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if environment.get(name):
            return f"{name} is set"
    return _exists(root, "/.singularity.d")


def _kubernetes(root: str, environment: Mapping[str, str]) -> str:
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return "KUBERNETES_SERVICE_HOST is set"
    if "/kubepods" in _read(root, "/proc/self/cgroup"):
        return "/proc/self/cgroup names kubepods"
    return _exists(root, "/var/run/secrets/kubernetes.io/serviceaccount")


def _podman(root: str, _environment: Mapping[str, str]) -> str:
    return _left_file(root, "/run/.containerenv")


def _docker(root: str, _environment: Mapping[str, str]) -> str:
    # The daemon itself lives in docker.service; only a container's path has its 64 digits.
    if re.search(r"/docker[/-][0-9a-f]{64}", _read(root, "/proc/self/cgroup")):
        return "/proc/self/cgroup names a Docker container"
    return _left_file(root, "/.dockerenv")


def _left_file(root: str, path: str) -> str:
    """A runtime leaves this file in its containers, but a virtual machine made from an image
    has it too; there every namespace is the machine's own.
    """
    if all(_namespace(root, name) == first for name, first in FIRST_NAMESPACES.items()):
        return ""
    return _exists(root, path)


def _told_by_init(root: str) -> tuple[str, str]:
    """LXC and systemd-nspawn tell the first process who made it; systemd writes that down."""
    environ = _read(root, "/proc/1/environ").split("\0")
    told = [e.removeprefix("container=") for e in environ if e.startswith("container=")]
    for maker, sign in (
        (told[0] if told else "", "the environment of pid 1"),
        (_read(root, "/run/systemd/container").strip(), "/run/systemd/container"),
    ):
        if maker and maker != "wsl":  # systemd counts WSL, which is a virtual machine
            named = {"lxc": "lxc", "lxc-libvirt": "lxc", "docker": "docker", "podman": "podman"}
            return named.get(maker, "other"), f"{sign} says {maker}"
    return "", ""


# --- what it shares ----------------------------------------------------------------------------


def _rootless(root: str) -> bool | None:
    """Started by an ordinary user? None when there is a user namespace of another making."""
    if line := re.search(r"^rootless=(\d)", _read(root, "/run/.containerenv"), re.MULTILINE):
        return line[1] == "1"
    uid_map = _read(root, "/proc/self/uid_map")
    if is_whole_user_map(uid_map):
        return False
    # A rootless runtime maps its user's one account by itself ('0 1000 1') and the others
    # from /etc/subuid; a root daemon that remaps users does it in one block ('0 165536 65536').
    return True if any(line.split()[2:] == ["1"] for line in uid_map.splitlines()) else None


def is_whole_user_map(uid_map: str) -> bool:
    """Every user is itself, as in the first user namespace: root here is root."""
    return uid_map.split() == ["0", "0", "4294967295"]


def _network(root: str) -> str:
    """The kernel shows the machine-wide network settings in its first network namespace only,
    so this also sees through 'host' networks that are not (rootless Docker before 29.5).
    """
    settings = os.path.join(root, "proc/sys/net/core")
    if not os.path.isdir(settings):
        return "unknown"
    return "host" if os.path.exists(f"{settings}/netdev_max_backlog") else "own"


def _ipc(root: str) -> str:
    namespace = _namespace(root, "ipc")
    if not namespace:
        return "unknown"
    return "host" if namespace == FIRST_NAMESPACES["ipc"] else "own"


# --- reading -----------------------------------------------------------------------------------


def _namespace(root: str, name: str) -> str:
    try:
        return os.readlink(os.path.join(root, "proc/self/ns", name))
    except OSError:
        return ""


def _exists(root: str, path: str) -> str:
    return f"{path} exists" if os.path.exists(os.path.join(root, path.lstrip("/"))) else ""


def _read(root: str, path: str) -> str:
    """'' for what is missing or not ours to read: one sign less, others may still tell."""
    try:
        with open(os.path.join(root, path.lstrip("/")), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
