"""The two syntaxes that select a network interface: NCCL's and Gloo's.

NCCL_SOCKET_IFNAME  optional `^` (not), then optional `=` (exact), once for the WHOLE list, then
                    names with commas between; without `=` each name is a prefix
                    (NVIDIA/nccl: src/os/linux.cc, src/misc/utils.cc at 2.30.7)
GLOO_SOCKET_IFNAME  names with commas between, each exact, each must exist
                    (pytorch/gloo: gloo/transport/tcp/device.cc; tried with torch 2.13)

Both ignore a value of fewer than two characters without a warning.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NCCL = "NCCL_SOCKET_IFNAME"
GLOO = "GLOO_SOCKET_IFNAME"


class NcclFilter(NamedTuple):
    """How NCCL reads a value; it does not report what it cannot read."""

    exclude: bool
    exact: bool
    names: tuple[str, ...]

    def admits(self, interface: str) -> bool:
        """Would NCCL keep an interface of this name? An empty list stands for every name."""
        if not self.names:
            matches = True
        elif self.exact:
            matches = interface in self.names
        else:
            matches = interface.startswith(self.names)
        return matches != self.exclude


def is_ignored(value: str) -> bool:
    """Too short for a name: NCCL and torch's Gloo then choose by themselves."""
    return len(value) < 2


def read_nccl(value: str) -> NcclFilter:
    """Read a value as NCCL does: signs once, empty entries dropped, nothing trimmed."""
    exclude = value.startswith("^")
    rest = value[1:] if exclude else value
    exact = rest.startswith("=")
    rest = rest[1:] if exact else rest
    # The same parser reads NCCL_IB_HCA, where entries may end in `:port`; NCCL drops that here too.
    names = (entry.partition(":")[0] for entry in rest.split(","))
    return NcclFilter(exclude, exact, tuple(name for name in names if name))


def read_gloo(value: str) -> tuple[str, ...]:
    """Read a value as torch does for Gloo: a trailing comma is harmless, other gaps are names."""
    names = value.split(",")
    return tuple(names[:-1] if names[-1] == "" else names)


def is_possible_name(name: str) -> bool:
    """Could the kernel have an interface of this name? (dev_valid_name: no space, `/` or `:`)"""
    return name != "" and not any(c.isspace() or c in "/:" for c in name)


def strange(name: str) -> str:
    """Why no interface can have this name; '' when one can."""
    if name[:1] in ("^", "=", "!"):
        return "a sign is allowed once, in front of the whole list"
    if not is_possible_name(name):
        return "a name cannot contain a blank, `/` or `:`"
    if name[0] in "'\"" or name[-1] in "'\"":
        return "the quotes are read as part of the name"
    if set(name) & set("*?["):
        return "patterns are not expanded"
    if re.fullmatch(r"\d+(\.\d+)+", name):
        return "it is an address, not a name"
    return ""


def excluding_loopback(chosen: NcclFilter) -> str:
    """The same exclusion with lo in it."""
    names = [name for name in chosen.names if not strange(name)]
    return f"^{'=' * chosen.exact}{','.join([*names, 'lo'])}"


def has_misread_sign(variable: str, value: str) -> bool:
    """Does the value contain a sign that NCCL or Gloo takes for part of a name?

    A `^` or `=` anywhere but in front of NCCL's list, any of them for Gloo, quotes and blanks.
    """
    gloo = variable == GLOO
    names = read_gloo(value) if gloo else read_nccl(value).names
    return any(
        not is_possible_name(name) or name[0] in "^=!'\"" or name[-1] in "'\"" for name in names
    )
