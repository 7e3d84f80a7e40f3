"""What an error of the network, the kernel or the resolver means, in words. Pure.

torch and NCCL report errors as text, so this reads text: the errno's name, its number as
Python and C++ print it, or the words of the C library.
"""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple


class Cause(NamedTuple):
    words: str
    slug: str
    """the fault behind it, '' when it can be several"""


ERRNOS: dict[int, Cause] = {
    errno.EADDRINUSE: Cause("another program holds the port", "port-in-use"),
    errno.EADDRNOTAVAIL: Cause("no interface of this machine has that address", ""),
    errno.EACCES: Cause(
        "not permitted: a port below 1024 without privilege, or SELinux denies it",
        "permission-denied",
    ),
    errno.EPERM: Cause("not permitted: a sandbox or a firewall rule forbids it", ""),
    # In the smoke test a rank always listens there, so it is not 'nobody is up yet'.
    errno.ECONNREFUSED: Cause(
        "refused: a firewall rule rejects it, or the address leads to where nobody listens",
        "peer-unreachable",
    ),
    errno.ETIMEDOUT: Cause(
        "nothing came back: packets are dropped (a firewall rule) or lead nowhere",
        "peer-unreachable",
    ),
    errno.EHOSTUNREACH: Cause(
        "no way to that host: no neighbour answers, or a firewall rule rejects it",
        "peer-unreachable",
    ),
    errno.ENETUNREACH: Cause("no route leads to that network", "peer-unreachable"),
    errno.ECONNRESET: Cause("the other side went away in the middle", ""),
    errno.EPIPE: Cause("the other side went away in the middle", ""),
    errno.EMFILE: Cause("this process may open no more files (ulimit -n)", "fd-limit"),
    errno.ENFILE: Cause("the whole machine may open no more files (fs.file-max)", "fd-limit"),
    errno.ENOMEM: Cause("the kernel had no memory for it", "host-oom"),
    errno.EAGAIN: Cause(
        "no more processes or threads may be started (ulimit -u, pids.max)", "process-limit"
    ),
    errno.ENOSPC: Cause("no room left on the device", "disk-full"),
    errno.EAFNOSUPPORT: Cause("this kernel lacks that address family (IPv6 switched off?)", ""),
}

ABORTED_BEFORE_2_24 = Cause(
    "NCCL before 2.24 says so in place of the true error, which was 'refused' (nobody listens "
    "at the address the peer gave) or 'timed out' (packets are dropped)",
    "peer-unreachable",
)
ABORTED = Cause("the connection was given up before it stood", "peer-unreachable")

OTHER_WORDS: tuple[tuple[str, Cause], ...] = (
    (
        r"holdfast: another job's store",
        Cause("another job's store answers at that address and port", "foreign-job-on-port"),
    ),
    (
        r"Ping failed, invalid value",
        Cause("what answers at that address and port is not torch's store", "port-in-use"),
    ),
    (
        r"gai error|Name or service not known|name resolution|No address associated",
        Cause("the name of the master does not resolve", "dns-failure"),
    ),
    (
        r"(/dev/shm|shared memory)[^\n]*No space left|No space left[^\n]*/dev/shm",
        Cause("shared memory (/dev/shm) is too small", "shm-too-small"),
    ),
    (
        r"Unable to find address for|no socket interface found",
        Cause("the interface filter (…_SOCKET_IFNAME) matches no interface", "nic-name-missing"),
    ),
    (
        r"Duplicate GPU detected|Multiple ranks .*using the same GPU",  # NCCL to 2.29, from 2.30
        Cause("two ranks use one GPU", "duplicate-gpu"),
    ),
    (
        r"Failed to init uv loop",
        Cause("the store could open no more files (ulimit -n)", "fd-limit"),
    ),
)
"""sentences that say more than the errno in them; looked for first"""

_NUMBERED = re.compile(r"\[Errno (\d+)\]|errno: (\d+)|code: -(\d+)")
"""as Python, c10d and libuv print it"""


def translate(text: str, *, nccl: str = "") -> Cause | None:
    """The cause an error's text speaks of; None when it names none that we know."""
    for pattern, cause in OTHER_WORDS:
        if re.search(pattern, text, re.IGNORECASE):
            return cause
    number = errno_in(text)
    if number == errno.ECONNABORTED:
        return ABORTED_BEFORE_2_24 if _may_be_older_than_2_24(nccl) else ABORTED
    if number is None:
        return None
    words, slug = ERRNOS[number]
    return Cause(f"{words} ({errno.errorcode[number]})", slug)


def errno_in(text: str) -> int | None:
    """The first errno a text names, by name, by number or in the C library's words."""
    found = [(at, number) for number in _KNOWN if (at := _first_mention(text, number)) is not None]
    for match in _NUMBERED.finditer(text):
        number = int(next(group for group in match.groups() if group))
        if number in _KNOWN:
            found.append((match.start(), number))
    return min(found)[1] if found else None


_KNOWN = (*ERRNOS, errno.ECONNABORTED)


def _first_mention(text: str, number: int) -> int | None:
    name = errno.errorcode[number]
    pattern = rf"\b{name}\b|{re.escape(os.strerror(number))}"
    match = re.search(pattern, text, re.IGNORECASE)
    return match.start() if match else None


def _may_be_older_than_2_24(version: str) -> bool:
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return numbers < [2, 24]
