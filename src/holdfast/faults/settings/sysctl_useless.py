"""A kernel setting is changed that has nothing to do with the master port.

What you see   `Address already in use` on the second launch, and a recipe that answers it with
               tcp_fin_timeout, tcp_tw_reuse or tcp_tw_recycle. The error comes back, or it goes
               away by itself and the setting gets the credit.
Why            How long a closed connection stays in TIME_WAIT is fixed in Linux: 60 s, no setting
               changes it. tcp_fin_timeout limits FIN_WAIT_2, another state. tcp_tw_reuse lets an
               outgoing connection reuse a port, it never helps a bind; it has been on for
               loopback since Linux 4.19. tcp_tw_recycle was removed in 4.12. And the store does
               not need any of them: it sets SO_REUSEADDR and listens at once where the last one
               listened. What does keep a port is a process that still holds it.
How to be sure `ss -ltnp 'sport = :29500'` shows who listens; with nobody there, `holdfast check`
               tries the bind itself.
Fix            Leave the setting out. End the old process by its pid, or take another port below
               the ephemeral range: `torchrun --master-port 29600`, or `--standalone`, which finds
               a free one.
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

FAULT = Fault(code="HOLD507", slug="sysctl-useless")

WITHOUT = (
    "leave it out; if a port is not free, see who holds it (`ss -ltnp`), or take `--master-port "
    "29600` or torchrun's `--standalone`"
)
NOT_FOR_PORTS = {
    "net.ipv4.tcp_fin_timeout": "it limits how long orphaned connections stay in FIN_WAIT_2; "
    "TIME_WAIT lasts 60 s in Linux whatever is set, and does not hinder the store's port",
    "net.ipv4.tcp_tw_reuse": "it concerns the source ports of outgoing connections, never a bind; "
    "the default, 2, already allows it on loopback, and the store binds over its own TIME_WAIT",
}
GONE = "net.ipv4.tcp_tw_recycle"
_ASSIGNMENT = re.compile(r"\s*-?(?P<key>net[./]ipv[46][./]tcp_\w+)\s*=\s*[\"']?\d.*")
_FILE = re.compile(r"/proc/sys/(?P<key>net/ipv[46]/tcp_\w+)")


QUOTE_OR_SEEK = frozenset(["grep", "egrep", "rg", "sed", "awk", "ssh", "docker", "podman"])
"""a line that looks like a setting is none in their words, or is met again as one"""


class Change(NamedTuple):
    key: str
    place: Place


@FAULT.lint
def it_does_nothing_for_the_port(source: Source) -> Iterator[Finding]:
    # a line that `echo` writes into sysctl.conf is met as a word and as a line of the file
    once = {(change.key, change.place.line): change for change in _changes(source)}
    for change in once.values():
        if change.key == GONE:
            yield FAULT.error(
                f"{change.key} does not exist any more",
                reason="Linux 4.12 removed it: sysctl fails with 'cannot stat', a container that "
                "asks for it does not start; it broke connections from behind NAT",
                fix=WITHOUT,
                at=change.place,
            )
        elif why := NOT_FOR_PORTS.get(change.key):
            yield FAULT.warning(
                f"{change.key} does nothing for TIME_WAIT on the master port",
                reason=why,
                fix=WITHOUT,
                at=change.place,
            )


def _changes(source: Source) -> Iterator[Change]:
    for command in source.commands:
        yield from _by_command(command)
    for setting in source.settings:
        if setting.by == "sysctl.conf":
            yield Change(setting.name, setting.place)
    for container in source.containers:
        for option in container.every("sysctl"):
            yield Change(option.value.partition("=")[0].strip(), option.place)


def _by_command(command: Command) -> Iterator[Change]:
    """`sysctl -w key=value`, a line for sysctl.conf, or a write below /proc/sys."""
    for target in command.writes_to:
        if match := _FILE.search(target.text):
            yield Change(match["key"].replace("/", "."), target.place)
    for word in command.words[1:]:
        spoken = command.name in ("echo", "printf")
        lines = word.text.replace("\\n", "\n").splitlines() if spoken else [word.text]
        for line in lines if command.name not in QUOTE_OR_SEEK else ():
            if match := _ASSIGNMENT.fullmatch(line):
                yield Change(match["key"].replace("/", "."), word.place)
        if command.name == "tee" and (match := _FILE.search(word.text)):
            yield Change(match["key"].replace("/", "."), word.place)
