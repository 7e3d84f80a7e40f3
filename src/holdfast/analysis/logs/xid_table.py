"""What the numbers mean that NVIDIA's driver writes into the kernel log (Xid), who is to blame, and
what NVIDIA says to do.

From NVIDIA's catalogue of Xid messages, reworded; its immediate action where it names one. Numbers
that the catalogue lacks are in the table by their names in the driver's own list, with less
confidence (NVIDIA/open-gpu-kernel-modules 595.45.04, nverror.h, which ends with 176). Numbers that
are not here are reported with little confidence: new ones appear with new drivers.
"""

from __future__ import annotations

import enum
import re

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


class XidAction(enum.Enum):
    """NVIDIA's immediate action, as one imperative clause."""

    NOTHING = "nothing has to be done now; watch whether it returns"
    RESTART_PROGRAM = "start the program again"
    RESET_GPU = "end every program on this GPU and reset it: `sudo nvidia-smi -r -i {gpu}`"
    RESET_ALL = (
        "end every program on all GPUs of this machine and reset them with their switches: "
        "`sudo nvidia-smi -r`"
    )
    REBOOT = "take this machine out of the job and restart it"
    RESTART_VM = "restart the virtual machine"
    RESEAT = "have the card's power cables and seating checked"
    UPDATE = "update driver and firmware"
    REPLACE = "take this machine out of the job and have the GPU looked at by its vendor"


class Xid(msgspec.Struct, frozen=True):
    meaning: str
    blame: XidBlame
    confidence: float
    """that the hardware or driver is at fault, when it stands alone"""
    action: XidAction

    @property
    def needs_repair(self) -> bool:
        """The GPU cannot be used before it is repaired or reset."""
        return self.action not in (XidAction.NOTHING, XidAction.RESTART_PROGRAM)

    def advice(self, gpu: str = "N") -> str:
        """What NVIDIA says to do; `gpu` is its index or bus id for nvidia-smi."""
        return self.action.value.format(gpu=gpu)


_FATAL, _LIKELY, _MAYBE = 0.95, 0.85, 0.6


def _hardware(
    meaning: str, confidence: float = _FATAL, action: XidAction = XidAction.RESET_GPU
) -> Xid:
    return Xid(meaning, XidBlame.HARDWARE, confidence, action)


def _driver(
    meaning: str, confidence: float = _LIKELY, action: XidAction = XidAction.RESET_GPU
) -> Xid:
    return Xid(meaning, XidBlame.DRIVER, confidence, action)


def _program(meaning: str, action: XidAction = XidAction.RESTART_PROGRAM) -> Xid:
    return Xid(meaning, XidBlame.PROGRAM, 0.35, action)


_COPY = _driver("an exception in a copy engine", _MAYBE, XidAction.RESTART_PROGRAM)
_VIDEO = _program("an exception in a video or JPEG engine")
_SECOND = 0.5

TABLE: dict[int, Xid] = {
    8: _driver("the GPU stopped processing", _MAYBE, XidAction.RESTART_PROGRAM),
    11: _program("a broken stream of commands"),
    13: _program("an exception in a kernel, such as an access out of bounds"),
    25: _program("an illegal stream of commands"),
    31: _program("a kernel used an address that is not mapped"),
    32: _program("a broken stream of commands"),
    37: _driver("an error of the driver's firmware", _SECOND, XidAction.NOTHING),
    38: _driver("an error of the driver's firmware", _MAYBE, XidAction.NOTHING),
    **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), _COPY),
    43: _program("the GPU stopped processing for a fault of the program", XidAction.NOTHING),
    44: _driver("a fault while switching between programs", _SECOND, XidAction.NOTHING),
    45: Xid(
        "channels were cleaned up after an earlier error",
        XidBlame.AFTERMATH,
        0.0,
        XidAction.NOTHING,
    ),
    46: _driver("the GPU stopped processing and must be reset"),
    48: _hardware("a memory error that ECC could not correct"),
    54: _hardware("the GPU's auxiliary power is not connected", action=XidAction.RESEAT),
    60: _VIDEO,
    61: _driver("the GPU's micro-controller stopped"),
    62: _driver("the GPU's micro-controller halted"),
    63: _hardware(
        "a row of its memory was remapped: repaired at the next reset", _MAYBE, XidAction.NOTHING
    ),
    64: _hardware("a row of its memory could not be remapped"),
    66: _driver("an illegal access by the driver", _SECOND, XidAction.NOTHING),
    67: _driver("an illegal access by the driver", _SECOND, XidAction.NOTHING),
    **dict.fromkeys((68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139, 142), _VIDEO),
    69: _program("an error in a kernel's use of the engine"),
    74: _hardware("an NVLink connection failed", action=XidAction.RESET_ALL),
    78: _driver("a virtual GPU did not start", action=XidAction.UPDATE),
    79: _hardware("the GPU fell off the bus: it no longer answers", 0.97, action=XidAction.REBOOT),
    80: _hardware("data arrived corrupted at the GPU", _MAYBE, XidAction.RESTART_PROGRAM),
    92: _hardware("many memory errors, so far corrected", _MAYBE, XidAction.NOTHING),
    93: _hardware("its configuration memory wears out", _SECOND, XidAction.NOTHING),
    94: _hardware(
        "a memory error that ECC could not correct, contained to one program",
        action=XidAction.RESTART_PROGRAM,
    ),
    95: _hardware("a memory error that ECC could not correct, and that was not contained"),
    108: _driver("an address of another GPU could not be reached", _SECOND, XidAction.NOTHING),
    109: _driver("a switch between programs timed out", _MAYBE),
    110: _hardware("a security fault", _LIKELY),
    119: _driver("the GPU's system processor (GSP) did not answer"),
    120: _driver("the GPU's system processor (GSP) failed"),
    121: _hardware("the link between CPU and GPU had an error", _MAYBE, action=XidAction.NOTHING),
    **dict.fromkeys(
        (122, 123, 124, 125),
        _driver("its configuration memory could not be used", _SECOND, XidAction.NOTHING),
    ),
    136: _hardware("an NVLink connection could not be trained", _LIKELY),
    137: _program("a program touched memory of another GPU that is not mapped", XidAction.NOTHING),
    140: _hardware("a memory error that ECC could not recover"),
    141: _driver("an error in CUDA's fast path", _SECOND, XidAction.NOTHING),
    143: _hardware("the GPU could not be initialised"),
    **dict.fromkeys((*range(144, 151), 155), _hardware("an NVLink connection failed")),
    151: _driver("a rotation of keys failed", action=XidAction.RESTART_VM),
    154: Xid("the driver asks for a recovery action", XidBlame.AFTERMATH, 0.0, XidAction.RESET_GPU),
    156: _hardware("a part of the GPU was retired", _MAYBE),
    157: _hardware("a part of the GPU could not be retired", _LIKELY, XidAction.REPLACE),
    158: _hardware("the GPU does not answer any more"),
    160: _hardware("a channel of its memory was retired", _MAYBE, XidAction.NOTHING),
    161: _hardware("a channel of its memory could not be retired", _LIKELY, XidAction.REPLACE),
    164: _hardware("its power smoothing wears out", _SECOND, XidAction.NOTHING),
    165: _hardware("its power smoothing is worn out", _SECOND, XidAction.NOTHING),
    **dict.fromkeys((166, 170), _driver("an encrypted NVLink connection had an error", _SECOND)),
    167: _hardware("the PCIe link timed out for good", action=XidAction.REBOOT),
    168: _hardware("a part of its memory cannot be used", _MAYBE, XidAction.NOTHING),
    169: _driver("the GPU's security processor halted"),
    171: _hardware("a memory (DRAM) error that ECC could not correct"),
    172: _hardware("a cache (SRAM) error that ECC could not correct"),
    173: _hardware("the link between CPU and GPU failed for good", _LIKELY),
    174: Xid("the driver ended a program", XidBlame.AFTERMATH, 0.0, XidAction.NOTHING),
    175: _hardware("an error in its memory", _LIKELY),
    176: _hardware("many corrected errors on its PCIe link", _MAYBE, XidAction.NOTHING),
}
_SILENT = frozenset((106, 107, 162, 163))
"""test messages, and power smoothing switched on and off: nothing is wrong"""
_RECOVERY = re.compile(r"recovery action changed from .* to 0x([0-9a-f]+)(?: \(([^)]*)\))?")
_NONFATAL = re.compile(r"\bNon-?fatal\b", re.IGNORECASE)


def look_up(number: int) -> Xid:
    if number in _SILENT:
        return Xid("a message for information", XidBlame.AFTERMATH, 0.0, XidAction.NOTHING)
    unknown = Xid("not in our table", XidBlame.DRIVER, 0.4, XidAction.NOTHING)
    return TABLE.get(number, unknown)


def judge(number: int, line: str) -> Xid:
    """The same, by what the line adds: links of Blackwell report errors that they survived too."""
    xid = look_up(number)
    if number in range(144, 151) and _NONFATAL.search(line):
        return Xid(
            "an NVLink connection had an error and went on",
            XidBlame.HARDWARE,
            _SECOND,
            XidAction.NOTHING,
        )
    return xid


def asked_recovery(line: str) -> str | None:
    """What the driver asks for in its line with Xid 154; '' where it takes that back, None where
    the line is another."""
    asked = _RECOVERY.search(line)
    if asked is None:
        return None
    return "" if int(asked[1], 16) == 0 else (asked[2] or f"action {asked[1]}").lower()
