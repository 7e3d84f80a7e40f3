"""What an error of the network, the kernel or the resolver means, in words. Pure.

torch and NCCL report errors as text, so this reads text: the errno's name, its number as
Python and C++ print it, or the words of the C library. What belongs to one fault is said in that
fault's file (`FAULT.errno`, `FAULT.error_text`); here are the errors that can mean several.
"""

from __future__ import annotations

import errno
import functools
import os
import re

from holdfast import catalogue
from holdfast.analysis.machine.smoke_failures import ErrorMeaning
from holdfast.analysis.versions import release

OF_NO_FAULT = {
    errno.EADDRNOTAVAIL: "no interface of this machine has that address",
    errno.EPERM: "not permitted: a sandbox or a firewall rule forbids it",
    errno.ECONNRESET: "the other side went away in the middle",
    errno.EPIPE: "the other side went away in the middle",
    errno.EAFNOSUPPORT: "this kernel lacks that address family (IPv6 switched off?)",
}

_NUMBERED = re.compile(r"\[Errno (\d+)\]|errno: (\d+)|code: -(\d+)")
"""as Python, c10d and libuv print it"""


def translate(text: str, *, nccl: str = "") -> ErrorMeaning | None:
    """What an error's text means; None when it says nothing that we know. `nccl`: its version."""
    for meaning in catalogue.error_meanings():
        if meaning.pattern and re.search(meaning.pattern, text, re.IGNORECASE):
            return meaning
    number = errno_in(text)
    if number is None:
        return None
    meaning = _of_this_nccl(meanings_of_errnos()[number], nccl)
    return meaning._replace(words=f"{meaning.words} ({errno.errorcode[number]})")


@functools.cache
def meanings_of_errnos() -> dict[int, tuple[ErrorMeaning, ...]]:
    """Every errno that we know, and what it can mean."""
    found: dict[int, tuple[ErrorMeaning, ...]] = {
        number: (ErrorMeaning(words, ""),) for number, words in OF_NO_FAULT.items()
    }
    for meaning in catalogue.error_meanings():
        if meaning.number:
            found[meaning.number] = (*found.get(meaning.number, ()), meaning)
    return found


def _of_this_nccl(meanings: tuple[ErrorMeaning, ...], version: str) -> ErrorMeaning:
    """Of several, the one for this version of NCCL; one of unknown version may be old."""
    for meaning in meanings:
        if meaning.nccl_before and release(version)[:2] < release(meaning.nccl_before):
            return meaning
    return next(meaning for meaning in meanings if not meaning.nccl_before)


def errno_in(text: str) -> int | None:
    """The first errno a text names, by name, by number or in the C library's words."""
    known = meanings_of_errnos()
    found = [(at, number) for number in known if (at := _first_mention(text, number)) is not None]
    for match in _NUMBERED.finditer(text):
        number = int(next(group for group in match.groups() if group))
        if number in known:
            found.append((match.start(), number))
    return min(found)[1] if found else None


def _first_mention(text: str, number: int) -> int | None:
    name = errno.errorcode[number]
    pattern = rf"\b{name}\b|{re.escape(os.strerror(number))}"
    match = re.search(pattern, text, re.IGNORECASE)
    return match.start() if match else None
