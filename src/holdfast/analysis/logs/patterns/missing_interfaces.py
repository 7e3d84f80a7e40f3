"""What NCCL and Gloo print when no network interface passes the filter."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern

_pattern = functools.partial(LogPattern, slug="nic-name-missing")

NCCL_NONE = _pattern(
    name="nic-name-missing: nccl-none",
    pattern=r"[Nn]o socket interface found|NET/Socket ?: no interface found"
    r"|NET/IB ?: No IP interface found"
    r"|NET/Socket ?: No usable listening interface found",
    anchors=(
        *("o socket interface found", "NET/Socket : no interface", "No IP interface found"),
        "No usable listening interface",
    ),
    example="node-a:411:411 [0] bootstrap.cc:126 NCCL WARN Bootstrap : no socket interface found",
)
NCCL_OOB = _pattern(
    name="nic-name-missing: nccl-oob",
    pattern=r"no device found (?:matching|after excluding) (?:exactly )?(?P<value>[^,]+), verify "
    r"(?P<name>NCCL_\w+)",
    anchors=(", verify NCCL_",),
    example="node-a:411:411 [0] bootstrap.cc:577 NCCL WARN no device found matching exactly eth7, "
    "verify NCCL_OOB_NET_IFNAME",
)
NCCL_FAMILY = _pattern(
    name="nic-name-missing: nccl-family",
    pattern=r"connecting to address .* with family \d+ is neither AF_INET"
    r"|(?:Call to socket|Socket creation) failed ?: Address family not supported",
    anchors=("is neither AF_INET", "Address family not supported"),
    example="node-a:411:411 [0] misc/socket.cc:713 NCCL WARN ncclSocketInit: connecting to address "
    " with family 0 is neither AF_INET(2) nor AF_INET6(10)",
)
NCCL_SUBNET = _pattern(
    name="nic-name-missing: nccl-subnet",
    pattern=r"No interface found in the same subnet as remote address (?P<address>[^\s<]+)",
    anchors=("No interface found in the same subnet",),
    example="node-a:411:411 [0] NCCL WARN Net : No interface found in the same subnet as remote "
    "address 192.0.2.7<29500>",
)
GLOO_NONE = _pattern(
    name="nic-name-missing: gloo-none",
    pattern=r"(?:ifa != nullptr\. )?Unable to find address for: (?P<name>[^\s;]+)",
    anchors=("Unable to find address for:",),
    example="RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] "
    "ifa != nullptr. Unable to find address for: eth7",
)
ALL = (NCCL_NONE, NCCL_OOB, NCCL_FAMILY, NCCL_SUBNET, GLOO_NONE)
