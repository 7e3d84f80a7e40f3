"""Words where a program reads a number: NCCL_IB_DISABLE=true.

NCCL to 2.30.7 takes what strtoll makes of the text (src/misc/param.cc, src/graph/paths.cc): 0 of a
word. Newer ones say 'Invalid value … using default'. Neither is the 1 that was meant.
"""

from __future__ import annotations

import re

from holdfast.analysis.variables.table import Variable
from holdfast.analysis.versions import release

YES = frozenset({"true", "yes", "on", "y", "t", "enable", "enabled"})
TAKE_WORDS = ("NCCL_SET_THREAD_NAME", "NCCL_WARN_ENABLE_DEBUG_INFO", "NCCL_PARAM_DUMP_ALL")
"""read as 1, T or TRUE since 2.30 (src/include/param/parser_default.h)"""
LOOKED_AT = (2, 30, 7)
"""the newest NCCL whose source was read for this; later variables may take words"""


def word_for_one(row: Variable, value: str) -> bool:
    """Is it a switch of NCCL, and the value a word that says 1?"""
    switch = row.reader == "NCCL" and row.default in ("0", "1") and row.name not in TAKE_WORDS
    if not switch or release(row.since) > LOOKED_AT:
        return False
    return re.sub(r"[\s\"']", "", value).lower() in YES
