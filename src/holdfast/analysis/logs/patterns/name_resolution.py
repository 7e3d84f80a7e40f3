"""What torch, Python, ssh and Gloo print when a host name does not resolve."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage

_pattern = functools.partial(LogPattern, slug="dns-failure")

_UNKNOWN = (
    r"(?:Name or service not known|Temporary failure in name resolution|nodename nor servname "
    r"provided|No address associated with hostname|Name does not resolve|Non-recoverable failure "
    r"in name resolution|No such host is known)"
)
_ANCHORS = (
    *("Name or service not known", "failure in name resolution", "nodename nor servname"),
    *("No address associated with hostname", "Name does not resolve", "No such host is known"),
)
STORE_NAME = _pattern(
    name="dns-failure: store-name",
    pattern=r"network addresses of \(\[?(?P<name>[^,\]]+)\]?, (?P<port>\d+)\) cannot be retrieved",
    anchors=("cannot be retrieved (gai error", "cannot be retrieved"),
    example="[W socket.cpp:697] [c10d] The IPv6 network addresses of (node-a, 29500) cannot be "
    "retrieved (gai error: -2 - Name or service not known).",
)
PYTHON_NAME = _pattern(
    name="dns-failure: python-name",
    pattern=rf"gaierror: \[Errno -?\d+\] {_UNKNOWN}|(?:ValueError|RuntimeError): {_UNKNOWN}"
    rf"|host not found: {_UNKNOWN}|error encountered when getting address info ?: {_UNKNOWN}",
    anchors=_ANCHORS,
    example="socket.gaierror: [Errno -2] Name or service not known",
)
SSH_NAME = _pattern(
    name="dns-failure: ssh-name",
    pattern=r"[Cc]ould not resolve hostname (?P<name>[\w.-]+)"
    r"|(?:^|[\s:])(?P<host>(?!(?:found|resolved|failed):|\w*[Ee]rror:|getaddrinfo)[\w.-]+)"
    rf": ?{_UNKNOWN}",
    anchors=("ould not resolve hostname", *_ANCHORS),
    example="ssh: Could not resolve hostname node-b: Name or service not known",
)
LOOKUP = _pattern(
    name="dns-failure: lookup",
    # nslookup, dig and ping, mostly in the loop of a script that waits for the name to appear.
    pattern=r"can't resolve '(?P<name>[\w.-]{1,120})'"
    r"|server can't find (?P<host>[\w.-]{1,120}): NXDOMAIN"
    r"|ping: unknown host (?P<ping>[\w.-]{1,120})",
    anchors=("can't resolve '", "server can't find ", "ping: unknown host"),
    example="nslookup: can't resolve 'job-master-0': Name does not resolve",
    role=Role.CASCADE,
)
DOWNLOAD = _pattern(
    name="dns-failure: download",
    # huggingface_hub prints 'thrown while requesting' where it tries again; what it gives up on is
    # raised. Its addresses contain '/resolve/'.
    pattern=r"^(?!.*thrown while requesting).*?(?:Failed to resolve '(?P<name>[^']+)'"
    r"|ConnectionPool\(host='(?P<host>[^']+)'.*(?:name resol|NameResol|gaierror|Errno -[235]))",
    anchors=("Failed to resolve '", "ConnectionPool(host="),
    example="urllib3.exceptions.NameResolutionError: Failed to resolve 'example.org' ([Errno -3] "
    "Temporary failure in name resolution)",
)
GLOO_NAME = _pattern(
    name="dns-failure: gloo-name",
    pattern=r"Unable to resolve hostname to a \(local\) address",
    anchors=("Unable to resolve hostname to a (local)",),
    example="[W ProcessGroupGloo.cpp:724] Warning: Unable to resolve hostname to a (local) "
    "address. Using the loopback address as fallback.",
    # Right on one machine, where it is harmless; hostname-misresolves weighs it on several.
    role=Role.CONTEXT,
)
REVERSE_ZONES = ("ip6.arpa", "in-addr.arpa")
"""endings of a reverse name, which is not a host's: see hostname-misresolves"""

ALL = (STORE_NAME, PYTHON_NAME, SSH_NAME, LOOKUP, DOWNLOAD, GLOO_NAME)


def unresolved(wreckage: Wreckage) -> tuple[Sighting, ...]:
    """Lines about a host of the job that did not resolve; not downloads or reverse names."""
    return tuple(
        one
        for one in wreckage.seen(STORE_NAME, PYTHON_NAME, SSH_NAME)
        if not looked_up_name(one).endswith(REVERSE_ZONES)
    )


def looked_up_name(seen: Sighting) -> str:
    """The host name in the line, or ''."""
    fields = seen.fields
    return (fields.get("name") or fields.get("host") or fields.get("ping", "")).strip("[]")
