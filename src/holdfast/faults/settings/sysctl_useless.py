"""A kernel setting is changed that does not affect the master port.

What you see   `Address already in use` on the second launch, and a launch script that tries to fix
               it with tcp_fin_timeout, tcp_tw_reuse or tcp_tw_recycle. The error comes back, or it
               disappears by itself and the setting seems to have helped.
Why            How long a closed connection stays in TIME_WAIT is fixed in Linux: 60 s, no setting
               changes it. tcp_fin_timeout limits FIN_WAIT_2, another state. tcp_tw_reuse lets an
               outgoing connection reuse a port, it never helps a bind; it has been on for loopback
               since Linux 4.19. tcp_tw_recycle was removed in 4.12. The store needs none of them:
               it sets SO_REUSEADDR and can listen at once where the last one listened. A process
               that still holds the port is the usual cause.
How to be sure `ss -ltnp 'sport = :29500'` shows the listener; if there is none, `holdfast check`
               tries the bind itself.
Fix            Remove the setting. Stop the old process by its pid, or use another port below the
               ephemeral range: `torchrun --master-port 29600`, or `--standalone`, which finds a
               free one.
Known limits   It is found by `lint` in scripts and settings only; the values of the running kernel
               are not judged.
Sources        https://docs.kernel.org/networking/ip-sysctl.html (tcp_fin_timeout, tcp_tw_reuse)
               torvalds/linux include/net/tcp.h: TCP_TIMEWAIT_LEN
               torvalds/linux commit 4396e46187ca: tcp_tw_recycle removed
               torch/csrc/distributed/c10d/socket.cpp: SO_REUSEADDR before bind
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.source import Command, Source
from holdfast.fault import Fault
from holdfast.findings import Finding, Place

FAULT = Fault(
    code="HOLD507",
    slug="sysctl-useless",
    related=("port-ephemeral", "port-in-use", "stale-process"),
)

LEAVE_OUT = (
    "remove it; if a port is in use, find the process with `ss -ltnp`, or use `--master-port "
    "29600` or torchrun's `--standalone`"
)
NOT_FOR_PORTS = {
    "net.ipv4.tcp_fin_timeout": "it limits how long orphaned connections stay in FIN_WAIT_2; "
    "TIME_WAIT always lasts 60 s in Linux, and does not block the store's port",
    "net.ipv4.tcp_tw_reuse": "it affects the source ports of outgoing connections, never a bind; "
    "the default, 2, already allows it on loopback, and the store binds over its own TIME_WAIT",
}
REMOVED = "net.ipv4.tcp_tw_recycle"
_ASSIGNMENT = re.compile(r"\s*-?(?P<key>net[./]ipv[46][./]tcp_\w+)\s*=\s*[\"']?\d.*")
_FILE = re.compile(r"/proc/sys/(?P<key>net/ipv[46]/tcp_\w+)")


NOT_A_SETTING = frozenset(["grep", "egrep", "rg", "sed", "awk", "ssh", "docker", "podman"])
"""commands in whose words a setting is only searched for, or is found again elsewhere"""


class SysctlChange(NamedTuple):
    """A kernel setting that a source changes."""

    key: str
    place: Place


@FAULT.lint
def sysctl_does_not_affect_the_port(source: Source) -> Iterator[Finding]:
    # a line that `echo` writes into sysctl.conf is found as a word and as a line of the file
    once = {(change.key, change.place.line): change for change in _changes(source)}
    for change in once.values():
        if change.key == REMOVED:
            yield FAULT.error(
                f"{change.key} no longer exists",
                reason="Linux 4.12 removed it, because it broke connections from behind NAT: "
                "sysctl fails with 'cannot stat', and a container that sets it does not start",
                fix=LEAVE_OUT,
                at=change.place,
            )
        elif why := NOT_FOR_PORTS.get(change.key):
            yield FAULT.warning(
                f"{change.key} has no effect on TIME_WAIT of the master port",
                reason=why,
                fix=LEAVE_OUT,
                at=change.place,
            )


def _changes(source: Source) -> Iterator[SysctlChange]:
    for command in source.commands:
        yield from _by_command(command)
    for setting in source.settings:
        if setting.by == "sysctl.conf":
            yield SysctlChange(setting.name, setting.place)
    for container in source.containers:
        for option in container.every("sysctl"):
            yield SysctlChange(option.value.partition("=")[0].strip(), option.place)


def _by_command(command: Command) -> Iterator[SysctlChange]:
    """`sysctl -w key=value`, a line for sysctl.conf, or a write below /proc/sys."""
    for target in command.writes_to:
        if match := _FILE.search(target.text):
            yield SysctlChange(match["key"].replace("/", "."), target.place)
    for word in command.words[1:]:
        spoken = command.name in ("echo", "printf")
        lines = word.text.replace("\\n", "\n").splitlines() if spoken else [word.text]
        for line in lines if command.name not in NOT_A_SETTING else ():
            if match := _ASSIGNMENT.fullmatch(line):
                yield SysctlChange(match["key"].replace("/", "."), word.place)
        if command.name == "tee" and (match := _FILE.search(word.text)):
            yield SysctlChange(match["key"].replace("/", "."), word.place)
