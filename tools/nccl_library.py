"""Which variables a libnccl reads, and the defaults it has for them, out of its machine code.

NCCL's macro for parameters ends in a call of `ncclLoadParam("NCCL_NAME", default, …)`, its other
reads in calls whose first argument is the name as well: on x86-64 the name's address is put into
rdi, and a default into rsi shortly before. So names that are only printed are not taken for
variables. The file is read, never loaded or run.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

X86_64 = 62
NAME = re.compile(rb"(NCCL_[A-Z0-9_]+)\0")
TO_RDI = re.compile(rb"\x48\x8d\x3d(?P<far>.{4})", re.DOTALL)
"""lea rdi, [rip + far]"""
TO_RSI = re.compile(
    rb"\xbe(?P<low>.{4})|\x48\xc7\xc6(?P<signed>.{4})|\x48\xbe(?P<whole>.{8})|(?P<zero>\x31\xf6)",
    re.DOTALL,
)
"""mov esi, n; mov rsi, n in both sizes; xor esi, esi"""
REGISTRY = re.compile(rb"NCCL_(?:DEBUG(?:_\w+)?|SET_THREAD_NAME|WARN_ENABLE_DEBUG_INFO|NO_CACHE|"
                      rb"PARAM_DUMP_ALL)\Z")  # fmt: skip
"""parameters of its newer registry, whose names are no argument of a call"""
BEFORE = 24
"""bytes before the name's address in which the default is set"""


class NoNcclError(ValueError):
    """The file is not one that can be read so."""


def version(data: bytes) -> str:
    found = re.search(rb"NCCL version (\d+\.\d+\.\d+)", data)
    return found[1].decode() if found else ""


def variables(path: Path) -> dict[str, int | None]:
    """Name -> default; None where it is no number, or two places differ."""
    data = path.read_bytes()
    sections = _sections(data)
    code_at, code = sections[".text"]
    constants_at, constants = sections[".rodata"]
    # Any tail may be a string of its own: 'NCCL_X' is one in 'SOME_NCCL_X'.
    names = {constants_at + found.start(): found[1] for found in NAME.finditer(constants)}
    read: dict[str, set[int | None]] = {
        name.decode(): set() for name in names.values() if REGISTRY.match(name)
    }
    for place in TO_RDI.finditer(code):
        (far,) = struct.unpack("<i", place["far"])
        name = names.get(code_at + place.end() + far)
        if name is not None:
            before = code[max(0, place.start() - BEFORE) : place.start()]
            read.setdefault(name.decode(), set()).add(_default(before))
    return {name: found.pop() if len(found) == 1 else None for name, found in sorted(read.items())}


def _default(code: bytes) -> int | None:
    found = list(TO_RSI.finditer(code))
    if not found:
        return None
    last = found[-1]
    if last["zero"]:
        return 0
    if last["whole"]:
        return int(struct.unpack("<q", last["whole"])[0])
    return int(struct.unpack("<i", last["low"] or last["signed"])[0])


def _sections(data: bytes) -> dict[str, tuple[int, bytes]]:
    """Name -> (where it is when loaded, its bytes)."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise NoNcclError("not a 64-bit little-endian ELF file")
    if struct.unpack_from("<H", data, 18)[0] != X86_64:
        raise NoNcclError("not for x86-64: only there the defaults can be read from the code")
    found = dict(_each_section(data))
    if not {".text", ".rodata"} <= found.keys():
        raise NoNcclError("it has no code or no constants")
    return found


def _each_section(data: bytes) -> Iterator[tuple[str, tuple[int, bytes]]]:
    (table,) = struct.unpack_from("<Q", data, 0x28)
    count, names_at = struct.unpack_from("<HH", data, 0x3C)
    rows = [struct.unpack_from("<IIQQQQ", data, table + 64 * number) for number in range(count)]
    names = rows[names_at][4]
    for name, _, _, address, start, size in rows:
        label = data[names + name : data.index(b"\0", names + name)].decode(errors="replace")
        if label in (".text", ".rodata"):
            yield label, (address, data[start : start + size])
