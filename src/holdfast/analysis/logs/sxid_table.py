"""What the numbers mean that NVSwitches write into the kernel log (SXid), and what to do.

From the appendix of NVIDIA's guide to the fabric manager, reworded. The line itself says whether an
error is fatal; the table adds what it was, and which ones stop every switch of the machine.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.analysis.logs.xid_table import XidAction

_MEANINGS: dict[int, str] = {
    10003: "the switch had an interrupt that nothing handles",
    10004: "the switch is too hot",
    10005: "the switch has cooled down",
    11004: "the partition's routes are set up wrongly",
    12020: "packets came out of order",
    12028: "a GPU sent to an address that is not mapped",
    14017: "a request timed out",
    19084: "a link lost its heartbeat",
    20001: "a link sent data again",
    20009: "a link had many errors for a moment",
    20012: "a link is connected badly",
    20034: "a link went down",
    22003: "a link's controller halted",
    22011: "a link's controller failed",
    22012: "a link could not be trained",
    22013: "a link asked for attention",
    24007: "a request to a GPU timed out",
}
_CORRECTED = frozenset(
    (
        *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059),
        *(19062, 19065, 19068, 19071, 24001, 24002, 24003),
    )
)
_WHOLE_MACHINE = frozenset((10003, 12020, 22003, 22011, *range(23001, 23018)))
"""always fatal: the switches of the whole machine must be reset"""
_HARMLESS = frozenset((10005, 20001, 20009, 22013)) | _CORRECTED
_FATAL = re.compile(r"\bFatal\b")  # 'Non-fatal' is the other word


class Sxid(msgspec.Struct, frozen=True):
    meaning: str
    fatal: bool
    action: XidAction


def judge(number: int, line: str) -> Sxid:
    """By the number, and by the driver's word for how bad it is."""
    meaning = _MEANINGS.get(number, "")
    if number in _CORRECTED:
        meaning = "a memory error in the switch was corrected"
    if number in _WHOLE_MACHINE:
        return Sxid(
            meaning or "its buffers lost count of packets", fatal=True, action=XidAction.REBOOT
        )
    fatal = bool(_FATAL.search(line)) and number not in _HARMLESS
    return Sxid(
        meaning or "a link or port of the switch failed",
        fatal=fatal,
        action=XidAction.RESET_ALL if fatal or number == 19084 else XidAction.NOTHING,
    )
