"""What is wrong with a file that could not be loaded, from what its reader said. Pure."""

from __future__ import annotations

from holdfast.analysis.logs.wreckage import Sighting

STAND_INS = {
    "v": "a Git LFS pointer (`version https://git-lfs…`), not the file it stands for",
    "<": "a web page, as a download that needs a login leaves behind",
    "\\x00": "zeros, as a file system leaves behind after a crash",
}
"""the first byte of a file that is no pickle, and what mostly begins so"""
POINTER = ("HeaderTooLarge", "header too large")
PLAIN = {
    "bytes": "its parts do not fit together, as when several ranks write to one name at once",
    "pointer": "it is a Git LFS pointer, not the file it stands for",
    "empty": "it is empty",
}


def what_is_wrong(one: Sighting) -> str:
    """By the fields of the sighting; the line itself where they say nothing."""
    fields = one.fields
    if "missing" in fields:
        return f"it ends {int(fields['missing']):,} bytes too early"
    if "key" in fields:
        return f"it begins with {STAND_INS.get(fields['key'], repr(fields['key']))}"
    if "record" in fields:
        return f"its table of contents names {fields['record']}, which is missing"
    if fields.get("why") in POINTER:
        return "its header makes no sense, as with a Git LFS pointer in place of the file"
    plain = next((text for name, text in PLAIN.items() if name in fields), "")
    return fields.get("why") or plain or one.line.text.strip()[:120]
