"""Which hosts a user names: `--hosts a,b,me@c:2222,[::1]` and the hostfiles people have; pure.

A hostfile has one host a line, as for OpenMPI and DeepSpeed (`worker-1 slots=8`) or MPICH
(`worker-1:8`). What is named here becomes an argument of ssh, so that only the letters of host and
user names are let through: `-oProxyCommand=…` is no host.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.errors import ConfigError
from holdfast.nodes.reach import host_list

FIRST_PORT_IN_A_HOSTFILE = 1024
"""`host:8` in a hostfile means eight slots, as MPICH reads it; no host has a thousand"""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,63}\$?", re.ASCII)
_PIECES = re.compile(
    r"(?:(?P<user>.*)@)?(?:\[(?P<six>[^\]]*:[^\]]*)\]|(?P<name>[^@:]*))(?::(?P<number>[^:@]*))?"
)
_SLOTS = ("slots", "max_slots", "max-slots", "cpu", "np")


class HostSpec(NamedTuple):
    """A host as the user named it; ssh's configuration may know it by that name."""

    name: str
    user: str = ""
    port: int | None = None
    slots: int | None = None
    source: str = "--hosts"
    """where it was named: '--hosts' or 'FILE:LINE'"""

    def ssh_arguments(self) -> list[str]:
        """The arguments of ssh for it; everything else is left to the user's configuration."""
        port = [] if self.port is None else ["-p", str(self.port)]
        return [*port, *(["-l", self.user] if self.user else []), "--", self.name]

    def command(self, *options: str, remote: str = "true") -> str:
        """An ssh command for it that can be pasted."""
        port = [] if self.port is None else ["-p", str(self.port)]
        target = f"{self.user}@{self.name}" if self.user else self.name
        return shlex.join(["ssh", *options, *port, target, *shlex.split(remote)])


def from_option(text: str) -> list[HostSpec]:
    """The hosts of `--hosts`; a number behind a colon is ssh's port."""
    items = host_list.split(text, source="--hosts")
    if not items:
        raise ConfigError("--hosts names no host", hint="is the variable after --hosts set?")
    return _each_once([spec for item in items for spec in _specs(item, "--hosts", in_file=False)])


def from_file(text: str, *, path: str) -> list[HostSpec]:
    """The hosts of a hostfile that was read from `path`."""
    specs: list[HostSpec] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            specs += _line(words, f"{path}:{number}")
    if not specs:
        raise ConfigError(f"{path} names no host", hint="write one host a line: node-a slots=8")
    return _each_once(specs)


def labels(specs: Iterable[HostSpec]) -> list[str]:
    """A name for each host that no other one has: its own, with the port where one is there
    twice."""
    specs = list(specs)
    names = [spec.name for spec in specs]
    return [
        spec.name
        if names.count(spec.name) == 1 or spec.port is None
        else f"{spec.name}:{spec.port}"
        for spec in specs
    ]


def _line(words: list[str], source: str) -> list[HostSpec]:
    if "," in words[0] and "[" not in words[0]:
        raise ConfigError(f"{source}: {words[0][:60]!r} names several hosts; write one a line")
    specs = _specs(words[0], source, in_file=True)
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if (key.lower() in _SLOTS and equals) or (not equals and word.isdigit()):
            count = _number(value if equals else word, "slots", source, most=65536)
            if key.lower() not in ("max_slots", "max-slots"):
                specs = [spec._replace(slots=count) for spec in specs]
        elif key in ("user", "port") and value:
            user = _user(value, source) if key == "user" else None
            port = _port(value, source) if key == "port" else None
            specs = [
                spec._replace(user=user or spec.user, port=port or spec.port) for spec in specs
            ]
        else:
            raise ConfigError(
                f"{source}: cannot read {word[:60]!r}; behind a host may be slots=N, user=NAME and"
                " port=N"
            )
    return specs


def _specs(item: str, source: str, *, in_file: bool) -> list[HostSpec]:
    """One item: a host, or `node[1-4]` for several."""
    if _is_ipv6(item):  # without brackets there is no port behind it
        return [HostSpec(item, source=source)]
    user, _, rest = item.rpartition("@")
    if "[" in rest and not rest.startswith("["):
        names = host_list.expand(rest.partition("]:")[0] + "]" * ("]:" in rest), source=source)
        number = rest.partition("]:")[2]
        items = [
            f"{user}{'@' if user else ''}{name}{':' if number else ''}{number}" for name in names
        ]
        return [_spec(one, source, in_file=in_file) for one in items]
    return [_spec(item, source, in_file=in_file)]


def _spec(item: str, source: str, *, in_file: bool) -> HostSpec:
    found = _PIECES.fullmatch(item)
    if not found:
        raise _not_a_host(item, source)
    name = found["six"] or found["name"] or ""
    if found["six"] is not None and not _is_ipv6(name):
        raise ConfigError(f"{source}: {item[:60]!r} has no IPv6 address between the brackets")
    if found["six"] is None and not _NAME.fullmatch(name):
        raise _not_a_host(item, source)
    user = "" if found["user"] is None else _user(found["user"], source)
    port = slots = None
    if found["number"] is not None:
        number = _number(found["number"], "the number after ':'", source, most=65535)
        if in_file and number < FIRST_PORT_IN_A_HOSTFILE:
            slots = number
        else:
            port = number
    return HostSpec(name, user, port, slots, source)


def _not_a_host(item: str, source: str) -> ConfigError:
    return ConfigError(
        f"{source}: {item[:60]!r} is not a host name",
        hint="letters, digits, '.', '_' and '-' only, not '-' first; USER@HOST:PORT is allowed",
    )


def _user(text: str, source: str) -> str:
    if not _USER.fullmatch(text):
        raise ConfigError(f"{source}: {text[:60]!r} is not a user name")
    return text


def _port(text: str, source: str) -> int:
    return _number(text, "port", source, most=65535)


def _number(text: str, what: str, source: str, *, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 7 and 1 <= int(text) <= most):
        raise ConfigError(f"{source}: {what} must be from 1 to {most}, got {text[:20]!r}")
    return int(text)


def _is_ipv6(text: str) -> bool:
    address, percent, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not percent or bool(_NAME.fullmatch(zone))


def _each_once(specs: list[HostSpec]) -> list[HostSpec]:
    first: dict[tuple[str, int | None], HostSpec] = {}
    for spec in specs:
        before = first.setdefault((spec.name.lower(), spec.port), spec)
        if before is not spec:
            there = f"; {before.source} has it too" if before.source != spec.source else ""
            file = spec.source.rpartition(":")[0]
            raise ConfigError(
                f"{spec.source}: {spec.name} is named twice{there}",
                hint=f"sort -u {shlex.quote(file)} > nodes.txt" if file else "name each host once",
            )
    return specs
