"""Which sysctls a container engine accepts, by the namespaces of the container. Pure."""

from __future__ import annotations

import re

from holdfast.analysis.source.source import ContainerRun, Flag

OWN_IPC = re.compile(r"kernel\.(?:msg|shm)\w*|kernel\.sem|fs\.mqueue\.\w+")
"""sysctls that belong to an IPC namespace"""
NAMESPACED = re.compile(rf"net\.[\w.\-/]+|{OWN_IPC.pattern}|kernel\.(?:domainname|hostname)")


def refusal(container: ContainerRun, option: Flag) -> str:
    """Why the engine does not accept this sysctl; '' when it does, or when that is not known."""
    key = option.value.partition("=")[0].strip().replace("/", ".")
    network, ipc = container.option("network"), container.option("ipc")
    if not option.known or not re.fullmatch(r"[a-z][\w.\-]*", key):
        return ""
    if key.startswith("net.") and network is not None and network.value == "host":
        return "with the host's network it has no network namespace, so the engine refuses it"
    if OWN_IPC.fullmatch(key) and ipc is not None and ipc.value == "host":
        return "with the host's IPC namespace it has no IPC settings, so the engine refuses it"
    if not NAMESPACED.fullmatch(key):
        return "it applies to the whole machine, not to a namespace of a container"
    return ""
