"""Small ELF files with chosen constants."""

from __future__ import annotations

import struct
from pathlib import Path


def elf_bytes(constants: bytes, *, code: bytes = b"\x90" * 16) -> bytes:
    """A 64-bit ELF file with .rodata, .text, .bss and its section names."""
    names = b"\0.rodata\0.text\0.bss\0.shstrtab\0"
    at_constants = 64
    at_code = at_constants + len(constants)
    at_names = at_code + len(code)
    table = at_names + len(names)
    sections = [
        (0, 0, 0, 0),
        (names.index(b".rodata"), 1, at_constants, len(constants)),
        (names.index(b".text"), 1, at_code, len(code)),
        (names.index(b".bss"), 8, at_code, 1 << 40),
        (names.index(b".shstrtab"), 3, at_names, len(names)),
    ]
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, 5, 4)
    rows = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, start, size, 0, 0, 1, 0)
        for name, kind, start, size in sections
    )
    return header + constants + code + names + rows


def write_elf(path: Path, *texts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(elf_bytes(b"".join(b"\0" + text.encode() for text in texts) + b"\0"))
    return path
