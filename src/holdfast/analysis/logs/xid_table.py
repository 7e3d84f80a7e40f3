"""What the numbers mean that NVIDIA's driver writes into the kernel log (Xid), and who is to blame.

From NVIDIA's catalogue of Xid messages, reworded. Numbers that are not here are reported with
little confidence: new ones appear with new drivers.
"""

from __future__ import annotations

import enum

import msgspec


class XidBlame(enum.Enum):
    HARDWARE = "hardware"
    """the GPU, its memory or its links: no program can cause it"""
    DRIVER = "driver"
    """the driver or its firmware; a reset or an upgrade helps"""
    PROGRAM = "program"
    """a bug in the program first of all; hardware if it comes back on one GPU only"""
    AFTERMATH = "aftermath"
    """follows from an earlier one"""


class Xid(msgspec.Struct, frozen=True):
    meaning: str
    blame: XidBlame
    confidence: float
    """that the hardware or driver is at fault, when it stands alone"""


_FATAL, _LIKELY, _MAYBE = 0.95, 0.85, 0.6


def _hardware(meaning: str, confidence: float = _FATAL) -> Xid:
    return Xid(meaning, XidBlame.HARDWARE, confidence)


def _driver(meaning: str, confidence: float = _LIKELY) -> Xid:
    return Xid(meaning, XidBlame.DRIVER, confidence)


def _program(meaning: str) -> Xid:
    return Xid(meaning, XidBlame.PROGRAM, 0.35)


_NVLINK = _hardware("an NVLink connection failed")

TABLE: dict[int, Xid] = {
    8: _driver("the GPU stopped processing", _MAYBE),
    11: _program("a broken stream of commands"),
    13: _program("an exception in a kernel, such as an access out of bounds"),
    25: _program("an illegal stream of commands"),
    31: _program("a kernel used an address that is not mapped"),
    32: _program("a broken stream of commands"),
    38: _driver("an error of the driver's firmware"),
    43: _program("the GPU stopped processing for a fault of the program"),
    45: Xid("channels were cleaned up after an earlier error", XidBlame.AFTERMATH, 0.0),
    46: _driver("the GPU stopped processing and must be reset"),
    48: _hardware("a memory error that ECC could not correct"),
    54: _hardware("the GPU's auxiliary power is not connected"),
    61: _driver("the GPU's micro-controller stopped"),
    62: _driver("the GPU's micro-controller halted"),
    63: _hardware("a row of its memory was remapped: repaired at the next reset", _MAYBE),
    64: _hardware("a row of its memory could not be remapped"),
    68: _program("an exception in the video decoder"),
    69: _program("an error in a kernel's use of the engine"),
    74: _NVLINK,
    79: _hardware("the GPU fell off the bus: it no longer answers", 0.97),
    80: _hardware("data arrived corrupted at the GPU", _LIKELY),
    92: _hardware("many memory errors, so far corrected", _MAYBE),
    94: _hardware("a memory error that ECC could not correct, contained to one program"),
    95: _hardware("a memory error that ECC could not correct, and that was not contained"),
    109: _driver("a switch between programs timed out", _MAYBE),
    110: _hardware("a security fault", _LIKELY),
    119: _driver("the GPU's system processor (GSP) did not answer"),
    120: _driver("the GPU's system processor (GSP) failed"),
    121: _hardware("the link between CPU and GPU failed", _LIKELY),
    136: _hardware("an NVLink connection could not be trained", _LIKELY),
    137: _program("a program touched memory of another GPU that is not mapped"),
    140: _hardware("a memory error that ECC could not recover"),
    143: _hardware("the GPU could not be initialised"),
    **dict.fromkeys((144, 145, 146, 147, 148, 149, 150, 155), _NVLINK),
    154: Xid("the driver asks for a recovery action", XidBlame.AFTERMATH, 0.0),
    156: _hardware("a part of the GPU was retired", _MAYBE),
    157: _hardware("a part of the GPU could not be retired"),
    158: _hardware("the GPU does not answer any more"),
    160: _hardware("a channel of its memory was retired", _MAYBE),
    161: _hardware("a channel of its memory could not be retired"),
    167: _hardware("the PCIe link timed out for good"),
    171: _hardware("a memory (DRAM) error that ECC could not correct"),
    172: _hardware("a cache (SRAM) error that ECC could not correct"),
}


def look_up(number: int) -> Xid:
    return TABLE.get(number) or Xid("not in our table", XidBlame.DRIVER, 0.4)
