"""The configuration space of a PCI device, as the kernel lets a user read it."""

from __future__ import annotations

import os
import struct

PLAIN_USERS_MAY_READ = 64
"""bytes; the rest is for CAP_SYS_ADMIN"""
FIRST_EXTENDED = 0x100
ACS = 0x000D
CONTROL = 6
"""offset of the control register of ACS"""
REDIRECTS = 0x04 | 0x08
"""bits of it: requests, completions between peers go up to the root complex"""
MOST_CAPABILITIES = 1024
"""a broken device may answer with a list that never ends"""


def read_config(folder: str) -> bytes | None:
    """All of it that there is; None when this user may read only the header."""
    try:
        with open(os.path.join(folder, "config"), "rb") as file:
            config = file.read()
    except OSError:
        return None
    return config if len(config) > PLAIN_USERS_MAY_READ else None


def acs_redirects(config: bytes) -> bool | None:
    """Does this bridge redirect traffic between peers? None: it has no Access Control Services."""
    offset = FIRST_EXTENDED
    for _ in range(MOST_CAPABILITIES):
        if offset < FIRST_EXTENDED or offset + 8 > len(config):
            return None
        (header,) = struct.unpack_from("<I", config, offset)
        if header in (0, 0xFFFFFFFF):  # no extended capability, or the device is gone
            return None
        if header & 0xFFFF == ACS:
            (control,) = struct.unpack_from("<H", config, offset + CONTROL)
            return bool(control & REDIRECTS)
        offset = header >> 20 & ~3
    return None
