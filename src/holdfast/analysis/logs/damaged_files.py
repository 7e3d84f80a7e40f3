"""What is wrong with a file that could not be loaded, from what its reader said. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.analysis.checkpoints import torch_advice
from holdfast.analysis.collectives import inner_exception
from holdfast.analysis.logs.patterns import unreadable_files
from holdfast.analysis.scene.scene import LastWords

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
    "key": "its contents make no sense",
    "broken": "its table of contents makes no sense",
    "refused": "its contents make no sense",
    "unpickler": "its contents make no sense",
}
_MODULE_FILE = re.compile(r" from '[^'\n]*'(?=>)")
"""where Python has a module that it names: `<module 'pickle' from '/usr/lib/…/pickle.py'>`"""
UNPICKLER = "_weights_only_unpickler.py"
READERS = ("serialization.py", UNPICKLER)
BARE = (("EOFError", ""), ("OSError", "[Errno 22] Invalid argument"))
"""of a file that ends too early, and no more is said"""
UNREAD_METADATA = ("AssertionError", "metadata is None")
"""all that torch 2.10 says of it"""
NOT_THE_FILE = ("UnpicklingError", "MemoryError", "OutOfMemoryError", "OSError", "RuntimeError")
"""raised in torch's unpickler for reasons of their own"""


def what_is_wrong(fields: Mapping[str, str], said: str) -> str:
    """By the fields of a pattern that matched; what was said itself where they tell nothing."""
    if "missing" in fields:
        return f"it ends {int(fields['missing']):,} bytes too early"
    if stand_in := STAND_INS.get(fields.get("key", "")):
        return f"it begins with {stand_in}"
    if "record" in fields:
        return f"its table of contents names {fields['record']}, which is missing"
    if "metadata" in fields:
        why = _MODULE_FILE.sub("", fields["metadata"]).strip()
        return f"its .metadata cannot be read{f' ({why})' if why else ''}"
    if fields.get("why") in POINTER:
        return "its header makes no sense, as with a Git LFS pointer in place of the file"
    plain = next((text for name, text in PLAIN.items() if name in fields), "")
    return fields.get("why") or plain or said.strip()[:120]


def in_words(words: LastWords) -> str:
    """What is wrong with the checkpoint that this rank was loading when it raised; '' where it was
    loading none, or the file is not at fault: it may be missing, too large or of another class, or
    its save did not finish."""
    if words.loading is None or words.metadata == "missing":
        return ""
    inner = inner_exception.find(words.text)
    raised = [(inner.kind, inner.text)] if inner else []
    raised += [(words.root_kind, words.root_text), (words.kind, words.text)]
    for kind, message in raised:
        said = f"{kind}: {torch_advice.without(message)}"
        for pattern in unreadable_files.REASONS:
            if found := pattern.regex.search(said):
                fields = {name: text for name, text in found.groupdict().items() if text}
                return what_is_wrong(fields, found[0])
    kind, message = next(one for one in raised if one[0])
    file = inner.file if inner else words.loader
    if (kind, message) in BARE and file in READERS:
        return "it is empty" if kind == "EOFError" else "its end is missing"
    if (kind, message) == UNREAD_METADATA and words.metadata:
        return "its .metadata cannot be read"
    if file == UNPICKLER and kind not in NOT_THE_FILE:
        return f"its contents make no sense ({kind}{f': {message}' if message else ''})"
    return ""
