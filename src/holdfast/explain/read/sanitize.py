"""Text from elsewhere, made safe to show: what a terminal would obey is taken out.

A log may hold colours, cursor movements, window titles, clipboard commands or controls that
turn the reading direction round. Quoted as it is, such a line could hide or forge what stands
beside it on the screen. Tabs stay.
"""

from __future__ import annotations

import re

_SEQUENCE = r"""
    (?:\x1b\[|\x9b) [0-?]* [ -/]* (?:[@-~]|\Z)                  # CSI: colours, cursor
  | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])                     # OSC, DCS, SOS, PM, APC …
        [^\x07\x1b\x9c]* (?:\x07|\x1b\\|\x9c)                   # … up to their terminator
  | \x1b [ -/]* [0-~]?                                          # everything else with ESC
"""
"""A string command without a terminator loses its introducer only: its text may be evidence."""

_CONTROL = (
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b\u2028\u2029\u2060-\u2065\ufeff\U000e0000-\U000e007f]"
)
"""C0 without the tab, DEL, C1; line separators, invisible characters"""
_TURNS_ROUND = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""controls of the reading direction: shown as what they are, since they are there to deceive"""

_UNSAFE = re.compile(f"(?:{_SEQUENCE}|{_CONTROL})", re.VERBOSE)
_SURROGATE = re.compile("[\ud800-\udfff]")


def plain(text: str) -> str:
    """The text as it reads, on one line: no escapes, no controls, nothing that cannot be
    printed."""
    if text.isascii() and text.isprintable():
        return text
    safe = _SURROGATE.sub("\ufffd", _UNSAFE.sub("", text))
    return _TURNS_ROUND.sub(lambda found: f"\\u{ord(found[0]):04x}", safe)


def decoded(raw: bytes) -> str:
    """A piece of a log as safe text; bytes that are no UTF-8 show as U+FFFD. Lines stay lines;
    of one that a progress bar wrote over and over, the last state."""
    text = raw.decode("utf-8", "replace")
    if "\n" not in text:
        return plain(text)
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(map(plain, lines))
